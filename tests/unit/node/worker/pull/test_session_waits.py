"""Waiting for a page: what wakes a waiter, what does not, and what ends its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from errno import EMFILE
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.node.workers import page

from standpipe.adapters.http.server import Message
from standpipe.control.routing.route import Verdict
from standpipe.errors import BadRequest, TooManyRequests
from standpipe.freshness import Freshness
from standpipe.model import BatchId, NodeId, ReplicaId, ReplicaStatus
from standpipe.node.worker.pull import session_waits
from standpipe.node.worker.pull.forward import ForwardRefused, PartitionAnswer
from standpipe.node.worker.pull.hedging import AllRefused
from standpipe.node.worker.pull.session_waits import SessionWaits, first_covered
from standpipe.node.worker.request.scan_requester import ScanRequester

REPLICA, OTHER = ReplicaId("T1", 1, 0), ReplicaId("T1", 1, 1)
LONG_S = 60.0
Story = Callable[["Pages"], Coroutine[Any, Any, None]]


def run(story: Story) -> None:
    async def whole() -> None:
        async with asyncio.timeout(LONG_S):
            await story(Pages())

    asyncio.run(whole())


class Pages:
    """The pages of a node, and how often each was read."""

    def __init__(self) -> None:
        self.now: dict[ReplicaId, ReplicaStatus | None] = {}
        self.reads: dict[ReplicaId, int] = {}
        self.waits = SessionWaits(self._read)

    def _read(self, replica_id: ReplicaId) -> ReplicaStatus | None:
        self.reads[replica_id] = self.reads.get(replica_id, 0) + 1
        return self.now.get(replica_id)

    def show(self, batch: int, replica_id: ReplicaId = REPLICA) -> None:
        self.now[replica_id] = replace(page(), batch=BatchId(batch))

    def wait(
        self,
        batch: int,
        replica_id: ReplicaId = REPLICA,
        *,
        wait_s: float = LONG_S,
        requester: ScanRequester | None = None,
        like: object = None,
    ) -> asyncio.Task[bool]:
        until_s = asyncio.get_running_loop().time() + wait_s
        waiting = self.waits.until(
            replica_id,
            self.now.get(replica_id),
            lambda seen: seen is not None and seen.batch >= batch,
            requester or ScanRequester(),
            until_s,
            like=like,
        )
        return asyncio.create_task(waiting)

    async def ticks(self, count: int) -> None:
        read = self.reads.get(REPLICA, 0)
        while self.reads.get(REPLICA, 0) < read + count:  # noqa: ASYNC110 the timer sets no event
            await asyncio.sleep(0.001)


def test_only_a_page_that_is_due_wakes() -> None:
    async def story(pages: Pages) -> None:
        pages.show(7)
        waiting = pages.wait(9)
        for batch in (7, 8):
            pages.show(batch)
            await pages.ticks(3)
            assert not waiting.done(), "a newer page, but not new enough"
        pages.show(9, OTHER)
        await pages.ticks(3)
        assert not waiting.done(), "another partition's page"
        pages.show(9)
        assert await waiting is True
        assert pages.waits.count == 0

    run(story)


def test_a_page_is_judged_once_by_each_waiter() -> None:
    """However often it is read: thousands may wait for it."""

    async def story(pages: Pages) -> None:
        judged: list[ReplicaStatus | None] = []

        def is_due(seen: ReplicaStatus | None) -> bool:
            judged.append(seen)
            return False

        pages.show(7)
        seen, until_s = pages.now[REPLICA], asyncio.get_running_loop().time() + LONG_S
        waiting = [
            asyncio.create_task(pages.waits.until(REPLICA, seen, is_due, ScanRequester(), until_s))
            for _ in range(5)
        ]
        await pages.ticks(3)
        assert judged == [], "all have seen it"
        pages.show(8)
        await pages.ticks(10)
        assert judged == [pages.now[REPLICA]] * 5
        # who read an older page just now is told of the newest, which the others know
        waiting.append(
            asyncio.create_task(pages.waits.until(REPLICA, seen, is_due, ScanRequester(), until_s))
        )
        await pages.ticks(10)
        assert judged == [pages.now[REPLICA]] * 6
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert pages.waits.count == 0

    run(story)


def test_of_those_that_are_alike_the_first_is_judged() -> None:
    """And the others only if it is due for that one: thousands may wait for the same batch."""

    async def story(pages: Pages) -> None:
        judged: list[tuple[int, int]] = []

        def waits(number: int, due: int) -> asyncio.Task[bool]:
            def is_due(seen: ReplicaStatus | None) -> bool:
                assert seen is not None
                judged.append((number, seen.batch))
                return seen.batch >= due

            until_s, seen = asyncio.get_running_loop().time() + LONG_S, pages.now[REPLICA]
            like = "alike"
            return asyncio.create_task(
                pages.waits.until(REPLICA, seen, is_due, ScanRequester(), until_s, like=like)
            )

        pages.show(7)
        waiting = [waits(0, 9), waits(1, 9), waits(2, 10)]
        await pages.ticks(2)
        pages.show(8)
        await pages.ticks(2)
        assert judged == [(0, 8)]
        pages.show(9)
        await asyncio.gather(*waiting[:2])
        assert judged == [(0, 8), (0, 9), (1, 9), (2, 9)]
        waiting.append(waits(3, 10))
        await pages.ticks(2)
        pages.show(10)
        await asyncio.gather(*waiting)
        assert judged[4:] == [(2, 10), (3, 10)]
        assert pages.waits.count == 0

    run(story)


@pytest.mark.parametrize("news", ["a page", "their time is over"])
def test_the_loop_turns_while_many_are_woken(news: str) -> None:
    """Each then reads its rows: all of them in one turn would keep other reads from theirs."""

    async def story(pages: Pages) -> None:
        count, woken, at_once = 10 * session_waits.WOKEN_AT_ONCE, 0, list[int]()
        wait_s = LONG_S if news == "a page" else 0.05

        async def waits() -> None:
            nonlocal woken
            assert await pages.wait(8, wait_s=wait_s, like="alike") is (news == "a page")
            woken += 1

        pages.show(7)
        waiting = [asyncio.create_task(waits()) for _ in range(count)]
        while pages.waits.count < count:  # noqa: ASYNC110 nothing is set
            await asyncio.sleep(0)
        if news == "a page":
            pages.show(8)
        while woken < count:
            before = woken
            await asyncio.sleep(0)
            at_once.append(woken - before)
        assert 0 < max(at_once) <= session_waits.WOKEN_AT_ONCE
        await asyncio.gather(*waiting)

    run(story)


class Watched(ScanRequester):
    """Counts how often it is looked at."""

    looks = 0

    def look(self) -> None:
        self.looks += 1
        super().look()


def test_only_who_wants_signs_of_work_is_looked_at() -> None:
    async def story(pages: Pages) -> None:
        said: list[int] = []

        async def never() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def waits() -> PartitionAnswer:
            assert await pages.wait(8)
            return answer(8)

        pages.show(7)
        client, peer = Watched(never), Watched(never, lambda: said.append(0), every_ms=1)
        waiting = [pages.wait(8, requester=client), pages.wait(8, requester=peer)]
        telling = asyncio.create_task(first_covered([(verdict("a"), waits())], client))
        while len(said) < 2:  # noqa: ASYNC110 nothing is set
            await asyncio.sleep(0.001)
        assert client.looks == 0
        pages.show(8)
        await telling
        await asyncio.gather(*waiting)

    run(story)


def test_nothing_is_read_while_nobody_waits() -> None:
    async def story(pages: Pages) -> None:
        pages.show(7)
        waiting = pages.wait(8)
        await pages.ticks(1)
        pages.show(8)
        await waiting
        read = dict(pages.reads)
        await asyncio.sleep(5 * session_waits.TICK_S_MAX)
        assert pages.reads == read

    run(story)


def test_each_waiter_has_its_own_page_and_time() -> None:
    async def story(pages: Pages) -> None:
        pages.show(7)
        one, two, short = pages.wait(8), pages.wait(9), pages.wait(9, wait_s=0.01)
        assert await short is False
        pages.show(8)
        assert await one is True
        assert not two.done()
        pages.show(9)
        assert await two is True

    run(story)


def test_arrivals_do_not_put_off_the_tick() -> None:
    async def story(pages: Pages) -> None:
        pages.show(7)
        first = pages.wait(8)
        await asyncio.sleep(0)
        pages.show(8)
        waiting = [first]
        while not first.done():
            waiting.append(pages.wait(9))
            await asyncio.sleep(session_waits.TICK_S_MIN / 4)
        pages.show(9)
        assert all(await asyncio.gather(*waiting))

    run(story)


def test_who_is_gone_waits_no_longer() -> None:
    async def story(pages: Pages) -> None:
        left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive() -> Message:
            return await left

        pages.show(7)
        here, gone = pages.wait(9), pages.wait(9, requester=ScanRequester(receive))
        await pages.ticks(3)
        left.set_result({"type": "http.disconnect"})
        with pytest.raises(BadRequest):
            await gone
        assert pages.waits.count == 1
        pages.show(9)
        assert await here is True

    run(story)


def test_a_page_that_cannot_be_read_is_no_news() -> None:
    """For want of a descriptor, for instance: later ones are, and the time is kept."""

    async def story(pages: Pages) -> None:
        pages.show(7)
        waiting, other = pages.wait(9), pages.wait(9, OTHER)
        short = pages.wait(9, wait_s=0.02)
        await pages.ticks(1)
        read, fails = pages.waits.page_of, True

        def page_of(replica_id: ReplicaId) -> ReplicaStatus | None:
            if fails and replica_id == REPLICA:
                raise OSError(EMFILE, "Too many open files")
            return read(replica_id)

        pages.waits.page_of = page_of
        pages.show(9)
        pages.show(9, OTHER)
        assert await other is True
        assert await short is False
        assert not waiting.done()
        fails = False
        assert await waiting is True
        assert pages.waits.count == 0

    run(story)


def test_what_fails_for_one_waiter_is_no_others() -> None:
    async def story(pages: Pages) -> None:
        def fails(_: ReplicaStatus | None) -> bool:
            raise ValueError("its own")

        pages.show(7)
        until_s = asyncio.get_running_loop().time() + LONG_S
        failing = pages.waits.until(REPLICA, None, fails, ScanRequester(), until_s)
        told, waiting = asyncio.create_task(failing), pages.wait(9)
        with pytest.raises(ValueError, match="its own"):
            await told
        pages.show(9)
        assert await waiting is True

    run(story)


def answer(batch: int) -> PartitionAnswer:
    return PartitionAnswer(rows=[], fresh=Freshness(served_by="", role="", state="", batch=batch))


def verdict(name: str) -> Verdict:
    return Verdict(node_id=NodeId(name), role="STANDBY", ok=True, why="")


async def refused() -> PartitionAnswer:
    raise ForwardRefused("behind")


async def full() -> PartitionAnswer:
    raise TooManyRequests("full")


def test_the_first_answer_wins_and_the_others_end() -> None:
    async def story(pages: Pages) -> None:
        pages.show(7)
        pages.show(7, OTHER)

        async def after(batch: int, replica_id: ReplicaId) -> PartitionAnswer:
            assert await pages.wait(batch, replica_id)
            return answer(batch)

        async def told() -> PartitionAnswer:
            return await first_covered(
                [
                    (verdict("a"), after(9, REPLICA)),
                    (verdict("b"), refused()),
                    (verdict("c"), after(8, OTHER)),
                ],
                ScanRequester(),
            )

        telling = asyncio.create_task(told())
        await pages.ticks(3)
        pages.show(8, OTHER)
        assert (await telling).fresh.batch == 8

    run(story)


def test_all_refuse() -> None:
    async def story(pages: Pages) -> None:
        refusals = [(verdict("a"), refused()), (verdict("b"), refused())]
        with pytest.raises(AllRefused) as failed:
            await first_covered(refusals, ScanRequester())
        assert {one.node_id for one, _ in failed.value.refusals} == {"a", "b"}
        refusals = [(verdict("a"), refused()), (verdict("b"), full())]
        with pytest.raises(TooManyRequests):
            await first_covered(refusals, ScanRequester())

    run(story)


def test_a_client_that_goes_ends_waits_at_peers() -> None:
    """Also at a node without a replica of its own, which waits for nothing itself."""

    async def story(pages: Pages) -> None:
        left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive() -> Message:
            return await left

        async def waits() -> PartitionAnswer:
            await asyncio.Event().wait()
            raise AssertionError

        told = first_covered([(verdict("a"), waits())], ScanRequester(receive))
        telling = asyncio.create_task(told)
        await asyncio.sleep(0)
        left.set_result({"type": "http.disconnect"})
        with pytest.raises(BadRequest):
            await telling

    run(story)


def test_a_read_that_ends_takes_its_tries_with_it() -> None:
    async def story(pages: Pages) -> None:
        async def waits() -> PartitionAnswer:
            await pages.waits.until(
                REPLICA,
                None,
                lambda _: False,
                ScanRequester(),
                asyncio.get_running_loop().time() + LONG_S,
            )
            raise AssertionError

        told = first_covered([(verdict("a"), waits())], ScanRequester())
        telling = asyncio.create_task(told)
        await pages.ticks(2)
        assert pages.waits.count == 1
        telling.cancel()
        await asyncio.wait([telling])
        assert pages.waits.count == 0

    run(story)
