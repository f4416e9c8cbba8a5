"""A pull query on a stream: its topic read once, from the beginning to its current end.

If a query of ours writes the topic, only what it committed is shown (`data/commit/committed.py`),
and nothing of a topic that was recreated since. Like ksqlDB's (KLIP-53) it reads the whole topic
each time, so it runs in its own thread and has a deadline. A record that cannot be read is left
out, as in a persistent query.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from standpipe.adapters.kafka.read_once import read_topic
from standpipe.adapters.kafka.tail import RecordsLost
from standpipe.adapters.kafka.topic_ids import topics_now
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.seal import ProgressReader, ProgressSeal
from standpipe.data.commit.topic_identity import TopicKnown, TopicSeen, changes
from standpipe.data.query.record_rows import RecordRows, TopicRecord, writer_of
from standpipe.data.query.scan import laid_out
from standpipe.model import Snapshot
from standpipe.sql.plans import PullPlan
from standpipe.topics import progress_topic

READ_S_MAX: Final = 30.0
COMPLETED: Final = "Query Completed"
LIMIT_REACHED: Final = "Limit Reached"


async def read_stream(
    plan: PullPlan, bootstrap_servers: str, seal: ProgressSeal, snapshot: Snapshot
) -> tuple[list[bytes], str]:
    """Rows of the answer, and its last message. Raises KafkaUnavailable, RecordsLost."""
    rows = await asyncio.to_thread(_read, plan, bootstrap_servers, seal, snapshot)
    is_cut = plan.limit is not None and len(rows) >= plan.limit
    return rows, LIMIT_REACHED if is_cut else COMPLETED


def _read(
    plan: PullPlan, bootstrap_servers: str, seal: ProgressSeal, snapshot: Snapshot
) -> list[bytes]:
    if plan.limit == 0:
        return []
    source = plan.source
    deadline = time.monotonic() + READ_S_MAX
    committed_id = ""
    writer = writer_of(source.topic, snapshot)
    records: Iterator[TopicRecord]
    if writer is None:
        records = read_topic(bootstrap_servers, source.topic, source.partitions, deadline)
    else:
        committed, progress = Committed(writer), ProgressReader(seal)
        topic = progress_topic(snapshot.service_id)
        for record in read_topic(bootstrap_servers, topic, 1, deadline):
            if record.value is not None:
                found = progress.read(record.key, record.value, record.headers)
                if found is not None:
                    committed.take(found)
        committed_id = committed.topic_id
        # read after the progress: what is committed by now is in the topic
        records = read_topic(bootstrap_servers, source.topic, source.partitions, deadline)
        records = committed_records(committed, records)
    rows = list(islice(rows_of_stream(plan, records), plan.limit))
    if committed_id:  # after the rows: they are of no other topic, since ids are never reused
        check_topic(source.topic, committed_id, topics_now(bootstrap_servers, [source.topic]))
    return rows


def check_topic(topic: str, committed_id: str, seen: Mapping[str, TopicSeen]) -> None:
    """Raises RecordsLost unless it is the topic that commits name."""
    known = TopicKnown(committed_id, 0)
    if found := changes({topic: known}, seen):
        raise RecordsLost(f"{found[0]}: what was committed to it is gone. SHOW QUERIES says more")


def committed_records(
    committed: Committed, records: Iterator[TopicRecord]
) -> Iterator[TopicRecord]:
    """The records that the progress topic names."""
    for record in records:
        if committed.shows(record.partition, record.offset, record.headers):
            yield record


def rows_of_stream(plan: PullPlan, records: Iterator[TopicRecord]) -> Iterator[bytes]:
    """JSON arrays of the records that satisfy the plan, in the order of the records."""
    rows = RecordRows(plan.source)
    for record in records:
        row = rows.row(record)
        if row is not None and (plan.where is None or plan.where(row.cells)):
            yield laid_out(plan, row.cells)
