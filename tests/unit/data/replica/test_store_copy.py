"""Whom to copy a store from, how long to wait for somebody, and when it will be done."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.data.replica.store_copy import HEAR_MS_MAX, Meter, donors, may_wait
from standpipe.model import BatchId, Health, NodeId, NodeInfo, Offset, Placement, ReplicaState
from standpipe.model_liveness import KnownLag, PeerLiveness, ReplicaLag

ME = NodeId("me")
PLACEMENT = Placement(
    table_id="T", generation=1, partition=0, replicas=(NodeId("a"), ME, NodeId("b"))
)
NODES = {
    NodeId(name): NodeInfo(node_id=NodeId(name), public="", internal=name, peer="", incarnation="x")
    for name in ("a", "b", "c", "me")
}
LETTERS = {"B": ReplicaState.BOOTSTRAP, "C": ReplicaState.CATCHING_UP, "R": ReplicaState.RUNNING}


def lag(node: str, said: str) -> KnownLag:
    """`said`: state and position, such as R100."""
    return KnownLag(
        node_id=NodeId(node),
        at_boot_ms=1,
        reported_boot_ms=1,
        lag=ReplicaLag(
            table_id="T",
            generation=1,
            partition=0,
            position=Offset(int(said[1:])),
            committed_end=Offset(100),
            state=LETTERS[said[0]],
            batch=BatchId(1),
        ),
    )


def peers(**health: Health) -> dict[NodeId, PeerLiveness]:
    return {NodeId(n): PeerLiveness(node_id=NodeId(n), health=h) for n, h in health.items()}


ALIVE = peers(a=Health.ALIVE, b=Health.ALIVE)


@pytest.mark.parametrize(
    ("said", "liveness", "order", "why"),
    [
        ({"a": "R100", "b": "R100"}, ALIVE, "ba", "of equals a standby: readers ask the active"),
        ({"a": "R100", "b": "R99"}, ALIVE, "ab", "the newest rows first"),
        ({"a": "C100", "b": "R100"}, ALIVE, "ba", "whole at an older batch will do as well"),
        ({"a": "B100", "b": "R1"}, ALIVE, "b", "no whole batch: nothing to copy"),
        ({"a": "R0", "b": "R0"}, ALIVE, "", "a table without a record is replayed in no time"),
        ({"c": "R100"}, ALIVE, "", "it holds the partition no more: it may delete it any moment"),
        ({"me": "R100"}, ALIVE, "", "not from oneself"),
        ({"a": "R100"}, peers(a=Health.DOWN), "", "down"),
        ({"a": "R100"}, peers(a=Health.UNKNOWN), "", "not heard of yet"),
        ({"a": "R100"}, {}, "a", "heartbeats are off: nothing speaks against it"),
    ],
)
def test_donors(
    said: dict[str, str], liveness: dict[NodeId, PeerLiveness], order: str, why: str
) -> None:
    known = [lag(node, text) for node, text in said.items()]
    found = donors(PLACEMENT, ME, NODES, known, liveness)
    assert "".join(info.node_id for info in found) == order, why


@pytest.mark.parametrize(
    ("liveness", "waited_ms", "waits", "why"),
    [
        ({}, 0, True, "nothing is known of anybody yet"),
        (peers(a=Health.ALIVE), 0, True, "b may be about to beat"),
        (ALIVE, 0, False, "both were heard, and offered nothing: a new table"),
        (peers(a=Health.DOWN, b=Health.DOWN), 0, False, "nobody is left"),
        (peers(a=Health.UNKNOWN, b=Health.ALIVE), HEAR_MS_MAX - 1, True, "the last moment"),
        (peers(a=Health.UNKNOWN, b=Health.ALIVE), HEAR_MS_MAX, False, "long enough"),
    ],
)
def test_may_wait(
    liveness: dict[NodeId, PeerLiveness], waited_ms: int, waits: bool, why: str
) -> None:
    assert may_wait(PLACEMENT, ME, liveness, [], waited_ms) is waits, why


@pytest.mark.parametrize(
    ("said", "waited_ms", "waits", "why"),
    [
        ({}, 0, True, "they have it, and have not reported it to a node that only comes to hold"),
        ({"a": "B0"}, 0, True, "the other one may have more"),
        ({"a": "B0", "b": "B0"}, 0, False, "neither has anything to copy"),
        ({}, HEAR_MS_MAX, False, "long enough"),
    ],
)
def test_who_warms_up_waits_for_the_holders_word(
    said: dict[str, str], waited_ms: int, waits: bool, why: str
) -> None:
    placement = msgspec.structs.replace(
        PLACEMENT, replicas=(NodeId("a"), NodeId("b")), warmups=(ME,)
    )
    known = [lag(node, text) for node, text in said.items()]
    assert may_wait(placement, ME, ALIVE, known, waited_ms) is waits, why


def test_an_end_is_in_sight_by_the_pace_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.eta_ms(0, 0, 100) is None, "no pace yet"
    assert meter.eta_ms(1000, 10, 100) == 9000
    assert meter.eta_ms(2000, 50, 100) == 2000, "it became faster"
    assert meter.eta_ms(13_000, 50, 100) is None, "it stands still"
    assert meter.eta_ms(14_000, 100, 100) == 0


def test_what_falls_back_or_stands_still_has_no_end_in_sight() -> None:
    meter = Meter()
    meter.eta_ms(0, 10, 100)
    assert meter.eta_ms(1000, 10, 100) is None
    assert meter.eta_ms(2000, 5, 100) is None, "begun anew"
