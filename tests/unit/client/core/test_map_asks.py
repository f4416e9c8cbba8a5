"""What is asked about a table, byte by byte, and answers that say nothing."""

from __future__ import annotations

import pytest

from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.exchange import HttpAnswer
from standpipe.client.core.map_asks import describe, described, json_of, route, routed
from standpipe.errors import ServerError


def answer(body: bytes) -> HttpAnswer:
    return HttpAnswer(200, {}, body)


def test_names_are_written_as_each_request_wants_them() -> None:
    asked = describe("a`B", 2.0)
    assert (asked.path, asked.statement, asked.patience_s) == ("/ksql", "DESCRIBE `a``B`;", 2.0)
    assert asked.body == b'{"ksql":"DESCRIBE `a``B`;"}'
    assert asked.is_repeatable
    assert route("\u00e4&B", 1.0).path == "/route?table=%C3%A4%26%42"


def test_an_answer_is_read() -> None:
    told = (
        b'[{"sourceDescription":{"name":"T","windowType":null,"keyFormat":"KAFKA","fields":'
        b'[{"name":"ID","schema":{"type":"STRING"},"type":"KEY"}]}}]'
    )
    assert described(answer(told)).name == "T"
    page = b'{"partitions":[{"partition":0,"activeHost":"a:1","standbyHosts":["b:1"]}]}'
    assert routed(answer(page)) == (("a:1", "b:1"),)


@pytest.mark.parametrize("said", [b"[]", b"[{}]"])
def test_an_answer_without_a_description(said: bytes) -> None:
    with pytest.raises(ServerError):
        described(answer(said))


def test_what_is_no_object() -> None:
    with pytest.raises(ServerRefused):
        json_of(answer(b"[]"))
