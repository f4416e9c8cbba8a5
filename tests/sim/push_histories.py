"""Histories of sessions that read a table and follow it by push queries, and their judge.

Each change of the table is a record of one partition, made once, with a number of its own. The
committed changes of a partition are a sequence; a *place* is how many of them lie before it. A
commit ends at places: `ends[c][p]` is how many changes partition p has after commit c.

A session promises:

    no repeat    a push query shows no change that lies before the place where it begins
    no gap       from there on it shows each change of a partition, in order
    monotone     a read is not older than any read that ended before it began
    read after push     nor than any change that was delivered before it began
    push after read     a push query begins exactly behind what reads that ended have shown in all
                        their parts, or behind what push queries have delivered, if that is further

The judge knows what was committed, shown and delivered, and nothing of tokens, offsets or nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: a read's part of a partition whose replica has no commit yet
NO_COMMIT = -1


@dataclass
class CommittedChanges:
    """What was committed, in order."""

    partitions: int
    #: of each partition, the numbers of its changes
    of: list[list[int]] = field(default_factory=list[list[int]])
    #: after each commit: how many changes each partition has
    ends: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    _places: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __post_init__(self) -> None:
        self.of = [[] for _ in range(self.partitions)]

    def commit(self, changes: Iterable[tuple[int, int]]) -> None:
        """The next commit: (partition, number) of each change."""
        for partition, number in changes:
            self._places[number] = (partition, len(self.of[partition]))
            self.of[partition].append(number)
        self.ends.append(tuple(map(len, self.of)))

    def place_of(self, number: int) -> tuple[int, int] | None:
        """Partition and place of a change; None: it was never committed."""
        return self._places.get(number)

    def commit_of(self, partition: int, place: int) -> int:
        """The commit that a change belongs to."""
        return next(at for at, ends in enumerate(self.ends) if ends[partition] > place)


@dataclass(frozen=True)
class Pulled:
    """A read was answered. `parts`: {partition: the newest commit that its rows show}."""

    session: str
    begin: int
    end: int
    parts: Mapping[int, int]
    where: str = ""


@dataclass(frozen=True)
class Began:
    """A push query began. `from_beginning`: it was to show everything."""

    session: str
    query: int
    at: int
    from_beginning: bool = False


@dataclass(frozen=True)
class Opened:
    """A node began it while the client had no token of it: a query that begins at the end begins
    behind what is committed now."""

    query: int
    at: int


@dataclass(frozen=True)
class Delivered:
    """The caller has got a row."""

    query: int
    at: int
    number: int


@dataclass(frozen=True)
class Whole:
    """The caller has got all rows that came together with the last one, and asks for the next."""

    query: int
    at: int


@dataclass(frozen=True)
class Drained:
    """A push query had nothing more to show while all that was committed had been there."""

    query: int
    at: int


Event = Pulled | Began | Opened | Delivered | Whole | Drained


@dataclass
class _Query:
    session: str
    #: of each partition, the place of the change that is due; None: it has not begun
    due: list[int | None]
    #: whether it begins at the end, and the client has no token of it yet
    is_at_end: bool


@dataclass
class _Session:
    #: {instant: the newest commit that was shown until then}, in order of their instants
    witnessed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: where a push query is to begin in each partition; None: the session knows nothing
    covered: list[int] | None = None

    def witness(self, at: int, commit: int) -> None:
        self.witnessed.append((at, commit))

    def witnessed_before(self, instant: int) -> int:
        return max((commit for at, commit in self.witnessed if at < instant), default=NO_COMMIT)

    def cover(self, places: Sequence[int | None]) -> None:
        if all(place is None for place in places):
            return
        known = self.covered or [0] * len(places)
        self.covered = [max(a, b or 0) for a, b in zip(known, places, strict=True)]


class PushJudge:
    """Takes the events as they happen to clients, a read when it has ended. `changes`: what is
    committed by then. `found`: what no session may have seen."""

    def __init__(self, changes: CommittedChanges) -> None:
        self.found: list[str] = []
        self._changes = changes
        self._sessions: dict[str, _Session] = {}
        self._queries: dict[int, _Query] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        if isinstance(event, Pulled):
            self._pulled(event)
        elif isinstance(event, Began):
            self._began(event)
        elif isinstance(event, Delivered):
            self._delivered(event)
        elif isinstance(event, Opened):
            if self._queries[event.query].is_at_end:
                self._queries[event.query].due = list(map(len, self._changes.of))
        elif isinstance(event, Whole):
            query = self._queries[event.query]
            query.is_at_end = False
            self._session(query.session).cover(query.due)
        else:
            self._drained(event)

    def _session(self, name: str) -> _Session:
        return self._sessions.setdefault(name, _Session())

    def _pulled(self, read: Pulled) -> None:
        session = self._session(read.session)
        least = session.witnessed_before(read.begin)
        self.found += [
            f"{read.session} had witnessed commit {least}, then read partition {partition} at "
            f"commit {commit} {read.where}"
            for partition, commit in read.parts.items()
            if commit < least
        ]
        session.witness(read.end, max(read.parts.values()))
        oldest = min(read.parts.values())
        if oldest != NO_COMMIT:
            session.cover(self._changes.ends[oldest])

    def _began(self, event: Began) -> None:
        covered = None if event.from_beginning else self._session(event.session).covered
        count = self._changes.partitions
        begins = [0] * count if event.from_beginning else covered
        due: list[int | None] = [None] * count if begins is None else [*begins]
        self._queries[event.query] = _Query(event.session, due, begins is None)

    def _delivered(self, event: Delivered) -> None:
        query = self._queries[event.query]
        found = self._changes.place_of(event.number)
        if found is None:
            self.found.append(f"query {event.query} showed {event.number}: it is not committed")
            return
        partition, place = found
        due = query.due[partition]
        if due is not None and place != due:
            what = "repeated" if place < due else f"left out {place - due} before"
            self.found.append(
                f"query {event.query} of {query.session} {what} change {place} of partition "
                f"{partition}, {due} was due"
            )
        query.due[partition] = place + 1
        commit = self._changes.commit_of(partition, place)
        self._session(query.session).witness(event.at, commit)

    def _drained(self, event: Drained) -> None:
        query = self._queries[event.query]
        for partition, due in enumerate(query.due):
            there = len(self._changes.of[partition])
            if due is not None and due < there:
                self.found.append(
                    f"query {event.query} of {query.session} has left out {there - due} changes at"
                    f" the end of partition {partition}"
                )
