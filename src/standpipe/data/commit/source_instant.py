"""Up to which instant all records of a query's topics are in a batch. Pure.

The pipeline notes an instant, and then asks Kafka where the topics end: what could be read at that
instant lies below these ends. A batch that covers them has all of it, whenever the batch began. So
the *source lag* that follows is never too small: not under a backlog, where a batch takes the
oldest records first, and not by the time that Spark takes to plan a batch.

Rejected: the time at which Spark chose the batch's offsets (`Progress.batch_started_ms`). Spark
notes it after it has asked for the ends, and with a backlog the batch does not reach the ends.

Not here: asking Kafka (`pipeline/run/watch/source_probe.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: {topic: {partition: offset}}
Offsets = Mapping[str, Mapping[int, int]]

#: probes that are kept for batches to cover: with a longer backlog, every other one, then one of
#: four, …
PROBES_MAX: Final = 512


class SourceInstants:
    """What the probes of one query's topics found, the oldest first, and the newest instant that a
    batch has covered."""

    def __init__(self, known_ms: int = 0) -> None:
        """`known_ms`: the instant of the newest committed batch; 0: unknown."""
        self._known_ms = known_ms
        #: (Unix ms before Kafka was asked, the ends)
        self._probes: list[tuple[int, Offsets]] = []
        #: one of so many probes is kept
        self._stride = 1
        self._left_out = 0

    def probed(self, at_ms: int, ends: Offsets) -> None:
        """Kafka was asked at `at_ms` (Unix ms) or later, and all topics of the query end there."""
        if self._probes:
            last_ms, last = self._probes[-1]
            if at_ms < last_ms:  # the wall clock was set back: what it said before may be too new
                self._probes.clear()
                self._known_ms = min(self._known_ms, at_ms)
            elif ends == last:
                self._probes[-1] = (at_ms, ends)  # no new records: covered by the same batches
                return
        self._left_out += 1
        if self._left_out < self._stride:
            return
        self._left_out = 0
        self._probes.append((at_ms, ends))
        if len(self._probes) > PROBES_MAX:
            del self._probes[1::2]
            self._stride *= 2

    def covered(self, ends: Offsets) -> int:
        """Instant (Unix ms) up to which all records are in a batch that ends at `ends`, and in the
        batches before it; 0: unknown. It does not fall from batch to batch."""
        passed = 0
        for at_ms, wanted in self._probes:
            if not _reaches(ends, wanted):
                break
            self._known_ms = max(self._known_ms, at_ms)
            passed += 1
        if passed:
            del self._probes[: passed - 1]  # the last one may be replaced by a newer, equal one
            if len(self._probes) == 1:
                self._stride, self._left_out = 1, 0
        return self._known_ms


def _reaches(ends: Offsets, wanted: Offsets) -> bool:
    return all(
        ends.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in wanted.items()
        for partition, end in partitions.items()
    )
