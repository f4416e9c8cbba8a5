"""Answers about topics, from a scripted client. The real one: tests/e2e/test_topic_changes.py."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from standpipe.adapters.kafka import topic_ids
from standpipe.adapters.kafka.topic_ids import NEWS_MS, PROBE_MS, TopicIds, TopicProbe
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.errors import KafkaUnavailable


class Uuid:
    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __str__(self) -> str:
        return f"id-{self.bits}"

    def get_most_significant_bits(self) -> int:
        return 0

    def get_least_significant_bits(self) -> int:
        return self.bits


class Client:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answers: dict[str, Future[Any]] = {}

    def describe_topics(self, topics: TopicCollection, **_: float) -> dict[str, Future[Any]]:
        names = [str(name) for name in getattr(topics, "topic_names", [])]
        self.asked.append(names)
        self.answers = {name: Future[Any]() for name in names}
        return self.answers

    def poll(self, _timeout_s: float) -> None: ...


def there(bits: int = 7) -> Callable[[Future[Any]], None]:
    found = SimpleNamespace(topic_id=Uuid(bits), partitions=[0, 1])
    return lambda answer: answer.set_result(found)


def failed(code: int) -> Callable[[Future[Any]], None]:
    return lambda answer: answer.set_exception(KafkaException(KafkaError(code)))


@pytest.mark.parametrize(
    ("says", "seen", "why"),
    [
        (there(), {"t": TopicSeen("id-7", 2)}, "it is there"),
        (there(0), {"t": TopicSeen("", 2)}, "brokers from before there were ids"),
        (failed(KafkaError.UNKNOWN_TOPIC_OR_PART), {}, "it is not there"),
        (failed(KafkaError.UNKNOWN_TOPIC_ID), {}, "it is being made"),
        (failed(KafkaError._TIMED_OUT), None, "nobody knows"),
    ],
)
def test_ask(
    says: Callable[[Future[Any]], None], seen: dict[str, TopicSeen] | None, why: str
) -> None:
    client = Client()
    collect = topic_ids.ask(client, ["t"], 1, "b")
    says(client.answers["t"])
    if seen is None:
        with pytest.raises(KafkaUnavailable):
            collect()
    else:
        assert collect() == seen, why


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TIMED_OUT,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_an_answer_that_is_an_error_leaves_no_cycle(code: int) -> None:
    """Tailers collect none."""
    answer = Future[Any]()
    failed(code)(answer)
    gone, topics = weakref.ref(answer), {"t": answer}
    gc.collect()
    gc.disable()
    try:
        assert topic_ids._seen_now(topics, "b") == []
        topics.clear()
        del answer
        assert gone() is None
    finally:
        gc.enable()


def test_topics_now(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(topic_ids._admin, "AdminClient", lambda _options: client)
    describe = client.describe_topics

    def answered(topics: TopicCollection, **more: float) -> dict[str, Future[Any]]:
        answers = describe(topics, **more)
        for answer in answers.values():
            there()(answer)
        return answers

    monkeypatch.setattr(client, "describe_topics", answered)
    assert topic_ids.topics_now("b", ["t"]) == {"t": TopicSeen("id-7", 2)}


class PromptClient(Client):
    """Answers at once: of each topic that it knows."""

    def __init__(self, known: dict[str, Callable[[Future[Any]], None]]) -> None:
        super().__init__()
        self.known = known

    def describe_topics(self, topics: TopicCollection, **more: float) -> dict[str, Future[Any]]:
        answers = super().describe_topics(topics, **more)
        for name, answer in answers.items():
            self.known[name](answer)
        return answers


def test_a_topic_that_was_created_again_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = PromptClient({"t": there(7), "u": failed(KafkaError._TIMED_OUT)})
    monkeypatch.setattr(topic_ids._admin, "AdminClient", lambda _options: client)

    async def story() -> None:
        ids = TopicIds("b")
        assert await ids.of(["t"]) == {"t": "id-7"}
        client.known["t"] = there(8)
        assert await ids.of(["t", "u"]) == {"t": "id-8"}, "of u nobody knows"

    asyncio.run(story())


def test_who_comes_during_a_question_shares_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that is under way may be older than their rows. If Kafka does not answer, they
    fail together, and not one after the other."""
    asked, go = list[set[str]](), threading.Event()

    def answer(_client: Any, topics: Collection[str], *_: Any) -> tuple[dict[str, TopicSeen], Any]:
        asked.append({*topics})
        assert go.wait(20)
        return {each: TopicSeen(f"{each}-{len(asked)}", 1) for each in topics}, {}

    monkeypatch.setattr(topic_ids, "ask_each", answer)
    monkeypatch.setattr(topic_ids._admin, "AdminClient", lambda _options: object())

    async def story() -> None:
        ids = TopicIds("b")
        first = asyncio.create_task(ids.of(["t"]))
        while not asked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(ids.of([each])) for each in ["t", "u", "t", "u", "v"] * 20]
        await asyncio.sleep(0.01)
        assert later.pop().cancel(), "one who goes does not end the question of the others"
        go.set()
        assert await first == {"t": "t-1"}
        assert [await each for each in later[:2]] == [{"t": "t-2"}, {"u": "u-2"}]
        await asyncio.gather(*later)
        assert asked == [{"t"}, {"t", "u", "v"}]

    asyncio.run(story())


def test_no_ids_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr(topic_ids._admin, "AdminClient", refuse)
    assert asyncio.run(TopicIds("b").of(["t"])) == {}


def test_nothing_is_asked_about_no_topics() -> None:
    client = Client()
    assert topic_ids.ask(client, [], 1, "b")() == {}
    assert client.asked == []


def test_a_probe_asks_one_question_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(topic_ids._admin, "AdminClient", lambda _options: client)
    probe, one = TopicProbe("b"), frozenset({"t"})
    assert probe.tick(0, frozenset()) is None
    assert client.asked == [], "there is nothing to ask for"
    assert probe.tick(0, one) is None
    assert probe.tick(PROBE_MS, one) is None
    assert client.asked == [["t"]], "the answer is not there yet"
    there()(client.answers["t"])
    assert probe.tick(PROBE_MS - 1, one) == (0, {"t": TopicSeen("id-7", 2)})
    assert probe.tick(PROBE_MS - 1, one) is None
    assert len(client.asked) == 1
    probe.tick(PROBE_MS, one)
    assert len(client.asked) == 2
    failed(KafkaError.UNKNOWN_TOPIC_OR_PART)(client.answers["t"])
    both = frozenset({"t", "u"})
    assert probe.tick(PROBE_MS + NEWS_MS - 1, both) == (PROBE_MS, {}), "absent: left out"
    assert len(client.asked) == 2
    probe.tick(PROBE_MS + NEWS_MS, both)
    assert sorted(client.asked[-1]) == ["t", "u"], "a topic that is new is asked for at once"
    failed(KafkaError._TIMED_OUT)(client.answers["t"])
    there()(client.answers["u"])
    assert probe.tick(2 * PROBE_MS, both) == (PROBE_MS + NEWS_MS, {"u": TopicSeen("id-7", 2)}), (
        "who knows"
    )
