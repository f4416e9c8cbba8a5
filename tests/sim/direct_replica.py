"""One node's replica of a direct table: a consumer, probes, the machine, and a store that lasts.

It does what `node/tailer/replica.py` and `node/tailer/main.py` do, with a consumer that reads ahead
and answers that come late.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING

from tests.unit.data.rows import EMPTY, DictStore

from standpipe.data.commit.topic_identity import HEARD_MS_MAX
from standpipe.data.replica.direct import DirectMachine
from standpipe.data.replica.events import (
    ApplyBatch,
    EndReached,
    EndTold,
    Event,
    RebuildStore,
    RecordsFetched,
    RecordsGone,
    ReportDataLoss,
    TopicReported,
    TopicSilent,
)
from standpipe.data.replica.positions import (
    Now,
    applied_at,
    must_note_current,
    must_rebuild,
    must_reopen,
    opened_at,
    unread_ms,
)
from standpipe.model import Offset, ReplicaState

if TYPE_CHECKING:
    from .direct_world import DirectWorld

TOPIC_MS, END_MS = 1000, 100
AHEAD_MAX = 4  # fetches that the client holds


class DirectReplica:
    def __init__(self, world: DirectWorld, name: str) -> None:
        self.world, self.name = world, name
        self.store = DictStore()
        self.machine: DirectMachine | None = None
        #: where the log began when this store was begun
        self.start: int | None = None
        #: where it ended then: before that, a new store does not answer
        self.begun: tuple[str, int] = ("", 0)
        self.confirmed_ms = 0
        self.is_paused = False
        self._epoch = 0
        self._ahead: deque[tuple[int, Event]] = deque()
        self._answers: list[tuple[int, Event]] = []

    # ------------------------------------------------------------------------- its life

    def open(self) -> None:
        world, now = self.world, self._now()
        meta = self.store.meta
        why = must_rebuild(meta, now, closed_cleanly=True, tombstones_ms=world.sure_ms)
        if why is not None:
            world.counts["stores too old"] += 1
            self.empty()
        if self.store.meta == EMPTY:
            self._copy()
        is_same = self.store.meta.topic_id == world.log.topic_id
        if is_same and world.log.is_cut_below(int(self.store.meta.position), self._epoch):
            # it was cut off while nobody read it, and has grown since: nobody can tell (DESIGN.md)
            world.counts["logs cut off unseen"] += 1
            self.empty()
        if self.store.meta == EMPTY:
            self.begun = world.log.topic_id, world.log.end
        if not self.store.meta.position:
            self.start = None  # it is read from the beginning once more, wherever that is by now
        silent_ms = unread_ms(self.store.meta, now)
        self.store.meta = opened_at(self.store.meta, now)
        rows = self.store.rows
        self.machine = DirectMachine(
            world.codec,
            self.store.meta,
            lambda keys: {key: rows[key] for key in keys if key in rows},
            topic_id=world.followed_id,
            **world.options.limits,
        )
        self._end_ms = world.now_ms - silent_ms
        self._heard_ms = -HEARD_MS_MAX
        self._position, self._epoch = int(self.store.meta.position), world.log.epoch
        self._is_stuck = False
        self._checked: object = None
        self._topic_due = self._end_due = world.now_ms
        self._ahead.clear()
        self._answers.clear()
        self.confirmed_ms = 0

    def kill(self) -> None:
        self.machine = None

    def empty(self) -> None:
        """A new, empty store."""
        self.store, self.start = DictStore(), None

    def _copy(self) -> None:
        donors = [
            other
            for other in self.world.replicas
            if other.machine is not None and other.machine.state.answers
        ]
        if donors and self.world.random.random() < 0.5:
            donor = self.world.random.choice(donors)
            self.store, self.start = copy.deepcopy(donor.store), donor.start
            self.begun = donor.begun
            self._epoch = donor._epoch
            self.world.counts["stores copied from a peer"] += 1

    def _now(self) -> Now:
        now_ms = self.world.now_ms
        return Now(wall_ms=now_ms, boot_ms=now_ms, boot_id="boot")

    # --------------------------------------------------------------------------- its loop

    def step(self) -> None:
        if self.machine is None or self.is_paused:
            return
        self._fetch()
        now_ms = self.world.now_ms
        while self.machine is not None and self._ahead and self._ahead[0][0] <= now_ms:
            self._take(self._ahead.popleft()[1])
        due = [event for at_ms, event in self._answers if at_ms <= now_ms]
        self._answers = [each for each in self._answers if each[0] > now_ms]
        for event in due:
            if self.machine is not None:
                self._take(event)
        if self.machine is not None:
            self._ask()

    def _fetch(self) -> None:
        log, world = self.world.log, self.world
        if self._is_stuck or len(self._ahead) >= AHEAD_MAX:
            return
        if world.random.random() > world.options.fetches:
            return
        at_ms = max(world.now_ms + world.late_ms(), self._ahead[-1][0] if self._ahead else 0)
        is_cut = log.is_cut_below(self._position, self._epoch)
        begins_later = self._position < log.start and self._position > 0
        if self._position > log.end or is_cut or begins_later:
            self._is_stuck = True
            self._ahead.append((at_ms, RecordsGone()))
            return
        self._epoch = log.epoch
        if self.start is None:
            self.start = log.start
        is_far_behind = log.end - self._position > 50
        records = log.read(self._position, 500 if is_far_behind else world.random.randint(1, 8))
        if records:
            self._position = records[-1].offset + 1
            fetched = [(r.offset, r.key, r.value, None) for r in records]
            times = [1000] * len(fetched)
            self._ahead.append((at_ms, RecordsFetched(fetched, Offset(self._position), times)))
        if not log.read(self._position, 1):
            self._position = log.end
            self._ahead.append((at_ms, EndReached(Offset(log.end))))

    def _ask(self) -> None:
        world, now_ms = self.world, self.world.now_ms
        assert self.machine is not None
        if now_ms >= self._topic_due:
            self._topic_due = now_ms + TOPIC_MS
            at_ms = now_ms + world.late_ms()
            self._answers.append((at_ms, TopicReported(world.log.topic_id, now_ms)))
        if now_ms >= self._end_due and not any(
            isinstance(event, EndTold) for _, event in self._answers
        ):  # one request at a time
            self._end_due = now_ms + END_MS
            told = EndTold(Offset(world.log.end), self.machine.fetched, now_ms)
            late_ms = world.random.randint(0, world.options.end_late_ms)
            self._answers.append((now_ms + late_ms, told))

    def _take(self, event: Event) -> None:
        assert self.machine is not None
        now_ms = self.world.now_ms
        if isinstance(event, RecordsFetched | EndReached | RecordsGone):
            if must_reopen(now_ms - max(self._end_ms, self.confirmed_ms), self.world.sure_ms):
                self.world.counts["replicas opened again after a silence"] += 1
                self.open()
                return
            if now_ms - self._heard_ms > HEARD_MS_MAX:
                self._handle(TopicSilent())
        if isinstance(event, TopicReported):
            self._heard_ms = event.at_ms
        self._handle(event)
        if isinstance(event, EndReached):
            self._end_ms = now_ms
        if isinstance(event, EndTold) and self.machine is not None:
            self._confirm(event)

    def _confirm(self, told: EndTold) -> None:
        machine = self.machine
        assert machine is not None
        if machine.is_caught_up and machine.meta.position >= told.end:
            self.confirmed_ms = told.asked_ms
            self.world.confirmed(self)
            if must_note_current(self.store.meta.current_ms, self.world.now_ms, self.world.sure_ms):
                self.store.meta = self._stamped(self.store.meta)

    def _handle(self, event: Event) -> None:
        machine = self.machine
        assert machine is not None
        for order in machine.handle(event):
            if isinstance(order, ApplyBatch):
                self.world.changing(self, order)
                stamped = self._stamped(order.meta)
                self.store.apply(ApplyBatch(order.puts, order.deletes, stamped))
                self.world.counts["transactions"] += 1
            elif isinstance(order, RebuildStore):
                self.world.note(self.name, f"rebuilds: {order.reason}")
                self.world.rebuilding(machine.fetched)
                self.world.counts["stores rebuilt"] += 1
                self.empty()
                self.open()
                return
            elif isinstance(order, ReportDataLoss):
                self.world.lost(self, order.reason)
        shown = (self.store.meta.position, self.store.meta.batch, machine.state)
        if shown != self._checked:
            self._checked = shown
            self.world.check(self)

    def _stamped(self, meta):
        assert self.machine is not None
        is_caught_up = self.machine.is_caught_up
        return applied_at(meta, self.store.meta, self._now(), is_caught_up=is_caught_up)

    @property
    def is_lost(self) -> bool:
        return self.machine is not None and self.machine.state is ReplicaState.DATA_LOSS
