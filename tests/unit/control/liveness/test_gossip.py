"""Who tells whom, what a rumour weighs, and that what is said is known everywhere soon."""

from __future__ import annotations

import random

import msgspec
import pytest

from standpipe.control.liveness.gossip import (
    FANOUT,
    RESTLESS_ROUNDS,
    VOICES,
    WELL,
    Gossip,
    Note,
    Rumour,
    ring,
    spread_rounds,
)
from standpipe.model import Health, NodeId


def names(count: int) -> list[NodeId]:
    return [NodeId(f"n{number:03}") for number in range(count)]


def cluster(count: int) -> dict[NodeId, Gossip]:
    made = {node: Gossip(node) for node in names(count)}
    for gossip in made.values():
        gossip.members(names(count))
    return made


def said(watcher: str, subject: str, health: Health, version: int = 1) -> Rumour:
    return Rumour(watcher=NodeId(watcher), subject=NodeId(subject), health=health, version=version)


@pytest.mark.parametrize(
    ("count", "beats", "why"),
    [
        (2, 1, "the other one"),
        (21, FANOUT, "a fixed number"),
        (300, FANOUT, "however many there are"),
    ],
)
def test_whom_a_node_beats_to(count: int, beats: int, why: str) -> None:
    nodes = cluster(count)
    for gossip in nodes.values():
        assert len(gossip.beats_to) == beats, why
        for other in gossip.beats_to:
            assert gossip.me in nodes[other].watched, "who hears beats knows that it should"


def test_who_is_down_watches_nobody() -> None:
    nodes = cluster(50)
    subject = names(50)[0]
    first = nodes[subject].beats_to
    for gossip in nodes.values():
        for voice in ring(names(50))[:VOICES]:
            gossip.hear([said(voice, first[0], Health.DOWN)])
    after = nodes[subject].beats_to
    assert first[0] in after, "or it would not hear that we are there when it comes back"
    assert len(after) == FANOUT + 1, "the next on the ring takes its place"
    assert subject in nodes[after[-1]].watched


@pytest.mark.parametrize(
    ("rumours", "is_down", "why"),
    [
        ([said("n001", "n000", Health.DOWN)], False, "one voice: it may be sick itself"),
        ([said(w, "n000", Health.DOWN) for w in ("n001", "n002")], True, "two"),
        ([said("n001", "n000", Health.DOWN), said("n001", "n000", Health.DOWN, 2)], False, "one"),
        (
            [
                *(said(w, "n000", Health.DOWN) for w in ("n001", "n002")),
                said("n001", "n000", Health.ALIVE, 2),
            ],
            False,
            "one took it back",
        ),
        (
            [
                said("n001", "n000", Health.ALIVE, 2),
                *(said(w, "n000", Health.DOWN) for w in ("n001", "n002")),
            ],
            False,
            "an old word comes late",
        ),
        (
            [said(w, "n000", Health.DOWN) for w in ("n001", "x")],
            False,
            "a stranger's does not count",
        ),
    ],
)
def test_voices(rumours: list[Rumour], is_down: bool, why: str) -> None:
    gossip = cluster(30)[NodeId("n029")]
    gossip.hear(rumours)
    assert gossip.is_down(NodeId("n000")) is is_down, why


def test_lives_that_said_as_much_do_not_pass_for_each_other() -> None:
    """The second life reached the number of the first with other words: nobody compared."""
    nodes = cluster(30)
    again, other = nodes[NodeId("n001")], nodes[NodeId("n002")]
    left = msgspec.structs.replace(said("n001", "n001", Health.ALIVE, 2), note=Note.LEAVING)
    other.hear([left])
    again.noted(Note.TAILER_SICK)
    again.noted(WELL)
    assert again.digest != other.digest
    again.hear(other.everything())
    other.hear(again.round())
    assert other.note_of(again.me) == WELL


def test_a_node_that_forgot_takes_back_what_it_had_said() -> None:
    gossip = cluster(30)[NodeId("n001")]
    gossip.hear([said("n001", "n000", Health.DOWN, 7)])
    assert gossip.round() == [said("n001", "n000", Health.UNKNOWN, 8)], "it has no mind yet"


def test_what_a_node_says_of_itself_goes_round_and_survives_its_restart() -> None:
    nodes = cluster(30)
    first, other = nodes[NodeId("n001")], nodes[NodeId("n002")]
    assert other.note_of(first.me) == WELL, "until it says otherwise"
    first.noted(Note.LEAVING)
    other.hear(first.round())
    assert other.note_of(first.me) == Note.LEAVING
    again = Gossip(first.me)  # restarted: it has forgotten what it said
    again.members(names(30))
    again.noted(WELL)
    again.hear(other.everything())
    other.hear(again.round())
    assert other.note_of(first.me) == WELL
    assert other.digest == again.digest


def test_digests_are_compared_when_nothing_is_on_its_way() -> None:
    gossip = cluster(30)[NodeId("n001")]
    assert gossip.may_compare
    gossip.hear([said("n002", "n000", Health.DOWN)])
    assert not gossip.may_compare, "others may be hearing it just now"
    for _ in range(spread_rounds(30)):
        gossip.round()
    assert gossip.may_compare
    for version in range(RESTLESS_ROUNDS):
        gossip.hear([said("n002", "n000", Health.DOWN, 2 + version)])
        gossip.round()
    assert gossip.may_compare, "a peer that flaps for ever must not hide what was lost"
    gossip.everything()
    assert not gossip.may_compare


def test_members_that_left_are_forgotten() -> None:
    gossip = cluster(30)[NodeId("n029")]
    gossip.hear([said(w, "n000", Health.DOWN) for w in ("n001", "n002")])
    gossip.members([node for node in names(30) if node != "n001"])
    assert gossip.is_down(NodeId("n000")), "that a watcher left brings nobody back"
    gossip.hear([said("n003", "n000", Health.ALIVE)])
    assert not gossip.is_down(NodeId("n000")), "somebody hears it, and one voice is not enough"
    gossip.members([node for node in names(30) if node not in ("n001", "n003")])
    fresh = Gossip(NodeId("n029"))
    fresh.members(names(30))
    fresh.hear([said("n002", "n000", Health.DOWN)])
    assert gossip.digest == fresh.digest, "the digest is of what is known now"


@pytest.mark.parametrize("count", [21, 100, 400])
def test_a_rumour_is_everywhere_before_it_is_told_no_more(count: int) -> None:
    chance, nodes = random.Random(count), cluster(count)
    first = nodes[NodeId("n001")]
    first.judged(NodeId("n000"), Health.DOWN)
    for _ in range(2 * spread_rounds(count)):
        messages = [
            (target, told)
            for gossip in nodes.values()
            if (told := gossip.round())
            for target in [
                *gossip.beats_to,
                *gossip.targets([chance.getrandbits(32) for _ in range(3)]),
            ]
        ]
        for target, told in messages:
            nodes[target].hear(told)
    assert len({gossip.digest for gossip in nodes.values()}) == 1
    assert first.digest != 0
    assert all(not gossip.round() for gossip in nodes.values()), "and then it is quiet"
