"""The quorum's driver: carries events to the Raft core and its orders to disk, wire and catalog.

    wire ─ messages ─┐                         ┌─► disk's thread ─ LogFlushed ─► …
    timer ───────────┼─► Raft.handle ─ orders ─┼─► wire
    propose, read ───┘                         └─► state machine, answers

One loop, no decisions: those are in `control.raft.core`, and the order of its orders is the
contract in `control.raft.events`. Orders wait behind a PersistElection until it is durable
(`_carry_out`). Appends, truncations and snapshots go to one thread in order, and those that gather
while it writes share its next sync. A write that fails, and a state that the core calls unsafe, end
the process (`run` raises).

Not here: bytes (`adapters.raft.disk`), connections (`adapters.raft.wire`), what commands mean
(`node.controller.catalog_replica`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

from standpipe.adapters.clock import Clock
from standpipe.adapters.raft.disk import (
    DiskOp,
    NoteCommitted,
    OpenedDisk,
    QuorumDisk,
    SaveSnapshot,
    snapshot_file,
)
from standpipe.adapters.raft.log_file import DiskThread
from standpipe.adapters.raft.wire import Greeting, QuorumWire
from standpipe.control.raft import events as ev
from standpipe.control.raft.core import Raft
from standpipe.control.raft.followers import QuorumDescription
from standpipe.control.raft.log import Entry, LogViolation, SnapshotInfo
from standpipe.control.raft.majority import LeaderEpoch, LogOffset, ReplicaKey, VoterSet
from standpipe.control.raft.messages import Error, Message, ProtocolViolation
from standpipe.control.raft.roles import IllegalTransition
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.errors import ServerError
from standpipe.model import NodeId
from standpipe.node.controller.fsync_watch import SyncWatch
from standpipe.node.controller.snapshots import SnapshotCache

NOTE_S: Final = 0.25  # how old the hint of what is committed may be
UNSAFE: Final = (LogViolation, ProtocolViolation, IllegalTransition, ev.ElectionStateLost)
_now_ms = Clock().boot_ms


class QuorumHalted(ServerError):
    """Continuing would be unsafe: the process ends, and its next start reads its disk again."""


class ProposalRefused(Exception):
    """The quorum refused the request. With an `offset` the outcome is unknown: it may commit."""

    def __init__(
        self, error: Error, leader: NodeId | None = None, offset: LogOffset | None = None
    ) -> None:
        super().__init__(error.value)
        self.error = error
        self.leader = leader
        self.offset = offset


class Machine(Protocol):
    """The state machine that the log is for. No call may block: peers wait meanwhile."""

    @property
    def cluster(self) -> str:
        """Id of the cluster, empty until known; then replicas of other clusters are refused."""
        ...

    def apply(self, entries: Sequence[Entry]) -> None:
        """Apply committed entries, in order."""

    def load(self, state: bytes, end_offset: LogOffset) -> None:
        """Replace the state by that of a snapshot, which covers all below `end_offset`."""

    def state(self) -> bytes:
        """The state as a snapshot stores it."""
        ...

    def announce(self, leader: NodeId | None) -> None:
        """Another node leads; None: no leader is known."""


class Quorum:
    """One replica with its disk and its connections."""

    def __init__(
        self,
        opened: OpenedDisk,
        wire: QuorumWire,
        machine: Machine,
        syncs: SyncWatch,
        *,
        bootstrap: Sequence[NodeId],
        settings: RaftSettings | None = None,
        snapshot_every: int = 1000,  # entries
    ) -> None:
        """`syncs` times each write; `bootstrap`: nodes to ask while the log names no voters."""
        self._disk: QuorumDisk = opened.disk
        self._wire = wire
        wire.owner = self
        self._machine = machine
        self._syncs = syncs
        self._snapshot_every = snapshot_every
        try:
            self._raft = Raft(
                wire.me,
                opened.recovered,
                settings or RaftSettings(),
                cluster=wire.cluster,
                draw=random.random,
                first_request=opened.life << 32,
                bootstrap=bootstrap,
            )
        except UNSAFE as error:
            raise QuorumHalted(f"this replica must not start: {error!r}") from error
        self._thread = DiskThread()
        self._held: list[ev.Order] = []  # waiting behind a barrier
        self._is_barred = False
        self._pending: list[tuple[DiskOp, Callable[[], None] | None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_due_ms = 0
        self._note: asyncio.TimerHandle | None = None
        self._shelf = SnapshotCache(opened.snapshots)
        self._is_saving = False
        #: number of a proposal, read or change -> the future of its answer
        self._waiting: dict[int, asyncio.Future[LogOffset | None]] = {}
        self._number = 0
        self._changed = asyncio.Event()  # leader, epoch or leading; replaced when it is set
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._stopped = asyncio.Event()
        self.applied = LogOffset(0)  # the machine has everything below it
        self.leader: NodeId | None = None
        #: epoch in which this replica leads and has applied all that came before; else None
        self.leading: LeaderEpoch | None = None

    # -- for the node -----------------------------------------------------------------------------

    @property
    def me(self) -> ReplicaKey:
        """Node and disk of this replica."""
        return self._wire.me

    @property
    def voters(self) -> VoterSet:
        """The voter set in force at this replica."""
        return self._raft.log.voters

    @property
    def epoch(self) -> LeaderEpoch:
        """The newest leader epoch that this replica knows."""
        return self._raft.epoch

    @property
    def end(self) -> LogOffset:
        """The offset that the next entry will get, if it is appended here."""
        return self._raft.log.end

    def start(self) -> None:
        """Start taking part. Called once, before anything else."""
        self._tell(ev.Started(_now_ms()))

    async def run(self) -> NoReturn:
        """Wait until the process ends. Raises the error that makes continuing unsafe."""
        raise await asyncio.shield(self._failure)

    async def propose(self, data: bytes, epoch: LeaderEpoch) -> LogOffset:
        """Append a command in this epoch; returns its offset once it is committed and applied here.

        Raises ProposalRefused; without an offset it was not appended.
        """
        offset = await self._asked(lambda at_ms, number: ev.Proposed(at_ms, number, data, epoch))
        assert offset is not None
        return offset

    async def read(self) -> None:
        """Returns when the machine has all that was acknowledged before. Raises ProposalRefused."""
        await self._asked(ev.ReadRequested)

    async def add_voter(self, voter: ReplicaKey) -> None:
        """Returns once it votes. Raises ProposalRefused; after REQUEST_TIMED_OUT it still may."""
        await self._asked(lambda at_ms, number: ev.VoterAddRequested(at_ms, number, voter))

    async def remove_voter(self, voter: ReplicaKey) -> None:
        """Returns once it no longer votes. Raises ProposalRefused, as above."""
        await self._asked(lambda at_ms, number: ev.VoterRemoveRequested(at_ms, number, voter))

    async def transfer(self, voter: ReplicaKey) -> None:
        """Returns once this replica has resigned in favour of a voter. Raises ProposalRefused."""
        await self._asked(lambda at_ms, number: ev.TransferRequested(at_ms, number, voter))

    def describe(self) -> tuple[QuorumDescription | None, int]:
        """The quorum as its leader sees it, and the instant of that on this node's boot clock."""
        return self._raft.describe(), _now_ms()

    async def changed(self) -> None:
        """Returns when leader, epoch or leading changes."""
        await self._changed.wait()

    async def stop(self, patience_s: float) -> None:
        """Hand over if this replica leads, for at most `patience_s`; then close the disk."""
        if not self._failure.done():
            self._tell(ev.ShutdownRequested(_now_ms()))
            with contextlib.suppress(TimeoutError):  # the others will time out
                await asyncio.wait_for(self._stopped.wait(), patience_s)
            self._failure.cancel()
        for handle in (self._wake, self._note):
            if handle is not None:
                handle.cancel()
        self._wire.close()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._thread.run(self._disk.close)
        self._thread.close()

    # -- what comes in (quorum_wire.Owner) --------------------------------------------------------

    def received(self, peer: Greeting, message: Message) -> None:
        """A peer's message. Before this node knows its cluster, the peer's is not checked."""
        cluster = peer.cluster if peer.cluster and self._wire.cluster else None
        self._tell(ev.MessageReceived(_now_ms(), peer.node, message, cluster))

    def failed(self, to: NodeId, request: int) -> None:
        """A request will not be answered."""
        self._tell(ev.RequestFailed(_now_ms(), to, request))

    # -- the loop ---------------------------------------------------------------------------------

    def _tell(self, event: ev.Event) -> None:
        if self._failure.done():
            return
        try:
            self._held += self._raft.handle(event)
            self._carry_out()
        except UNSAFE as error:
            self._fail(QuorumHalted(f"the quorum cannot continue safely: {error!r}"))
        except Exception as error:
            self._fail(error)
        else:
            self._plan_wake()

    def _carry_out(self) -> None:
        done = 0
        while done < len(self._held) and not self._is_barred:
            order = self._held[done]
            done += 1
            self._do(order)
        del self._held[:done]

    def _do(self, order: ev.Order) -> None:
        match order:
            case ev.Send():
                self._wire.send(order.to, order.message)
            case ev.PersistElection():
                self._is_barred = True
                self._submit(order, self._pass_barrier)
            case ev.AppendLog() | ev.TruncateLog():
                self._submit(order, lambda: self._tell(ev.LogFlushed(_now_ms(), order.write)))
            case ev.WriteSnapshotChunk():
                self._shelf.write_chunk(order)
            case ev.TrimLog() | ev.InstallSnapshot() | ev.LoadSnapshot():
                self._do_snapshot(order)
            case ev.SendSnapshotChunk():
                self._send_chunk(order)
            case ev.ApplyCommitted():
                self._apply(order.entries)
            case ev.AnnounceLeader() | ev.BeginLeading():
                self._announce(order)
            case ev.AnswerProposal():
                self._answer(
                    order.proposal, ProposalRefused(order.error, order.leader, order.offset)
                )
            case ev.AnswerRead():
                self._answer(order.read, ProposalRefused(order.error, offset=order.offset))
            case ev.AnswerChange():
                self._answer(order.change, ProposalRefused(order.error, order.leader))
            case ev.Stop():
                self._stopped.set()

    def _pass_barrier(self) -> None:
        self._is_barred = False
        self._carry_out()

    def _plan_wake(self) -> None:
        due_ms = self._raft.deadline_ms()
        if due_ms is None or (self._wake is not None and self._wake_due_ms <= due_ms):
            return  # an earlier wake-up checks again
        if self._wake is not None:
            self._wake.cancel()
        self._wake_due_ms = due_ms
        delay_s = max(1, due_ms - _now_ms()) / 1000
        self._wake = asyncio.get_running_loop().call_later(delay_s, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._tell(ev.TimePassed(_now_ms()))

    # -- the disk ---------------------------------------------------------------------------------

    def _submit(self, op: DiskOp, done: Callable[[], None] | None = None) -> None:
        self._pending.append((op, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write what is pending; operations that gather meanwhile share the next sync."""
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                with self._syncs.timed():
                    await self._thread.run(self._disk.carry_out, [op for op, _ in batch])
                for _, done in batch:
                    if done is not None:
                        done()
        except Exception as error:
            self._fail(error)
        finally:
            self._writing = None

    # -- snapshots --------------------------------------------------------------------------------

    def _do_snapshot(self, order: ev.TrimLog | ev.InstallSnapshot | ev.LoadSnapshot) -> None:
        match order:
            case ev.InstallSnapshot():
                self._submit(SaveSnapshot(order.snapshot, self._shelf.install(order.snapshot)))
                self._submit(order, lambda: self._tell(ev.LogFlushed(_now_ms(), order.write)))
            case ev.TrimLog():
                self._shelf.trim(order.start)
                self._submit(order, lambda: self._tell(ev.LogFlushed(_now_ms(), order.write)))
            case ev.LoadSnapshot():
                state, self.applied = self._shelf.state(order.snapshot)
                self._machine.load(state, self.applied)
                self._raft.cluster = self._wire.cluster = self._machine.cluster

    def _send_chunk(self, order: ev.SendSnapshotChunk) -> None:
        if (answer := self._shelf.piece(order, self.me.node)) is not None:
            self._wire.send(order.to, answer)

    def _take_snapshot(self) -> None:
        """Save the machine's state every `snapshot_every` entries, to let the log be trimmed."""
        log = self._raft.log
        epoch = log.epoch_before(self.applied)
        is_due = self.applied - log.snapshot.end_offset >= self._snapshot_every
        if self._is_saving or not is_due or epoch is None:
            return
        self._is_saving = True
        snapshot = SnapshotInfo(self.applied, epoch, log.voters_at(self.applied))
        data = snapshot_file(snapshot, self._machine.state())

        def saved() -> None:
            self._is_saving = False
            self._shelf.put(snapshot.id, data)
            self._tell(ev.SnapshotTaken(_now_ms(), snapshot.id, len(data)))

        self._submit(SaveSnapshot(snapshot, data), saved)

    # -- state machine and answers ----------------------------------------------------------------

    def _apply(self, entries: Sequence[Entry]) -> None:
        self._machine.apply(entries)
        self.applied = LogOffset(entries[-1].offset + 1)
        self._raft.cluster = self._wire.cluster = self._machine.cluster
        self._take_snapshot()
        if self._note is None:
            self._note = asyncio.get_running_loop().call_later(NOTE_S, self._note_committed)

    def _note_committed(self) -> None:
        self._note = None
        self._submit(NoteCommitted(self.applied))

    def _announce(self, order: ev.AnnounceLeader | ev.BeginLeading) -> None:
        if isinstance(order, ev.BeginLeading):
            self.leading = order.epoch
        else:
            self.leader = order.leader
            if order.leader != self.me.node or self.leading != order.epoch:
                self.leading = None
            self._machine.announce(order.leader)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _asked(self, event: Callable[[int, int], ev.Event]) -> LogOffset | None:
        """Pass an event of (now, number) to the core and wait for the answer to that number."""
        if self._failure.done():  # stopped or failed: no answer would come
            raise ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER)
        self._number += 1
        future: asyncio.Future[LogOffset | None] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = future
        self._tell(event(_now_ms(), self._number))
        return await future

    def _answer(self, number: int, answer: ProposalRefused) -> None:
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return  # the caller was cancelled
        if answer.error is Error.NONE:
            future.set_result(answer.offset)
        else:
            future.set_exception(answer)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_result(error)
