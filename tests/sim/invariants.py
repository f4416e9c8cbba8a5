"""What must hold after every event, each as a class; a world holds one of each.

`before` and `after` frame each event at one node; the other hooks are called when what they name
happens.  A violation is an exception: the world adds its seed and its history.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from standpipe.control.raft import events as ev
from standpipe.control.raft.log import Entry
from standpipe.control.raft.majority import ReplicaKey, VoterSet
from standpipe.control.raft.messages import (
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
    VoteResponse,
)
from standpipe.control.raft.roles import Role

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World


class Violation(Exception):
    """An invariant does not hold; the text says which and why."""


class Invariant:
    """Base: every hook does nothing."""

    def __init__(self, world: World) -> None:
        self.world = world

    def check(self, holds: bool, why: str) -> None:
        if not holds:
            msg = f"{type(self).__name__}: {why}"
            raise Violation(msg)

    def before(self, node: SimNode, event: ev.Event) -> None: ...
    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None: ...
    def sent(self, node: SimNode, order: ev.Send) -> None: ...
    def applied(self, node: SimNode, entry: Entry) -> None: ...
    def loaded(self, node: SimNode) -> None: ...
    def wrote(self, node: SimNode, order: ev.AppendLog) -> None: ...
    def ended(self, node: SimNode) -> None: ...


class OneLeaderPerEpoch(Invariant):
    """Over all times and disks, an epoch has at most one leader."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.leader_of: dict[int, str] = {}

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        raft = node.raft
        claims = [(raft.epoch, node.name)] if raft.role is Role.LEADER else []
        if raft.state.election.leader is not None:
            claims.append((raft.state.election.epoch, raft.state.election.leader))
        for epoch, leader in claims:
            known = self.leader_of.setdefault(epoch, leader)
            self.check(known == leader, f"epoch {epoch} is led by {known} and {leader}")


