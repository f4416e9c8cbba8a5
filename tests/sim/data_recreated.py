"""A table topic that is deleted and made anew, and filled again from a copy by some tool.

Its offsets come to pass for the old ones and its headers are those that were committed, but rows
are missing or of another time: nothing but the topic's id (KIP-516) tells. No replica may show any
of it and no driver may commit to it; in the end all of them say so.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from standpipe.data.commit.repair import SweptRecord
from standpipe.data.commit.topic_identity import HEARD_MS_MAX, TopicKnown, TopicSeen, changes
from standpipe.model import ReplicaState

from .data_kafka import SimLog

if TYPE_CHECKING:
    from .data_world import DataWorld

TOPIC = "T"


class Recreation:
    """Does nothing where the world's options do not ask for it: brokers without ids."""

    def __init__(self, world: DataWorld) -> None:
        self.world = world
        self.is_wanted = world.options.is_recreated
        #: of its own: what other machines draw does not change with it
        self.random = random.Random(world.seed * 37 + 11)
        #: "": brokers from before there were ids
        self.topic_id = "first" if self.is_wanted else ""

    @property
    def is_over(self) -> bool:
        return self.topic_id == "second"

    def begin(self) -> None:
        if self.is_wanted:
            self.world.after(self.world.options.safety_ms * self.random.random(), self._make_anew)

    def why_changed(self, known_id: str) -> str:
        """What a driver that knows the topic by this id finds; "": it is the same one."""
        known, seen = TopicKnown(known_id, 0), TopicSeen(self.topic_id, 0)
        return "; ".join(map(str, changes({TOPIC: known}, {TOPIC: seen})))

    def why_not(self) -> str:
        """Why not everybody has said by now that the topic is another one."""
        if not self.is_over:
            return "the topic was not made anew yet"
        driver = self.world.drivers[-1]
        if not driver.has_lost_its_topic:
            return f"{driver.name} does not say that its topic is another one"
        for tailer in self.world.tailers:
            if tailer.machine is None or tailer.machine.state is not ReplicaState.DATA_LOSS:
                return f"{tailer.name} does not say that its topic is another one"
        return ""

    def _make_anew(self) -> None:
        world, old = self.world, self.world.tables
        if world.oracle.newest is None:  # what nothing was committed of may be made anew
            world.after(1000, self._make_anew)
            return
        world.note("*** topics made anew", "-")
        world.counts["topics made anew"] += 1
        self.topic_id = "second"
        world.tables = [SimLog(world.options.retention) for _ in old]
        whole = self.random.random() < 0.5
        source = [log.history if whole else log.kept for log in old]
        # not at once: who is faster is not found out (`topic_identity`)
        world.after(HEARD_MS_MAX + self.random.random() * 8000, lambda: self._fill(source))

    def _fill(self, source: list[list[SweptRecord]]) -> None:
        for log, records in zip(self.world.tables, source, strict=True):
            for record in records:
                # a row of before in the place of one that the copy does not have
                other = self.random.choice(records) if self.random.random() < 0.2 else record
                log.append(other.key, other.value, other.headers or (), self.world.now_ms)
                self.world.counts["records copied to a topic made anew"] += 1
