"""Schemas fetched beside the loop: known, absent, failed, and too many at a time."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.node.worker.request import schemas
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaRegistryUnavailable,
    UnknownSchema,
)


class Slow:
    """A registry that answers once it may. Below 10 it knows ids, below 20 not, then it fails."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[int] = []
        self.answered: set[int] = set()

    def knows(self, schema_id: int) -> bool:
        return schema_id in self.answered

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        assert self.may_answer.wait(30)
        if schema_id >= 20:
            raise SchemaRegistryUnavailable("down")
        self.answered.add(schema_id)
        if schema_id >= 10:
            raise UnknownSchema("none")
        return RegisteredSchema(schema_id, "AVRO", '"int"')


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def fetcher(slow: Slow) -> SchemaFetcher:
    return SchemaFetcher(cast("SchemaRegistry", slow))


def settled(fetcher: SchemaFetcher) -> None:
    """Wait for what was asked so far."""
    for asked in [*vars(fetcher)["_pending"].values()]:
        asked.result(30)


@pytest.mark.parametrize("schema_id", [1, 10, 20])
def test_whatever_the_answer_is_it_is_awaited_once(
    fetcher: SchemaFetcher, slow: Slow, schema_id: int
) -> None:
    assert fetcher.are_fetched([])
    assert [fetcher.are_fetched([schema_id]) for _ in range(3)] == [False] * 3
    slow.may_answer.set()
    settled(fetcher)
    assert fetcher.are_fetched([schema_id])
    assert slow.asked == [schema_id]


def test_a_failure_is_tried_again_when_the_id_is_met_again(
    fetcher: SchemaFetcher, slow: Slow
) -> None:
    slow.may_answer.set()
    assert not fetcher.are_fetched([20])
    settled(fetcher)
    assert fetcher.are_fetched([20])
    assert not fetcher.are_fetched([20])
    settled(fetcher)
    assert slow.asked == [20, 20]


def test_one_producer_cannot_ask_for_any_number(fetcher: SchemaFetcher, slow: Slow) -> None:
    wanted = range(100, 100 + 2 * schemas.PENDING_MAX)
    assert not fetcher.are_fetched(wanted)
    assert len(vars(fetcher)["_pending"]) == schemas.PENDING_MAX
    slow.may_answer.set()
    settled(fetcher)
    assert not fetcher.are_fetched([1])  # those of an answer that has ended make room
    assert len(vars(fetcher)["_pending"]) == 1
    settled(fetcher)
    assert fetcher.are_fetched([1])
