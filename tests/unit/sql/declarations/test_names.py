"""Names that statements may not give. ksqlDB allows any text in backticks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import standpipe
from standpipe.errors import StatementError
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.declarations import names
from standpipe.sql.declarations.names import NAME_CHARS_MAX
from standpipe.sql.plans import Plan
from standpipe.sql.syntax import variables

UNSEEN = {
    "\0": "U+0000",
    "\x07": "U+0007",
    "\x1b": "U+001B",
    "\x85": "U+0085",
    "\u200b": "U+200B",
    "\u200f": "U+200F",
    "\u202e": "U+202E",
    "\u2066": "U+2066",
    "\u2028": "U+2028",
    "\ufeff": "U+FEFF",
    "\U000e0041": "U+E0041",
}
#: where a statement gives a name: {} is it
PLACES = {
    "stream": "CREATE STREAM `{}` (A INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');",
    "table": "CREATE TABLE `{}` (A INT PRIMARY KEY) WITH (KAFKA_TOPIC='here', FORMAT='JSON');",
    "result": "CREATE STREAM `{}` WITH (KAFKA_TOPIC='x') AS SELECT * FROM FLIGHTS;",
    "column": "CREATE STREAM N (`{}` INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');",
    "alias": "CREATE STREAM N AS SELECT TAIL, SEATS AS `{}` FROM FLIGHTS PARTITION BY TAIL;",
    "field": "CREATE STREAM N (A STRUCT<`{}` INT>) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');",
    "type": "CREATE TYPE `{}` AS INTEGER;",
    "field of a type": "CREATE TYPE M AS STRUCT<`{}` INT>;",
    "variable": "DEFINE `{}` = 'x';",
    "topic": "CREATE STREAM N (A INT) WITH (KAFKA_TOPIC='{}', PARTITIONS=1, VALUE_FORMAT='JSON');",
    "topic that exists": "CREATE STREAM N (A INT) WITH (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON');",
    "printed topic": "PRINT '{}';",
    "asserted topic": "ASSERT TOPIC '{}';",
    "query": "INSERT INTO FLIGHTS WITH (QUERY_ID='{}') SELECT * FROM FLIGHTS;",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mark", UNSEEN, ids=UNSEEN.values())
def test_what_cannot_be_seen_is_refused_by_its_number(
    plan: Callable[..., Plan], place: str, mark: str
) -> None:
    with pytest.raises(StatementError) as refused:
        plan(PLACES[place].replace("{}", f"a{mark}b"))
    assert f" is {UNSEEN[mark]} (" in refused.value.message
    assert mark not in refused.value.message


PATHS = ("stream", "table", "result", "type", "variable")


@pytest.mark.parametrize("place", PATHS)
@pytest.mark.parametrize("name", ["..", ".", "../x", "a/../../x", "a\\..\\b", "/./x"])
def test_names_that_read_like_paths(plan: Callable[..., Plan], place: str, name: str) -> None:
    with pytest.raises(StatementError, match="reads like a path"):
        plan(PLACES[place].replace("{}", name))


@pytest.mark.parametrize("name", ["my stream", "a.b", "a..b", "a/b é", "日本", "😀", "-", "a\\b"])
def test_unusual_names_of_ksqldb(plan: Callable[..., Plan], name: str) -> None:
    for place in ("stream", "column", "field", "result"):
        plan(PLACES[place].replace("{}", name))


@pytest.mark.parametrize("place", [*PATHS, "column", "alias"])
def test_long_names(plan: Callable[..., Plan], place: str) -> None:
    plan(PLACES[place].replace("{}", "X" * NAME_CHARS_MAX))
    with pytest.raises(StatementError, match=f"{NAME_CHARS_MAX + 1} characters"):
        plan(PLACES[place].replace("{}", "X" * (NAME_CHARS_MAX + 1)))


@pytest.mark.parametrize(
    ("query_id", "words"),
    [
        ("/elsewhere/x", "may contain only alphanumeric"),
        ("../x", "may contain only alphanumeric"),
        ("a b", "may contain only alphanumeric"),
        ("", "may contain only alphanumeric"),
        ("Q" * 129, "may contain only alphanumeric"),
        ("CTAS_T_9", "statements get such ids"),
        ("insertquery_9", "statements get such ids"),
    ],
)
def test_ids_of_queries(plan: Callable[..., Plan], query_id: str, words: str) -> None:
    with pytest.raises(StatementError, match=words):
        plan(PLACES["query"].replace("{}", query_id))


def test_a_variable_may_hold_a_direction_mark_but_no_name_may() -> None:
    sql = "CREATE TYPE `a${mark}` AS INTEGER;"
    (statement,) = variables.parse(sql, {"mark": "\u202e"})
    with pytest.raises(StatementError, match=r"U\+202E"):
        analyze(statement, {}, Context())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("PARTITIONS='99999999999999999999'", "64-bit"),
        (f"PARTITIONS='{'9' * 5000}'", "64-bit"),
        ("RETENTION_MS='9223372036854775808'", "64-bit"),
        ("ACCEPTABLE_OFFSET_LAG='-9223372036854775809'", "64-bit"),
        ("REPLICAS=0", "Invalid number of replicas"),
        ("REPLICAS=11", r"standpipe\.source\.replicas\.max allows 10"),
    ],
)
def test_numbers_beyond_any_use(plan: Callable[..., Plan], text: str, words: str) -> None:
    with pytest.raises(StatementError, match=words):
        plan(
            "CREATE STREAM N (A INT) WITH (KAFKA_TOPIC='n', VALUE_FORMAT='JSON'"
            f"{'' if text.startswith('PART') else ', PARTITIONS=1'}, {text});"
        )


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("__OP", False),
        ("__DELETED", False),
        ("__SOURCE_TS_MS", False),
        ("__order", False),
        ("__ORDER", True),
        ("__rowtime", True),
        ("__E12", True),
        ("__ROW_0", True),
        ("__value", True),
    ],
)
def test_only_names_of_our_own_columns_are_reserved(name: str, is_own: bool) -> None:
    assert names.is_own(name) is is_own


def test_every_column_of_our_own_is_reserved() -> None:
    """A user's column of the same name would take its place."""
    package = Path(standpipe.__file__).parent
    found: set[str] = set()
    for room in ("sql", "pipeline", "data", "spark"):
        for path in (package / room).rglob("*.py"):
            found.update(re.findall(r"(?<![A-Za-z0-9_])__[A-Za-z]\w*\b", path.read_text()))
    ours = {name for name in found if not name.endswith("__")}
    assert len(ours) > 30, "the search finds them"
    assert not sorted(name for name in ours if not names.is_own(name))
