"""CREATE … AS SELECT and INSERT INTO … SELECT that ksqlDB refuses, with its texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTableAsPlan, Plan

SETUP = (
    "CREATE STREAM D (K STRING KEY, V INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='DELIMITED');"
    "CREATE STREAM J (K STRING KEY, V INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
    "CREATE STREAM I (K STRING KEY, V INT) WITH (KAFKA_TOPIC='i', VALUE_FORMAT='JSON',"
    " PARTITIONS=1);"
    "CREATE TABLE T (K STRING PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');"
)


def refused(plan: Callable[..., Plan], statement: str) -> str:
    with pytest.raises(StatementError) as refusal:
        plan(f"{SETUP}{statement};")
    return refusal.value.message


@pytest.mark.parametrize(
    "call",
    [
        *("AVG(V)", "LATEST_BY_OFFSET(V)", "EARLIEST_BY_OFFSET(V)", "COLLECT_LIST(V)"),
        *("TOPK(V, 2)", "HISTOGRAM(K)", "STDDEV_SAMPLE(V)", "ABS(AVG(V)) + 1"),
    ],
)
def test_an_aggregate_whose_state_a_delimited_source_cannot_have(
    plan: Callable[..., Plan], call: str
) -> None:
    """ksqlDB keeps it in the format of the first source, whatever that of the result is."""
    group = "GROUP BY K"
    text = "intermediate type that the value format can not handle"
    json = "WITH (VALUE_FORMAT='JSON')"
    assert text in refused(plan, f"CREATE TABLE X {json} AS SELECT K, {call} FROM D {group}")
    having = f"CREATE TABLE X AS SELECT K, COUNT(*) FROM D {group} HAVING {call} IS NOT NULL"
    assert text in refused(plan, having)


@pytest.mark.parametrize("call", ["COUNT(*)", "SUM(V)", "MAX(V)", "MIN(V)"])
def test_one_whose_state_is_a_plain_value(plan: Callable[..., Plan], call: str) -> None:
    made = plan(f"{SETUP}CREATE TABLE X AS SELECT K, {call} FROM D GROUP BY K;")
    assert isinstance(made, CreateTableAsPlan)


def test_the_format_of_the_result_alone_does_not_matter(plan: Callable[..., Plan]) -> None:
    delimited = "WITH (VALUE_FORMAT='DELIMITED')"
    made = plan(f"{SETUP}CREATE TABLE X {delimited} AS SELECT K, AVG(V) FROM J GROUP BY K;")
    assert isinstance(made, CreateTableAsPlan)


@pytest.mark.parametrize("select", ["K, V FROM T", "K, CAST(COUNT(*) AS INT) V FROM J GROUP BY K"])
def test_a_table_is_not_inserted_into_a_stream(plan: Callable[..., Plan], select: str) -> None:
    assert refused(plan, f"INSERT INTO I SELECT {select}") == (
        "Incompatible data sink and query result. Data sink (I) type is KSTREAM but select query"
        " result is KTABLE."
    )


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_a_source_has_no_query(plan: Callable[..., Plan], kind: str) -> None:
    """SOURCE was ignored, so what came of it could be written to and altered."""
    of = "T" if kind == "TABLE" else "J"
    text = refused(plan, f"CREATE SOURCE {kind} X AS SELECT * FROM {of}")
    assert text.startswith(f"CREATE SOURCE {kind} has no AS SELECT: other programs write")


@pytest.mark.parametrize(
    ("statement", "is_refused", "why"),
    [
        ("TABLE X {} AS SELECT K, COUNT(*) FROM J GROUP BY K", True, "its topic is compacted"),
        ("TABLE X {} AS SELECT * FROM T", True, "likewise"),
        ("TABLE X (K INT PRIMARY KEY, V INT) {}", True, "likewise"),
        ("SOURCE TABLE X (K INT PRIMARY KEY, V INT) {}", True, "likewise"),
        ("STREAM X {} AS SELECT * FROM J", False, "events"),
        ("STREAM X (V INT) {}", False, "events"),
        (
            "TABLE X {} AS SELECT K, COUNT(*) FROM J WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K",
            False,
            "windows expire",
        ),
    ],
)
def test_retention_is_not_for_tables_without_windows(
    plan: Callable[..., Plan], statement: str, is_refused: bool, why: str
) -> None:
    topic = "KAFKA_TOPIC='x', PARTITIONS=1, VALUE_FORMAT='JSON', RETENTION_MS={}"
    sql = f"CREATE {statement}".format(f"WITH ({topic})")
    if is_refused:
        assert "Non-windowed tables do not support retention." in refused(plan, sql.format(1)), why
    else:
        assert plan(f"{SETUP}{sql.format(-1)};"), why
        assert "must be at least -1" in refused(plan, sql.format(-2)), "Kafka would never make it"


@pytest.mark.parametrize(
    ("item", "is_refused"),
    [
        ("NULL", True),
        ("STRUCT(F:=NULL)", True),
        ("ARRAY[STRUCT(F:=NULL)]", True),
        ("STRUCT(F:=CAST(NULL AS INT))", False),
    ],
)
def test_each_part_of_a_column_has_a_type(
    plan: Callable[..., Plan], item: str, is_refused: bool
) -> None:
    sql = f"CREATE STREAM X AS SELECT K, {item} AS N FROM J"
    if is_refused:
        assert "Can't infer a type of null." in refused(plan, sql)
    else:
        assert plan(f"{SETUP}{sql};")


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ("DECIMAL(0, 0)", "DECIMAL precision must be >= 1: DECIMAL(0,0)"),
        ("DECIMAL", "DECIMAL precision must be >= 1"),
        ("DECIMAL(4, 5)", "DECIMAL precision must be >= scale: DECIMAL(4,5)"),
        ("DECIMAL(39, 0)", "DECIMAL precision must be <= 38: DECIMAL(39,0)"),
        ("ARRAY<DECIMAL(4, 5)>", "DECIMAL precision must be >= scale: DECIMAL(4,5)"),
        (
            "STRUCT<F INT, F STRING>",
            "Duplicate field names found in STRUCT: '`F` INTEGER' and '`F` STRING'",
        ),
        ("MAP<STRING, STRUCT<F INT, G INT, F INT>>", "Duplicate field names found in STRUCT"),
    ],
)
def test_types_that_no_column_has(plan: Callable[..., Plan], of: str, text: str) -> None:
    columns = f"CREATE STREAM X (A {of}) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON')"
    assert text in refused(plan, columns)
    assert text in refused(plan, f"CREATE TYPE X AS {of}")
    assert text in refused(plan, f"CREATE STREAM X AS SELECT K, CAST(NULL AS {of}) AS A FROM J")


WINDOWS = "".join(
    f"CREATE STREAM {name} (K STRING KEY, V INT) WITH (KAFKA_TOPIC='{name}', FORMAT='JSON',"
    f" PARTITIONS=1{window});"
    for name, window in (
        ("PLAIN", ""),
        ("OTHER", ""),
        ("TUMBLING", ", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 MINUTE'"),
        ("HOPPING", ", WINDOW_TYPE='HOPPING', WINDOW_SIZE='1 MINUTE'"),
        ("LONGER", ", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='2 MINUTES'"),
        ("SESSIONS", ", WINDOW_TYPE='SESSION'"),
    )
)


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        ("TUMBLING", "PLAIN", "its keys are windowed (60000 ms), those of the query are not wind"),
        ("PLAIN", "TUMBLING", "its keys are not windowed, those of the query are windowed (60000"),
        ("TUMBLING", "LONGER", "its keys are windowed (60000 ms), those of the query are windo"),
        ("SESSIONS", "TUMBLING", "its keys are SESSION windowed, those of the query are windowed"),
        ("TUMBLING", "HOPPING", ""),
        ("OTHER", "PLAIN", ""),
    ],
)
def test_inserted_keys_have_the_windows_of_the_stream(
    plan: Callable[..., Plan], target: str, source: str, message: str
) -> None:
    """A key ends with its window, of whose size only the stream knows."""
    sql = f"{WINDOWS}INSERT INTO {target} SELECT * FROM {source}"
    if message:
        assert message in refused(plan, sql)
    else:
        assert plan(f"{sql};")


@pytest.mark.parametrize(
    "query",
    [
        "* FROM TUMBLING PARTITION BY V",
        "* FROM SESSIONS PARTITION BY V",
        "T.K, T.V FROM TUMBLING T JOIN HOPPING H WITHIN 1 HOUR ON T.K = H.K PARTITION BY T.V",
    ],
)
def test_windowed_keys_are_not_replaced(plan: Callable[..., Plan], query: str) -> None:
    message = refused(plan, f"{WINDOWS}CREATE STREAM X AS SELECT {query}")
    assert message.startswith("Implicit repartitioning of windowed sources is not supported.")


@pytest.mark.parametrize(
    "statement", ["STREAM X (V INT) WITH ({})", "STREAM X WITH ({}) AS SELECT * FROM J"]
)
def test_a_topics_policy_is_not_the_statements(plan: Callable[..., Plan], statement: str) -> None:
    """It was ignored."""
    topic = "KAFKA_TOPIC='x', PARTITIONS=1, VALUE_FORMAT='JSON', CLEANUP_POLICY='compact'"
    message = refused(plan, f"CREATE {statement.format(topic)}")
    assert message.startswith("Invalid config variable in the WITH clause: CLEANUP_POLICY.")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            "TABLE X AS SELECT * FROM T PARTITION BY V",
            (
                "Cannot repartition a TABLE source. If this is a join, make sure that the criteria"
                " uses the TABLE's key column K instead of [V]"
            ),
        ),
        (
            "TABLE X AS SELECT V, COUNT(*) FROM T WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY V",
            "Windowing not supported for table aggregations.",
        ),
        (
            "TABLE X AS SELECT V, COUNT(*) FROM J GROUP BY V PARTITION BY V",
            "Queries only support one of PARTITION BY and GROUP BY",
        ),
        ("STREAM X AS SELECT K, V->* FROM J", "Column `V` is not a STRUCT type."),
        (
            "STREAM X AS SELECT K, STRUCT(A := 1)->A->* FROM J",
            "Field A is not a STRUCT type.",
        ),
    ],
)
def test_clauses_in_words_of_ksqldb(plan: Callable[..., Plan], statement: str, text: str) -> None:
    assert refused(plan, f"CREATE {statement}") == text


def test_partition_by_the_key_of_a_table_changes_nothing(plan: Callable[..., Plan]) -> None:
    """ksqlDB: SchemaKTable.selectKey repartitions nothing."""
    one = plan(f"{SETUP}CREATE TABLE X AS SELECT * FROM T PARTITION BY K;")
    two = plan(f"{SETUP}CREATE TABLE X AS SELECT * FROM T;")
    assert isinstance(one, CreateTableAsPlan)
    assert isinstance(two, CreateTableAsPlan)
    assert one.query.plan == two.query.plan


@pytest.mark.parametrize(
    ("by", "of", "delimiters", "why"),
    [
        ("", "P", ("$", "|"), "those of the source"),
        ("WITH (FORMAT='DELIMITED')", "P", ("$", "|"), "it has the same format"),
        ("WITH (FORMAT='DELIMITED', KEY_DELIMITER='!')", "P", ("!", "|"), "as given"),
        ("WITH (FORMAT='JSON')", "P", (",", ","), "it has none"),
        ("WITH (FORMAT='DELIMITED')", "N", (",", ","), "its source has none to inherit"),
        ("WITH (VALUE_FORMAT='DELIMITED')", "N", (",", ","), "likewise"),
    ],
)
def test_a_delimiter_is_inherited_with_its_format(
    plan: Callable[..., Plan], by: str, of: str, delimiters: tuple[str, str], why: str
) -> None:
    """N is in JSON, and its source was delimited."""
    form = "FORMAT='DELIMITED', KEY_DELIMITER='$', VALUE_DELIMITER='|'"
    made = plan(
        f"CREATE STREAM P (K STRING KEY, V INT) WITH (KAFKA_TOPIC='here', {form});"
        "CREATE STREAM N WITH (FORMAT='JSON') AS SELECT * FROM P;"
        f"CREATE STREAM X {by} AS SELECT * FROM {of};"
    )
    assert isinstance(made, CreateTableAsPlan)
    assert (made.source.key_delimiter, made.source.value_delimiter) == delimiters, why
