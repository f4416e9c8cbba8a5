"""The statements of a case go through what a worker does before it plans them."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.statements import Session

CREATE = "CREATE STREAM S (K STRING KEY, T BIGINT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"


def session(*statements: str) -> Session:
    data = {"id": "own/0", "statements": [CREATE, *statements], "properties": {}, "responses": []}
    made = Session(Case("pull/own.json", data), "c0.")
    made.run()
    return made


def test_calls_that_ask_the_clock_have_a_value_in_insert_and_select() -> None:
    """A pull query and an INSERT have one value for the whole statement."""
    made = session(
        "INSERT INTO S VALUES ('a', UNIX_TIMESTAMP());",
        "SELECT UNIX_TIMESTAMP() AS NOW, '''UNIX_DATE()' FROM S;",
    )
    assert made.failure is None
    ((_, select),) = made.selects
    assert "UNIX_TIMESTAMP" not in select
    assert "'''UNIX_DATE()'" in select, "what is quoted stays"
    (row,) = made.inserted
    assert row.value is not None
    assert int(row.value.removeprefix(b'{"T":').removesuffix(b"}")) > 1_700_000_000_000
