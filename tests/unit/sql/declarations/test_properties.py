"""WITH clauses: types of values, and keys that exclude each other."""

from __future__ import annotations

import pytest

from standpipe.errors import StatementError
from standpipe.sql.declarations.properties import KEYS, Properties
from standpipe.sql.syntax.ast_statements import CreateSource
from standpipe.sql.syntax.parser import parse


def properties(text: str) -> Properties:
    (statement,) = parse(f"CREATE STREAM s (a INT) WITH ({text});")
    assert isinstance(statement, CreateSource)
    return Properties(statement.properties, "SOURCE")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("partitions=3", "PARTITIONS", 3),
        ("PARTITIONS='3'", "PARTITIONS", 3),
        ("retention_ms=-1", "RETENTION_MS", -1),
        ("WRAP_SINGLE_VALUE='False'", "WRAP_SINGLE_VALUE", False),
        ("'kafka_topic'='x'", "KAFKA_TOPIC", "x"),
    ],
)
def test_values(text: str, name: str, value: object) -> None:
    assert properties(text).values == {name: value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("KAFKA_TOPIC=3", "KAFKA_TOPIC must be of type STRING, got 3"),
        ("PARTITIONS=3.5", "PARTITIONS must be of type INTEGER, got 3.5"),
        ("WRAP_SINGLE_VALUE=1", "WRAP_SINGLE_VALUE must be of type BOOLEAN, got 1"),
        ("PARTITIONS=1, partitions=2", "Duplicate property in the WITH clause: PARTITIONS"),
        ("FORMAT='JSON', VALUE_FORMAT='JSON'", "Cannot supply both 'VALUE_FORMAT' and 'FORMAT'"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(StatementError) as caught:
        properties(text)
    assert message in caught.value.message


@pytest.mark.parametrize("name", [key.name for key in KEYS.values() if not key.is_supported])
def test_what_cannot_be_honoured_is_not_ignored(name: str) -> None:
    with pytest.raises(StatementError, match="is not supported: Standpipe has no"):
        properties(f"{name}='1'")


@pytest.mark.parametrize(
    ("text", "delimiter"), [("','", ","), ("'|'", "|"), ("'space'", " "), ("'TAB'", "\t")]
)
def test_delimiters(text: str, delimiter: str) -> None:
    for name in ("KEY_DELIMITER", "VALUE_DELIMITER"):
        assert properties(f"{name}={text}").delimiter(name) == delimiter
    assert properties("PARTITIONS=1").delimiter("KEY_DELIMITER") is None
