"""The errors of reads that no replica answered, and what a refused forward tells its sender."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.unit.node.workers import USERS

from standpipe.control.routing.route import Verdict
from standpipe.errors import NoReplica, NotReady, StandpipeError
from standpipe.model import NodeId
from standpipe.node.worker.pull.forward import TOO_SLOW, ForwardRefused
from standpipe.node.worker.pull.refusals import (
    NAMED_PARTITIONS_MAX,
    NOT_DONE,
    Failure,
    Unanswered,
    client_error,
    refusal_to_peer,
    with_map,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
TEXT = "SELECT * FROM USERS WHERE ID = 'x';"


def verdict(node_id: NodeId) -> Verdict:
    return Verdict(node_id=node_id, role="STANDBY", ok=True, why="Usable.")


def stale(partition: int, *nodes: NodeId) -> Failure:
    tried = [(verdict(node), ForwardRefused(f"Lag of {node}.", lag_records=7)) for node in nodes]
    return Failure(partition, tried)


def young(partition: int, *shares: float | None) -> Failure:
    """`shares`: progress of each replica."""
    refusals = [ForwardRefused("BOOTSTRAP.", is_not_ready=True, progress=share) for share in shares]
    return Failure(partition, [(verdict(A), refusal) for refusal in refusals])


def error_of(*failures: Failure) -> StandpipeError:
    return client_error(TEXT, Unanswered(USERS, failures), now_boot_ms=1)


def details(error: StandpipeError) -> Any:
    return error.details


def test_error_names_every_replica() -> None:
    error = error_of(stale(2, A, B, C))
    assert error.message == (
        f"Unable to execute pull query {TEXT}. All nodes are dead or exceed max allowed lag. "
        "[Partition 2: a (standby): Lag of a.; b (standby): Lag of b.; c (standby): Lag of c.]"
    )
    assert error.status == 503
    told = [(one["partition"], one["node"], one["usable"]) for one in details(error)["verdicts"]]
    assert told == [(2, A, False), (2, B, False), (2, C, False)]
    assert details(error)["verdicts"][0]["lag_records"] == 7, "as the replica said"


def test_a_query_that_took_too_long_is_no_dead_node() -> None:
    slow = Failure(1, [(verdict(A), ForwardRefused(TOO_SLOW))])
    error = error_of(stale(0, B), slow)
    assert error.message.startswith(f"Unable to execute pull query {TEXT}. {NOT_DONE} [Partition 0")
    assert TOO_SLOW in error.message
    assert error.status == 503


@pytest.mark.parametrize(
    ("failures", "kind", "progress", "says", "why"),
    [
        ([stale(0, A), stale(3, B)], NoReplica, None, "Lag of b.]", "both are named"),
        ([young(0, 0.5, 0.2)], NotReady, 0.5, "partition 0 holds", "the furthest replica counts"),
        ([young(0, 0.5), young(3, 0.1)], NotReady, 0.1, "partitions 0, 3 hold", "the least of all"),
        (
            [young(0, 0.5), young(3, None)],
            NotReady,
            None,
            "Progress: unknown",
            "one is unknown",
        ),
        ([young(1)], NotReady, None, "partition 1 holds", "so young that none is assigned"),
        (
            [stale(0, A), young(3, 0.5)],
            NotReady,
            0.5,
            "Besides: [Partition 0",
            "no bound helps",
        ),
    ],
)
def test_one_error_for_several_partitions(
    failures: list[Failure], kind: type[StandpipeError], progress: float | None, says: str, why: str
) -> None:
    """Whatever failed first: the same error, word for word."""
    bodies = [error_of(*order).body() for order in itertools.permutations(failures)]
    assert all(body == bodies[0] for body in bodies)
    error = error_of(*failures)
    assert type(error) is kind, why
    assert says in error.message, why
    assert details(error).get("progress") == progress, why
    assert details(error)["partitions"] == [failure.partition for failure in failures]
    tried = [failure.partition for failure in failures for _ in failure.tried]
    assert [one["partition"] for one in details(error)["verdicts"]] == tried


def test_a_message_names_some_and_the_details_all() -> None:
    error = error_of(*(stale(number, A) for number in range(20)))
    assert error.message.count("[Partition") == NAMED_PARTITIONS_MAX
    assert error.message.endswith("and 12 more partitions")
    assert len(details(error)["verdicts"]) == 20


@pytest.mark.parametrize(
    ("sent", "own", "is_not_owner", "told", "why"),
    [
        (5, 5, False, False, "both go by the same map: nothing to learn"),
        (5, 6, False, True, "the sender learns the newer one from any refusal"),
        (6, 5, False, False, "the sender knows better"),
        (None, 5, False, False, "it did not ask"),
        (5, 5, True, True, "wrongly asked: who it is"),
        (6, 5, True, True, "wrongly asked, maybe because this node is behind"),
        (None, 5, True, True, "wrongly asked"),
    ],
)
def test_what_map_a_refusal_carries(
    sent: int | None, own: int, is_not_owner: bool, told: bool, why: str
) -> None:
    refusal = with_map(ForwardRefused("No.", is_not_owner=is_not_owner), sent, own, (B, C))
    said = details(refusal_to_peer(refusal))
    expected = {"replicas": [B, C], "assignment_epoch": own} if told else {}
    assert {name: said[name] for name in said if name != "why"} == expected, why
    assert ("older" in said["why"]) is (is_not_owner and sent == 6)


def test_a_replica_that_is_not_ready_tells_the_newer_map_too() -> None:
    refusal = ForwardRefused("BOOTSTRAP.", is_not_ready=True, progress=0.5)
    error = refusal_to_peer(with_map(refusal, 5, 6, (B,)))
    assert isinstance(error, NotReady)
    assert details(error) == {
        "why": "BOOTSTRAP.",
        "progress": 0.5,
        "replicas": [B],
        "assignment_epoch": 6,
    }
