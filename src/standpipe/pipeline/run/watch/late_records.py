"""Records behind the watermark: Spark drops and counts them; we log the count for each batch.

Spark reports a count per operator, not the records. What is late depends on the operator (a
window's end plus grace, a join's time bound), and a dropped row may represent several records,
because Spark aggregates before it checks. So no expression over a record can tell whether it was
dropped: comparing its time with the watermark would also name records that were counted. The
processing log therefore has an entry per batch: count, watermark, and the offsets of the batch.

Not here: the sampling of bad records (`bad_records.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from standpipe.model import BatchId
from standpipe.pipeline.commit.checkpoint import topics_of

REASON: Final = "LATE"
#: 400 years of the Gregorian calendar
_CYCLE_MS: Final = 146_097 * 24 * 3_600_000


@dataclass
class LateRecords:
    """Late records of one run of a query. `count`: how many so far."""

    query_id: str
    count: int = 0
    #: the batch after which the query slept when its reports were taken last; None: it did not
    rested: BatchId | None = None
    _seen: tuple[int, str] = (-1, "")

    def take(self, progresses: Sequence[Any]) -> list[bytes]:
        """Spark's recent progress reports, oldest first -> entries for the processing log."""
        # from the newest backwards, because reading each one is a call into the JVM
        new = [*takewhile(lambda each: _key_of(each) > self._seen, reversed(progresses))]
        entries = [entry for entry in map(_entry, reversed(new)) if entry is not None]
        self._seen = max([self._seen, *map(_key_of, new)])  # last: an error above loses no report
        self.count += sum(entry["count"] for entry in entries)
        at_ms = time.time_ns() // 1_000_000
        return [
            json.dumps({"query_id": self.query_id, "at_ms": at_ms, **entry}).encode()
            for entry in entries
        ]


def _key_of(progress: Any) -> tuple[int, str]:
    """In the order of the reports. An idle query reports every 10 s, too, and then under the number
    of the batch that it will run next: only the start of the trigger tells the two apart."""
    return progress.batchId(), progress.timestamp()


def _entry(progress: Any) -> dict[str, Any] | None:
    count = sum(operator.numRowsDroppedByWatermark() for operator in progress.stateOperators())
    if not count:
        return None
    places = [(each.startOffset(), each.endOffset()) for each in progress.sources()]
    return {
        "reason": REASON,
        "batch": progress.batchId(),
        "count": count,
        "watermark_ms": _watermark_ms(progress.eventTime()),
        "ranges": ranges(places),
    }


def _watermark_ms(event_time: Mapping[str, str]) -> int | None:
    """Parses Spark's text: {"watermark": "2013-01-01T00:00:00.000Z"}; None: there is none, or it
    cannot be read.

    A record whose time is in other units moves the watermark to a year such as "+57923", which
    Python's dates do not have. The calendar repeats every 400 years.
    """
    said = event_time.get("watermark") or ""
    year, _, rest = said.removeprefix("+").partition("-")
    try:
        cycles, within = divmod(int(year) - 2000, 400)
        at = datetime.fromisoformat(f"{2000 + within}-{rest}")
    except ValueError:
        return None
    return round(at.timestamp() * 1000) + cycles * _CYCLE_MS


def ranges(places: Iterable[tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    """Offset ranges of a batch, from its sources' (start, end) as Spark prints them. Without a
    start, a partition was read from its first record: -1."""
    found: list[dict[str, Any]] = []
    for start, end in places:
        starts, ends = _offsets(start), _offsets(end)
        found += [
            {
                "topic": topic,
                "partition": int(partition),
                "from": starts.get(topic, {}).get(partition, -1),
                "to": offset,
            }
            for topic, offsets in ends.items()
            for partition, offset in offsets.items()
            if starts.get(topic, {}).get(partition) != offset
        ]
    return found


def _offsets(text: str | None) -> Mapping[str, Mapping[Any, int]]:
    return {} if text is None else topics_of(text)
