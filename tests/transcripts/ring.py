"""A few real cores in one thread, told in commands: what transcripts are played on.

Every message takes 1 ms, every flush 1 ms, node n draws n/10 as its jitter: a story has one
outcome.  A line of output is `<ms> <node>: <what happened>`; fetches are told only on demand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.core import Raft
from standpipe.control.raft.log import Entry, SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import (
    Incarnation,
    LeaderEpoch,
    LogOffset,
    ReplicaKey,
    VoterSet,
)
from standpipe.control.raft.messages import Error
from standpipe.control.raft.timeouts import RaftSettings
from standpipe.model import NodeId

SETTINGS = RaftSettings()
QUIET = (
    msg.FetchRequest,
    msg.FetchResponse,
    msg.FetchSnapshotRequest,
    msg.FetchSnapshotResponse,
    msg.QuorumEpochResponse,
)


class Node:
    """A disk that keeps everything it is given, and maybe a process."""

    def __init__(self, name: str, voters: VoterSet) -> None:
        self.key = ReplicaKey(NodeId(name), Incarnation("a"))
        self.election: ev.ElectionState | None = None
        self.start = self.newest = SnapshotInfo(LogOffset(0), LeaderEpoch(0), voters)
        self.entries: list[Entry] = []
        self.raft: Raft | None = None
        self.is_paused = False
        self.inbox: list[ev.Event] = []
        self.lives = 0
        self.role = "down"


class Ring:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.now = 0
        self.lines: list[str] = []
        self.cuts: set[tuple[str, str]] = set()
        self.told: set[str] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._numbers = 0

    # -- commands ---------------------------------------------------------------------------------

    def command(self, line: str) -> list[str]:
        """Play one command; what happened."""
        self.lines = []
        word, *args = line.split()
        getattr(self, f"do_{word}")(*args)
        return self.lines

    def do_nodes(self, *args: str) -> None:
        """`nodes 3 observers=1 epoch=4 log=1:11,2:11,3:9`: numbers of entries, all of one epoch."""
        options = dict(arg.split("=", 1) for arg in args[1:])
        count, watching = int(args[0]), int(options.get("observers", 0))
        names = [str(number) for number in range(1, count + watching + 1)]
        voters = VoterSet.of(ReplicaKey(NodeId(n), Incarnation("a")) for n in names[:count])
        epoch = LeaderEpoch(int(options.get("epoch", 0)))
        lengths = dict(pair.split(":") for pair in options.get("log", "").split(",") if pair)
        for name in names:
            node = self.nodes[name] = Node(name, voters)
            node.entries = [
                Entry(LogOffset(offset), epoch, b"old")
                for offset in range(int(lengths.get(name, 0)))
            ]
            if epoch:
                node.election = ev.ElectionState(epoch)
        self.do_start(*names)

    def do_start(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name]
            node.lives += 1
            node.raft = Raft(
                node.key,
                ev.Recovered(node.election, node.start, node.newest, tuple(node.entries)),
                SETTINGS,
                cluster="t",
                draw=lambda name=name: int(name) / 10,
                first_request=node.lives * 1_000_000,
                bootstrap=tuple(NodeId(one) for one in self.nodes),
            )
            node.role = str(node.raft.role)
            self._tell(node, ev.Started(0))

    def do_kill(self, *names: str) -> None:
        for name in names:
            self.nodes[name].raft, self.nodes[name].role = None, "down"
            self.nodes[name].is_paused = False
            self._say(name, "dies")

    def do_wipe(self, name: str) -> None:
        """The disk is replaced: nothing is left, and it is another incarnation."""
        was = self.nodes[name]
        node = self.nodes[name] = Node(name, VoterSet(()))
        node.lives = was.lives
        node.key = ReplicaKey(was.key.node, Incarnation(chr(ord(was.key.incarnation) + 1)))
        self._say(name, f"is now {node.key}")

    def do_pause(self, name: str) -> None:
        self.nodes[name].is_paused = True

    def do_resume(self, name: str) -> None:
        node = self.nodes[name]
        node.is_paused = False
        inbox, node.inbox = node.inbox, []
        for event in inbox:
            self._tell(node, event)
        self._tell(node, ev.TimePassed(0))

    def do_run(self, ms: str) -> None:
        end = self.now + int(ms)
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end

    def do_cut(self, *links: str) -> None:
        """`1-2` both ways, `1>2` one way, `1-*` from all."""
        for link in links:
            a, b = link.replace("-", ">").split(">")
            for other in self.nodes if b == "*" else [b]:
                self.cuts.add((a, other))
                if "-" in link:
                    self.cuts.add((other, a))

    def do_heal(self) -> None:
        self.cuts.clear()

    def do_tell(self, *kinds: str) -> None:
        """Which otherwise quiet messages to tell."""
        self.told = set(kinds)

    def do_propose(self, name: str, data: str) -> None:
        self._tell(self.nodes[name], ev.Proposed(0, self._number(), data.encode()))

    def do_read(self, name: str) -> None:
        self._tell(self.nodes[name], ev.ReadRequested(0, self._number()))

    def do_add(self, at: str, voter: str) -> None:
        key = self.nodes[voter].key
        self._tell(self.nodes[at], ev.VoterAddRequested(0, self._number(), key))

    def do_remove(self, at: str, voter: str) -> None:
        node, _, incarnation = voter.partition(":")
        key = ReplicaKey(NodeId(node), Incarnation(incarnation or "a"))
        self._tell(self.nodes[at], ev.VoterRemoveRequested(0, self._number(), key))

    def do_transfer(self, at: str, to: str) -> None:
        key = self.nodes[to].key
        self._tell(self.nodes[at], ev.TransferRequested(0, self._number(), key))

    def do_stop(self, name: str) -> None:
        self._tell(self.nodes[name], ev.ShutdownRequested(0))

    def do_snapshot(self, name: str) -> None:
        raft = self.nodes[name].raft
        assert raft is not None
        epoch = raft.log.epoch_before(raft.applied)
        assert epoch is not None
        taken = ev.SnapshotTaken(0, SnapshotId(raft.applied, epoch), 10)
        self._tell(self.nodes[name], taken)
        self._say(name, f"snapshot at {raft.applied}, log starts at {raft.log.start.end_offset}")

    def do_show(self) -> None:
        for name, node in self.nodes.items():
            raft = node.raft
            if raft is None:
                self._say(name, "down")
                continue
            log = raft.log
            self._say(
                name,
                f"{raft.role} epoch={raft.epoch} leader={raft.known_leader or '-'} "
                f"log={log.last_epoch}/{log.end} mark={log.high_watermark} voters={log.voters}",
            )

    # -- carrying out -----------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _say(self, name: str, what: str) -> None:
        self.lines.append(f"{self.now:>5} {name}: {what}")

    def _at(self, when: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, action))

    def _tell(self, node: Node, event: ev.Event) -> None:
        if node.raft is None:
            return
        if node.is_paused:
            node.inbox.append(event)
            return
        object.__setattr__(event, "at_ms", self.now)
        orders = node.raft.handle(event)
        if str(node.raft.role) != node.role:
            self._say(node.key.node, f"{node.role} -> {node.raft.role} epoch={node.raft.epoch}")
            node.role = str(node.raft.role)
        for order in orders:
            self._carry_out(node, order)
        life = node.lives
        if (due := node.raft.deadline_ms()) is not None:
            self._at(max(due, self.now + 1), lambda: self._wake(node, life))

    def _wake(self, node: Node, life: int) -> None:
        if node.lives == life and node.raft is not None and not node.is_paused:
            due = node.raft.deadline_ms()
            if due is not None and due <= self.now:
                self._tell(node, ev.TimePassed(0))

    def _carry_out(self, node: Node, order: Any) -> None:
        name = node.key.node
        match order:
            case ev.PersistElection():
                node.election = order.state
            case ev.AppendLog():
                node.entries += order.entries
                self._flush(node, order.write)
            case ev.TruncateLog():
                del node.entries[order.end_offset - node.start.end_offset :]
                self._say(name, f"truncates to {order.end_offset}")
                self._flush(node, order.write)
            case ev.TrimLog():
                del node.entries[: order.start.end_offset - node.start.end_offset]
                node.start = order.start
                self._flush(node, order.write)
            case ev.InstallSnapshot():
                node.entries = []
                node.start = node.newest = order.snapshot
                self._say(name, f"installs snapshot {tuple(order.snapshot.id)}")
                self._flush(node, order.write)
            case ev.Send():
                self._send(name, order.to, order.message)
            case ev.SendSnapshotChunk():
                data = b"0123456789"[order.position : order.position + 4]
                self._send(
                    name,
                    order.to,
                    msg.FetchSnapshotResponse(
                        order.request,
                        Error.NONE,
                        order.epoch,
                        name,
                        order.snapshot.id,
                        order.position,
                        10,
                        data,
                    ),
                )
            case ev.ApplyCommitted():
                texts = [_payload(entry) for entry in order.entries]
                self._say(name, f"applies {order.entries[0].offset}: {', '.join(texts)}")
            case ev.AnnounceLeader() | ev.WriteSnapshotChunk():
                pass
            case ev.BeginLeading():
                self._say(name, f"begins leading epoch {order.epoch}")
            case ev.LoadSnapshot():
                self._say(name, f"loads snapshot {tuple(order.snapshot.id)}")
            case ev.Stop():
                self._say(name, f"may stop, clean={order.clean}")
            case _:
                self._say(name, _answer(order))

    def _flush(self, node: Node, write: int) -> None:
        life = node.lives

        def flushed() -> None:
            if node.lives == life:
                self._tell(node, ev.LogFlushed(0, write))

        self._at(self.now + 1, flushed)

    def _send(self, source: str, to: str, message: msg.Message) -> None:
        kind = type(message).__name__
        is_cut = (source, to) in self.cuts
        if not isinstance(message, QUIET) or kind in self.told:
            lost = " (lost)" if is_cut else ""
            self._say(source, f"{_message(message)} to {to}{lost}")
        if is_cut or to not in self.nodes:
            return
        self._at(
            self.now + 1,
            lambda: self._tell(self.nodes[to], ev.MessageReceived(0, NodeId(source), message, "t")),
        )


def _payload(entry: Entry) -> str:
    if isinstance(entry.payload, bytes):
        return entry.payload.decode()
    return str(entry.payload) if isinstance(entry.payload, VoterSet) else "leader change"


def _message(message: msg.Message) -> str:
    match message:
        case msg.VoteRequest():
            what = "asks for a pre-vote" if message.pre else "asks for a vote"
            return f"{what} epoch={message.epoch} log={message.last_epoch}/{message.end_offset}"
        case msg.VoteResponse():
            what = "grants" if message.granted else "refuses"
            error = "" if message.error is Error.NONE else f" {message.error}"
            return f"{what} epoch={message.epoch} leader={message.leader or '-'}{error}"
        case msg.BeginQuorumEpochRequest():
            return f"leads epoch {message.epoch}, says so"
        case msg.EndQuorumEpochRequest():
            names = ",".join(key.node for key in message.successors)
            return f"resigns epoch {message.epoch}, successors [{names}]"
        case msg.ReadOffsetRequest():
            return "asks for a read offset"
        case msg.ReadOffsetResponse():
            return f"answers {message.error} offset={message.offset}"
        case msg.FetchRequest():
            return (
                f"fetches epoch={message.epoch} log={message.last_epoch}/{message.offset} "
                f"round={message.round}"
            )
        case msg.FetchResponse():
            extra = f" diverging={tuple(message.diverging)}" if message.diverging else ""
            extra += f" snapshot={tuple(message.snapshot.id)}" if message.snapshot else ""
            return (
                f"answers {message.error} entries={len(message.entries)} "
                f"mark={message.high_watermark} round={message.round}{extra}"
            )
        case _:
            return f"sends {type(message).__name__}"


def _answer(order: Any) -> str:
    match order:
        case ev.AnswerProposal():
            offset = "" if order.offset is None else f" offset={order.offset}"
            return f"proposal {order.proposal}: {order.error}{offset} leader={order.leader or '-'}"
        case ev.AnswerRead():
            return f"read {order.read}: {order.error} offset={order.offset}"
        case ev.AnswerChange():
            return f"change {order.change}: {order.error}"
    raise AssertionError(order)
