"""Who gets the lease of a table: a program that serves it waits, a load may be refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.pipeline.fake_node import SECRET, FakeNode
from tests.unit.pipeline.queries_of import commands_of
from tests.unit.spark.test_query import DECLARED, OTHER, X

from standpipe.control.metadata.commands import DropSource, EndPipelines, SetQueryState
from standpipe.model import Source
from standpipe.pipeline.run.control_client import Follower
from standpipe.spark.errors import ServeEnded, ServeRefused
from standpipe.spark.standby import await_lease


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
