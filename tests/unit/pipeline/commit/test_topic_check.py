"""A query's topics, with a Kafka that says what the test wants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import cast

import msgspec
import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.topic_identity import TopicKnown, TopicSeen
from standpipe.errors import KafkaUnavailable
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit.topic_check import TopicCheck, look_at_all
from standpipe.pipeline.failures import GONE_S, NotYet, QueryFailed
from standpipe.pipeline.io.progress_log import ProgressLog

(BARE,) = wanted_of(
    "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=4, "
    "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
)
WANTED = dataclasses.replace(BARE, partitions={"s": 4})
SINK, P = WANTED.table.topic, WANTED.table.partitions
#: as Kafka has them while nothing happens
WELL = {"s": TopicSeen("S1", 4), SINK: TopicSeen("T1", P), "progress": TopicSeen("P", 1)}
NEWEST = Progress(
    query_id=WANTED.query_id,
    commit=Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(3), attempt=7),
    topic_id="T1",
    source_topic_ids={"s": "S1"},
)
#: by a release that did not name them
UNNAMED = Progress(query_id=NEWEST.query_id, commit=NEWEST.commit)


class Log:
    topic = "progress"

    def __init__(self, seen: dict[str, TopicSeen], newest: Progress | None) -> None:
        self.seen, self.newest = dict(seen), newest
        self.is_away = False
        self.asked: list[set[str]] = []
        self.refuses = ""

    def ask_topics(self, topics: Collection[str]) -> Callable[[], dict[str, TopicSeen]]:
        self.asked.append({*topics})

        def answer() -> dict[str, TopicSeen]:
            if self.is_away:
                raise KafkaUnavailable("Kafka does not answer")
            return {topic: self.seen[topic] for topic in topics if topic in self.seen}

        return answer

    def ask_each(self, topics: Collection[str]) -> tuple[dict[str, TopicSeen], set[str]]:
        silent = {self.refuses} & {*topics}
        return self.ask_topics({*topics} - silent)(), silent

    def records(self) -> list[Progress]:
        return [] if self.newest is None else [self.newest]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def check_of(log: Log, clock: Clock | None = None) -> TopicCheck:
    return TopicCheck(WANTED, cast(ProgressLog, log), clock or Clock())


def begun(log: Log, clock: Clock | None = None) -> TopicCheck:
    check = check_of(log, clock)
    check.begin(log.newest, check.need("default_"))
    return check


def changed(topic: str, seen: TopicSeen | None) -> dict[str, TopicSeen]:
    rest = {name: each for name, each in WELL.items() if name != topic}
    return rest if seen is None else {**rest, topic: seen}


@pytest.mark.parametrize(
    ("topic", "seen", "newest", "says", "why"),
    [
        ("s", WELL["s"], NEWEST, None, "as it was"),
        ("s", TopicSeen("S2", 4), NEWEST, "topic s was deleted and recreated", "other records"),
        ("s", TopicSeen("S2", 4), UNNAMED, None, "it counts as it is now"),
        ("s", TopicSeen("S2", 4), None, None, "nothing was committed of it"),
        ("s", TopicSeen("S1", 8), NEWEST, "topic s has 8 partitions", "keys go elsewhere"),
        ("s", TopicSeen("S1", 8), None, "topic s has 8 partitions", "from the first batch on"),
        (SINK, TopicSeen("T2", P), NEWEST, f"topic {SINK} was deleted and recreated", "rows gone"),
        (SINK, TopicSeen("T1", P + 1), NEWEST, None, "it does without the new one"),
        (SINK, TopicSeen("T1", P - 1), NEWEST, f"topic {SINK} has {P - 1}", "rows have no place"),
    ],
)
def test_how_a_start_ends(
    topic: str, seen: TopicSeen, newest: Progress | None, says: str | None, why: str
) -> None:
    log = Log(changed(topic, seen), newest)
    if says is None:
        check = begun(log)
        assert check.topic_id == log.seen[SINK].topic_id, why
        assert check.source_topic_ids == {"s": log.seen["s"].topic_id}, why
        return
    with pytest.raises(QueryFailed) as failed:
        begun(log)
    assert failed.value.reason == "TOPIC_CHANGED"
    assert failed.value.message.startswith(says), why


@pytest.mark.parametrize(
    ("topic", "seen", "step"),
    [
        ("s", TopicSeen("S2", 4), "DROP TABLE A; and then CREATE TABLE A AS SELECT"),
        (
            "s",
            TopicSeen("S1", 8),
            "DROP TABLE A; DROP STREAM S; declare STREAM S again, and then CREATE TABLE A AS",
        ),
        (SINK, TopicSeen("T2", P), "DROP TABLE A DELETE TOPIC; and then CREATE TABLE A AS SELECT"),
    ],
)
def test_a_failure_says_what_resolves_it(topic: str, seen: TopicSeen, step: str) -> None:
    with pytest.raises(QueryFailed) as failed:
        begun(Log(changed(topic, seen), NEWEST))
    assert step in failed.value.message


@pytest.mark.parametrize(
    ("topic", "newest", "final_failure", "why"),
    [
        ("s", None, None, "it is about to be made"),
        ("s", UNNAMED, None, "nobody knows that it ever was there"),
        ("s", NEWEST, "topic s was deleted", "commits are of it"),
        (SINK, NEWEST, f"topic {SINK} was deleted", "commits are of it"),
        ("progress", NEWEST, None, "without it nobody knows what was committed"),
    ],
)
def test_a_topic_that_is_absent(
    topic: str, newest: Progress | None, final_failure: str | None, why: str
) -> None:
    with pytest.raises(NotYet, match=f"waiting for topics: {topic}") as missing:
        check_of(Log(changed(topic, None), newest)).need("default_")
    end = missing.value.final_failure
    assert (end is not None) == (final_failure is not None), why
    assert end is None or end.message.startswith(str(final_failure)), why


@pytest.mark.parametrize(
    ("topic", "seen", "error", "why"),
    [
        ("s", WELL["s"], None, "as it was"),
        ("s", TopicSeen("S2", 4), QueryFailed, "made anew while the query ran"),
        ("s", TopicSeen("S1", 5), QueryFailed, "it was given partitions"),
        (SINK, TopicSeen("T2", P), QueryFailed, "made anew while the query ran"),
        (SINK, TopicSeen("T1", P + 1), None, "told, and nothing stops"),
        (SINK, None, KafkaUnavailable, "a broker may not know it, for a moment"),
    ],
)
def test_what_a_batch_is_told(
    topic: str, seen: TopicSeen | None, error: type[Exception] | None, why: str
) -> None:
    log = Log(WELL, NEWEST)
    check = begun(log)
    log.seen = changed(topic, seen)
    answer = check.ask()
    if error is None:
        answer()
        assert bool(check.notice) == (topic == SINK), why
    else:
        with pytest.raises(error):
            answer()


def test_a_look_finds_what_no_batch_would() -> None:
    log = Log(WELL, NEWEST)
    check = begun(log)
    look_at_all([check])
    assert check.failure is None
    log.seen = changed("s", TopicSeen("S2", 4))
    look_at_all([check])
    assert check.failure is not None
    assert check.failure.reason == "TOPIC_CHANGED"


def test_a_look_believes_that_a_topic_is_gone_when_it_has_lasted() -> None:
    log, clock = Log(WELL, NEWEST), Clock()
    check = begun(log, clock)
    for seen, pause_s, is_failed, why in (
        (changed("s", None), 0.0, False, "for the first time"),
        (changed("s", None), GONE_S - 1, False, "a broker may be behind"),
        (WELL, 1.0, False, "so it was"),
        (changed("s", None), 1.0, False, "and again"),
        (changed("s", None), GONE_S, True, "no broker is, for so long"),
    ):
        log.seen = seen
        clock.now += pause_s
        look_at_all([check])
        assert (check.failure is not None) == is_failed, why


def test_a_public_topic_that_was_recreated_is_told_and_nothing_stops() -> None:
    """It has only the rows since; the next start of the query writes all of them."""
    table = dataclasses.replace(
        WANTED, table=msgspec.structs.replace(WANTED.table, public_topic="public")
    )
    log = Log({**WELL, "public": TopicSeen("U1", 9)}, NEWEST)
    check = TopicCheck(table, cast(ProgressLog, log), Clock())
    check.begin(NEWEST, check.need("default_"))
    assert check.public_id == "U1"
    for seen, says in (
        (TopicSeen("U1", 9), ""),
        (TopicSeen("U2", 9), "topic public was deleted and recreated"),
        (None, ""),
    ):
        log.seen = {**WELL, **({} if seen is None else {"public": seen})}
        look_at_all([check])
        check.ask()()
        assert check.notice.startswith(says)
        assert bool(check.notice) == bool(says)
        assert check.failure is None


def test_while_kafka_is_away_nobody_can_tell() -> None:
    log = Log(WELL, NEWEST)
    check = begun(log)
    log.is_away = True
    look_at_all([check])
    assert check.failure is None
    with pytest.raises(KafkaUnavailable):
        check.ask()()


def test_all_look_with_one_request() -> None:
    log = Log(WELL, NEWEST)
    checks = [begun(log), begun(log)]
    log.seen = changed("s", TopicSeen("S2", 4))
    log.asked.clear()
    look_at_all(checks)
    assert log.asked == [{"s", SINK}]
    assert [each.failure and each.failure.reason for each in checks] == ["TOPIC_CHANGED"] * 2
    look_at_all([])


def test_a_topic_that_one_of_them_may_not_see_hides_nothing_from_the_others() -> None:
    log = Log(WELL, NEWEST)
    first, second = begun(log), begun(log)
    first._known["denied"] = TopicKnown("", 1)
    log.seen, log.refuses = changed("s", TopicSeen("S2", 4)), "denied"
    look_at_all([first, second])
    assert first.failure is None
    assert second.failure is not None
