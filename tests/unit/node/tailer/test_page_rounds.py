"""Which status pages a round of a tailer writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from standpipe.data.replica.applied_progress import AppliedProgress
from standpipe.model import ReplicaState
from standpipe.node.tailer.page_rounds import PageRounds

ONE, TWO = (10, 1, 0), (20, 1, 1)


class Replica:
    """As much of a replica as a round needs. `newest`, `shown`: ranks, as of its machine."""

    def __init__(self, state: ReplicaState = ReplicaState.RUNNING) -> None:
        self.machine = SimpleNamespace(state=state)
        self.holding = SimpleNamespace(query_id="Q")
        self.newest = self.shown = ONE
        self.progress = AppliedProgress()
        self.pages, self.sources = 0, list[int]()
        self.notes = 0

    def note_progress(self, read_up_to: int, topic_id: str) -> None:
        self.notes += 1
        answers = self.machine.state.answers
        self.progress.note(read_up_to, self.newest, self.shown if answers else None, topic_id)

    def note_sources(self, boot_ms: int) -> None:
        self.sources.append(boot_ms)

    def is_awaited(self, barrier_end: int) -> bool:
        return self.progress.is_awaited(barrier_end)

    @property
    def told_progress(self) -> int:
        return self.progress.told

    def write_page(self) -> None:
        self.pages += 1
        self.progress.told = self.progress.end


class Tailer:
    def __init__(self, *replicas: Replica) -> None:
        self.now_ms, self.replicas = 1_000, replicas
        self.progress = SimpleNamespace(position=5, topic_id="X", barrier_end=0)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.rounds = PageRounds(clock)

    def turn(self, after_ms: int = 5) -> list[int]:
        """How many pages each replica has written then."""
        self.now_ms += after_ms
        given: Any = (self.replicas, self.progress)
        self.rounds.turn(*given, lambda: {"Q": 77})
        return [each.pages for each in self.replicas]

    def append_barrier(self) -> None:
        self.progress.position += 1
        self.progress.barrier_end = self.progress.position


def test_a_barrier_moves_the_pages_of_replicas_that_have_what_is_below_it() -> None:
    ready, behind = Replica(), Replica()
    tailer = Tailer(ready, behind)
    assert tailer.turn() == [1, 1]
    behind.newest = TWO
    tailer.append_barrier()
    assert tailer.turn() == [2, 1]
    assert (ready.told_progress, behind.told_progress) == (6, 5)
    assert tailer.turn() == [2, 1], "the other one is looked at, and has nothing new"
    behind.shown = TWO
    assert tailer.turn() == [2, 2]
    assert behind.told_progress == 6
    assert (ready.sources, behind.sources) == ([77], [77]), "only in rounds of all pages"


def test_nothing_is_done_for_barriers_that_all_pages_have() -> None:
    """Nor for a replica that does not answer yet, which may be so for hours."""
    ready, restored = Replica(), Replica(ReplicaState.BOOTSTRAP)
    tailer = Tailer(ready, restored)
    tailer.turn()
    tailer.append_barrier()
    assert tailer.turn() == [2, 1]
    notes = ready.notes, restored.notes
    for _ in range(5):
        assert tailer.turn() == [2, 1]
    assert (ready.notes, restored.notes) == notes
    assert tailer.turn(50) == [3, 2]


def test_a_node_without_replicas_has_no_rounds_but_those_of_all() -> None:
    tailer = Tailer()
    tailer.turn()
    tailer.append_barrier()
    assert tailer.turn() == []


def test_a_long_round_is_followed_by_a_pause() -> None:
    """The tailer's time is for batches: its pace is told how long the round took."""

    class Slow(Replica):
        def write_page(self) -> None:
            super().write_page()
            tailer.now_ms += 2

    tailer = Tailer(Slow())
    tailer.turn()
    tailer.append_barrier()
    assert [tailer.turn(1) for _ in range(17)] == [[1]] * 17
    assert tailer.turn(1) == [2]
