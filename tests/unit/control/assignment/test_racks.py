"""Tags, limits and forced awareness. Sources: KIP-708; Kafka's StreamsConfig; Elasticsearch."""

from __future__ import annotations

import pytest

from standpipe.control.assignment.racks import (
    Place,
    Strategy,
    copies_per_value_max,
    keeps_spread,
    parse_forced,
    places,
    strategy,
    tag_faults,
)

FIVE = {f"tag{n}": "v" for n in range(5)}


@pytest.mark.parametrize(
    ("tags", "named", "faults", "why"),
    [
        ({}, (), 0, "no tags, none asked for"),
        (FIVE, ("tag0", "tag4"), 0, "five are allowed"),
        ({**FIVE, "tag5": "v"}, (), 1, "six are not"),
        ({"k" * 20: "v"}, (), 0, "a key of 20 characters is allowed"),
        ({"k" * 21: "v"}, (), 1, "21 are not"),
        ({"zone": "v" * 30}, (), 0, "a value of 30 characters is allowed"),
        ({"zone": "v" * 31}, (), 1, "31 are not"),
        ({"zone": ""}, (), 1, "an empty value says nothing"),
        ({"zone": "a"}, ("zone", "cluster"), 1, "a named tag must be set on the node itself"),
        ({"zone": "a"}, ("zone", "zone"), 1, "named twice"),
        ({"k" * 21: "v" * 31}, ("zone",), 3, "every fault is told, not only the first"),
    ],
)
def test_tag_faults(tags: dict[str, str], named: tuple[str, ...], faults: int, why: str) -> None:
    assert len(tag_faults(tags, named)) == faults, why


@pytest.mark.parametrize(
    ("text", "forced", "why"),
    [
        ("", {}, "nothing is forced"),
        ("zone:a,zone:b", {"zone": ("a", "b")}, "values of one tag collect"),
        (" zone : b , zone:a,rack:1 ", {"rack": ("1",), "zone": ("a", "b")}, "sorted, trimmed"),
        ("zone:a,zone:a", {"zone": ("a",)}, "twice is once"),
        ("zone:a:b", {"zone": ("a:b",)}, "the first colon parts"),
    ],
)
def test_parse_forced(text: str, forced: dict[str, tuple[str, ...]], why: str) -> None:
    assert parse_forced(text) == forced, why


@pytest.mark.parametrize("text", ["zone", "zone:", ":a", "zone:a,b"])
def test_parse_forced_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not tag:value"):
        parse_forced(text)


@pytest.mark.parametrize(
    ("named", "every_node_has_rack", "expected", "why"),
    [
        (("az",), False, Strategy.TAGS, "named tags"),
        (("az",), True, Strategy.TAGS, "named tags win over client.rack"),
        ((), True, Strategy.RACK, "client.rack is a tag where none is named"),
        ((), False, Strategy.LOAD, "one node without a rack: racks say nothing"),
    ],
)
def test_strategy(
    named: tuple[str, ...], every_node_has_rack: bool, expected: Strategy, why: str
) -> None:
    assert strategy(named, every_node_has_rack) is expected, why


@pytest.mark.parametrize(
    ("nodes", "named", "expected", "why"),
    [
        (
            [({"zone": "a", "x": "1"}, "")],
            ("zone",),
            [("a",)],
            "tags that are not named do not count",
        ),
        ([({}, "r1")], ("zone",), [(None,)], "a missing tag is unknown, not an error"),
        ([({"zone": "a"}, "r1"), ({}, "r2")], (), [("r1",), ("r2",)], "rack as the only dimension"),
        ([({}, "r1"), ({}, "")], (), [(), ()], "no dimension at all"),
    ],
)
def test_places(
    nodes: list[tuple[dict[str, str], str]],
    named: tuple[str, ...],
    expected: list[Place],
    why: str,
) -> None:
    assert places(nodes, named) == expected, why


@pytest.mark.parametrize(
    ("copies", "declared", "present", "limit", "why"),
    [
        (2, ["zone1", "zone2"], ["zone1"], 1, "Elasticsearch's example: half of the copies"),
        (3, ["a", "b"], ["a", "b"], 2, "rounded up"),
        (3, ["a", "b", "c"], [], 1, "values count although no node of them is up"),
        (3, ["a"], ["a", "b", "c"], 1, "values that nodes carry count, too"),
        (2, [], [], 2, "nothing to divide by"),
    ],
)
def test_copies_per_value_max(
    copies: int, declared: list[str], present: list[str], limit: int, why: str
) -> None:
    assert copies_per_value_max(copies, declared, present) == limit, why


@pytest.mark.parametrize(
    ("others", "old", "new", "allowed", "why"),
    [
        ([], ("a", "1"), ("a", "1"), True, "equal places are interchangeable"),
        ([], ("a", "1"), ("b", "1"), False, "nothing else known: only an equal place is safe"),
        ([("c", "2")], ("a", "1"), ("b", "1"), True, "as many distinct values as before"),
        ([("c", "2")], ("a", "1"), ("c", "1"), False, "the zone would be shared"),
        ([("c", "2")], ("a", "1"), (None, "1"), False, "unknown is not distinct"),
        ([("c", "2")], (None, "1"), ("a", "1"), True, "a known value is an improvement"),
    ],
)
def test_keeps_spread(others: list[Place], old: Place, new: Place, allowed: bool, why: str) -> None:
    assert keeps_spread(others, old, new) is allowed, why
