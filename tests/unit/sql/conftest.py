"""Sources that the tests of sql/ speak about, and `plan`: text → what the last statement means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from standpipe.model import Source
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan, Plan
from standpipe.sql.syntax.parser import parse

SETUP = (Path(__file__).parents[2] / "sql" / "setup.sql").read_text()


def run(
    text: str, sources: Mapping[str, Source], context: Context
) -> tuple[Plan, dict[str, Source]]:
    """The plan of the last statement, and the sources with those that the others made."""
    known = dict(sources)
    plan: Plan | None = None
    for statement in parse(text):
        plan = analyze(statement, known, context)
        if isinstance(plan, (CreateSourcePlan, CreateTableAsPlan)):
            known[plan.source.name] = plan.source
    assert plan is not None
    return plan, known


@pytest.fixture(scope="session")
def sources() -> dict[str, Source]:
    return run(SETUP, {}, Context(next_index=1))[1]


@pytest.fixture
def plan(sources: dict[str, Source]) -> Callable[..., Plan]:
    def plan(text: str, **context: object) -> Plan:
        given = {"topics": {"here": 2}, "next_index": 7, **context}
        return run(text, sources, Context(**given))[0]  # type: ignore[arg-type]

    return plan
