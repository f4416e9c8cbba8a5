"""Who gets the lease of a table: a program that serves it waits, a load may be refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.pipeline.fake_node import SECRET, FakeNode
from tests.unit.pipeline.queries_of import commands_of
from tests.unit.spark.test_query import BESIDE, DECLARED, OTHER, X, Y

from standpipe.control.metadata.commands import (
    Command,
    DropSource,
    EndPipelines,
    SetQueryState,
    StartPipeline,
)
from standpipe.model import QueryLease, Source
from standpipe.pipeline.run.control_client import Follower
from standpipe.spark.errors import ServeEnded, ServeRefused
from standpipe.spark.standby import await_lease, await_leases


@pytest.fixture
def node() -> Iterator[FakeNode]:
    (created,) = commands_of(DECLARED)
    with FakeNode() as node:
        node.log(created)
        yield node


@pytest.fixture
def follower(node: FakeNode) -> Iterator[Follower]:
    follower = Follower([node.address], SECRET, list, X, is_external=True)
    follower.start()
    yield follower
    follower.close()


def table(node: FakeNode) -> Source:
    return node.catalog().sources["X"]


def test_a_load_gets_the_lease_of_a_table_that_nobody_writes(
    node: FakeNode, follower: Follower
) -> None:
    me, wanted = await_lease(follower, table(node), busy_s_max=60.0)
    lease = node.catalog().leases[X]
    assert (wanted.query_id, wanted.lease_epoch) == (X, lease.lease_epoch)
    assert lease.pipeline_id == me.pipeline_id


def test_a_load_is_refused_by_name_while_another_program_writes(
    node: FakeNode, follower: Follower
) -> None:
    node.log(OTHER)
    with pytest.raises(ServeRefused, match=r"X is written by b(.|\n)*wait=True"):
        await_lease(follower, table(node), busy_s_max=0.3)


def test_a_load_is_refused_while_its_table_is_paused(node: FakeNode, follower: Follower) -> None:
    node.log(SetQueryState(query_ids=(X,), state="PAUSED"))
    with pytest.raises(ServeRefused, match=f"waiting for RESUME {X};"):
        await_lease(follower, table(node), busy_s_max=0.3)


def test_who_may_wait_gets_it_once_the_other_program_has_ended(
    node: FakeNode, follower: Follower
) -> None:
    node.log(OTHER)
    end = threading.Timer(0.5, lambda: node.log(EndPipelines(pipeline_ids=("b",))))
    end.start()
    try:
        me, wanted = await_lease(follower, table(node), busy_s_max=None)
    finally:
        end.join()
    lease = node.catalog().leases[X]
    assert (lease.pipeline_id, lease.lease_epoch) == (me.pipeline_id, wanted.lease_epoch)


def test_a_table_that_is_dropped_is_waited_for_no_longer(
    node: FakeNode, follower: Follower
) -> None:
    source = table(node)
    node.log(OTHER)
    drop = threading.Timer(0.5, lambda: node.log(DropSource(name="X")))
    drop.start()
    try:
        with pytest.raises(ServeEnded, match="DROPPED"):
            await_lease(follower, source, busy_s_max=None)
    finally:
        drop.join()


def both_of(node: FakeNode) -> list[Source]:
    (beside,) = commands_of(DECLARED + BESIDE)[1:]
    node.log(beside)
    return [node.catalog().sources[name] for name in ("Y", "X")]


def connected(node: FakeNode) -> Callable[[Source], Follower]:
    return lambda of: Follower([node.address], SECRET, list, str(of.query_id), is_external=True)


def when(node: FakeNode, holds: Callable[[], bool], *commands: Command) -> threading.Thread:
    """Logs the commands once that is so."""

    def act() -> None:
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for command in commands:
            node.log(command)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


OF_Y = StartPipeline(pipeline_id="b", version=3, isolates=Y)


def test_all_leases_are_asked_for_in_the_order_of_their_queries(node: FakeNode) -> None:
    held = await_leases(both_of(node), connected(node))
    try:
        assert [each.wanted.query_id for each in held] == [X, Y]
        leases = node.catalog().leases
        for each in held:
            assert leases[each.wanted.query_id].lease_epoch == each.wanted.lease_epoch
    finally:
        for each in held:
            each.give_back()


def test_a_table_is_dropped_while_its_holder_waits_for_another_one(node: FakeNode) -> None:
    tables = both_of(node)
    node.log(OF_Y)

    def act() -> None:
        try:
            when(node, lambda: len(node.catalog().isolated[Y]) == 2, DropSource(name="X")).join()
            when(node, lambda: node.catalog().pipelines.keys() == {"b"}).join()
        finally:
            node.log(EndPipelines(pipeline_ids=("b",)))

    drop = threading.Thread(target=act)
    drop.start()
    try:
        with pytest.raises(ServeEnded, match="DROPPED: X was dropped"):
            await_leases(tables, connected(node))
    finally:
        drop.join()


@pytest.mark.parametrize("how", ["lost", "paused"])
def test_a_lease_that_is_lost_while_another_one_is_waited_for_is_asked_for_again(
    node: FakeNode, how: str
) -> None:
    """As after the sleep of a laptop. With the old lease, the query would end at once."""
    tables, first = both_of(node), list[QueryLease]()
    node.log(OF_Y)

    def disturb() -> None:
        try:
            when(node, lambda: len(node.catalog().isolated[Y]) == 2).join()
            first.append(node.catalog().leases[X])
            gone = first[0].pipeline_id
            if how == "lost":
                node.log(StartPipeline(pipeline_id="c", version=3, isolates=X))
                node.log(EndPipelines(pipeline_ids=(gone,)))
                when(node, lambda: bool({*node.catalog().isolated[X]} - {"c", gone})).join()
                node.log(EndPipelines(pipeline_ids=("c",)))
            else:
                node.log(SetQueryState(query_ids=(X,), state="PAUSED"))
                when(node, lambda: gone not in node.catalog().pipelines).join()
                node.log(SetQueryState(query_ids=(X,), state="RUNNING"))
            when(node, lambda: node.catalog().leases[X].pipeline_id not in ("c", gone)).join()
        finally:
            node.log(EndPipelines(pipeline_ids=("b", "c")))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        held = await_leases(tables, connected(node))
        try:
            found = {each.wanted.query_id: each.why_over() for each in held}
            assert found == {X: None, Y: None}
            now = node.catalog().leases[X]
            assert held[0].wanted.lease_epoch == now.lease_epoch > first[0].lease_epoch
        finally:
            for each in held:
                each.give_back()
    finally:
        thread.join()
