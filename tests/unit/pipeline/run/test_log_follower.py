"""Which nodes are asked, and in what order. With nodes: test_control_client.py."""

from __future__ import annotations

from standpipe.pipeline.run.log_follower import KnownNodes


def test_members_are_asked_after_those_that_were_given() -> None:
    nodes = KnownNodes(["a", "b", "a"])
    nodes.learn(["b", "c"])
    assert nodes.in_order() == ["a", "b", "c"]


def test_what_is_known_keeps_its_place() -> None:
    nodes = KnownNodes(["a", "b"])
    nodes.put_last("a")
    nodes.learn(["c", "a"])
    assert nodes.in_order() == ["b", "a", "c"]


def test_a_member_that_left_is_asked_no_more_unless_it_was_given() -> None:
    nodes = KnownNodes(["a"])
    nodes.learn(["b", "c"])
    nodes.begin_with("b")
    nodes.learn(["c"])
    assert nodes.in_order() == ["c", "a"]
    nodes.learn([])
    assert nodes.in_order() == ["a"]


def test_one_that_fails_is_asked_last() -> None:
    nodes = KnownNodes(["a", "b", "c"])
    nodes.put_last("a")
    assert nodes.in_order() == ["b", "c", "a"]
    nodes.begin_with("a")
    assert nodes.in_order() == ["a", "b", "c"]


def test_one_that_has_left_meanwhile_moves_nobody() -> None:
    nodes = KnownNodes(["a", "b"])
    nodes.put_last("x")
    nodes.begin_with("x")
    assert nodes.in_order() == ["a", "b"]
