"""The first answer wins: hedges, retries, budgets and deadlines, with replicas that are made up."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.control.routing.hedge_budget import Budget, ForwardLatency
from standpipe.control.routing.route import Verdict
from standpipe.freshness import Freshness
from standpipe.model import NodeId, NodeInfo
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.hedging import (
    TOO_COSTLY,
    AllRefused,
    Attempt,
    HedgedRead,
    HedgedReads,
    is_costly,
)
from standpipe.sql.plans import PullPlan

NEVER = 3600.0
Result = TypeVar("Result")


def candidate(name: str, *, ok: bool = True) -> Verdict:
    info = NodeInfo(node_id=NodeId(name), public="", internal="", peer="", incarnation="")
    return Verdict(
        node_id=NodeId(name),
        role="STANDBY",
        ok=ok,
        why=f"{name}?",
        is_local=name == "here",
        info=info,
    )


def part(name: str) -> PartitionAnswer:
    return PartitionAnswer(
        rows=[], fresh=Freshness(served_by=name, role="standby", state="RUNNING")
    )


class Sleepers(selectors.DefaultSelector):
    """Nothing is waited for: the time that a wait would take has passed."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class TimelessLoop(asyncio.SelectorEventLoop):
    """Its clock moves when everybody sleeps: a busy machine is not slow by it."""

    def __init__(self) -> None:
        self._sleepers = Sleepers()
        super().__init__(self._sleepers)

    def time(self) -> float:
        return self._sleepers.now_s


def timeless(coroutine: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        return runner.run(coroutine)


class Replicas:
    """Answers by name: seconds until an answer, or a refusal."""

    def __init__(self, **answers: float | ForwardRefused) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.ended: list[str] = []

    async def attempt(self, verdict: Verdict, left_ms: int) -> PartitionAnswer:
        name = verdict.node_id
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, ForwardRefused):
            raise answer
        try:
            await asyncio.wait_for(asyncio.sleep(answer), left_ms / 1000)
        except TimeoutError:
            raise ForwardRefused("no answer", is_path_failure=True) from None
        finally:
            self.ended.append(name)
        return part(name)


def hedged_reads(*, hedges: float = 0.05, retries: float = 0.1, burst: int = 100) -> HedgedReads:
    pace = ForwardLatency()
    pace.slow_ms = 5.0
    return HedgedReads(Budget(hedges, burst), Budget(retries, burst), pace)


def nobody(refusal: ForwardRefused) -> Sequence[Verdict]:
    return []


def read_of(candidates: Sequence[Verdict], attempt: Attempt, total_ms: int) -> HedgedRead:
    return HedgedRead(candidates=candidates, attempt=attempt, further=nobody, total_ms=total_ms)


def run(
    replicas: Replicas,
    names: str,
    *,
    shared: HedgedReads | None = None,
    total_ms: int = 10_000,
    further: Callable[[ForwardRefused], Sequence[Verdict]] = nobody,
    is_scan: bool = False,
    costs_much: bool = False,
) -> str | list[str]:
    """Who answered, or the reasons of all."""

    async def race() -> str | list[str]:
        chosen = shared or hedged_reads()
        candidates = [candidate(name) for name in names.split()]
        try:
            won = await chosen.first(
                HedgedRead(
                    candidates=candidates,
                    attempt=replicas.attempt,
                    further=further,
                    total_ms=total_ms,
                    is_scan=is_scan,
                    is_costly=costs_much,
                )
            )
        except AllRefused as refused:
            return [f"{verdict.node_id}: {refusal.why}" for verdict, refusal in refused.refusals]
        finally:
            chosen.close()
        return won.fresh.served_by

    return timeless(race())


FAILED = ForwardRefused("reset", is_path_failure=True)
REFUSED = ForwardRefused("lag")
SILENT = ForwardRefused("silent", is_path_failure=True, was_sent=True)
GIVEN_UP = f"c: {TOO_COSTLY}"


@pytest.mark.parametrize(
    ("answers", "names", "won", "asked", "why"),
    [
        ({"a": 0.0, "b": 0.0}, "a b", "a", ["a"], "the first answers: nobody else is asked"),
        ({"a": NEVER, "b": 0.0}, "a b", "b", ["a", "b"], "slow: the next is asked too"),
        ({"a": 0.02, "b": NEVER}, "a b", "a", ["a", "b"], "the slow one was first after all"),
        ({"a": FAILED, "b": 0.0}, "a b", "b", ["a", "b"], "a failed path: at once to the next"),
        ({"a": REFUSED, "b": 0.0}, "a b", "b", ["a", "b"], "a refusal: at once to the next"),
        ({"a": NEVER, "b": NEVER, "c": 0.0}, "a b c", "c", ["a", "b", "c"], "two at once"),
        ({"a": NEVER, "here": 0.0}, "a here", "here", ["a", "here"], "the own one as a hedge"),
        ({"a": FAILED, "b": FAILED, "c": 0.0}, "a b c", "c", ["a", "b", "c"], "to the last"),
    ],
)
def test_who_answers(
    answers: dict[str, float | ForwardRefused], names: str, won: str, asked: list[str], why: str
) -> None:
    replicas = Replicas(**answers)
    assert run(replicas, names) == won, why
    assert replicas.asked == asked, why


