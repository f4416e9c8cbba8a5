"""One process of the simulation: the driver loop that `node/controller/main.py` is in production.

It has no opinion on Raft: it carries orders out in their order, waits at the barrier of
`PersistElection`, and tells the core what happened.  The state machine is a chain of digests, so
that two replicas agree on a prefix if and only if they agree on one number.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from standpipe.control.raft import events as ev
from standpipe.control.raft.core import Raft
from standpipe.control.raft.log import SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import Incarnation, ReplicaKey, VoterSet
from standpipe.control.raft.messages import Error, FetchSnapshotResponse
from standpipe.model import NodeId

from .disk import DamagedDisk, NoteCommitted, SaveSnapshot, SimDisk
from .scheduler import Clock

if TYPE_CHECKING:
    from .world import World


class SimNode:
    def __init__(self, world: World, name: str, voters: VoterSet, *, votes: bool) -> None:
        self.world = world
        self.name = NodeId(name)
        self.lives = 0
        self.wipes = 0
        self.key = ReplicaKey(self.name, Incarnation("a"))
        bootstrap = voters if votes else VoterSet(())
        self.disk = SimDisk(
            world.scheduler, SnapshotInfo(0, 0, bootstrap), world.options.sync_ms_max
        )
        rate = 1 + (world.random.random() - 0.5) * 2 * world.options.drift
        self.clock = Clock(world.scheduler, rate, world.random.randrange(10_000_000))
        self.raft: Raft | None = None
        self.is_paused = False
        self.is_stopping = False
        self._inbox: list[ev.Event] = []
        self._held: list[ev.Order] = []
        self._barrier = False
        self._wake_us = -1
        self.applied = 0
        self.digest = 0
        #: downloads by end offset
        self._partial: dict[int, bytearray] = {}
        self._snapshot_at = -1

    # -- life -------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.raft is not None

    def start(self) -> None:
        if self.raft is not None:
            return
        try:
            recovered = self.disk.recover()
        except DamagedDisk:
            self.world.counts["damaged disks refused"] += 1
            self.wipe()
            recovered = self.disk.recover()
        self.lives += 1
        self.applied, self.digest = 0, 0
        self._snapshot_at = -1
        self._partial.clear()
        self.raft = Raft(
            self.key,
            recovered,
            self.world.options.settings_of(self.name),
            cluster="sim",
            draw=lambda: self.world.random.random() * self.world.options.jitter,
            first_request=self.lives << 32,
            bootstrap=self.world.bootstrap,
        )
        self.world.note("starts", self.name, self.key)
        self.tell(ev.Started(0))

    def crash(self) -> None:
        if self.raft is None:
            return
        self.world.note("crashes", self.name)
        self.world.process_ended(self)
        self.raft = None
        self._inbox.clear()
        self._held.clear()
        self._barrier = False
        self._wake_us = -1
        self.is_paused = False
        self.is_stopping = False
        for fault in self.disk.crash():
            self.world.counts[fault] += 1

    def wipe(self) -> None:
        """The operator replaces the disk: another incarnation, an observer (KIP-853)."""
        self.wipes += 1
        self.world.replica_died(self.key)
        self.key = self.next_key()
        self.disk = SimDisk(
            self.world.scheduler, SnapshotInfo(0, 0, VoterSet(())), self.world.options.sync_ms_max
        )
        self.world.note("is wiped, now", self.name, self.key)

    def next_key(self) -> ReplicaKey:
        return ReplicaKey(self.name, Incarnation(chr(ord("a") + self.wipes)))

    def pause(self) -> None:
        self.is_paused = True
        self.world.note("pauses", self.name)

    def resume(self) -> None:
        if not self.is_paused:
            return
        self.is_paused = False
        self.world.note("resumes", self.name)
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self.tell(event)
        if self.raft is not None and not inbox:
            self.tell(ev.TimePassed(0))

    # -- the driver: receive, handle, carry out ---------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Give the core one event, stamped with this node's clock."""
        if self.raft is None:
            return
        if self.is_paused:
            self._inbox.append(event)
            return
        object.__setattr__(event, "at_ms", self.clock.now_ms())
        self.world.before(self, event)
        orders = self.raft.handle(event)
        self._held.extend(orders)
        self._carry_out()
        self.world.after(self, event, orders)
        self._plan_wake()

    def _plan_wake(self) -> None:
        if self.raft is None or (due_ms := self.raft.deadline_ms()) is None:
            return
        due_us = max(self.clock.world_us(due_ms), self.world.scheduler.now_us + 1000)
        if self._wake_us < 0 or due_us < self._wake_us:
            self._wake_us = due_us
            life = self.lives
            self.world.scheduler.at(due_us, lambda: self._wake(due_us, life))

    def _wake(self, due_us: int, life: int) -> None:
        if life != self.lives or due_us != self._wake_us or self.raft is None:
            return
        self._wake_us = -1
        due_ms = self.raft.deadline_ms()
        if self.is_paused or due_ms is None:
            return
        if due_ms <= self.clock.now_ms():
            self.tell(ev.TimePassed(0))
        else:
            self._plan_wake()

    def _carry_out(self) -> None:
        held = self._held
        done = 0
        while done < len(held) and not self._barrier and self.raft is not None:
            order = held[done]
            done += 1
            self._do(order)
        del held[:done]

    def _do(self, order: ev.Order) -> None:
        match order:
            case ev.Send():
                self.world.send(self, order)
            case ev.PersistElection():
                self._barrier = True
                self.disk.submit(order, self._persisted)
            case ev.AppendLog() | ev.TruncateLog() | ev.TrimLog():
                if isinstance(order, ev.AppendLog):
                    self.world.wrote(self, order)
                self.disk.submit(order, lambda: self.tell(ev.LogFlushed(0, order.write)))
            case ev.InstallSnapshot():
                data = bytes(self._partial[order.snapshot.end_offset])
                self.disk.submit(order, lambda: self.tell(ev.LogFlushed(0, order.write)), data)
            case ev.WriteSnapshotChunk():
                part = self._partial.setdefault(order.snapshot.end_offset, bytearray())
                del part[order.position :]
                part += order.data
            case ev.SendSnapshotChunk():
                self._send_chunk(order)
            case ev.ApplyCommitted():
                self._apply(order)
            case ev.LoadSnapshot():
                self._load(order.snapshot)
            case ev.AnnounceLeader() | ev.BeginLeading():
                self.world.note("announces", self.name, order)
            case ev.Stop():
                self.world.stopped(self)
            case _:
                self.world.answered(self, order)

    def _persisted(self) -> None:
        self._barrier = False
        self._carry_out()
        self.world.barrier_passed(self)

    # -- the state machine ------------------------------------------------------------------------

    def _apply(self, order: ev.ApplyCommitted) -> None:
        for entry in order.entries:
            self.world.applies(self, entry)
            self.applied = entry.offset + 1
            self.digest = self.world.next_digest(self.digest, entry)
        self.disk.submit(NoteCommitted(self.applied), lambda: None)
        every = self.world.options.snapshot_every
        if every and self.applied - max(self._snapshot_at, self.disk.start.end_offset) >= every:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        assert self.raft is not None
        epoch = self.raft.log.epoch_before(self.applied)
        if epoch is None or self.applied <= self.raft.log.snapshot.end_offset:
            return
        self._snapshot_at = self.applied
        name = SnapshotId(self.applied, epoch)
        body = b"%d %d " % (self.applied, self.digest)
        data = body.ljust(self.world.random.randint(64, 700), b".")
        self.world.counts["snapshots taken"] += 1
        snapshot = SnapshotInfo(*name, self.raft.log.voters_at(name.end_offset), len(data))
        self.disk.known[name] = snapshot
        taken = ev.SnapshotTaken(0, name, len(data))
        self.disk.submit(SaveSnapshot(name, data), lambda: self.tell(taken))

    def _load(self, snapshot: SnapshotInfo) -> None:
        data = self._partial.get(snapshot.end_offset) or self.disk.snapshots[snapshot.id]
        applied, digest, *_ = bytes(data).split(b" ")
        self.applied, self.digest = int(applied), int(digest)
        self.world.counts["snapshots loaded"] += 1
        self.world.loads(self, snapshot)

    def _send_chunk(self, order: ev.SendSnapshotChunk) -> None:
        data = self.disk.snapshots.get(order.snapshot.id)
        if data is None:
            return
        piece = data[order.position : order.position + order.bytes_max]
        message = FetchSnapshotResponse(
            order.request,
            Error.NONE,
            order.epoch,
            self.name,
            order.snapshot.id,
            order.position,
            len(data),
            piece,
        )
        self.world.counts["snapshot pieces sent"] += 1
        self.world.send(self, ev.Send(order.to, message))


def digest_of(before: int, text: str) -> int:
    return zlib.crc32(text.encode(), before)
