"""The values of RANDOM() and others: drawn where a query was asked, and forwarded with it."""

from __future__ import annotations

import json

from standpipe.node.worker.request.body import parse_lookup
from standpipe.node.worker.request.drawn import drawn, settled


def test_what_is_forwarded_has_the_values() -> None:
    given = {
        "sql": "SELECT UUID() AS U, ${c} FROM T;",
        "properties": {"ksql.query.pull.table.scan.enabled": True},
        "sessionVariables": {"c": "N"},
    }
    asked, body = settled(json.dumps(given).encode(), is_forwarded=False)
    assert "UUID" not in asked.text
    assert asked.text.endswith(", N FROM T;")
    assert parse_lookup(body) == asked, "the peer that it is forwarded to reads the same"
    assert settled(body, is_forwarded=True) == (asked, body)


def test_a_query_without_them_is_forwarded_as_it_came() -> None:
    body = b'{"ksql":  "SELECT * FROM T WHERE ID = 1;"}'
    assert settled(body, is_forwarded=False) == (parse_lookup(body), body)


def test_a_forward_of_an_older_node_is_left_as_it_is() -> None:
    body = b'{"ksql": "SELECT UUID() FROM T;"}'
    assert settled(body, is_forwarded=True)[1] == body


def test_a_push_query_is_left_as_it_is() -> None:
    """A literal would be the same in all rows, for as long as the query runs."""
    body = b'{"ksql": "SELECT UNIX_TIMESTAMP() - ROWTIME AS MS FROM S EMIT CHANGES;"}'
    assert settled(body, is_forwarded=False) == (parse_lookup(body), body)


def test_each_row_is_given_values_of_its_own() -> None:
    assert drawn("UUID") != drawn("UUID")
    assert drawn("RANDOM") != drawn("RANDOM")
    before, day = drawn("UNIX_TIMESTAMP"), drawn("UNIX_DATE")
    assert isinstance(before, int)
    assert isinstance(day, int)
    assert abs(before // 86_400_000 - day) <= 1
