"""tests/conformance/repositories.py: what is counted, and what cannot be judged."""

from __future__ import annotations

import re

import msgspec
import pytest
from tests.conformance.repositories import LISTED, Repository, judged, rule_of, summary

JSON = "CREATE STREAM S (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
AVRO = JSON.replace("JSON", "AVRO")
INFERRED = "CREATE STREAM S (ID STRING KEY) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='AVRO');"
COUNTED = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;"
TWICE = "CREATE STREAM A WITH (KAFKA_TOPIC='x') AS SELECT * FROM S;"


def kinds(text: str, **told: object) -> list[str]:
    return [one.kind for one in judged(repository(**told), {"a.sql": text})]


def repository(**told: object) -> Repository:
    known = {"repository": "o/n", "commit": "c", "sessions": [["a.sql"]], **told}
    return msgspec.convert(known, Repository)


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        (JSON + COUNTED, "runs runs", "an ordinary one"),
        (AVRO + COUNTED, "runs runs", "as JSON"),
        ("SHOW CONNECTORS;", "connector", ""),
        (COUNTED + "SELECT * FROM T;", "undeclared undeclared", "what follows counts like it"),
        (
            AVRO.replace("(ID STRING KEY, V INT) ", "") + COUNTED + "DESCRIBE T;",
            "registry registry registry",
            "all columns are in a registry",
        ),
        (INFERRED + "SELECT V FROM S EMIT CHANGES;", "runs registry", "the value's columns are"),
        (AVRO + "SELECT W FROM S EMIT CHANGES;", "runs refused", "all columns are declared"),
        (INFERRED + "CREATE STREAM R AS SELECT * FROM S;", "runs registry", "it has no other"),
        (
            INFERRED + "CREATE STREAM R AS SELECT *, 1 AS A FROM S; SELECT V FROM R EMIT CHANGES;",
            "runs runs registry",
            "through another one",
        ),
        (JSON + "SELECT MINE(V) FROM S EMIT CHANGES;", "runs function", "it says that it is its"),
        (JSON + "SELECT ITS(V) FROM S EMIT CHANGES;", "runs refused", "it does not say so"),
        ("SELECT * FROM KSQL_PROCESSING_LOG EMIT CHANGES;", "refused", "ksqlDB makes that one"),
        (JSON + TWICE + TWICE.replace("A", "B", 1), "runs runs refused", "a rule of ours"),
        (
            JSON + "DROP STREAM S DELETE TOPIC;" + JSON + "DROP STREAM S;" + JSON,
            "runs refused refused runs runs",
            "the name is only taken as the DROP was refused",
        ),
    ],
)
def test_kinds(text: str, expected: str, why: str) -> None:
    assert kinds(text, functions=["MINE"]) == expected.split(), why


def test_what_ksqldb_refuses_as_well() -> None:
    text = f"{JSON}\nCREATE TABLE T AS SELEC;\nSELECT * FROM T;\nSELECT X FROM S EMIT CHANGES;"
    assert kinds(text) == ["runs", "refused", "refused", "refused"]
    refused = {"a.sql": {"syntax": [2], "columns": [4]}}
    assert kinds(text, refused_by_ksqldb=refused) == ["runs", "ksqldb", "ksqldb", "ksqldb"]
    assert kinds(JSON, refused_by_ksqldb={"a.sql": {"syntax": [1]}}) == ["runs"], "not any more"


def test_each_session_begins_with_nothing() -> None:
    two = repository(sessions=[["a.sql", "b.sql"], ["b.sql"]])
    found = judged(two, {"a.sql": JSON, "b.sql": COUNTED})
    assert [(one.path, one.kind) for one in found] == [
        ("a.sql", "runs"),
        ("b.sql", "runs"),
        ("b.sql", "undeclared"),
    ]


def test_the_rule_of_a_refusal() -> None:
    text = JSON + "DROP STREAM S DELETE TOPIC;" + JSON + "SELECT W FROM S EMIT CHANGES; SELEC;"
    refused = [rule_of(one) for one in judged(repository(), {"a.sql": text})][1:]
    assert refused == [
        "DELETE TOPIC of a topic that was there before",
        *("what follows from a refused one",) * 2,
        "nobody has looked yet",
    ]


def test_summary() -> None:
    texts = {
        "o/whole": JSON + COUNTED + "INSERT INTO S VALUES ('a', 1);",
        "o/part": JSON + "SELECT W FROM S EMIT CHANGES; SHOW CONNECTORS;",
        "o/none": COUNTED,
    }
    found = {name: list(judged(repository(), {"a.sql": text})) for name, text in texts.items()}
    made = summary(found)
    assert (made["statements"], made["judged"], made["runs"], made["runs_percent"]) == (7, 5, 4, 80)
    assert (made["repositories"], made["with_judged_statements"], made["whole"]) == (3, 2, 1)
    assert made["for_kafka_connect"] == 1
    assert made["refused"] == {"nobody has looked yet": 1}
    assert made["not_judged"]["over a source that the repository does not declare"] == 1
    assert made["by_kind"] == {
        "create": {"judged": 3, "runs": 3},
        "query": {"judged": 1, "runs": 0},
        "insert_values": {"judged": 1, "runs": 1},
        "other": {"judged": 0, "runs": 0},
    }
    assert made["per_repository"]["o/part"] == {"runs": 1, "refused": 1, "all": 3}


def test_the_list_names_repositories_commits_and_files_only() -> None:
    listed = msgspec.json.decode(LISTED.read_bytes(), type=list[Repository])
    names = [each.repository for each in listed]
    assert len(names) == len(set(names)) >= 30
    for each in listed:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", each.repository)
        assert re.fullmatch(r"[0-9a-f]{40}", each.commit)
        paths = {path for session in each.sessions for path in session}
        assert each.refused_by_ksqldb.keys() <= paths, each.repository
