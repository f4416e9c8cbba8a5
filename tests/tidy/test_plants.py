"""Every planted bug fits the code it is put into."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim import (
    data_planted,
    direct_planted,
    planted,
    push_planted,
    session_planted,
    session_writes_planted,
    snapshot_planted,
)
from tests.sim.runner import Plant

PLANTS = (
    *planted.PLANTS,
    *data_planted.PLANTS,
    *direct_planted.DIRECT_PLANTS,
    *push_planted.PUSH_PLANTS,
    *session_planted.PLANTS,
    *session_writes_planted.WRITE_PLANTS,
    *snapshot_planted.SNAPSHOT_PLANTS,
)


def misfit(owner: object, name: str, value: Any) -> str | None:
    """Why `value` cannot be called as what it replaces is. None if it can, or if neither is."""
    there = inspect.getattr_static(owner, name)
    if isinstance(there, staticmethod | classmethod):
        there = there.__func__
    if not inspect.isfunction(there) or not inspect.isfunction(value):
        return None
    wanted = inspect.signature(there).parameters.values()
    positional = [one.name for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = {one.name: one.name for one in wanted if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(value).bind(*positional, **by_name)
    except TypeError as error:
        return f"{name}: {error}"
    return None


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_plant_takes_the_arguments_of_what_it_replaces(plant: Callable[[], list[Plant]]) -> None:
    replaced = plant()
    assert replaced
    assert [why for one in replaced if (why := misfit(*one))] == []


def test_a_plant_with_too_few_arguments_is_found() -> None:
    class Owner:
        def judge(self, rows: int, others: int = 0) -> None: ...

    assert misfit(Owner, "judge", lambda self, rows: None) is not None
    assert misfit(Owner, "judge", lambda *_: None) is None
