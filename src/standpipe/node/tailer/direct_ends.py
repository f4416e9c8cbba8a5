"""Asks Kafka where the topics of direct tables end, ten times a second. Never waits.

Not here: what a replica makes of the answer (`data/replica/direct.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.ends import Ends, EndsReader
from standpipe.data.replica.events import EndTold
from standpipe.model import Offset
from standpipe.node.tailer.replica import TailedReplica

EVERY_MS: Final = 100
#: Added for each partition: its answer costs the tailer processor time.
PER_PARTITION_MS: Final = 1


class DirectEnds:
    """The questions of one tailer, one at a time."""

    def __init__(self, kafka: Kafka) -> None:
        self._reader = EndsReader(kafka, is_stable=True)
        self._answer: Future[Ends] | None = None
        #: those that the open question is about, with what had been delivered to each by then
        self._asked: list[tuple[TailedReplica, Offset]] = []
        self._asked_ms = self._due_ms = 0

    def tick(
        self, now_ms: int, replicas: Collection[TailedReplica]
    ) -> list[tuple[TailedReplica, EndTold]]:
        """What Kafka has answered since the last call, for those that are open still; ask again
        when it is time."""
        told: list[tuple[TailedReplica, EndTold]] = []
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            if answer.exception() is None:  # else the lag grows until Kafka answers again
                told = [each for each in self._told(answer.result()) if each[0] in replicas]
        if self._answer is None and now_ms >= self._due_ms:
            self._asked = [(one, one.fetched) for one in replicas if one.holding.is_direct]
            self._asked_ms = now_ms
            self._due_ms = now_ms + EVERY_MS + PER_PARTITION_MS * len(self._asked)
            if self._asked:
                self._answer = self._reader.ask([one.topic for one, _ in self._asked])
        return told

    def _told(self, ends: Ends) -> list[tuple[TailedReplica, EndTold]]:
        return [
            (one, EndTold(Offset(end), fetched, self._asked_ms))
            for one, fetched in self._asked
            if (end := ends.get(one.topic)) is not None
        ]
