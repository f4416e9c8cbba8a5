"""Sessions that write, in simulation: each sees its own writes, at every node.

The source topic has one partition, and a write is the record of a batch. A session that wrote it
has witnessed it, for the judge as if it had read the rows. The tailers of the nodes tell in their
own time which batches cover which offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standpipe.data.commit.covered_offsets import (
    CoveredBatch,
    CoveredBatches,
    ToldEnds,
    TopicOffsets,
)
from standpipe.session_token import written_token

from .session_histories import SessionAnswer
from .session_world import NODES, SessionWorld

TOPIC = "S"


class SimFiles:
    """What one node's tailer tells its workers (`node.covered_files.CoveredFiles`)."""

    def __init__(self) -> None:
        self.told: dict[int, CoveredBatches] = {}
        self.ends: ToldEnds | None = None

    def of(self, table: tuple[str, int]) -> CoveredBatches:
        return self.told.get(table[1], CoveredBatches())

    def ends_after(self, boot_ms: int, now_boot_ms: int) -> ToldEnds | None:
        told = self.ends
        return told if told is not None and boot_ms < told.asked_boot_ms <= now_boot_ms else None


class WritingWorld(SessionWorld):
    """One world, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.files: dict[str, Any] = {node: SimFiles() for node in NODES}

    def _commit(self) -> None:
        super()._commit()
        written = [key for key, batches in self.writes.of.items() if self.source_end in batches]
        if self.random.random() < 0.5:
            self._own_write(self.random.choice(list(self.sessions)), written)

    def _own_write(self, name: str, keys: Sequence[str]) -> None:
        """The newest record was this session's."""
        self.sessions[name].saw(written_token(TOPIC, {0: self.source_end}).text())
        now = self.scheduler.events
        values = dict.fromkeys(keys, self.source_end)
        self.answers.append(SessionAnswer(name, now, now + 0.25, values, "its own write"))
        self.counts["writes of a session"] += 1

    def _show(self) -> None:
        """A page, and what a tailer tells: of batches that its replicas may not have yet."""
        super()._show()
        if self.random.random() > 0.3:
            return
        files = self.files[self.random.choice(NODES)]
        number = self.random.randrange(len(self.generations))
        commits = self.generations[number]
        if commits:
            at = self.random.choice(commits[-3:])
            known = files.of(("T_1", number + 1))
            batch = self.covered_by(at.batch, at.epoch, at.covers)
            if not known.batches or known.batches[-1].batch <= at.batch:
                files.told[number + 1] = known.after(batch)

    def _kafka_answers(self) -> None:
        super()._kafka_answers()
        ends = {TOPIC: TopicOffsets(offsets={0: self.source_end + 1})}
        files = self.files[self.random.choice(NODES)]
        files.ends = ToldEnds(asked_boot_ms=self.now_ms, topics=ends)

    def covered_by(self, batch: int, epoch: int, covers: int) -> CoveredBatch:
        """What a tailer finds out about a batch."""
        topics = {TOPIC: TopicOffsets(offsets={0: covers + 1})}
        return CoveredBatch(batch=batch, lease_epoch=epoch, topics=topics)