def test_nothing_is_hedged_three_times() -> None:
    replicas = Replicas(a=NEVER, b=NEVER, c=NEVER, d=0.0)
    reasons = run(replicas, "a b c d", total_ms=120)
    assert replicas.asked == ["a", "b", "c"]
    assert isinstance(reasons, list)
    assert len(reasons) == 4, "one verdict per replica"


@pytest.mark.parametrize(
    ("answers", "result", "asked", "why"),
    [
        ({"a": 1.0, "b": 0.0}, "a", ["a"], "a scan is slow by itself"),
        ({"a": FAILED, "b": 1.0}, "b", ["a", "b"], "a path that failed is another matter"),
        ({"a": NEVER, "b": 0.0}, [f"a: {TOO_SLOW}", f"b: {TOO_SLOW}"], ["a"], "out of time"),
    ],
)
def test_a_scan_is_not_hedged(
    answers: dict[str, float | ForwardRefused], result: str | list[str], asked: list[str], why: str
) -> None:
    replicas, slow = Replicas(**answers), list[str]()
    shared = hedged_reads()
    shared.silent = lambda peer: slow.append(peer.node_id)
    assert run(replicas, "a b", shared=shared, is_scan=True) == result, why
    assert (replicas.asked, slow) == (asked, []), "and nobody is called slow for it"


@pytest.mark.parametrize(
    ("answers", "kind", "result", "asked", "why"),
    [
        ((SILENT, 0.0, 0.0), "costly", "b", "a b", "one retry: the first may just have died"),
        ((SILENT, SILENT, 0.0), "costly", GIVEN_UP, "a b", "and no second one"),
        ((SILENT, SILENT, 0.0), "scan", GIVEN_UP, "a b", "a scan is costly"),
        ((FAILED, SILENT, 0.0), "costly", "c", "a b c", "a has never had it"),
        ((FAILED, FAILED, 0.0), "costly", "c", "a b c", "nobody has had it: dead nodes"),
        ((SILENT, REFUSED, 0.0), "costly", "c", "a b c", "a refusal is an answer"),
        ((SILENT, SILENT, 0.0), "lookup", "c", "a b c", "one key wedges nobody: to the last"),
        ((1.0, 0.0, 0.0), "costly", "a", "a", "it is not hedged"),
        ((1.0, 0.0, 0.0), "lookup", "b", "a b", "a lookup is"),
    ],
)
def test_a_read_that_may_wedge_its_peers_is_tried_twice(
    answers: tuple[float | ForwardRefused, ...], kind: str, result: str, asked: str, why: str
) -> None:
    """An entry node timed out, asked the standby too, and both stood still for minutes."""
    replicas = Replicas(**dict(zip("abc", answers, strict=True)))
    found = run(replicas, "a b c", is_scan=kind == "scan", costs_much=kind == "costly")
    assert (found if isinstance(found, str) else found[-1]) == result, why
    assert replicas.asked == asked.split(), why


def costly(**changed: object) -> bool:
    text = str(changed.pop("text", "SELECT * FROM T WHERE K = 'a';"))
    plan = PullPlan(
        source=sample_table(), keys=(("a",),), schema="", column_names=(), column_types=()
    )
    return is_costly(text, msgspec.structs.replace(plan, **changed))


@pytest.mark.parametrize(
    ("changed", "is_so", "why"),
    [
        ({}, False, "a lookup of one key, which the fast path may answer"),
        ({"is_scan": True, "keys": ()}, True, "a scan"),
        ({"keys": (("a",),) * 16}, False, "a few keys"),
        ({"keys": (("a",),) * 17}, True, "many keys"),
        ({"expression_count": 64}, False, "a usual WHERE"),
        ({"expression_count": 65}, True, "a long one"),
        ({"text": "x" * 1000}, False, "a text of some lines"),
        ({"text": "x" * 1001}, True, "a long text"),
    ],
)
def test_what_is_costly(changed: dict[str, object], is_so: bool, why: str) -> None:
    assert costly(**changed) is is_so, why


