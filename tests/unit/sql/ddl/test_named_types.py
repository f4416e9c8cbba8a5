"""Names of types stand for their definitions: a few short statements could make one of a GB."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTypePlan, Plan
from standpipe.sql.types.types import TYPE_CHARS_MAX

#: of 10,000 characters
WIDE = "STRUCT<" + ", ".join(f"`F{number:08}` INTEGER" for number in range(476)) + ">"
ROOM = TYPE_CHARS_MAX // len(WIDE)


def fields(of: str, count: int) -> str:
    return ", ".join(f"F{number} {of}" for number in range(count))


PLACES = {
    "a type": "CREATE TYPE n AS STRUCT<{fields}>;",
    "columns": "CREATE STREAM n ({fields}) WITH"
    " (KAFKA_TOPIC='n', PARTITIONS=1, VALUE_FORMAT='JSON');",
    "a lookup": "SELECT CAST(NULL AS STRUCT<{fields}>) AS x FROM by_tail WHERE tail = 'a';",
    "a stream": "CREATE STREAM n AS SELECT tail, CAST(NULL AS STRUCT<{fields}>) AS x FROM flights;",
    "a push query": "SELECT CAST(NULL AS STRUCT<{fields}>) AS x FROM flights EMIT CHANGES;",
}


@pytest.mark.parametrize("place", PLACES)
def test_names_stand_for_so_much_in_one_statement(plan: Callable[..., Plan], place: str) -> None:
    sql = PLACES[place]
    plan(sql.replace("{fields}", fields("WIDE", ROOM)), types={"WIDE": WIDE})
    with pytest.raises(StatementError, match="longer than 32768 characters together"):
        plan(sql.replace("{fields}", fields("WIDE", ROOM + 1)), types={"WIDE": WIDE})


@pytest.mark.parametrize("times", [2, 30, 1_000])
def test_types_that_multiply_each_other_end_at_the_limit(
    plan: Callable[..., Plan], times: int
) -> None:
    """255 bytes took a worker 31 s and 200 MB; the next such statement would have taken 30 times
    that."""
    with pytest.raises(StatementError, match="longer than 32768 characters together"):
        multiply(plan, times)


def multiply(plan: Callable[..., Plan], times: int) -> None:
    definition = "STRUCT<`A` INTEGER>"
    for _ in range(20):
        made = plan(f"CREATE TYPE n AS STRUCT<{fields('T', times)}>;", types={"T": definition})
        assert isinstance(made, CreateTypePlan)
        definition = made.definition
