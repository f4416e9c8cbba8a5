"""Bugs of a topic that is made anew (see `data_planted`): other worlds cannot catch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standpipe.data.commit import topic_identity
from standpipe.data.commit.topic_identity import TopicChecker, differ

from . import data_recreated
from .runner import Plant


def trust_the_name() -> list[Plant]:
    """What is read may be applied, whatever topic it is of."""
    return [(TopicChecker, "is_sure", property(lambda doubt: True))]


def apply_before_kafka_was_asked() -> list[Plant]:
    """A replica that has just begun does not wait for the topic's id."""

    def is_sure(doubt: Any) -> bool:
        return doubt._heard is None or not differ(doubt._named, doubt._heard)

    return [(TopicChecker, "is_sure", property(is_sure))]


def wait_for_a_topic_that_is_gone() -> list[Plant]:
    """A replica hears that its topic is another one, and never says so."""
    return [(topic_identity, "LASTED_MS", 1 << 40)]


def commit_to_another_topic() -> list[Plant]:
    """A driver goes by the topic's name."""
    return [(data_recreated, "changes", lambda known, seen: [])]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    trust_the_name,
    apply_before_kafka_was_asked,
    wait_for_a_topic_that_is_gone,
    commit_to_another_topic,
)
