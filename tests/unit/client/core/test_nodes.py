"""In what order nodes are tried."""

from __future__ import annotations

import pytest

from standpipe.client.core.nodes import (
    PROBE_S,
    STICKY_S,
    SUSPECT_S_MAX,
    SUSPECT_S_MIN,
    Nodes,
    normalised,
)


def made() -> Nodes:
    nodes = Nodes(("a:1", "seed:1"))
    nodes.learn({"n1": "a:1", "n2": "b:1", "n3": "c:1"})
    return nodes


def test_preferred_first_then_all_others_once() -> None:
    order = made().order(["c:1", "b:1"], 0.0)
    assert order[:2] == ["c:1", "b:1"]
    assert sorted(order) == ["a:1", "b:1", "c:1", "seed:1"]


def test_without_preference_each_has_its_turn() -> None:
    nodes = made()
    assert {nodes.order((), 0.0)[0] for _ in range(4)} == {"a:1", "b:1", "c:1", "seed:1"}


def test_a_suspect_is_last_until_its_time_is_over() -> None:
    nodes = made()
    nodes.failed("c:1", 10.0)
    assert nodes.order(["c:1"], 10.0)[-1] == "c:1"
    assert nodes.order(["c:1"], 10.0 + SUSPECT_S_MIN)[0] == "c:1"


def test_one_request_probes_and_the_others_go_on() -> None:
    nodes = made()
    nodes.failed("c:1", 10.0)
    later_s = 10.0 + SUSPECT_S_MIN
    nodes.chosen("c:1", later_s)
    assert nodes.order(["c:1"], later_s)[0] != "c:1"
    assert nodes.order(["c:1"], later_s + PROBE_S)[0] == "c:1"
    nodes.answered("c:1", later_s)
    assert nodes.order(["c:1"], later_s)[0] == "c:1"


def test_each_failure_doubles_the_time_up_to_a_limit() -> None:
    nodes = made()
    for _ in range(20):
        nodes.failed("c:1", 0.0)
    assert nodes.order(["c:1"], SUSPECT_S_MAX - 0.01)[-1] == "c:1"
    assert nodes.order(["c:1"], SUSPECT_S_MAX)[0] == "c:1"


def test_a_node_that_asks_for_it_is_left_alone() -> None:
    nodes = made()
    nodes.hold("b:1", 5.0)
    nodes.hold("b:1", 4.0)
    assert (nodes.busy_until("b:1"), nodes.busy_until("a:1")) == (5.0, 0.0)
    nodes.answered("b:1", 5.0)
    assert nodes.busy_until("b:1") == 0.0
    assert nodes.are_well


def test_an_answer_on_its_way_does_not_end_a_time_that_the_node_asked_for() -> None:
    """It is to a request that was sent before."""
    nodes = made()
    nodes.hold("b:1", 5.0)
    nodes.failed("b:1", 4.0)
    nodes.answered("b:1", 4.0)
    assert nodes.busy_until("b:1") == 5.0
    assert nodes.order(["b:1"], 4.0)[0] == "b:1", "but it is no suspect"


def test_who_took_a_statement_is_asked_first_for_a_while() -> None:
    nodes = made()
    nodes.took_statement("b:1", 10.0)
    assert {nodes.order((), 10.0 + STICKY_S / 2)[0] for _ in range(9)} == {"b:1"}
    assert nodes.order(["c:1"], 10.0)[0] == "c:1", "the owner of a key still comes first"
    assert {nodes.order((), 10.0 + STICKY_S)[0] for _ in range(9)} > {"b:1"}
    nodes.failed("b:1", 10.0)
    assert nodes.order((), 10.0)[-1] == "b:1", "not if it is silent"


def test_members_that_left_are_forgotten() -> None:
    nodes = made()
    nodes.failed("c:1", 0.0)
    nodes.learn({"n1": "a:1"})
    assert nodes.addresses == ["a:1", "seed:1"], "a seed stays"
    assert nodes.address_of("n3") is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("a:1, b:2", ("a:1", "b:2")),
        (["a:1", "a:1"], ("a:1",)),
        ("https://h:1/", ("https://h:1",)),
        ("[::1]:80", ("[::1]:80",)),
    ],
)
def test_addresses(given: str | list[str], found: tuple[str, ...]) -> None:
    assert normalised(given) == found


@pytest.mark.parametrize("given", ["", " , ", "host", "host:", "http://h"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        normalised(given)
