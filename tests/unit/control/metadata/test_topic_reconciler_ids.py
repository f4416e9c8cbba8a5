"""Only topics that this cluster made are deleted: what the catalog records of them."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    Command,
    FoundCluster,
    RecordTopics,
    SetFeatureLevel,
    TopicDeleted,
)
from standpipe.control.metadata.feature_levels import TOPIC_IDS, at_level
from standpipe.control.metadata.topic_reconciler import (
    AwaitTopic,
    CreateTopic,
    DeleteTopic,
    ForgetTopic,
    ObservedTopic,
    Order,
    RecordTopic,
    is_still_valid,
    topic_orders,
    topics_to_observe,
    wanted_topics,
)
from standpipe.errors import BadRequest
from standpipe.model import LogIndex, TopicSpec

ID = "default_"
T = TopicSpec(name="t", partitions=2, kind="SOURCE")


def catalog(*wanted: TopicSpec, doomed: tuple[str, ...] = (), **made: str) -> Catalog:
    return msgspec.structs.replace(
        EMPTY,
        feature_level=TOPIC_IDS,
        topics={spec.name: spec for spec in wanted},
        doomed_topics=doomed,
        made_topics=made,
    )


def seen(topic_id: str | None, fault: str = "") -> dict[str, ObservedTopic]:
    """Kafka has t, and the cluster's own topics as they should be."""
    return {**OWN, "t": ObservedTopic(2, {}, topic_id, fault)}


OWN = {each.name: ObservedTopic(1, each.config, "own") for each in wanted_topics(EMPTY, ID)}
MAKE = CreateTopic("t", 2, {})


@pytest.mark.parametrize(
    ("known", "observed", "orders", "why"),
    [
        (catalog(T), OWN, [RecordTopic("t", "")], "first logged that it is absent"),
        (catalog(T, t=""), OWN, [MAKE], "then made"),
        (catalog(T, t=""), seen("A"), [RecordTopic("t", "A")], "then recorded, after a crash too"),
        (catalog(T, t="A"), seen("A"), [], "as it should be"),
        (catalog(T, t="A"), OWN, [RecordTopic("t", "")], "somebody deleted it: made again"),
        (catalog(T), seen("X"), [], "it was there before: used, never ours"),
        (catalog(T, t=""), seen(""), [], "an old Kafka gives no ids"),
        (catalog(T, t=""), seen(None), [AwaitTopic("t")], "one broker does not know it yet"),
        (catalog(T, t=""), seen(None, "no"), [], "Kafka refuses to say: a fault, no endless loop"),
        (catalog(doomed=("t",), t="A"), seen("A"), [DeleteTopic("t")], "ours"),
        (catalog(doomed=("t",), t=""), seen("A"), [DeleteTopic("t")], "ours, not recorded yet"),
        (catalog(doomed=("t",), t="A"), seen(""), [DeleteTopic("t")], "an old Kafka: by name"),
        (catalog(doomed=("t",), t="A"), OWN, [ForgetTopic("t")], "gone"),
        (
            catalog(doomed=("t",), t="A"),
            seen("X"),
            [ForgetTopic("t", "another program created it again: its id is X, not A")],
            "a namesake of somebody else",
        ),
        (
            catalog(doomed=("t",)),
            seen("X"),
            [ForgetTopic("t", "this cluster did not make it; delete it with Kafka's tools")],
            "it was there before the statement",
        ),
        (catalog(doomed=("t",), t="A"), seen(None), [AwaitTopic("t")], "is it ours? ask again"),
        (catalog(doomed=("t",), t="A"), seen(None, "no"), [], "nor deleted on a guess"),
        (catalog(T, doomed=("t",), t="A"), seen("A"), [DeleteTopic("t")], "the old one first"),
        (catalog(T, doomed=("t",), t="A"), OWN, [ForgetTopic("t")], "the new one in a later round"),
        (catalog(t="A"), seen("A"), [], "dropped without DELETE TOPIC: it stays ours"),
        (catalog(t="A"), OWN, [ForgetTopic("t")], "and is forgotten once it is gone"),
        (
            catalog(doomed=("default__progress",)),
            OWN,
            [ForgetTopic("default__progress", "the cluster itself needs it")],
            "an old statement that named the progress topic",
        ),
        (
            catalog(msgspec.structs.replace(T, name="default__progress")),
            OWN,
            [],
            "nor does such a statement say how many partitions it has",
        ),
    ],
)
def test_orders(
    known: Catalog, observed: dict[str, ObservedTopic], orders: list[Order], why: str
) -> None:
    assert topic_orders(known, observed, ID) == orders, why


def test_each_name_is_asked_for_once() -> None:
    """librdkafka refuses a request that names a topic twice: nothing was made or deleted again."""
    names = topics_to_observe(catalog(T, doomed=("t", "u"), t="A", u="B", v="C"), ID)
    assert names == ["t", "u", "default__progress", "default_ksql_processing_log", "v"]


@pytest.mark.parametrize("doomed", [(), ("t",)])
def test_an_order_of_another_making_does_not_stand(doomed: tuple[str, ...]) -> None:
    order = DeleteTopic("t") if doomed else MAKE
    then = catalog(T, doomed=doomed, t="A")
    assert is_still_valid(order, then, then)
    for now in (catalog(T, doomed=doomed, t="B"), catalog(T, doomed=doomed)):
        assert not is_still_valid(order, then, now)


def after(start: Catalog, *commands: Command) -> Catalog:
    for command in commands:
        start = apply(start, LogIndex(start.index + 1), command)
    return start


def test_records_follow_what_the_leader_found() -> None:
    made = after(EMPTY, RecordTopics(ids={"t": ""}), RecordTopics(ids={"t": "A", "u": ""}))
    assert made.made_topics == {"t": "A", "u": ""}
    assert after(made, TopicDeleted(name="t")).made_topics == {"u": ""}


def test_topics_from_before_ids_count_as_made() -> None:
    old = msgspec.structs.replace(
        EMPTY, feature_level=TOPIC_IDS - 1, topics={"t": T}, doomed_topics=("u",)
    )
    raised = after(old, SetFeatureLevel(level=TOPIC_IDS))
    assert raised.made_topics == {"t": "", "u": ""}
    assert after(raised, SetFeatureLevel(level=TOPIC_IDS)).made_topics == {"t": "", "u": ""}
    again = after(raised, RecordTopics(ids={"t": "A"}), SetFeatureLevel(level=TOPIC_IDS))
    assert again.made_topics["t"] == "A", "only at the raise"
    founded = after(EMPTY, FoundCluster(cluster_id="c", feature_level=TOPIC_IDS, version=2))
    assert founded.made_topics == {}


def test_below_their_level_topics_are_deleted_by_name_and_nothing_is_recorded() -> None:
    old = msgspec.structs.replace(catalog(T), feature_level=TOPIC_IDS - 1)
    assert topic_orders(old, OWN, ID) == [MAKE]
    doomed = msgspec.structs.replace(old, topics={}, doomed_topics=("t",))
    assert topic_orders(doomed, seen("X"), ID) == [DeleteTopic("t")]
    with pytest.raises(BadRequest, match="record_topics needs feature level 6"):
        at_level(RecordTopics(ids={}), TOPIC_IDS - 1)