def test_each_hedge_says_once_who_is_slow() -> None:
    """A path fails after so many slow reads in a row: one read counts once."""
    slow: list[str] = []
    shared = hedged_reads()
    shared.silent = lambda peer: slow.append(peer.node_id)
    replicas = Replicas(a=NEVER, b=NEVER, c=0.0)
    assert run(replicas, "a b c", shared=shared) == "c"
    assert slow == ["a", "b"]
    slow.clear()
    spent = hedged_reads(hedges=0.0)
    spent.silent = shared.silent
    run(replicas, "a b c", shared=spent, total_ms=60)
    assert slow == ["a"], "where no hedge is left, too"


def test_all_refuse_with_one_reason_each() -> None:
    replicas = Replicas(a=FAILED, b=REFUSED)
    assert run(replicas, "a b") == ["a: reset", "b: lag"]


def test_a_refusal_keeps_no_frame() -> None:
    """One of them has the read, which has the refusal: a ring, with all that is in hand."""
    refused: list[ForwardRefused] = []

    async def attempt(verdict: Verdict, left_ms: int) -> PartitionAnswer:
        try:
            raise KeyError(verdict.node_id)
        except KeyError as error:
            refused.append(ForwardRefused("lag"))
            raise refused[-1] from error

    with pytest.raises(AllRefused):
        timeless(hedged_reads().first(read_of([candidate("a"), candidate("b")], attempt, 1000)))
    causes = [each.__cause__ for each in refused]
    assert [each and each.__traceback__ for each in (*refused, *causes)] == [None] * 4


def test_no_candidate() -> None:
    assert run(Replicas(), "") == []


def test_a_spent_hedge_budget_waits() -> None:
    replicas = Replicas(a=0.05, b=0.0)
    assert run(replicas, "a b", shared=hedged_reads(hedges=0.0)) == "a"
    assert replicas.asked == ["a"]


def test_the_own_replica_needs_no_budget() -> None:
    spent = hedged_reads(burst=0)
    for budget in (spent.hedges, spent.retries):
        budget.read(0.0)
        assert budget.take(0.0)
    assert run(Replicas(a=NEVER, b=0.0), "a b", shared=spent, total_ms=60) == [
        "a: Out of time.",
        "b: Out of time.",
    ]
    assert run(Replicas(a=NEVER, here=0.0), "a here", shared=spent) == "here"
    assert run(Replicas(a=FAILED, here=0.0), "a here", shared=spent) == "here"


def test_hedges_off_means_the_own_replica_too() -> None:
    """`standpipe.forward.hedge.load.percent=0`: only a failure moves a read from the first."""
    off = hedged_reads(hedges=0.0)
    assert run(Replicas(a=0.05, here=0.0), "a here", shared=off) == "a"
    assert run(Replicas(a=FAILED, here=0.0), "a here", shared=off) == "here"


def test_a_spent_retry_budget_tells_so() -> None:
    reasons = run(Replicas(a=FAILED, b=0.0), "a b", shared=hedged_reads(retries=0.0))
    assert reasons == ["a: reset", "b: Not tried: too many retries recently."]


def test_a_refusal_spends_no_retry() -> None:
    """The peer answered: asking the next is no extra load on what is sick."""
    assert run(Replicas(a=REFUSED, b=0.0), "a b", shared=hedged_reads(retries=0.0)) == "b"


def test_an_owner_that_a_newer_map_names() -> None:
    moved = ForwardRefused("NOT_OWNER", owners=(NodeId("b"),), assignment_epoch=7)
    replicas = Replicas(a=moved, b=0.0)
    assert run(replicas, "a", further=lambda refusal: [candidate("b")]) == "b"


def test_a_loser_is_not_cancelled() -> None:
    """Its end is what the breaker of its path learns from."""

    async def race() -> list[str]:
        shared, replicas = hedged_reads(), Replicas(a=0.1, b=0.0)
        candidates = [candidate("a"), candidate("b")]
        won = await shared.first(read_of(candidates, replicas.attempt, 10_000))
        assert (won.fresh.served_by, replicas.ended) == ("b", ["b"])
        while "a" not in replicas.ended:  # noqa: ASYNC110 - an event would be the loser's
            await asyncio.sleep(0.01)
        return replicas.ended

    assert timeless(race()) == ["b", "a"]


def test_what_is_refused_here_is_not_sent() -> None:
    async def race() -> list[str]:
        async def attempt(verdict: Verdict, left_ms: int) -> PartitionAnswer:
            raise ForwardRefused(verdict.why)

        with pytest.raises(AllRefused) as caught:
            await hedged_reads().first(read_of([candidate("a", ok=False)], attempt, 1000))
        return [refusal.why for _, refusal in caught.value.refusals]

    assert timeless(race()) == ["a?"]
