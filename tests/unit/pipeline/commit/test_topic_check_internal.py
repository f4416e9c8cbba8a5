"""A query of an older release that writes an internal topic is not started."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import cast

import msgspec
import pytest
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.pipeline.commit.topic_check import TopicCheck
from standpipe.pipeline.failures import REASONS, NotYet, QueryFailed
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.wanted import WantedQuery

(WANTED,) = wanted_of(
    "CREATE STREAM S (ID STRING KEY) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"
    "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;"
)


@pytest.mark.parametrize(
    "topic", ["shop__progress", "shop_ksql_processing_log", "__consumer_offsets"]
)
@pytest.mark.parametrize("field", ["topic", "public_topic"])
def test_it_fails_for_good_and_says_why(topic: str, field: str) -> None:
    table = msgspec.structs.replace(WANTED.table, **{field: topic})
    wrong = replace(WANTED, table=table)
    with pytest.raises(QueryFailed, match=f"is stored in {topic}, which is internal") as failed:
        check_of(wrong).need("shop_")
    assert failed.value.reason in REASONS


def test_any_other_goes_on_to_ask_kafka() -> None:
    with pytest.raises(NotYet, match="shop__progress"):
        check_of(WANTED).need("shop_")


def check_of(wanted: WantedQuery) -> TopicCheck:
    return TopicCheck(wanted, cast(ProgressLog, NoTopics()))


class NoTopics:
    """Kafka has no topic at all."""

    topic = "shop__progress"

    def ask_topics(self, topics: Collection[str]) -> Callable[[], dict[str, TopicSeen]]:
        return dict[str, TopicSeen]
