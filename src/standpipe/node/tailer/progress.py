"""The progress topic of a cluster as a tailer follows it: read from its beginning, judged in order.

`ProgressBook`, which holds the rules, turns records into targets of replicas; this adds what only a
reader knows: how far it has read, and at which instant there was nothing newer.

Not here: reading Kafka (`adapters/kafka/reader.py`); what targets do to a replica
(`data/replica/machine.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog

from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.ends import EndProbe
from standpipe.adapters.kafka.reader import FetchEvent, Partition, PartitionReader
from standpipe.data.commit.commit_history import CommitHistory
from standpipe.data.commit.progress import ProgressBook, ValidTarget
from standpipe.data.commit.seal import Ignored, ProgressReader, ProgressSeal
from standpipe.data.commit.topic_identity import differ
from standpipe.data.replica.barrier import BARRIER_KEY
from standpipe.data.replica.events import EndReached, ProgressCaughtUp, RecordsGone
from standpipe.model import Progress

PROBE_MS: Final = 100  # between two requests for the end of the progress topic

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ProgressFollower:
    """Follows the one partition of a progress topic. One thread."""

    def __init__(self, kafka: Kafka, topic: str, seal: ProgressSeal) -> None:
        self._seal, self.name = seal, topic
        self._of = Partition(topic, 0)
        #: Kafka's id of the topic, as it told last; "": it has not
        self.topic_id = ""
        self._reader = PartitionReader(kafka)
        self._probe = EndProbe(kafka, self._of)
        self._reader.start(self._of, 0)
        self.book, self.history = ProgressBook(), CommitHistory()
        self._records = ProgressReader(seal)
        #: reasons for which a record was ignored since the process started; each is logged once
        self._told: set[Ignored] = set()
        #: offset of the next record
        self.position = 0
        #: behind the newest barrier below it; 0: there is none
        self.barrier_end = 0
        #: the end of the topic was reached since reading began
        self.knows_all = False
        #: (instant, end at that instant) of Kafka's newest answer, until all below it is read
        self._told_end: tuple[int, int] | None = None

    def poll(self) -> list[ValidTarget | ProgressCaughtUp]:
        """What is new, without waiting. A target may be repeated; the order never changes."""
        return [news for _, event in self._reader.poll(0) for news in self._news(event)]

    def confirmed_ms(self, now_ms: int) -> int | None:
        """Instant at which Kafka was asked, and had nothing that is unread now; else None.

        On the caller's clock, which shows `now_ms`.
        """
        told = self._probe.tick(now_ms, PROBE_MS) or self._told_end
        if told is None or not self.knows_all or told[1] > self.position:
            self._told_end = told  # barriers come all the time: it may be read a moment later
            return None
        self._told_end = None
        return told[0]

    def read_again(self) -> None:
        """Restart from the beginning: a replica needs targets that the book has forgotten."""
        self._reader.stop(self._of)
        self._reader.start(self._of, 0)
        self.book, self.history = ProgressBook(), CommitHistory()
        self._records = ProgressReader(self._seal)
        self.position, self.barrier_end, self.knows_all = 0, 0, False

    def heard(self, topic_id: str) -> None:
        """Kafka's answer. Another topic has other offsets: it is read from its beginning."""
        if differ(self.topic_id, topic_id):
            _log.error(
                "the progress topic was deleted and created again",
                topic=self.name,
                before=self.topic_id,
                now=topic_id,
            )
            self.read_again()
        self.topic_id = topic_id or self.topic_id

    def ignored(self) -> dict[str, int]:
        """How many records of the topic are ignored, by reason."""
        return {reason.value: self._records.ignored[reason] for reason in Ignored}

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _news(self, event: FetchEvent) -> Iterator[ValidTarget | ProgressCaughtUp]:
        if isinstance(event, RecordsGone):
            self.read_again()
        elif isinstance(event, EndReached):
            self.knows_all = True
            self.position = max(self.position, event.offset)
            yield ProgressCaughtUp()
        else:
            for offset, key, value, headers in event.records:
                self.position = offset + 1
                if value is not None:  # else the tombstone of a record that no reader needs
                    yield from self._targets(offset, self._records.read(key, value, headers))
                elif key == BARRIER_KEY:
                    self.barrier_end = self.position

    def _targets(self, offset: int, progress: Progress | None) -> list[ValidTarget]:
        if progress is not None:
            targets = self.book.take(progress)
            self.history.take(progress, self.book)
            return targets
        why = self._records.newest_ignored
        if why is not None and why not in self._told:
            self._told.add(why)
            _log.error("a progress record is ignored", offset=offset, why=why.value)
        return []
