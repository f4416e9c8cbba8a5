"""Racks: which tags a node may have, which of them copies spread over, what a forced tag allows.

KIP-708 keeps copies apart in every named dimension ("zone", "cluster"), best effort. Forced
awareness is from Elasticsearch: a declared value counts even if none of its nodes is up, so
that the surviving zone is not flooded. How far apart a set of copies is: spread.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

# KIP-708 names no limits; these are those of Kafka's StreamsConfig, so that tags are valid here
# if and only if they are valid there (docs/sources.md).
TAG_COUNT_MAX: Final = 5
TAG_KEY_LENGTH_MAX: Final = 20
TAG_VALUE_LENGTH_MAX: Final = 30

#: tag -> values that exist, whether or not a node of them is up
Forced = Mapping[str, Collection[str]]
#: the values of one node, one per dimension; None: not set
Place = tuple[str | None, ...]


def tag_faults(tags: Mapping[str, str], rack_aware_tags: Sequence[str]) -> tuple[str, ...]:
    """Why a node with these tags must not start; empty when it may."""
    faults: list[str] = []
    if len(tags) > TAG_COUNT_MAX:
        faults.append(f"{len(tags)} tags, at most {TAG_COUNT_MAX} are allowed")
    for key, value in sorted(tags.items()):
        if not key or len(key) > TAG_KEY_LENGTH_MAX:
            faults.append(f"tag key {key!r} must have 1 to {TAG_KEY_LENGTH_MAX} characters")
        if not value or len(value) > TAG_VALUE_LENGTH_MAX:
            faults.append(f"tag {key}={value!r} must have 1 to {TAG_VALUE_LENGTH_MAX} characters")
    faults += [
        f"rack.aware.assignment.tags names {name!r}, but client.tag.{name} is not set"
        for name in rack_aware_tags
        if name not in tags
    ]
    faults += [
        f"rack.aware.assignment.tags names {name!r} more than once"
        for name in sorted(set(rack_aware_tags))
        if rack_aware_tags.count(name) > 1
    ]
    return tuple(faults)


def parse_forced(text: str) -> dict[str, tuple[str, ...]]:
    """`zone:a,zone:b` -> {"zone": ("a", "b")}: the value of standpipe.rack.aware.forced.

    Raises ValueError that quotes the entry that is not `tag:value`.
    """
    forced: dict[str, set[str]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        tag, colon, value = (part.strip() for part in entry.partition(":"))
        if not (tag and colon and value):
            raise ValueError(f"{entry!r} is not tag:value")
        forced.setdefault(tag, set()).add(value)
    return {tag: tuple(sorted(values)) for tag, values in sorted(forced.items())}


class Strategy(StrEnum):
    """By what copies are kept apart."""

    TAGS = "tag_aware"
    RACK = "rack_as_single_tag"
    LOAD = "least_loaded"


def strategy(rack_aware_tags: Sequence[str], every_node_has_rack: bool) -> Strategy:
    """Named tags win; else client.rack, if each node has one; else load alone (Kafka)."""
    if rack_aware_tags:
        return Strategy.TAGS
    return Strategy.RACK if every_node_has_rack else Strategy.LOAD


def places(
    nodes: Sequence[tuple[Mapping[str, str], str]], rack_aware_tags: Sequence[str]
) -> list[Place]:
    """The place of each node (tags, rack): its value in every dimension of the spread."""
    chosen = strategy(rack_aware_tags, bool(nodes) and all(rack for _, rack in nodes))
    if chosen is Strategy.RACK:
        return [(rack,) for _, rack in nodes]
    return [tuple(tags.get(name) for name in rack_aware_tags) for tags, _ in nodes]


def copies_per_value_max(copies: int, declared: Iterable[str], present: Iterable[str]) -> int:
    """How many of a partition's copies one value of a forced tag may hold: ⌈copies / values⌉.

    As in Elasticsearch, the values of live nodes count as well as the declared ones. Nodes
    without the tag form one more place, under the same limit.
    """
    values = len(set(declared) | set(present))
    return -(-copies // max(1, values))


def keeps_spread(others: Sequence[Place], old: Place, new: Place) -> bool:
    """Whether a copy may move from `old` to `new`, given these other copies.

    Where no other copy is known, only an equal place is safe (Kafka: a standby moves to a client
    with the same tag values). Otherwise no dimension may lose a distinct value.
    """
    if not others:
        return old == new
    columns = zip(*others, strict=True)
    return all(
        _distinct((*column, there)) >= _distinct((*column, here))
        for column, here, there in zip(columns, old, new, strict=True)
    )


def _distinct(values: Iterable[str | None]) -> int:
    return len(set(values) - {None})
