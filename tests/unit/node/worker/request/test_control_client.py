"""What a statement is answered when control gives no answer, and which errors it may send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from standpipe.adapters.http.peer_client import ConnectFailed, PathFailed, PeerClient, Response
from standpipe.errors import KafkaUnavailable, LogUnavailable, OutcomeUnknown, StandpipeError
from standpipe.node.worker.request import control_client
from standpipe.node.worker.request.control_client import execute

REQUEST = {"ksql": "INSERT INTO A SELECT * FROM B;", "request_id": "r"}
LOGGED = Response(200, {}, b'{"log_index": 9, "entities": []}')
REFUSED, SILENT = ConnectFailed("Connection refused"), PathFailed("closed by the peer")


class Control(PeerClient):
    """Gives these answers, one after the other."""

    def __init__(self, *told: Exception | Response) -> None:
        super().__init__()
        self.told, self.asked = list(told), list[Mapping[str, Any]]()

    async def request(self, address: str, target: str, **how: Any) -> Response:
        assert how["is_repeatable"] is False, "ConnectFailed must mean that nothing was read"
        self.asked.append(msgspec.json.decode(how["body"]))
        told = self.told.pop(0)
        if isinstance(told, Exception):
            raise told
        return told


def error_response(error: StandpipeError) -> Response:
    return Response(error.status, {}, msgspec.json.encode(error.body()))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("told", "kind", "why"),
    [
        ([REFUSED, REFUSED], LogUnavailable, "nobody read it"),
        ([SILENT, SILENT], OutcomeUnknown, "control may have read it"),
        ([SILENT, REFUSED], OutcomeUnknown, "… the first time"),
        ([REFUSED, SILENT], OutcomeUnknown, "… the second time"),
        ([error_response(LogUnavailable("no leader"))], LogUnavailable, "control says so"),
        ([error_response(OutcomeUnknown("lost"))], OutcomeUnknown, "control says so"),
        ([SILENT, error_response(LogUnavailable("no leader"))], OutcomeUnknown, "of one try only"),
        ([SILENT, error_response(KafkaUnavailable("away"))], KafkaUnavailable, "a leader judged"),
        ([Response(200, {}, b"<html>")], OutcomeUnknown, "what answered is no control"),
    ],
)
def test_a_statement_that_may_be_logged_is_not_to_be_repeated(
    told: list[Exception | Response], kind: type[StandpipeError], why: str
) -> None:
    with pytest.raises(StandpipeError) as raised:
        asyncio.run(execute(Control(*told), "a:1", REQUEST, "S;"))
    assert type(raised.value) is kind, why
    assert (raised.value.retry_after_s is None) is (kind is OutcomeUnknown)


@pytest.mark.parametrize("first", [REFUSED, SILENT])
def test_it_is_sent_again_under_its_id(first: Exception) -> None:
    control = Control(first, LOGGED)
    assert asyncio.run(execute(control, "a:1", REQUEST, "S;")).log_index == 9
    assert control.asked == [REQUEST, REQUEST]
