"""Rounds over the topics: what fails for one topic is its own affair. Kafka is a dictionary here;
the real one is met in tests/e2e/test_control_kafka.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pytest

from standpipe.adapters.kafka import admin
from standpipe.adapters.kafka.admin import KafkaAdmin, ReconcileOutcome, TopicRefused
from standpipe.config import registry
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.feature_levels import TOPIC_IDS
from standpipe.control.metadata.order_retries import OrderRetries
from standpipe.control.metadata.topic_reconciler import CreateTopic, KafkaOrder, ObservedTopic
from standpipe.errors import KafkaUnavailable
from standpipe.model import TopicSpec

ID = "default_"


class Fake(KafkaAdmin):
    """Refuses what `refused` names; after `silent_after` orders, nothing answers."""

    def __init__(self, *refused: str, silent_after: int = 1000) -> None:
        super().__init__("")
        self.topics: dict[str, int] = {}
        self.orders: list[KafkaOrder] = []
        self._refused = refused
        self._silent_after = silent_after

    def observe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        asked = list(names)
        assert len(asked) == len(set(asked)), "librdkafka refuses a name that is there twice"
        return {
            name: ObservedTopic(self.topics[name], {}, f"id of {name}")
            for name in asked
            if name in self.topics
        }

    def carry_out(self, order: KafkaOrder) -> None:
        if len(self.orders) >= self._silent_after:
            raise KafkaUnavailable("no answer")
        self.orders.append(order)
        if order.name in self._refused:
            raise TopicRefused("it collides")
        if isinstance(order, CreateTopic):
            self.topics[order.name] = order.partitions
        else:
            self.topics.pop(order.name)


def catalog(*names: str, doomed: tuple[str, ...] = (), made: Mapping[str, str]) -> Catalog:
    return msgspec.structs.replace(
        EMPTY,
        feature_level=TOPIC_IDS,
        topics={n: TopicSpec(name=n, partitions=1, kind="SOURCE") for n in names},
        doomed_topics=doomed,
        made_topics=made,
    )


def reconciled(
    admin: Fake, wanted: Catalog, retries: OrderRetries | None = None
) -> ReconcileOutcome:
    return admin.reconcile(wanted, ID, lambda _: True, retries)


def test_one_refused_name_holds_up_no_other() -> None:
    admin, names = Fake("bad", "worse"), ("bad", "a", "worse", "b")
    outcome = reconciled(admin, catalog(*names, made=dict.fromkeys(names, "")))
    assert {"a", "b", "default__progress"} <= admin.topics.keys()
    assert outcome.failures == {"bad": "it collides", "worse": "it collides"}
    assert outcome.faults == ("topic bad: it collides", "topic worse: it collides")
    assert outcome.records == {"a": "id of a", "b": "id of b"}
    assert outcome.unreachable == ""


def test_a_refused_name_is_not_tried_in_each_round() -> None:
    admin, retries = Fake("bad"), OrderRetries()
    wanted = catalog("bad", made={"bad": ""})
    for _ in range(5):
        assert reconciled(admin, wanted, retries).failures == {"bad": "it collides"}
    assert [order.name for order in admin.orders].count("bad") == 1


def test_a_topic_that_is_both_doomed_and_wanted_is_made_anew() -> None:
    admin = Fake()
    admin.topics = {"default__progress": 1, "default_ksql_processing_log": 1, "t": 4}
    doomed = catalog("t", doomed=("t",), made={"t": "id of t"})
    outcome = reconciled(admin, doomed)
    assert (outcome.gone, outcome.failures, outcome.is_settled) == ({"t": ""}, {}, False)
    noted = reconciled(admin, catalog("t", made={}))
    assert noted.records == {"t": ""}
    made = reconciled(admin, catalog("t", made={"t": ""}))
    assert (made.records, admin.topics["t"]) == ({"t": "id of t"}, 1)
    assert reconciled(admin, catalog("t", made={"t": "id of t"})) == ReconcileOutcome()


def test_the_rest_waits_if_kafka_no_longer_answers() -> None:
    """Each order would wait for its own time-out: a hundred of them for minutes."""
    admin = Fake(silent_after=3)
    names = [f"t{number}" for number in range(100)]
    outcome = reconciled(admin, catalog(*names, made=dict.fromkeys(names, "")))
    assert (outcome.unreachable, len(admin.orders)) == ("no answer", 3)
    assert outcome.faults == ("no answer",)


def test_an_argument_that_the_client_refuses_is_the_topics_own_fault() -> None:
    """librdkafka checks names and counts itself, and raises before anything is sent."""
    admin = KafkaAdmin("127.0.0.1:1")
    admin._metadata = lambda: type("M", (), {"brokers": {1: None}})()  # type: ignore[method-assign]
    for order in (CreateTopic("a\0b", 1, {}), CreateTopic("a", 2**40, {})):
        with pytest.raises(TopicRefused, match="client"):
            admin.carry_out(order)


def test_another_client_looks_for_a_kafka_that_is_silent_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One did not find its broker again for 110 s, and topics were not kept for as long."""
    monkeypatch.setattr(admin, "TIMEOUT_S", 0.02)
    kafka = KafkaAdmin("127.0.0.1:1")
    used: list[object] = []
    for _ in range(2 * admin.SILENCES_MAX):
        used.append(kafka._admin())
        assert "Kafka" in kafka.reconcile(EMPTY, ID, lambda _: True).unreachable
    first, second = used[: admin.SILENCES_MAX], used[admin.SILENCES_MAX :]
    assert [len(set(map(id, clients))) for clients in (first, second)] == [1, 1]
    assert first[0] is not second[0]


@pytest.mark.parametrize(
    ("keys", "brokers", "replicas", "why"),
    [
        ({}, 1, (1, 1), "one broker, as on a laptop"),
        ({}, 2, (2, 1), "either may be lost"),
        ({}, 3, (3, 2), "one may be lost, and no record with it"),
        ({}, 9, (3, 2), "more copies than three are asked for"),
        ({"ksql.internal.topic.replicas": 5}, 9, (5, 4), "one less"),
        ({"ksql.internal.topic.min.insync.replicas": 1}, 3, (3, 1), "as said"),
        ({"ksql.internal.topic.replicas": 3}, 1, (3, 2), "Kafka refuses it, by name"),
        ({}, 0, (1, 1), "no broker is known: Kafka says so"),
    ],
)
def test_replicas_of_a_topic(
    keys: dict[str, object], brokers: int, replicas: tuple[int, int], why: str
) -> None:
    assert admin.TopicPolicy.of(registry.load(keys)).replicas(brokers) == replicas, why
