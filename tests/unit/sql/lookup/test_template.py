"""Values put into a template: signs, intersections, products and bounds."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.lookup.template import KEYS_MAX, Bound, PullTemplate, Slot
from standpipe.sql.plans import PullPlan


def same(value: object) -> object:
    return value


@pytest.fixture
def plan(sources: dict[str, Source]) -> PullPlan:
    return PullPlan(source=sources["BY_TWO"], keys=(), schema="", column_names=(), column_types=())


@pytest.mark.parametrize(
    ("terms", "keys", "why"),
    [
        ((((0,),), ((1,),)), [(10, 20)], "one value each"),
        ((((0, 1),), ((2,),)), [(10, 30), (20, 30)], "every pair"),
        ((((0, 0),), ((1,),)), [(10, 20)], "a value counts once"),
        ((((0, 1), (1, 2)), ((2,),)), [(20, 30)], "AND of INs: what is in both"),
        ((((0,), (1,)), ((2,),)), [], "nothing is both"),
        ((((3,),), ((0,),)), [("fixed", 10)], "constants stand behind the slots"),
    ],
)
def test_keys(plan: PullPlan, terms: object, keys: list[object], why: str) -> None:
    slots = (Slot(0, same), Slot(1, same), Slot(2, same))
    template = PullTemplate(plan, slots, ("fixed",), terms)  # type: ignore[arg-type]
    assert list(template.bind([10, 20, 30]).keys) == keys, why


@pytest.mark.parametrize(
    ("lists", "is_fine", "why"),
    [
        ([KEYS_MAX, 1], True, "as many as there may be"),
        ([KEYS_MAX + 1, 1], False, "one column"),
        ([40, 40], False, "lists of key columns multiply"),
        ([3_000, 3_000], False, "... and are refused before they do"),
    ],
)
def test_keys_are_bounded(plan: PullPlan, lists: list[int], is_fine: bool, why: str) -> None:
    slots = tuple(Slot(place, same) for place in range(sum(lists)))
    places = iter(range(sum(lists)))
    terms = tuple((tuple(next(places) for _ in range(count)),) for count in lists)
    template = PullTemplate(plan, slots, (), terms)
    if is_fine:
        assert len(template.bind(range(sum(lists))).keys) == KEYS_MAX, why
        return
    with pytest.raises(StatementError, match="One query may name 1000"):
        template.bind(range(sum(lists)))


@pytest.mark.parametrize(
    ("operator", "low", "high"),
    [("=", 5, 5), (">", 6, None), (">=", 5, None), ("<", None, 4), ("<=", None, 5)],
)
def test_bounds_are_inclusive(
    plan: PullPlan, operator: str, low: int | None, high: int | None
) -> None:
    slots = (Slot(0, same), Slot(1, same))
    bounds = (Bound("WINDOWEND", operator, 1),)
    bound = PullTemplate(plan, slots, (), (((0,),), ((0,),)), bounds).bind(["a", 5])
    assert (bound.window_end_low_ms, bound.window_end_high_ms) == (low, high)
    assert (bound.window_start_low_ms, bound.window_start_high_ms) == (None, None)


def test_sign_limit_and_the_short_way(plan: PullPlan) -> None:
    slots = (Slot(0, same, negated=True), Slot(9, int))
    template = PullTemplate(plan, slots, (), (((0,),), ((0,),)), limit=1)
    bound = template.bind([7, 3])
    assert (bound.keys, bound.limit) == (((-7, -7),), 3)
    assert template.key_coercion is None
    single = PullTemplate(plan, (Slot(0, same),), (), (((0,),),))
    assert single.key_coercion is not None
