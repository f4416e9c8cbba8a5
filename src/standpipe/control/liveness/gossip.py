"""Liveness in large clusters: few beats from each node, and verdicts that spread as rumours. Pure.

Where every node beats to every other (KLIP-12), each one pays O(N). Here instead:

    beats     go to FANOUT watchers, the next live nodes on a ring of hashed ids: they alone judge
              the sender, by `control.liveness.heartbeats`
    rumours   what a watcher says of a peer that it watches; they ride on every beat and on messages
              to SPREAD random peers, and each node passes a rumour on for O(log N) rounds
    verdict   a peer becomes DOWN when VOICES watchers say so: one watcher that is sick itself takes
              no peer down. The peer stays DOWN until some watcher hears it and fewer than VOICES
              say DOWN; losing or changing watchers brings no peer back. A node that is DOWN has no
              voice and watches no peer: the next on the ring takes its place, and finds out by a
              whole window of silence (once per row, where all watchers are lost too)
    note      what a node says of itself (`Note`) is a rumour with itself as the watcher

So a node sends a fixed number of messages, a change is known everywhere after O(log N) rounds, and
the bytes of a message grow with what changed, not with N. A rumour carries its watcher's version;
of two the higher one holds. A message also carries a digest of all rumours: where it differs
although no rumour is being passed on any more (`may_compare`), two nodes send each other
everything.

Source: SWIM (2002) for the shape; KLIP-12 leaves large clusters open. Not here: when a cluster
counts as large, and what follows from a verdict (`control.liveness.failure_detector`), who is a
member (the metadata log), random numbers (the driver draws them), sending (`node.liveness.loop`).
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
#: A rumour is passed on for so many rounds more than log2(N).
EXTRA_ROUNDS: Final = 4
#: Where rumours never rest, digests are compared nevertheless, after so many rounds.
RESTLESS_ROUNDS: Final = 100


class Note(IntFlag):
    """What a node says of itself; 0: all is well."""

    WORKERS_SICK = 1
    TAILER_SICK = 2
    LEAVING = 4


WELL: Final = Note(0)


class Rumour(Record, frozen=True, kw_only=True, array_like=True):
    """What `watcher` says of `subject`. `version` grows with each change of its verdict."""

    watcher: NodeId
    subject: NodeId
    health: Health
    version: int
    note: Note = WELL

    @property
    def is_note(self) -> bool:
        """Whether it is what a node says of itself."""
        return self.watcher == self.subject


def ring(members: Iterable[NodeId]) -> list[NodeId]:
    """Members in an order that has nothing to do with racks, ages or names."""
    return sorted(members, key=lambda node: (_hash(node), node))


def rounds_told(count: int) -> int:
    """For how many rounds a rumour is passed on in a cluster of `count` nodes."""
    return max(1, count - 1).bit_length() + EXTRA_ROUNDS


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@dataclass
class _Hot:
    """A rumour that is still passed on."""

    rumour: Rumour
    rounds_left: int


_Key = tuple[NodeId, NodeId]  # watcher, subject


@dataclass
class Gossip:
    """What one node knows from rumours, and what it still passes on."""

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
    #: of which the verdict changed since `moved` was asked
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
        """Who hears the beats of this node: the next on the ring, to the FANOUT-th live one.

        Nodes between them that are down get beats too: after a network was cut in two, all nodes of
        the other side are down, and some beat has to arrive first.
        """
        return self._neighbours(1)

    @property
    def watched(self) -> list[NodeId]:
        """Whose beats should come here: the mirror of `beats_to`."""
        return self._neighbours(-1)

    def targets(self, draws: Sequence[int]) -> list[NodeId]:
        """Random peers that get rumours beside the watchers. `draws`: random numbers, the first
        SPREAD are used."""
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
        """Take over the verdict of this node on a peer; UNKNOWN: none, or not watched any more."""
        known = self._known.get((self.me, subject))
        before = known.health if known else Health.UNKNOWN
        against = self._voices.get(subject, {}).values()
        is_doubted = subject in self._down or Health.DOWN in against
        if health is before or (health is Health.ALIVE and not is_doubted and known is None):
            return
        self._say(subject, health, known.version if known else 0)

    def noted(self, note: Note) -> None:
        """What this node says of itself."""
        if note != self._note:
            self._note = note
            known = self._known.get((self.me, self.me))
            self._say(self.me, Health.ALIVE, known.version if known else 0)

    def note_of(self, node: NodeId) -> Note:
        """What a node said of itself, as far as that has arrived."""
        said = self._known.get((node, node))
        return said.note if said else WELL

    def hear(self, rumours: Iterable[Rumour]) -> None:
        """Take over what another node sent."""
        for rumour in rumours:
            if not self._are_members(rumour.watcher, rumour.subject):
                continue
            if rumour.watcher == self.me:
                self._answer(rumour)
            else:
                self._take(rumour)

    def round(self) -> list[Rumour]:
        """What goes with each of this round's messages."""
        rumours = [hot.rumour for hot in self._hot.values()]
        for key, hot in list(self._hot.items()):
            hot.rounds_left -= 1
            if hot.rounds_left <= 0:
                del self._hot[key]
        self._restless_rounds += 1
        return rumours

    @property
    def may_compare(self) -> bool:
        """Whether a differing digest means anything: no rumour is being passed on any more."""
        return not self._hot or self._restless_rounds > RESTLESS_ROUNDS

    def everything(self) -> list[Rumour]:
        """For a peer whose digest differs."""
        self._restless_rounds = 0
        return list(self._known.values())

    @property
    def digest(self) -> int:
        """Equal where two nodes know the same, in whatever order it arrived."""
        return self._digest

    def is_down(self, subject: NodeId) -> bool:
        """By what all watchers say of it and of each other."""
        return subject in self._down

    def moved(self) -> set[NodeId]:
        """Nodes whose `is_down` changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    # -------------------------------------------------------------- inside

    def _are_members(self, *nodes: NodeId) -> bool:
        return all(node in self._places for node in nodes)

    def _say(self, subject: NodeId, health: Health, version: int) -> None:
        note = self._note if subject == self.me else WELL
        self._take(
            Rumour(watcher=self.me, subject=subject, health=health, version=version + 1, note=note)
        )

    def _answer(self, rumour: Rumour) -> None:
        """A rumour of this node from before its restart: its newest version must say what holds
        now."""
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
        self._hot[key] = _Hot(rumour, rounds_told(len(self._order)))
        if not rumour.is_note:
            self._voices.setdefault(rumour.subject, {})[rumour.watcher] = rumour.health
            self._weigh([rumour.subject])

    def _weigh(self, subjects: list[NodeId]) -> None:
        """Decide who is down; a node that goes down or comes back changes the voices on others."""
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
