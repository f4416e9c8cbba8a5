"""Liveness in large clusters: each node sends few heartbeats; verdicts spread as rumours. Pure.

If every node sends heartbeats to every other (KLIP-12), each one sends O(N) messages. Instead:

    heartbeats  go to FANOUT watchers, the next live nodes on a ring of hashed ids. Only they judge
                the sender, by `control.liveness.heartbeats`
    rumours     a watcher's verdicts on the peers that it watches. They travel with every heartbeat,
                and in messages to SPREAD random peers; each node forwards a rumour for O(log N)
                rounds
    verdict     a peer becomes DOWN when VOICES watchers report it DOWN, so one sick watcher alone
                takes no peer down. The peer stays DOWN until some watcher receives its heartbeats
                and fewer than VOICES report DOWN; the loss or change of watchers brings no peer
                back. A node that is DOWN has no vote and watches no peer: the next node on the ring
                takes its place, and needs a whole window of silence to judge (one window after
                another if all watchers are lost too)
    note        what a node reports about itself (`Note`): a rumour whose watcher is the node itself

So a node sends a fixed number of messages, every node knows of a change after O(log N) rounds, and
the size of a message grows with the number of changes, not with N. A rumour carries its watcher's
version; the higher version wins. A message also carries a digest of all rumours: if the digests of
two nodes differ although no rumour is still being spread (`may_compare`), they send each other
everything.

Source: SWIM (2002) for the shape; KLIP-12 leaves large clusters open. Not here: when a cluster
counts as large, and what follows from a verdict (`control.liveness.failure_detector`), membership
(the metadata log), random numbers (the driver draws them), sending (`node.liveness.loop`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from hashlib import blake2b
from typing import Final

from standpipe.model import Health, NodeId, Record

FANOUT: Final = 4
SPREAD: Final = 3
VOICES: Final = 2
#: A rumour is spread for this many rounds more than log2(N).
EXTRA_ROUNDS: Final = 4
#: If there is always a rumour to spread, digests are compared anyway after this many rounds.
RESTLESS_ROUNDS: Final = 100


class Note(IntFlag):
    """What a node reports about itself; 0: all is well."""

    WORKERS_SICK = 1
    TAILER_SICK = 2
    LEAVING = 4


WELL: Final = Note(0)


class Rumour(Record, frozen=True, kw_only=True, array_like=True):
    """The verdict of `watcher` on `subject`. `version` grows with each change of the verdict."""

    watcher: NodeId
    subject: NodeId
    health: Health
    version: int
    note: Note = WELL

    @property
    def is_note(self) -> bool:
        """Whether it is what a node reports about itself."""
        return self.watcher == self.subject


def ring(members: Iterable[NodeId]) -> list[NodeId]:
    """Members in an order that has nothing to do with racks, ages or names."""
    return sorted(members, key=lambda node: (_hash(node), node))


def spread_rounds(count: int) -> int:
    """For how many rounds a rumour is spread in a cluster of `count` nodes."""
    return max(1, count - 1).bit_length() + EXTRA_ROUNDS


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@dataclass
class _Hot:
    """A rumour that is still being spread."""

    rumour: Rumour
    rounds_left: int


_Key = tuple[NodeId, NodeId]  # watcher, subject


@dataclass
class Gossip:
    """What one node knows from rumours, and which of them it still spreads."""

    me: NodeId
    _order: list[NodeId] = field(default_factory=list[NodeId])
    _places: dict[NodeId, int] = field(default_factory=dict[NodeId, int])
    _known: dict[_Key, Rumour] = field(default_factory=dict[_Key, Rumour])
    _hot: dict[_Key, _Hot] = field(default_factory=dict[_Key, _Hot])
    #: subject -> watcher -> what it says
    _voices: dict[NodeId, dict[NodeId, Health]] = field(
        default_factory=dict[NodeId, dict[NodeId, Health]]
    )
    _down: set[NodeId] = field(default_factory=set[NodeId])
    #: nodes whose verdict changed since the last call of `moved`
    _moved: set[NodeId] = field(default_factory=set[NodeId])
    _note: Note = WELL
    _digest: int = 0
    #: rounds since digests were compared last
    _restless_rounds: int = 0

    # -------------------------------------------------------------- who sends to whom

    def members(self, members: Collection[NodeId]) -> None:
        """The log's members, this node among them. Rumours by or of other nodes are dropped."""
        self._order = ring(members)
        self._places = {node: place for place, node in enumerate(self._order)}
        if self.me not in self._places:
            self._note = WELL  # to be said again
        for key in [key for key in self._known if not self._are_members(*key)]:
            self._forget(key)
        self._down &= self._places.keys()
        self._weigh([*self._voices])

    @property
    def beats_to(self) -> list[NodeId]:
        """Receivers of this node's heartbeats: the next on the ring, up to the FANOUT-th live one.

        Nodes between them that are down get heartbeats too: after a network partition, all nodes of
        the other side are down, and some heartbeat has to get through first.
        """
        return self._neighbours(1)

    @property
    def watched(self) -> list[NodeId]:
        """Nodes whose heartbeats should arrive here: the mirror of `beats_to`."""
        return self._neighbours(-1)

    def targets(self, draws: Sequence[int]) -> list[NodeId]:
        """Random peers that get rumours besides the watchers. `draws`: random numbers, of which
        the first SPREAD are used."""
        if len(self._order) < 2:
            return []
        steps = (1 + draw % (len(self._order) - 1) for draw in draws[:SPREAD])
        return [self._at(self._places[self.me] + step) for step in steps]

    def _neighbours(self, direction: int) -> list[NodeId]:
        found: list[NodeId] = []
        live = 0
        for step in range(1, len(self._order)):
            node = self._at(self._places[self.me] + direction * step)
            found.append(node)
            live += not self.is_down(node)
            if live >= FANOUT:
                break
        return found

    def _at(self, place: int) -> NodeId:
        return self._order[place % len(self._order)]

    # -------------------------------------------------------------- what is sent

    def judged(self, subject: NodeId, health: Health) -> None:
        """Adopt this node's own verdict on a peer; UNKNOWN: none, or no longer watched."""
        known = self._known.get((self.me, subject))
        before = known.health if known else Health.UNKNOWN
        against = self._voices.get(subject, {}).values()
        is_doubted = subject in self._down or Health.DOWN in against
        if health is before or (health is Health.ALIVE and not is_doubted and known is None):
            return
        self._say(subject, health, known.version if known else 0)

    def noted(self, note: Note) -> None:
        """What this node reports about itself."""
        if note != self._note:
            self._note = note
            known = self._known.get((self.me, self.me))
            self._say(self.me, Health.ALIVE, known.version if known else 0)

    def note_of(self, node: NodeId) -> Note:
        """The newest report of a node about itself that has arrived here."""
        said = self._known.get((node, node))
        return said.note if said else WELL

    def hear(self, rumours: Iterable[Rumour]) -> None:
        """Take in the rumours that another node sent."""
        for rumour in rumours:
            known = self._known.get((rumour.watcher, rumour.subject))
            if known and known.version >= rumour.version and rumour.watcher != self.me:
                continue  # as most are, for each comes from many nodes
            if not self._are_members(rumour.watcher, rumour.subject):
                continue
            if rumour.watcher == self.me:
                self._answer(rumour)
            else:
                self._take(rumour)

    def round(self) -> list[Rumour]:
        """The rumours that go with each of this round's messages."""
        rumours = [hot.rumour for hot in self._hot.values()]
        for key, hot in list(self._hot.items()):
            hot.rounds_left -= 1
            if hot.rounds_left <= 0:
                del self._hot[key]
        self._restless_rounds += 1
        return rumours

    @property
    def may_compare(self) -> bool:
        """Whether a differing digest means anything: no rumour is still being spread."""
        return not self._hot or self._restless_rounds > RESTLESS_ROUNDS

    def everything(self) -> list[Rumour]:
        """All rumours, for a peer whose digest differs."""
        self._restless_rounds = 0
        return list(self._known.values())

    @property
    def digest(self) -> int:
        """Equal if two nodes know the same rumours, in whatever order these arrived."""
        return self._digest

    def is_down(self, subject: NodeId) -> bool:
        """Whether a node is down, by all watchers' verdicts on it and on each other."""
        return subject in self._down

    def moved(self) -> set[NodeId]:
        """Nodes whose `is_down` changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    # -------------------------------------------------------------- inside

    def _are_members(self, watcher: NodeId, subject: NodeId) -> bool:
        return watcher in self._places and subject in self._places

    def _say(self, subject: NodeId, health: Health, version: int) -> None:
        note = self._note if subject == self.me else WELL
        self._take(
            Rumour(watcher=self.me, subject=subject, health=health, version=version + 1, note=note)
        )

    def _answer(self, rumour: Rumour) -> None:
        """A rumour of this node from before its restart: the newest version must state its present
        verdict."""
        known = self._known.get((self.me, rumour.subject))
        if known is None or (rumour.version >= known.version and rumour != known):
            mind = Health.ALIVE if rumour.subject == self.me else Health.UNKNOWN
            self._say(rumour.subject, known.health if known else mind, rumour.version)

    def _take(self, rumour: Rumour) -> None:
        key = (rumour.watcher, rumour.subject)
        known = self._known.get(key)
        if known is not None and known.version >= rumour.version:
            return
        self._digest ^= _digest_of(rumour) ^ (_digest_of(known) if known else 0)
        self._known[key] = rumour
        self._hot[key] = _Hot(rumour, spread_rounds(len(self._order)))
        if not rumour.is_note:
            self._voices.setdefault(rumour.subject, {})[rumour.watcher] = rumour.health
            self._weigh([rumour.subject])

    def _weigh(self, subjects: list[NodeId]) -> None:
        """Decide which nodes are down. A change also adds or removes that node's own votes."""
        steps_left = len(subjects) + len(self._order) * (FANOUT + 1)  # two may undo each other
        while subjects and steps_left:
            steps_left -= 1
            subject = subjects.pop()
            heard = [h for w, h in self._voices.get(subject, {}).items() if w not in self._down]
            against, is_heard = heard.count(Health.DOWN), Health.ALIVE in heard
            was_down = subject in self._down
            if was_down and not (is_heard and against < VOICES):
                continue
            if not was_down and against < VOICES:
                continue
            self._down ^= {subject}
            self._moved ^= {subject}
            subjects += [about for about, by in self._voices.items() if subject in by]

    def _forget(self, key: _Key) -> None:
        self._digest ^= _digest_of(self._known.pop(key))
        self._hot.pop(key, None)
        voices = self._voices.get(key[1], {})
        voices.pop(key[0], None)
        if not voices:
            self._voices.pop(key[1], None)


def _digest_of(rumour: Rumour) -> int:
    said = (rumour.watcher, rumour.subject, rumour.version, rumour.health, rumour.note)
    return _hash("/".join(map(str, said)))
