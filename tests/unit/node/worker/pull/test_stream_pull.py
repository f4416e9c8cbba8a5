"""Records of a stream as rows of an answer; the reading itself is tested with a real Kafka."""

from __future__ import annotations

import msgspec
import pytest
from tests.samples import sample_stream

from standpipe.adapters.kafka.tail import RecordsLost
from standpipe.data.commit.topic_identity import TopicSeen
from standpipe.data.query.record_rows import TopicRecord
from standpipe.model import Column
from standpipe.node.worker.pull.stream_pull import check_topic, rows_of_stream
from standpipe.sql.plans import PullPlan

STREAM = sample_stream(
    columns=(
        Column(name="K", type="INTEGER", is_key=True),
        Column(name="V", type="STRING"),
        Column(name="H", type="BYTES", header="abc"),
    )
)
PLAN = PullPlan(
    source=STREAM, keys=(), schema="", is_scan=True, column_names=("K", "V", "H"),
    column_types=("INTEGER", "STRING", "BYTES"),
)  # fmt: skip
RECORDS = [
    TopicRecord(b"\0\0\0\1", b'{"v":"a"}', 5, (("abc", b"!"),)),
    TopicRecord(None, b'{"V":"b"}', 6, ()),
    TopicRecord(b"\0\0\0\1", None, 7, ()),
    TopicRecord(b"\0\0\0\1", b"no JSON", 8, ()),
]


def test_rows_of_a_stream() -> None:
    """A null value is no event, and what cannot be read is left out."""
    rows = list(rows_of_stream(PLAN, iter(RECORDS)))
    assert rows == [b'[1,"a","IQ=="]', b'[null,"b",null]']


def test_a_filter_sees_rowtime() -> None:
    plan = msgspec.structs.replace(PLAN, where=lambda row: row[PLAN.rowtime_index] == 6)
    assert list(rows_of_stream(plan, iter(RECORDS))) == [b'[null,"b",null]']


@pytest.mark.parametrize(
    ("seen", "is_lost", "why"),
    [
        ({"s": TopicSeen("S1", 1)}, False, "it is the one that was committed to"),
        ({"s": TopicSeen("", 1)}, False, "brokers without ids say nothing"),
        ({"s": TopicSeen("S2", 1)}, True, "made anew: few rows, or strange ones"),
        ({}, True, "deleted"),
    ],
)
def test_a_topic_that_was_made_anew_is_not_answered_from(
    seen: dict[str, TopicSeen], is_lost: bool, why: str
) -> None:
    if is_lost:
        with pytest.raises(RecordsLost, match="topic s was deleted"):
            check_topic("s", "S1", seen)
    else:
        check_topic("s", "S1", seen)
