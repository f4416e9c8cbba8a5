"""Whose slice is next: fresh scans and placed ones in turn, lanes and addresses fairly, bounds."""

from __future__ import annotations

from collections import deque

import pytest

from standpipe.errors import TooManyRequests
from standpipe.node.worker.request.scan_order import FairQueue, QueuedScan, ScanOrder


def queued(name: str, *, query: int | None = None) -> QueuedScan[str]:
    """`name`: lane (c, p), address, and anything: "ca1"."""
    number = hash(name) if query is None else query
    return QueuedScan(name, number, is_peer=name[0] == "p", address=name[1])


@pytest.mark.parametrize(
    ("arrived", "left", "why"),
    [
        ("ca1 ca2 ca3", "ca1 ca2 ca3", "one client: by arrival"),
        ("ca1 ca2 ca3 cb1", "ca1 cb1 ca2 ca3", "another client is not behind all of the first's"),
        ("ca1 ca2 cb1 cb2 cc1", "ca1 cb1 cc1 ca2 cb2", "addresses in turn"),
        ("ca1 ca2 ca3 pn1", "ca1 pn1 ca2 ca3", "public load does not starve a peer's forward"),
        ("pn1 pn2 pm1 ca1", "pn1 ca1 pm1 pn2", "nor peers a client"),
        ("ca1 cb1 pn1 pm1", "ca1 pn1 cb1 pm1", "lanes in turn, and addresses within them"),
    ],
)
def test_who_waits_is_served_fairly(arrived: str, left: str, why: str) -> None:
    queue = FairQueue[str]()
    for name in arrived.split():
        queue.push(queued(name))
    assert [queue.pop().work for _ in range(len(queue))] == left.split(), why
    assert len(queue) == 0
    assert list(queue) == []


def test_one_that_leaves_its_line() -> None:
    queue, scans = FairQueue[str](), [queued(name) for name in ("ca1", "ca2", "cb1")]
    for each in scans:
        queue.push(each)
    assert queue.remove(scans[0])
    assert not queue.remove(scans[0]), "it has left"
    assert not queue.remove(queued("cz1")), "it never came"
    assert [queue.pop().work for _ in range(len(queue))] == ["ca2", "cb1"]


def slices(
    order: ScanOrder[str], scans: list[QueuedScan[str]], lengths: dict[str, int]
) -> list[str]:
    """The slices in their order; `lengths`: how many each scan needs."""
    done: list[str] = []
    for each in scans:
        order.arrive(each)
    while (following := order.next()) is not None:
        done.append(following.work)
        if done.count(following.work) == lengths[following.work]:
            order.leave(following)
        else:
            order.sliced(following)
    return done


@pytest.mark.parametrize(
    ("lengths", "wanted", "why"),
    [
        ({"ca1": 1, "ca2": 1}, "ca1 ca2", "over in their first slices: no place needed"),
        ({"ca1": 2, "ca2": 2}, "ca1 ca1 ca2 ca2", "fresh and placed in turn"),
        ({"ca1": 3, "ca2": 1}, "ca1 ca1 ca2 ca1", "a short one waits for one slice of a long one"),
        ({"ca1": 4, "ca2": 4}, "ca1 ca1 ca2 ca1 ca2 ca1 ca2 ca2", "two places in turn"),
        (
            {"ca1": 4, "ca2": 4, "ca3": 3},
            "ca1 ca1 ca2 ca1 ca3 ca2 ca1 ca2 ca3 ca2 ca3",
            "the third waits for a place after its first slice",
        ),
    ],
)
def test_the_order_of_slices(lengths: dict[str, int], wanted: str, why: str) -> None:
    order = ScanOrder[str]()
    assert slices(order, [queued(name) for name in lengths], lengths) == wanted.split(), why
    assert order.placed == deque()
    assert not order._queries


def test_only_places_many_go_on() -> None:
    order = ScanOrder[str](places=2)
    for name in ("ca1", "ca2", "ca3", "ca4"):
        order.arrive(queued(name))
    for _ in range(20):
        following = order.next()
        assert following is not None
        order.sliced(following)
        assert len(order.placed) <= 2
    assert [each.work for each in order.waiting] == ["ca3", "ca4"]


def test_a_lane_that_is_full_refuses_and_the_other_does_not() -> None:
    order = ScanOrder[str](queries_max=2)
    first = queued("ca1", query=1)
    order.arrive(first)
    order.arrive(queued("ca1", query=1))
    order.arrive(queued("cb1", query=2))
    order.arrive(queued("cb1", query=2))  # a query has many partitions, and counts once
    with pytest.raises(TooManyRequests, match="too many scans"):
        order.arrive(queued("cc1", query=3))
    order.arrive(queued("pn1", query=3))
    order.leave(first)
    with pytest.raises(TooManyRequests):
        order.arrive(queued("cc1", query=3))
    order.leave(next(each for each in order.fresh if each.query == 1))
    order.arrive(queued("cc1", query=3))


def test_one_that_copies_goes_on_until_it_has_copied_all() -> None:
    """It holds a view of the store. Fresh ones still come between."""
    order, scans = ScanOrder[str](places=2), [queued(f"ca{n}") for n in range(1, 5)]
    for each in scans[:2]:
        order.arrive(each)
    done: list[str] = []

    def slices(count: int) -> None:
        for _ in range(count):
            following = order.next()
            assert following is not None
            done.append(following.work)
            order.sliced(following)

    slices(4)
    assert done == ["ca1", "ca1", "ca2", "ca1"], "both have their places now"
    scans[1].is_copying = True
    slices(3)
    order.arrive(scans[2])
    slices(3)
    scans[1].is_copying = False
    slices(2)
    assert done[4:] == ["ca2", "ca2", "ca2", "ca3", "ca2", "ca2", "ca2", "ca1"]
