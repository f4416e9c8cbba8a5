"""Which scan makes the next slice. Pure.

    arrives ─► fresh ─ first slice ─► over
                          │ not over
                          └─► waits ─► has one of PLACES ─ slice … ─► over

A scan that ends within its first slice never waits behind long ones: slices of fresh scans and of
those with a place alternate. Of these, one that copies goes on until it has copied all: it holds a
view of the store meanwhile, and half of the slices would hold it twice as long. Wherever scans
wait, the two lanes (clients, peers) take turns, then the addresses within a lane, then it goes by
arrival: a hundred scans of one client delay another client's by one slice or one place, and public
load never starves peers' forwards, or the reverse.

A lane takes QUERIES_MAX queries at a time; a query may scan many partitions and counts once.

Not here: what a slice does, and when the loop has its turn (`node.worker.pull.scans`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from standpipe.errors import TooManyRequests

#: scans that go on at a time; each copies rows ahead of those that it has decoded
PLACES: Final = 2
#: queries of a lane whose scans run or wait
QUERIES_MAX: Final = 128

Work = TypeVar("Work")


@dataclass(eq=False)
class QueuedScan(Generic[Work]):
    """One scan of one partition."""

    work: Work
    #: names the query that it belongs to
    query: int
    is_peer: bool
    #: where the query came from
    address: str
    has_place: bool = False
    #: it copies rows out of a view that it must not hold for long
    is_copying: bool = False


class FairQueue(Generic[Work]):
    """Waiting scans: lanes in turn, addresses in turn within a lane, else by arrival."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[bool, OrderedDict[str, deque[QueuedScan[Work]]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QueuedScan[Work]]:
        for lane in self._lanes.values():
            for line in lane.values():
                yield from line

    def push(self, queued: QueuedScan[Work]) -> None:
        """Join the end of its line."""
        lane = self._lanes.setdefault(queued.is_peer, OrderedDict())
        lane.setdefault(queued.address, deque()).append(queued)
        self._count += 1

    def pop(self) -> QueuedScan[Work]:
        """The next one; its lane and its address go behind the others. Raises StopIteration."""
        is_peer, lane = next(iter(self._lanes.items()))
        address, line = next(iter(lane.items()))
        queued = line.popleft()
        lane.move_to_end(address)
        self._lanes.move_to_end(is_peer)
        self._tidy(is_peer, address)
        return queued

    def remove(self, queued: QueuedScan[Work]) -> bool:
        """Leave the line; False: it is in none."""
        lane = self._lanes.get(queued.is_peer)
        line = None if lane is None else lane.get(queued.address)
        if line is None or queued not in line:
            return False
        line.remove(queued)
        self._tidy(queued.is_peer, queued.address)
        return True

    def _tidy(self, is_peer: bool, address: str) -> None:
        self._count -= 1
        lane = self._lanes[is_peer]
        if not lane[address]:
            del lane[address]
        if not lane:
            del self._lanes[is_peer]


@dataclass
class ScanOrder(Generic[Work]):
    """The scans of one worker."""

    places: int = PLACES
    queries_max: int = QUERIES_MAX
    fresh: FairQueue[Work] = field(default_factory=FairQueue[Work])
    waiting: FairQueue[Work] = field(default_factory=FairQueue[Work])
    #: those with a place; the first one has the next slice
    placed: deque[QueuedScan[Work]] = field(default_factory=deque[QueuedScan[Work]])
    #: (lane, query) -> its scans
    _queries: Counter[tuple[bool, int]] = field(default_factory=Counter[tuple[bool, int]])
    #: whether the last slice was of a fresh one
    _was_fresh: bool = False

    def arrive(self, queued: QueuedScan[Work]) -> None:
        """A scan wants its first slice. Raises TooManyRequests."""
        key = (queued.is_peer, queued.query)
        if key not in self._queries:
            count = sum(1 for is_peer, _ in self._queries if is_peer is queued.is_peer)
            if count >= self.queries_max:
                raise TooManyRequests("too many scans wait at this worker: retry in a second")
        self._queries[key] += 1
        self.fresh.push(queued)

    def next(self) -> QueuedScan[Work] | None:
        """Whose slice is next; None: there is no scan. `sliced` or `leave` must follow."""
        while self.waiting and len(self.placed) < self.places:
            queued = self.waiting.pop()
            queued.has_place = True
            self.placed.append(queued)
        self._was_fresh = bool(self.fresh) and not (self._was_fresh and self.placed)
        if self._was_fresh:
            return self.fresh.pop()
        if not self.placed:
            return None
        copying = next((queued for queued in self.placed if queued.is_copying), None)
        if copying is not None:
            return copying
        self.placed.rotate(-1)
        return self.placed[-1]

    def sliced(self, queued: QueuedScan[Work]) -> None:
        """It made a slice and is not over."""
        if not queued.has_place:
            self.waiting.push(queued)

    def leave(self, queued: QueuedScan[Work]) -> None:
        """It is over, or nobody wants it any longer."""
        if queued.has_place:
            self.placed.remove(queued)
        elif not self.fresh.remove(queued):
            self.waiting.remove(queued)
        key = (queued.is_peer, queued.query)
        self._queries[key] -= 1
        if not self._queries[key]:
            del self._queries[key]
