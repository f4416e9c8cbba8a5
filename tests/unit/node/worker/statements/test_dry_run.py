"""What becomes of the statements of a file, without a cluster."""

from __future__ import annotations

import pytest

from standpipe.node.worker.statements.dry_run import DryRun, StatementVerdict

STREAM = "CREATE STREAM S (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"
WIDE = "CREATE STREAM {} (V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS={});"
AVRO = STREAM.replace("JSON", "AVRO")
CONNECTOR = "CREATE SOURCE CONNECTOR C WITH ('connector.class'='x');"


def verdicts(*texts: str, avro_as_json: bool = False) -> list[StatementVerdict]:
    run = DryRun(as_json=avro_as_json)
    return [each for text in texts for each in run.verdicts(text)]


def statuses(*texts: str, avro_as_json: bool = False) -> list[str]:
    return [each.status for each in verdicts(*texts, avro_as_json=avro_as_json)]


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        (STREAM + TABLE, "ok ok", "each sees those before it"),
        (TABLE + STREAM + TABLE, "refused ok ok", "a refusal does not end the text"),
        (STREAM + "SELEC 1;" + TABLE, "ok refused ok", "nor does a syntax error"),
        (AVRO + TABLE + "SELECT * FROM T;", "refused blocked blocked", "all for one reason"),
        (AVRO + STREAM + TABLE, "refused ok ok", "made after all"),
        (
            STREAM.replace("INT", "INT NOT NULL") + TABLE + "SHOW TABLES;",
            "refused blocked ok",
            "one that cannot be read would have made it",
        ),
        ("CREATE STREAM `s` (; SELECT * FROM `s` EMIT CHANGES;", "refused blocked", "quoted"),
        (STREAM + STREAM, "ok refused", "the name is taken"),
        (
            STREAM + TABLE + STREAM + TABLE,
            "ok ok refused refused",
            "S is there, so the second T is refused for its own name",
        ),
        (STREAM + "DROP STREAM S;" + STREAM, "ok ok ok", "the catalog follows"),
        (STREAM + WIDE.format("R", 4), "ok ok", "how many partitions s has was not known"),
        (WIDE.format("Q", 4) + WIDE.format("R", 2), "ok refused", "here it is"),
        (CONNECTOR + "SHOW CONNECTORS; DROP CONNECTOR C;", "connector connector connector", ""),
        ("ASSERT SCHEMA SUBJECT X;", "refused", "which is not Kafka Connect"),
        (STREAM + "SELECT ID, UNIX_TIMESTAMP() - V FROM S;", "ok ok", "values of the statement"),
        (STREAM + "INSERT INTO S VALUES (UUID(), 1);", "ok ok", "in an INSERT too"),
        (STREAM + "INSERT INTO S VALUES ('a', 'b');", "ok refused", "a value of another type"),
        (STREAM + "SELECT * FROM S EMIT CHANGES; PRINT s;", "ok ok ok", "queries as well"),
        ("DEFINE t = 's'; " + STREAM.replace("'s'", "'${t}'") + TABLE, "ok ok ok", "variables"),
        ("SET 'auto.offset.reset' = 'earliest';", "ok", ""),
        ("SET 'auto.ofset.reset' = 'earliest';", "ok", "ksqlDB passes what it does not know on"),
        ("SET 'ksql.no.such' = '1';", "refused", "a property that nothing reads"),
        ("RUN SCRIPT 'x.sql';", "refused", "a command of the prompt"),
        ("-- nothing\n", "", "a comment is no statement"),
    ],
)
def test_statuses(text: str, expected: str, why: str) -> None:
    assert statuses(text) == expected.split(), why


def test_what_a_statement_makes_and_names() -> None:
    broken = "CREATE OR REPLACE TABLE t2 (;"
    found = verdicts(STREAM, TABLE, broken, "DROP TABLE T; SELECT * FROM S JOIN T2 ON A = B;")
    assert [(each.makes, sorted(each.names)) for each in found] == [
        ("S", []),
        ("T", ["S"]),
        ("T2", []),
        ("", ["T"]),
        ("", ["S", "T2"]),
    ]


def test_several_texts_are_one_session() -> None:
    assert statuses(STREAM, TABLE) == ["ok", "ok"]


def test_formats_of_a_registry_can_be_judged_as_json() -> None:
    keyed = AVRO.replace("WITH (", "WITH (KEY_FORMAT='PROTOBUF', ")
    assert statuses(keyed + TABLE, avro_as_json=True) == ["ok", "ok"]
    named = AVRO.replace("WITH (", "WITH (VALUE_SCHEMA_FULL_NAME='x.S', KEY_SCHEMA_ID=1, ")
    assert statuses(named) == ["refused"]
    assert statuses(named, avro_as_json=True) == ["ok"]
    default = "SET 'ksql.persistence.default.format.value' = 'AVRO';"
    bare = STREAM.replace(", VALUE_FORMAT='JSON'", "")
    assert statuses(default + bare) == ["ok", "refused"]
    assert statuses(default + bare, avro_as_json=True) == ["ok", "ok"]


def test_lines_are_those_of_the_text() -> None:
    text = f"-- first\n\n{STREAM}\n/* two\nlines */ SELEC\n 1;\nSELECT X\nFROM S\nWHERE ID = 'a';\n"
    found = verdicts(text)
    assert [each.line for each in found] == [3, 5, 7]
    assert "line 5:10" in found[1].reason
    assert "Line: 7, Col: 8" in found[2].reason


def test_what_is_blocked_names_what_it_needs() -> None:
    assert verdicts(AVRO + TABLE)[1].reason == "It needs S, which a refused statement was to make."


def test_a_refusal_is_one_line_with_its_hint() -> None:
    reason = verdicts(STREAM.replace("VALUE_FORMAT", "VALUE_FROMAT"))[0].reason
    assert "\n" not in reason
    assert reason.endswith("Did you mean VALUE_FORMAT?")


def test_a_statement_that_runs_may_have_a_warning() -> None:
    once = TABLE.replace("GROUP BY ID", "GROUP BY ID HAVING COUNT(*) = 1")
    over = STREAM.replace("STREAM S", "STREAM O").replace("='s'", "='T'")
    found = verdicts(STREAM + once + over + TABLE.replace("TABLE T", "TABLE U"))
    assert [each.status for each in found] == ["ok"] * 4
    assert [bool(each.reason) for each in found] == [False, True, True, False]
