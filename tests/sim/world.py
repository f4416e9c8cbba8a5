"""A whole control plane in one thread from one seed: nodes, network, clients, invariants, history.

First the safety phase, in which everything goes wrong and nothing may be wrong; then the world
heals and must converge: one leader, all logs applied everywhere, writes and linearizable reads
answered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from standpipe.control.raft import events as ev
from standpipe.control.raft.log import Entry, SnapshotInfo
from standpipe.control.raft.majority import Incarnation, ReplicaKey, VoterSet
from standpipe.control.raft.messages import Error, Request
from standpipe.control.raft.roles import Role
from standpipe.model import NodeId

from .invariants import (
    ALL,
    AcknowledgedWritesSurvive,
    Invariant,
    ReadsAreLinearizable,
    Violation,
)
from .nemesis import Nemesis
from .network import Network
from .node import SimNode, digest_of
from .options import Options
from .scheduler import Scheduler

CONVERGE_MS = 30_000
HISTORY = 400


class World:
    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.seed = seed
        self.options = options or Options.of(seed)
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.counts: Counter[str] = Counter()
        self.network = Network(self.scheduler, self.options.network, self.counts)
        self._history: deque[tuple[int, str, str, Any]] = deque(maxlen=HISTORY)
        #: what any state machine has applied, in order, and the digest of each prefix
        self.committed: list[Entry] = []
        self.digests: list[int] = [0]
        self.dead: set[ReplicaKey] = set()
        names = [str(number) for number in range(1, self.options.voters + 1)]
        first = VoterSet.of(ReplicaKey(NodeId(name), Incarnation("a")) for name in names)
        count = self.options.voters + self.options.observers
        self.bootstrap = tuple(NodeId(str(number)) for number in range(1, count + 1))
        self.nodes: dict[str, SimNode] = {}
        for name in self.bootstrap:
            self.nodes[name] = SimNode(self, name, first, votes=name in names)
        self.invariants: list[Invariant] = [kind(self) for kind in ALL]
        self._before = _overriding(self.invariants, "before")
        self._after = _overriding(self.invariants, "after")
        self._sent = _overriding(self.invariants, "sent")
        self._wrote = _overriding(self.invariants, "wrote")
        self._applied = _overriding(self.invariants, "applied")
        self.writes = AcknowledgedWritesSurvive(self)
        self.reads = ReadsAreLinearizable(self)
        self.nemesis = Nemesis(self)
        self.is_healed = False
        self._proposals: dict[int, bytes] = {}
        self._open_reads: dict[int, int] = {}
        self._numbers = 0
        self._acknowledged: list[tuple[int, bytes]] = []
        self._last_leader: str | None = None

    # -- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases.  Raises Violation with what did not hold, or whatever the core raised."""
        for node in self.nodes.values():
            self.scheduler.after(self.random.random() * 50_000, node.start)
        self.scheduler.after(1000, self._client_writes)
        self.scheduler.after(1000, self._client_reads)
        self.nemesis.begin()
        self.scheduler.run(self.options.safety_ms * 1000)
        self.heal()
        end_us = self.scheduler.now_us + CONVERGE_MS * 1000
        self.scheduler.run(end_us, stop=self._has_converged)
        if why := self._why_not():
            raise Violation(f"Converges: not within {CONVERGE_MS} ms: {why}")
        for offset, data in self._acknowledged:
            self.writes.acknowledged(offset, data)
        if self.counts["writes acknowledged"] == 0 or self.counts["reads answered"] == 0:
            raise Violation("DidSomething: no write or no read was ever answered")

    def heal(self) -> None:
        self.note("the world heals", "-")
        self.is_healed = True
        self.network.heal()
        self.nemesis.end()
        for node in self.nodes.values():
            node.disk.sync_ms_max = 1.0
            node.resume()
            node.start()
        self._probes: dict[str, int] = {}
        self._probe_write: int | None = None
        self._probe_at_us = self.scheduler.now_us

    def _has_converged(self) -> bool:
        if self.scheduler.now_us < self._probe_at_us:
            return False
        self._probe_at_us = self.scheduler.now_us + 100_000
        return self._why_not() == ""

    def _why_not(self) -> str:
        """Why the healed world is not yet what it should be; nothing when it is."""
        rafts = {name: node.raft for name, node in self.nodes.items() if node.raft is not None}
        leaders = [name for name, raft in rafts.items() if raft.role is Role.LEADER]
        if len(leaders) != 1 or len(rafts) != len(self.nodes):
            return f"leaders {leaders}, {len(rafts)} of {len(self.nodes)} up"
        leader = leaders[0]
        for name, raft in rafts.items():
            if raft.known_leader != leader:
                return f"{name} follows {raft.known_leader}, not {leader} ({raft.role})"
        number = self._probe_write
        if number is None:
            self._probe_write = self._write(leader)
            return "no write was acknowledged since"
        if number in self._proposals:
            return "a write waits"
        if not any(data == b"w%d" % number for _, data in self._acknowledged[-200:]):
            self._probe_write = None
            return "a write failed"
        end = rafts[leader].log.high_watermark
        for name, node in self.nodes.items():
            if node.applied < min(end, len(self.committed) - 50):
                return f"{name} has applied {node.applied} of {end}"
            if name not in self._probes:
                self._probes[name] = self._read(name)
        waiting = [name for name, read in self._probes.items() if read in self._open_reads]
        return f"reads wait at {waiting}" if waiting else ""

    # -- what nodes report ------------------------------------------------------------------------

    def note(self, what: str, who: str, detail: Any = "") -> None:
        self._history.append((self.scheduler.now_us, who, what, detail))

    def before(self, node: SimNode, event: ev.Event) -> None:
        if not isinstance(event, ev.TimePassed):
            self._history.append((self.scheduler.now_us, node.name, "<-", event))
        for before in self._before:
            before(node, event)

    def after(self, node: SimNode, event: ev.Event, orders: list[ev.Order]) -> None:
        if node.raft is not None:
            for after in self._after:
                after(node, event, orders)

    def barrier_passed(self, node: SimNode) -> None:
        """What the barrier held back has just left: the nemesis may strike."""
        self.scheduler.after(1, lambda: self.nemesis.after_vote(node))

    def send(self, node: SimNode, order: ev.Send) -> None:
        for sent in self._sent:
            sent(node, order)
        self.counts["messages"] += 1
        message, sender, target = order.message, node.name, self.nodes.get(order.to)
        if target is None:
            return
        if not target.is_up and isinstance(message, Request) and self.random.random() < 0.5:
            # Nobody listens there: the connection is refused, which the sender hears at once.
            self.counts["connections refused"] += 1
            refused = ev.RequestFailed(0, order.to, message.request)
            self.scheduler.after(300, lambda: node.tell(refused))
            return
        self.network.send(
            sender,
            order.to,
            lambda: target.tell(ev.MessageReceived(0, sender, message, "sim")),
        )

    def wrote(self, node: SimNode, order: ev.AppendLog) -> None:
        for wrote in self._wrote:
            wrote(node, order)

    def applies(self, node: SimNode, entry: Entry) -> None:
        for applied in self._applied:
            applied(node, entry)
        if entry.offset == len(self.committed):
            self.committed.append(entry)
            self.digests.append(self.next_digest(self.digests[-1], entry))

    def next_digest(self, before: int, entry: Entry) -> int:
        return digest_of(before, f"{entry.offset} {entry.epoch} {entry.payload!r}")

    def loads(self, node: SimNode, snapshot: SnapshotInfo) -> None:
        del snapshot
        for invariant in self.invariants:
            invariant.loaded(node)

    def process_ended(self, node: SimNode) -> None:
        for invariant in self.invariants:
            invariant.ended(node)

    def replica_died(self, key: ReplicaKey) -> None:
        self.dead.add(key)

    def stopped(self, node: SimNode) -> None:
        self.counts["clean stops"] += 1
        self.scheduler.after(1, node.crash)
        self.scheduler.after(self.random.random() * 500_000 + 2, node.start)

    def answered(self, node: SimNode, order: Any) -> None:
        self._history.append((self.scheduler.now_us, node.name, "=>", order))
        match order:
            case ev.AnswerProposal():
                data = self._proposals.pop(order.proposal, None)
                if order.error is Error.NONE and data is not None:
                    self.writes.acknowledged(order.offset, data)
                    self._acknowledged.append((order.offset, data))
                    self.reads.floor = max(self.reads.floor, order.offset + 1)
                    self.counts["writes acknowledged"] += 1
                elif order.leader is not None:
                    self._last_leader = order.leader
            case ev.AnswerRead():
                floor = self._open_reads.pop(order.read, None)
                if order.error is Error.NONE and floor is not None:
                    self.reads.finished(floor, node.applied)
                    self.counts["reads answered"] += 1
                else:
                    self.counts["reads failed"] += 1
            case ev.AnswerChange():
                self.counts[f"changes {order.error.value}"] += 1
            case _:
                raise AssertionError(order)

    # -- clients ----------------------------------------------------------------------------------

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def leader(self) -> str | None:
        """The up node that leads the highest epoch, as an all-seeing operator would know it."""
        leading = [
            (node.raft.epoch, name)
            for name, node in self.nodes.items()
            if node.raft is not None and node.raft.role is Role.LEADER
        ]
        return max(leading)[1] if leading else None

    def _client_writes(self) -> None:
        self.scheduler.after(
            self.random.random() * 2000 * self.options.write_every_ms, self._client_writes
        )
        guess = self._last_leader if self.random.random() < 0.9 else None
        self._write(guess or self.random.choice(list(self.nodes)))

    def _write(self, name: str) -> int:
        number = self.number()
        node = self.nodes[name]
        if node.is_up:
            data = b"w%d" % number
            self._proposals[number] = data
            self.counts["writes asked"] += 1
            node.tell(ev.Proposed(0, number, data))
        return number

    def write_at_leader(self) -> None:
        if (leader := self.leader()) is not None:
            self._write(leader)

    def read_at(self, name: str) -> None:
        self._read(name)

    def _client_reads(self) -> None:
        self.scheduler.after(
            self.random.random() * 2000 * self.options.read_every_ms, self._client_reads
        )
        self._read(self.random.choice(list(self.nodes)))

    def _read(self, name: str) -> int:
        number = self.number()
        node = self.nodes[name]
        if node.is_up:
            self._open_reads[number] = self.reads.floor
            self.counts["reads asked"] += 1
            node.tell(ev.ReadRequested(0, number))
        return number

    # -- reporting --------------------------------------------------------------------------------

    def history(self) -> str:
        """The last events, oldest first: what a person needs to find the cause."""
        lines = [
            f"{at_us / 1000:10.1f} {who:>2} {what} {detail}"
            for at_us, who, what, detail in self._history
        ]
        return "\n".join([f"seed {self.seed}", repr(self.options), *lines])


def _overriding(invariants: Sequence[Invariant], hook: str) -> list[Any]:
    """The hooks that do something: the check runs after every event, so idle ones are left out."""
    base = getattr(Invariant, hook)
    return [
        getattr(invariant, hook)
        for invariant in invariants
        if getattr(type(invariant), hook) is not base
    ]
