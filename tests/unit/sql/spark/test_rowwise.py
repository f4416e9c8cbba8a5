"""Keys of results without GROUP BY: which must be in the SELECT list, in which order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan

SETUP = (
    "CREATE STREAM TWO (K1 STRING KEY, K2 INT KEY, A INT, B INT)"
    " WITH (KAFKA_TOPIC='here', FORMAT='JSON');"
    "CREATE STREAM NONE_ (A INT, B INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
)


def made(plan: Callable[..., Plan], select: str, properties: str = "") -> str:
    found = plan(f"{SETUP}CREATE STREAM X {properties} AS SELECT {select};")
    assert isinstance(found, CreateTableAsPlan)
    return ", ".join(f"{c.name}{' KEY' if c.is_key else ''}" for c in found.source.columns)


def refused(plan: Callable[..., Plan], select: str, properties: str = "") -> str:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}CREATE STREAM X {properties} AS SELECT {select};")
    return refusal.value.message


@pytest.mark.parametrize(
    ("keys", "columns", "why"),
    [
        ("S->X", "X_1 KEY, X, S, KSQL_COL_0", "a column has the field's name"),
        ("S->Y", "Y KEY, X, S, KSQL_COL_0", ""),
        ("X, X + 1", "X KEY, KSQL_COL_1 KEY, S, KSQL_COL_0", "a column has the first number's"),
        ("X + 1, X + 2", "KSQL_COL_1 KEY, KSQL_COL_2 KEY, X, S, KSQL_COL_0", ""),
    ],
)
def test_the_new_key_of_a_star_has_a_name_of_its_own(
    plan: Callable[..., Plan], keys: str, columns: str, why: str
) -> None:
    """Source: ksqlDB's PartitionByParamsFactory, ColumnNames."""
    source = (
        "CREATE STREAM N (X INT, S STRUCT<X INT, Y INT>, KSQL_COL_0 INT)"
        " WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    )
    text = f"CREATE STREAM Z WITH (KEY_FORMAT='JSON') AS SELECT * FROM N PARTITION BY {keys};"
    found = plan(f"{source}{text}")
    assert isinstance(found, CreateTableAsPlan)
    names = [f"{each.name}{' KEY' if each.is_key else ''}" for each in found.source.columns]
    assert ", ".join(names) == columns, why


@pytest.mark.parametrize(
    ("select", "columns", "why"),
    [
        ("K2, A, K1 FROM TWO", "K1 KEY, K2 KEY, A", "records keep their keys"),
        ("K2 AS X, K1 AS Y, A FROM TWO", "Y KEY, X KEY, A", "whatever they are called"),
        ("K1 AS K2, K2 AS K1, A FROM TWO", "K2 KEY, K1 KEY, A", "even each other's names"),
        ("B, A, K1 FROM TWO PARTITION BY A, B", "A KEY, B KEY, K1", "a new key: PARTITION BY's"),
    ],
)
def test_the_order_of_keys_is_that_of_the_rows(
    plan: Callable[..., Plan], select: str, columns: str, why: str
) -> None:
    """After PARTITION BY, that of the clause."""
    assert made(plan, select) == columns, why


@pytest.mark.parametrize(
    "select", ["K1, A FROM TWO", "A FROM TWO", "K1 || '' AS K1, K2, A FROM TWO"]
)
def test_a_stream_keeps_its_whole_key(plan: Callable[..., Plan], select: str) -> None:
    """ksqlDB: DataSourceNode.validateKeyPresent, of streams as of tables, also if all is missing.
    Its new planner, which is off by default, would let a stream leave it out."""
    assert refused(plan, select) == (
        "Keys missing from projection (ie, SELECT).\nThe query used to build `X` must include the"
        " key columns K1 and K2 in its projection (eg, SELECT K1, K2...)."
    )


def test_names_of_missing_keys_are_quoted_where_they_must_be(plan: Callable[..., Plan]) -> None:
    made = "CREATE STREAM S (`k!` STRING KEY, V INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON');"
    with pytest.raises(StatementError) as refusal:
        plan(f"{made}CREATE STREAM X AS SELECT V FROM S;")
    assert "must include the key column `k!` in its" in refusal.value.message


def test_one_without_keys_needs_none(plan: Callable[..., Plan]) -> None:
    assert made(plan, "A FROM NONE_") == "A"
    assert made(plan, "A FROM TWO PARTITION BY NULL") == "A"


def test_a_format_of_keys_may_be_given_where_there_are_none(plan: Callable[..., Plan]) -> None:
    """GROUP BY over the stream takes it over."""
    found = plan(f"{SETUP}CREATE STREAM X WITH (KEY_FORMAT='JSON') AS SELECT A FROM NONE_;")
    assert isinstance(found, CreateTableAsPlan)
    assert found.source.key_format == "JSON"


@pytest.mark.parametrize(
    ("select", "properties", "text"),
    [
        ("*, K1 FROM TWO", "", "Duplicate key columns found in schema: `K1` STRING KEY"),
        ("K1, K2, A AS K1 FROM TWO", "", "Value columns clash with key columns: `K1`"),
        ("K1, K2 FROM TWO", "", "The projection contains no value columns."),
        ("K1 FROM TWO", "", "The projection contains no value columns."),
        (
            *("A FROM TWO", "WITH (TIMESTAMP='B')"),
            "The TIMESTAMP column set in the WITH clause does not exist in the schema: 'B'",
        ),
    ],
)
def test_what_is_refused_before_missing_keys(
    plan: Callable[..., Plan], select: str, properties: str, text: str
) -> None:
    """ksqlDB: FinalProjectNode, then LogicalPlanner.buildOutputNode."""
    assert refused(plan, select, properties) == text
