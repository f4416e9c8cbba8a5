"""What a write is answered when no leader says what became of it, and that it is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from standpipe.adapters.http.internal import (
    Call,
    PeerSilent,
    PeerUnreachable,
    Reply,
    error_reply,
    json_reply,
)
from standpipe.control.raft.majority import LogOffset
from standpipe.control.raft.messages import Error
from standpipe.errors import LogUnavailable, OutcomeUnknown, StandpipeError
from standpipe.model import NodeId
from standpipe.node.controller import leader_proxy
from standpipe.node.controller.leader_proxy import MAY_BE_LOGGED, Writer
from standpipe.node.controller.leader_reads import FORWARDED
from standpipe.node.controller.raft_driver import ProposalRefused

Told = Exception | Reply
APPENDED = ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER, NodeId("b"), LogOffset(8))
NOT_APPENDED = ProposalRefused(Error.NOT_LEADER_OR_FOLLOWER, NodeId("b"))
DONE = json_reply({"log_index": 7, "entities": []})


class Outcomes:
    """What becomes of each try; the last one of every later try, too. `bodies`: what was sent."""

    def __init__(self, *told: Told) -> None:
        self.told, self.bodies = list(told), list[bytes]()

    def next(self, body: bytes) -> Reply:
        self.bodies.append(body)
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(told, Exception):
            raise told
        return told


def writer(outcomes: Outcomes, *, leads: bool, applied: Sequence[str] = ()) -> Writer:
    """At node a, which leads or sends writes on to b."""

    async def waits(*_: object) -> None:
        if leads:
            raise AssertionError("it sends nothing on")
        await asyncio.sleep(60)

    async def write(call: Call) -> Reply:
        return outcomes.next(call.body)

    async def post(_address: str, _path: str, body: bytes, **_how: object) -> Reply:
        return outcomes.next(body)

    async def seen(*_: object) -> None:
        pass

    catalog = SimpleNamespace(index=7, applied_requests=dict.fromkeys(applied))
    copy: Any = SimpleNamespace(catalog=catalog, wait_for=seen)
    me, leader = SimpleNamespace(node="a"), "a" if leads else "b"
    quorum: Any = SimpleNamespace(me=me, leading=leads or None, leader=leader, changed=waits)
    leading: Any = SimpleNamespace(write=write, write_paths=())
    client: Any = SimpleNamespace(post=post)
    return Writer(copy, quorum, leading, client, lambda _: ["b:1"])


def call_of(path: str = "/execute", **params: str) -> Call:
    body = {"ksql": "INSERT INTO A SELECT * FROM B;", "request_id": "r", "pipeline_id": "p"}
    return Call(path, params, msgspec.json.encode(body))


def refused(asked: Writer, call: Call) -> StandpipeError:
    with pytest.raises(StandpipeError) as raised:
        asyncio.run(asked.write(call))
    return raised.value


@pytest.fixture(autouse=True)
def _little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_proxy, "WRITE_S_MAX", 0.1)
    monkeypatch.setattr(leader_proxy, "RETRY_S", 0.02)


def told_by_leader(**details: bool) -> Reply:
    return error_reply(LogUnavailable("b does not lead", **details))


@pytest.mark.parametrize(
    ("leads", "told", "may_be_logged", "why"),
    [
        (True, [NOT_APPENDED], False, "it was not appended"),
        (True, [APPENDED], True, "it was appended, and may be committed"),
        (True, [APPENDED, NOT_APPENDED], True, "the first try may be committed"),
        (False, [PeerUnreachable("refused")], False, "nothing was sent"),
        (False, [PeerSilent("no answer")], True, "the leader may have read it"),
        (False, [PeerSilent("no answer"), PeerUnreachable("refused")], True, "… the first time"),
        (False, [told_by_leader()], False, "it says so"),
        (False, [told_by_leader(**{MAY_BE_LOGGED: True})], True, "it appended it"),
    ],
)
def test_a_statement_that_may_be_logged_is_not_to_be_repeated(
    leads: bool, told: list[Told], may_be_logged: bool, why: str
) -> None:
    error = refused(writer(Outcomes(*told), leads=leads), call_of())
    kind, after_s = (OutcomeUnknown, None) if may_be_logged else (LogUnavailable, 1)
    assert (type(error), error.retry_after_s) == (kind, after_s), why
    assert "no leader of the metadata quorum" in error.message


def test_a_statement_that_this_node_knows_to_be_logged() -> None:
    """The lead was lost after it was committed, while the answer waited for its topics."""
    asked = writer(Outcomes(NOT_APPENDED), leads=True, applied=["r"])
    assert isinstance(refused(asked, call_of()), OutcomeUnknown)


@pytest.mark.parametrize("first", [APPENDED, PeerSilent("no answer")])
def test_it_is_tried_again_under_the_same_id(first: Exception) -> None:
    outcomes = Outcomes(first, DONE)
    write = writer(outcomes, leads=first is APPENDED).write
    assert asyncio.run(write(call_of())).status == 200
    assert [msgspec.json.decode(body)["request_id"] for body in outcomes.bodies] == ["r", "r"]


def test_the_node_that_sent_it_on_is_told_and_tries_again() -> None:
    """With the error of before, so that a node of an older release tries again, too."""
    outcomes = Outcomes(APPENDED, DONE)
    error = refused(writer(outcomes, leads=True), call_of(**{FORWARDED: "1"}))
    assert (type(error), error.details) == (LogUnavailable, {MAY_BE_LOGGED: True})
    assert len(outcomes.bodies) == 1
    assert asyncio.run(writer(Outcomes(error_reply(error), DONE), leads=False).write(call_of())).ok


def test_other_writes_may_be_repeated() -> None:
    error = refused(writer(Outcomes(APPENDED), leads=True), call_of("/pipeline/start"))
    assert isinstance(error, LogUnavailable)
