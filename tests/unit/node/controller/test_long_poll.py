"""Work that takes longer than anybody waits: asked again, shared, and forgotten."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.unit.node.worker.pull.test_hedging import timeless

from standpipe.adapters.http.internal import HttpClient, PeerSilent, Reply, json_reply
from standpipe.model import NodeId, NodeInfo
from standpipe.node.controller import long_poll
from standpipe.node.controller.long_poll import (
    ACCEPTED,
    ASK_AGAIN_S,
    KEPT_S,
    LongAnswers,
    ask_patiently,
)


class Work:
    """Takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.begun = seconds, 0

    async def __call__(self) -> Reply:
        self.begun += 1
        await asyncio.sleep(self.seconds)
        return json_reply(self.begun)


@pytest.mark.parametrize(
    ("seconds", "is_patient", "statuses", "why"),
    [
        (0.0, True, [200], "over at once"),
        (2.4 * ASK_AGAIN_S, True, [202, 202, 200], "there is work, and it goes on"),
        (2.4 * ASK_AGAIN_S, False, [200], "an older release waits"),
    ],
)
def test_an_answer(seconds: float, is_patient: bool, statuses: list[int], why: str) -> None:
    async def story() -> list[int]:
        long, work = LongAnswers(), Work(seconds)
        found: list[int] = []
        while not found or found[-1] == ACCEPTED:
            found.append((await long.reply("q", work, is_patient=is_patient)).status)
        assert work.begun == 1
        return found

    assert timeless(story()) == statuses, why


def test_who_asks_the_same_shares_the_work() -> None:
    async def story() -> None:
        long, work = LongAnswers(), Work(1.0)
        one, other = await asyncio.gather(
            *(long.reply("q", work, is_patient=True) for _ in range(2))
        )
        assert one is other
        await long.reply("other", work, is_patient=True)
        assert work.begun == 2
        assert (await long.reply("q", work, is_patient=True)).body == b"3", "asked anew: done anew"

    timeless(story())


@pytest.mark.parametrize(
    ("after_s", "begun", "why"),
    [(KEPT_S - 1, 1, "who asks again gets it"), (KEPT_S + 1, 2, "nobody came: it is old")],
)
def test_an_answer_is_kept_for_a_while(after_s: float, begun: int, why: str) -> None:
    async def story() -> int:
        long, work = LongAnswers(), Work(ASK_AGAIN_S + 1)
        assert (await long.reply("q", work, is_patient=True)).status == ACCEPTED
        await asyncio.sleep(1 + after_s)
        while (await long.reply("q", work, is_patient=True)).status == ACCEPTED:
            pass
        return work.begun

    assert timeless(story()) == begun, why


def test_a_failure_is_an_answer() -> None:
    async def story() -> None:
        async def fail() -> Reply:
            raise PeerSilent("no")

        with pytest.raises(PeerSilent):
            await LongAnswers().reply("q", fail, is_patient=True)

    timeless(story())


A = NodeInfo(node_id=NodeId("a"), public="", internal="a:1", peer="", incarnation="")


class Client:
    """Answers with these statuses, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.asked = list(statuses), list[dict[str, Any]]()

    async def get(self, address: str, path: str, **parameters: Any) -> Reply:
        self.asked.append(parameters)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return json_reply({}, status)


@pytest.mark.parametrize("statuses", [[200], [503], [202, 202, 200], [202, 404]])
def test_it_asks_until_there_is_an_answer(statuses: list[int]) -> None:
    client = Client(*statuses)
    reply = timeless(ask_patiently(cast("HttpClient", client), A, "/x", partition=1))
    assert reply.status == statuses[-1]
    assert len(client.asked) == len(statuses)
    assert all(one["patient"] == "true" and one["partition"] == 1 for one in client.asked)


def test_a_disk_that_hangs_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "WORK_S_MAX", -1.0)
    with pytest.raises(PeerSilent, match="has been working on it"):
        timeless(ask_patiently(cast("HttpClient", Client(ACCEPTED)), A, "/x"))