class EpochsNeverGoBack(Invariant):
    """A replica's epoch never falls, in memory or on disk, over all its lives."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.epoch_of: dict[ReplicaKey, int] = {}
        self.stored_of: dict[ReplicaKey, int] = {}

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        epoch, stored = node.raft.epoch, node.disk.election.epoch if node.disk.election else 0
        if isinstance(event, ev.Started):
            self.epoch_of[node.key] = 0  # what was not stored was not promised to anyone
        self.check(epoch >= self.epoch_of.get(node.key, 0), f"{node.name} fell to epoch {epoch}")
        self.check(stored >= self.stored_of.get(node.key, 0), f"{node.name} stored {stored}")
        self.check(stored <= epoch, f"{node.name} stored {stored}, believes {epoch}")
        self.epoch_of[node.key], self.stored_of[node.key] = epoch, stored


class DurableBeforeSend(Invariant):
    """Nothing leaves a node that its disk could make it forget: epochs, votes, acknowledged log."""

    def sent(self, node: SimNode, order: ev.Send) -> None:
        stored = node.disk.election or ev.ElectionState()
        message = order.message
        self.check(
            message.epoch <= stored.epoch or message.epoch == 0,
            f"{node.name} sends epoch {message.epoch}, stored {stored.epoch}",
        )
        if isinstance(message, FetchRequest):
            self.check(
                message.offset <= node.disk.end_offset(),
                f"{node.name} acknowledges {message.offset}, durable {node.disk.end_offset()}",
            )


class OneVotePerEpoch(Invariant):
    """A replica gives one real vote per epoch, itself included, over all its lives."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.asked: dict[tuple[str, int], VoteRequest] = {}

    def before(self, node: SimNode, event: ev.Event) -> None:
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, VoteRequest):
            self.asked[event.sender, event.message.request] = event.message

    def sent(self, node: SimNode, order: ev.Send) -> None:
        message = order.message
        if isinstance(message, VoteRequest) and not message.pre:
            self.vote(node.key, message.epoch, node.key)
        elif isinstance(message, VoteResponse) and message.granted:
            asked = self.asked[order.to, message.request]
            if not asked.pre:
                self.vote(node.key, asked.epoch, asked.candidate)

    def vote(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self.votes.setdefault((voter, epoch), candidate)
        self.check(known == candidate, f"{voter} voted for {known} and {candidate} in {epoch}")


class HighWatermarksNeverGoBack(Invariant):
    """Neither a process's high watermark nor the state machine's position ever falls."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.marks: dict[str, tuple[int, int]] = {}

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        marks = (node.raft.log.high_watermark, node.raft.applied)
        was = self.marks.get(node.name, (0, 0))
        self.check(marks[0] >= was[0] and marks[1] >= was[1], f"{node.name} from {was} to {marks}")
        self.check(marks[1] <= marks[0], f"{node.name} applied {marks[1]} above {marks[0]}")
        self.marks[node.name] = marks

    def ended(self, node: SimNode) -> None:
        self.marks.pop(node.name, None)


class CommittedDataAgree(Invariant):
    """All state machines apply the same entries in the same order, snapshots included."""

    def applied(self, node: SimNode, entry: Entry) -> None:
        world = self.world
        self.check(entry.offset == node.applied, f"{node.name} applies {entry} at {node.applied}")
        if entry.offset < len(world.committed):
            known = world.committed[entry.offset]
            self.check(known == entry, f"{node.name} applies {entry}, others {known}")
        self.check(
            node.digest == world.digests[min(node.applied, len(world.committed))],
            f"{node.name} has another state below {node.applied}",
        )

    def loaded(self, node: SimNode) -> None:
        self.check(
            node.applied <= len(self.world.committed)
            and node.digest == self.world.digests[node.applied],
            f"{node.name} loaded a snapshot at {node.applied} that is no prefix",
        )


class CommittedIsDurable(Invariant):
    """What is applied anywhere is on the disks of a majority of its voters."""

    def applied(self, node: SimNode, entry: Entry) -> None:
        if entry.offset < len(self.world.committed):
            return
        log = node.raft.log
        sets = [log.voters, log.voters_at(entry.offset)]
        self.check(
            any(self.is_on_majority(entry, voters) for voters in sets),
            f"{node.name} applies {entry.offset}, not durable on a majority of {sets[0]}",
        )

    def is_on_majority(self, entry: Entry, voters: VoterSet) -> bool:
        holders = 0
        for key in voters.keys:
            node = self.world.nodes[key.node]
            # A disk that was wiped held it when it was counted, or its replica did not count.
            holders += node.key != key or node.disk.holds(entry)
        return holders >= voters.majority


class CommitsInItsOwnEpoch(Invariant):
    """A leader raises the high watermark only onto an entry of its own epoch (Raft figure 8)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.was: tuple[Role, int] | None = None

    def before(self, node: SimNode, event: ev.Event) -> None:
        self.was = (node.raft.role, node.raft.log.high_watermark)

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        log = node.raft.log
        if self.was is None or self.was[0] is not Role.LEADER or node.raft.role is not Role.LEADER:
            return
        if log.high_watermark > self.was[1]:
            epoch = log.epoch_before(log.high_watermark)
            self.check(epoch == node.raft.epoch, f"{node.name} commits by counting epoch {epoch}")


class LeaderCompleteness(Invariant):
    """A new leader's log holds everything that was committed in earlier epochs."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: set[int] = set()

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        raft = node.raft
        if raft.role is not Role.LEADER or raft.epoch in self.seen:
            return
        self.seen.add(raft.epoch)
        count = bisect_left(self.world.committed, raft.epoch, key=lambda entry: entry.epoch)
        if count == 0:
            return
        last = self.world.committed[count - 1]
        log = raft.log
        covered = last.offset < log.start.end_offset
        holds = covered or log.epoch_before(last.offset + 1) == last.epoch
        self.check(holds, f"{node.name} leads {raft.epoch} without {last.offset}/{last.epoch}")


class LogsMatch(Invariant):
    """Two logs with the same (offset, epoch) hold the same entry there, after the same epoch.

    Counted from the moment when an append is carried out: one that waited at the barrier when its
    process died has never been anywhere, and its leader may lead that epoch again.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.entries: dict[tuple[int, int], tuple[Entry, int | None]] = {}

    def wrote(self, node: SimNode, order: ev.AppendLog) -> None:
        before = node.raft.log.epoch_before(order.entries[0].offset)
        for entry in order.entries:
            here = (entry, before)
            known = self.entries.setdefault((entry.offset, entry.epoch), here)
            # A log that has been cut or replaced since cannot say what stood before.
            same = known[0] == entry and (before is None or known[1] in {None, before})
            self.check(same, f"{node.name} appends {here}, others {known}")
            before = entry.epoch


class NothingCommittedIsTruncated(Invariant):
    """No log is cut below what its own node knew to be committed."""

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        for order in orders:
            if isinstance(order, ev.TruncateLog):
                mark = node.raft.log.high_watermark
                self.check(order.end_offset >= mark, f"{node.name} cut to {order.end_offset}")


class SnapshotAtLogStart(Invariant):
    """A log that does not begin at 0 begins at a snapshot of the same epoch."""

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        log = node.raft.log
        start = log.start
        if start.end_offset > 0:
            committed = self.world.committed[start.end_offset - 1]
            self.check(start.epoch == committed.epoch, f"{node.name} starts at {start.id}")
        self.check(start.end_offset <= log.snapshot.end_offset, f"{node.name} starts above its own")


class OneUncommittedVoterSet(Invariant):
    """No leader's log holds two voter sets that nobody has committed."""

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        if not any(isinstance(order, ev.AppendLog) for order in orders):
            return
        log, raft = node.raft.log, node.raft
        if raft.role is Role.LEADER:
            tail = log.read(log.high_watermark, log.end)
            count = sum(
                isinstance(entry.payload, VoterSet) and entry.offset >= len(self.world.committed)
                for entry in tail
            )
            self.check(count <= 1, f"{node.name} holds {count} uncommitted voter sets")


class PreVotesDisturbNobody(Invariant):
    """Neither asking nor answering a pre-vote moves an epoch, a vote or a healthy leader.

    Learning a higher epoch that somebody campaigned for is no disturbance, so the check is twofold:
    a pre-vote of our epoch changes nothing, and an epoch is new only at one who is a candidate.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.was: tuple[Role, ev.ElectionState] | None = None
        self.epoch_max = 0

    def before(self, node: SimNode, event: ev.Event) -> None:
        # Time is let in before the event: a leader that steps down by its clock is not disturbed.
        self.was = None
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, VoteRequest):
            due_ms = node.raft.deadline_ms()
            quiet = due_ms is None or due_ms > event.at_ms
            if event.message.pre and event.message.epoch <= node.raft.epoch and quiet:
                self.was = (node.raft.role, node.raft.state.election)

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        raft = node.raft
        if self.was is not None:
            now = (raft.role, raft.state.election)
            self.check(now == self.was, f"{node.name} moved from {self.was} by a pre-vote")
        if raft.epoch > self.epoch_max:
            asked = raft.state.election.voted == node.key
            self.check(asked, f"{node.name} made epoch {raft.epoch} as {raft.role}")
            self.epoch_max = raft.epoch


class LeadersHearAMajority(Invariant):
    """A leader that no majority fetches from steps down within twice the check-quorum time.

    A new voter set starts the time anew: who was not needed may have been silent for long.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.since: dict[str, tuple[object, int, dict[ReplicaKey, int]]] = {}

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        raft = node.raft
        if raft.role is not Role.LEADER:
            self.since.pop(node.name, None)
            return
        reign = (raft.epoch, raft.log.voters)
        known, began_ms, heard = self.since.setdefault(node.name, (reign, raft.now_ms, {}))
        if known != reign:
            began_ms, heard = raft.now_ms, {}
            self.since[node.name] = (reign, began_ms, heard)
        if isinstance(event, ev.MessageReceived):
            message = event.message
            if isinstance(message, FetchRequest | FetchSnapshotRequest):
                heard[message.replica] = raft.now_ms
        keys = raft.log.voters.keys
        times = [raft.now_ms if key == node.key else heard.get(key, began_ms) for key in keys]
        oldest = sorted(times, reverse=True)[raft.log.voters.majority - 1]
        bound_ms = 2 * raft.settings.check_ms
        self.check(
            raft.now_ms - oldest <= bound_ms,
            f"{node.name} leads {raft.epoch}, unheard for {raft.now_ms - oldest} ms",
        )

    def ended(self, node: SimNode) -> None:
        self.since.pop(node.name, None)


class AcknowledgedWritesSurvive(Invariant):
    """What a client was told to be written stands where it was said, for ever after."""

    def acknowledged(self, offset: int, data: bytes) -> None:
        committed = self.world.committed
        self.check(
            offset < len(committed) and committed[offset].payload == data,
            f"{data!r} was acknowledged at {offset}, where it is not",
        )


class ReadsAreLinearizable(Invariant):
    """A read shows every write acknowledged, and every state read, before it began.

    The log orders all writes, so a history is linearizable exactly if each read sees a prefix that
    is no shorter than what was acknowledged, or shown to anyone, before it was asked for.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.floor = 0

    def finished(self, floor: int, shown: int) -> None:
        self.check(shown >= floor, f"a read shows {shown}, {floor} was known before it began")
        self.floor = max(self.floor, shown)


ALL: tuple[type[Invariant], ...] = (
    OneLeaderPerEpoch,
    EpochsNeverGoBack,
    DurableBeforeSend,
    OneVotePerEpoch,
    HighWatermarksNeverGoBack,
    CommittedDataAgree,
    CommittedIsDurable,
    CommitsInItsOwnEpoch,
    LeaderCompleteness,
    LogsMatch,
    NothingCommittedIsTruncated,
    SnapshotAtLogStart,
    OneUncommittedVoterSet,
    PreVotesDisturbNobody,
    LeadersHearAMajority,
)
