"""Linearizable reads from any replica (KIP-650 "Non-leader Linearizable Read"), both halves.

    a read arrives here ─► ReadOffset ─► the leader notes its high watermark and issues round r
                                         every fetch answer carries r, every next fetch echoes it
    read locally ◄─ applied ≥ offset ◄── a majority has echoed ≥ r: the leader led *after* the read

Why rounds.  KIP-650's text lets the leader answer its applied offset at once; a leader that was
deposed without noticing would then return an old one.  It must learn, after the read arrived, that
a majority is still in its epoch.  In a pull protocol it cannot ask: it can only wait for fetches,
and a fetch that *arrives* after the read may have been *sent* before it.  So the leader numbers its
questions, and only a fetch that repeats the number counts (`docs/sources.md`, KIP-650).

Batching follows: one echoed round answers all reads noted up to it, and at a reader one
ReadOffset in flight serves all reads that arrived before it was sent.

Not here: who leads, and the fetches (`leader`).
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from standpipe.control.raft.events import AnswerRead
from standpipe.control.raft.majority import LogOffset, Round
from standpipe.control.raft.messages import Error
from standpipe.model import NodeId


@dataclass(frozen=True, slots=True)
class NotedRead:
    """A ReadOffset at the leader, waiting for its round."""

    reader: NodeId | None
    """None: the leader's own node."""
    request: int
    round: Round
    offset: LogOffset


class ReadRounds:
    """The leader's half; lives as long as one leadership."""

    def __init__(self) -> None:
        """Round 0 counts as confirmed: no read waits for it."""
        self.round = Round(0)
        #: ascending by round
        self._noted: deque[NotedRead] = deque()
        #: reads that arrived before this leader had committed anything in its own epoch
        self._early: list[tuple[NodeId | None, int]] = []

    @property
    def wanted(self) -> Round:
        """The newest round that a read waits for; 0 when none does."""
        return self._noted[-1].round if self._noted else Round(0)

    def note(self, reader: NodeId | None, request: int, high_watermark: LogOffset | None) -> None:
        """Accept a read; `high_watermark` is None until this leader knows its own (KIP-650).

        Before its first own commit, a new leader may not know of the newest acknowledged writes.
        """
        if high_watermark is None:
            self._early.append((reader, request))
            return
        self.round = Round(self.round + 1)
        self._noted.append(NotedRead(reader, request, self.round, high_watermark))

    def watermark_known(self, high_watermark: LogOffset) -> None:
        """The leader committed in its own epoch: early reads may be noted now."""
        early, self._early = self._early, []
        for reader, request in early:
            self.note(reader, request, high_watermark)

    def confirmed(self, by_majority: int) -> list[NotedRead]:
        """The reads whose round a majority has echoed, in order of arrival."""
        done: list[NotedRead] = []
        while self._noted and self._noted[0].round <= by_majority:
            done.append(self._noted.popleft())
        return done

    def abandoned(self) -> list[tuple[NodeId | None, int]]:
        """All waiting reads, when the leadership ends: none of them may be answered."""
        waiting = [(read.reader, read.request) for read in self._noted]
        return waiting + self._early


class ReadQueue:
    """The reader's half: reads of this node's clients, until the state machine has caught up."""

    def __init__(self, read_ms: int) -> None:
        """`read_ms`: how long a read may take in total."""
        self._read_ms = read_ms
        #: {read: when it fails}, ascending, since all get the same time; exactly the open reads
        self._due_ms: OrderedDict[int, int] = OrderedDict()
        #: reads that arrived after the ReadOffset in flight was sent: it does not cover them
        self._unasked: list[int] = []
        #: reads covered by the ReadOffset in flight
        self._asked: list[int] = []
        self._request: int | None = None
        #: heap of (offset, order of arrival, read): reads that wait for the state machine
        self._waiting: list[tuple[LogOffset, int, int]] = []
        self._arrived = 0

    def add(self, read: int, offset: LogOffset | None, now_ms: int) -> None:
        """Accept a read; with an offset it needs no leader, only the state machine."""
        assert read not in self._due_ms, f"read {read} is open already"
        self._due_ms[read] = now_ms + self._read_ms
        if offset is None:
            self._unasked.append(read)
        else:
            self._wait_for(offset, read)

    def _wait_for(self, offset: LogOffset, read: int) -> None:
        self._arrived += 1
        heappush(self._waiting, (offset, self._arrived, read))

    @property
    def must_ask(self) -> bool:
        """Whether reads wait for a ReadOffset and none is in flight."""
        return self._request is None and bool(self._unasked)

    def asked(self, request: int) -> None:
        """A ReadOffset was just sent; it covers the reads that have arrived so far."""
        self._request = request
        self._asked, self._unasked = self._unasked, []

    def answered(self, request: int, offset: LogOffset) -> None:
        """The leader answered; an answer to another request releases nothing."""
        if request != self._request:
            return
        for read in self._asked:
            self._wait_for(offset, read)
        self._asked, self._request = [], None

    def ask_again(self) -> None:
        """The ReadOffset in flight will get no answer: its reads need another one."""
        self._unasked = self._asked + self._unasked
        self._asked, self._request = [], None

    def released(self, applied: LogOffset) -> list[AnswerRead]:
        """The reads that the state machine now satisfies, lowest offset first."""
        ready: list[AnswerRead] = []
        while self._waiting and self._waiting[0][0] <= applied:
            offset, _, read = heappop(self._waiting)
            if self._due_ms.pop(read, None) is not None:  # else it failed while waiting
                ready.append(AnswerRead(read, Error.NONE, offset))
        return ready

    def expired(self, now_ms: int) -> list[AnswerRead]:
        """The reads past their deadline; they fail, since an answer could be stale (KIP-650)."""
        late: list[AnswerRead] = []
        while (due_ms := self.deadline_ms()) is not None and due_ms <= now_ms:
            read, _ = self._due_ms.popitem(last=False)
            late.append(AnswerRead(read, Error.REQUEST_TIMED_OUT))
        if late:
            self._unasked = [read for read in self._unasked if read in self._due_ms]
            self._asked = [read for read in self._asked if read in self._due_ms]
            self._waiting = [entry for entry in self._waiting if entry[2] in self._due_ms]
            heapify(self._waiting)
        return late

    def deadline_ms(self) -> int | None:
        """When the next read fails."""
        return next(iter(self._due_ms.values()), None)
