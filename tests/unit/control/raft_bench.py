"""One core on a bench: everything around it is played by hand, one fact at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.core import Raft
from standpipe.control.raft.log import Entry, SnapshotInfo
from standpipe.control.raft.majority import ReplicaKey, VoterSet
from standpipe.control.raft.messages import Error
from standpipe.control.raft.roles import Role
from standpipe.control.raft.timeouts import RaftSettings

SETTINGS = RaftSettings(
    election_ms=1000,
    fetch_ms=2000,
    wait_ms=500,
    request_ms=1000,
    backoff_ms_min=100,
    backoff_ms_max=1000,
    retry_ms=20,
    change_ms=5000,
    read_ms=3000,
)


def key(node: int | str, incarnation: str = "a") -> ReplicaKey:
    return ReplicaKey(str(node), incarnation)


def voters(*nodes: int) -> VoterSet:
    return VoterSet.of(key(node) for node in nodes)


def log(*epochs: int, start: int = 0) -> tuple[Entry, ...]:
    """Entries of these epochs, in order: the payloads are their offsets."""
    return tuple(
        Entry(start + index, epoch, b"%d" % (start + index)) for index, epoch in enumerate(epochs)
    )


class Bench:
    """`orders` are those of the last event; `disk` and `sent` are what they hold."""

    def __init__(
        self,
        me: int = 1,
        among: Sequence[int] = (1, 2, 3),
        entries: Iterable[Entry] = (),
        *,
        election: ev.ElectionState | None = None,
        start: SnapshotInfo | None = None,
        snapshot: SnapshotInfo | None = None,
        jitter: float = 0.0,
        settings: RaftSettings = SETTINGS,
        bootstrap: Sequence[str] = (),
        run: bool = True,
    ) -> None:
        start = start or SnapshotInfo(0, 0, voters(*among))
        entries = tuple(entries)
        snapshot = snapshot or start
        if election is None and (entries or snapshot.end_offset):
            election = ev.ElectionState(entries[-1].epoch if entries else snapshot.epoch)
        self.jitter = jitter
        self.raft = Raft(
            key(me),
            ev.Recovered(election, start, snapshot, entries),
            settings,
            cluster="c",
            draw=lambda: self.jitter,
            first_request=100,
            bootstrap=bootstrap,
        )
        self.now = 0
        self.orders: list[Any] = []
        self.everything: list[Any] = []
        self.requests: dict[tuple[type, str], int] = {}
        if run:
            self.tell(ev.Started(0))

    # -- facts ------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> list[Any]:
        self.orders = self.raft.handle(event)
        self.everything += self.orders
        for order in self.orders:
            if isinstance(order, ev.Send):
                self.requests[type(order.message), order.to] = order.message.request
        kinds = [isinstance(order, ev.DiskOrder) for order in self.orders]
        assert kinds == sorted(kinds, reverse=True), "the disk comes first"
        elections = [isinstance(order, ev.PersistElection) for order in self.orders]
        assert not any(elections[1:]), "the election file comes first, once"
        return self.orders

    def at(self, ms: int) -> list[Any]:
        """Let time pass until an instant, stopping at every timer on the way."""
        seen: list[Any] = []
        while (due := self.raft.deadline_ms()) is not None and due <= ms:
            assert due >= self.now or due <= self.raft.now_ms
            self.now = max(due, self.now)
            seen += self.tell(ev.TimePassed(self.now))
            assert (after := self.raft.deadline_ms()) is None or after > self.now, "it spins"
        self.now = ms
        seen += self.tell(ev.TimePassed(ms))
        self.orders = seen
        return seen

    def after(self, ms: int) -> list[Any]:
        return self.at(self.now + ms)

    def hear(
        self, sender: int | str, message: msg.Message, cluster: str | None = None
    ) -> list[Any]:
        return self.tell(ev.MessageReceived(self.now, str(sender), message, cluster))

    def flush(self) -> list[Any]:
        return self.tell(ev.LogFlushed(self.now, self.raft.log.write_last))

    def propose(self, data: bytes = b"x", number: int = 1, epoch: int | None = None) -> list[Any]:
        return self.tell(ev.Proposed(self.now, number, data, epoch))

    def read(self, number: int = 1, offset: int | None = None) -> list[Any]:
        return self.tell(ev.ReadRequested(self.now, number, offset))

    # -- peers ------------------------------------------------------------------------------------

    def vote(
        self,
        candidate: int | ReplicaKey = 2,
        epoch: int = 1,
        *,
        pre: bool = False,
        last: int = 0,
        end: int = 0,
        voter: ReplicaKey | None = None,
    ) -> msg.VoteResponse:
        """Ask it for a vote; its answer."""
        who = key(candidate) if isinstance(candidate, int) else candidate
        asked = msg.VoteRequest(7, epoch, who, voter or self.raft.me, last, end, pre)
        self.hear(who.node, asked)
        return self.said(msg.VoteResponse)[-1]

    def fetch(
        self,
        replica: int | ReplicaKey = 2,
        offset: int = 0,
        last: int | None = None,
        *,
        epoch: int | None = None,
        round_: int = 0,
        mark: int = 1 << 30,
        wait: int = 500,
    ) -> msg.FetchResponse | None:
        """Fetch from it; its answer, or None when it parks the fetch."""
        who = key(replica) if isinstance(replica, int) else replica
        if last is None:
            last = self.raft.log.epoch_before(offset) or 0
        epoch = self.raft.epoch if epoch is None else epoch
        asked = msg.FetchRequest(8, epoch, who, offset, last, mark, round_, wait)
        self.hear(who.node, asked)
        answers = [o.message for o in self.orders if isinstance(o, ev.Send) and o.to == who.node]
        return next((one for one in answers if isinstance(one, msg.FetchResponse)), None)

    def answer_vote(
        self,
        sender: int,
        *,
        granted: bool,
        epoch: int | None = None,
        leader: str | None = None,
        error: Error = Error.NONE,
        request: int | None = None,
    ) -> list[Any]:
        number = self.requests[msg.VoteRequest, str(sender)] if request is None else request
        epoch = self.raft.epoch if epoch is None else epoch
        return self.hear(sender, msg.VoteResponse(number, error, epoch, leader, granted))

    def answer_fetch(
        self,
        sender: int = 2,
        *,
        error: Error = Error.NONE,
        epoch: int | None = None,
        leader: str | None = "2",
        request: int | None = None,
        **fields: Any,
    ) -> list[Any]:
        number = self.requests[msg.FetchRequest, str(sender)] if request is None else request
        epoch = self.raft.epoch if epoch is None else epoch
        answer = msg.FetchResponse(number, error, epoch, leader, **fields)
        return self.hear(sender, answer)

    def begin(self, leader: int = 2, epoch: int = 1, voter: ReplicaKey | None = None) -> list[Any]:
        asked = msg.BeginQuorumEpochRequest(9, epoch, str(leader), voter or self.raft.me)
        return self.hear(leader, asked)

    def end(self, leader: int, epoch: int, *successors: int) -> list[Any]:
        keys = tuple(key(one) for one in successors)
        return self.hear(leader, msg.EndQuorumEpochRequest(9, epoch, str(leader), keys))

    # -- what it did ------------------------------------------------------------------------------

    def said(self, kind: type) -> list[Any]:
        """The messages of one kind among the last orders."""
        sends = [order.message for order in self.orders if isinstance(order, ev.Send)]
        return [message for message in sends if isinstance(message, kind)]

    def said_to(self, node: int, kind: type) -> list[Any]:
        """The same, to one peer."""
        sends = [o.message for o in self.orders if isinstance(o, ev.Send) and o.to == str(node)]
        return [message for message in sends if isinstance(message, kind)]

    def did(self, kind: type) -> list[Any]:
        """The orders of one kind among the last ones."""
        return [order for order in self.orders if isinstance(order, kind)]

    @property
    def role(self) -> Role:
        return self.raft.role

    @property
    def mark(self) -> int:
        return self.raft.log.high_watermark

    # -- short ways to a role ---------------------------------------------------------------------

    def prospective(self) -> Bench:
        for _ in range(20):
            self.at(self.raft.deadline_ms())
            if self.role is Role.PROSPECTIVE:
                break
        assert self.role is Role.PROSPECTIVE
        return self

    def candidate(self) -> Bench:
        self.prospective()
        for other in self.raft.log.voters.others(self.raft.me):
            if self.role is Role.PROSPECTIVE:
                self.answer_vote(int(other.node), granted=True)
        assert self.role is Role.CANDIDATE
        return self

    def leader(self, *, committed: bool = False) -> Bench:
        """Elected; with `committed` also flushed, and its first entries are on a majority."""
        if self.role is not Role.LEADER:
            self.candidate()
            for other in self.raft.log.voters.others(self.raft.me):
                if self.role is Role.CANDIDATE:
                    self.answer_vote(int(other.node), granted=True)
        assert self.role is Role.LEADER
        if committed:
            self.flush()
            for other in self.raft.log.voters.others(self.raft.me):
                self.fetch(other, self.raft.log.end)
            assert self.mark == self.raft.log.end
        return self

    def following(self, leader: int = 2, epoch: int = 1, *, fetched: bool = False) -> Bench:
        self.begin(leader, epoch)
        assert self.raft.known_leader == str(leader)
        if fetched:
            self.answer_fetch(leader, leader=str(leader))
        return self
