"""A pull query on a stream: its topic read once, from the beginning to what is the end now.

Where a query of ours writes the topic, only what it committed is shown (`data/committed.py`).
Like ksqlDB's (KLIP-53) it costs the whole topic each time, so it runs in a thread of its own and
has a deadline. A record that cannot be read is left out, as in a persistent query.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from standpipe.adapters.topic_reader import TopicRecord, read_topic
from standpipe.data.cells import row_of
from standpipe.data.committed import Committed
from standpipe.data.progress import parse
from standpipe.data.records import HEADER_COMMIT, HEADER_ROWTIME, UnfitKey, decode_key
from standpipe.data.scan import laid_out, types_of
from standpipe.data.values import ToArray, UnreadableValue, to_array
from standpipe.model import Column, Snapshot, Source
from standpipe.sql.plans import PullPlan
from standpipe.topics import progress_topic

READ_S_MAX: Final = 30.0
COMPLETED: Final = "Query Completed"
LIMIT_REACHED: Final = "Limit Reached"


async def read_stream(
    plan: PullPlan, bootstrap_servers: str, snapshot: Snapshot
) -> tuple[list[bytes], str]:
    """Rows of the answer, and its last message. Raises KafkaUnavailable."""
    rows = await asyncio.to_thread(_read, plan, bootstrap_servers, snapshot)
    is_cut = plan.limit is not None and len(rows) >= plan.limit
    return rows, LIMIT_REACHED if is_cut else COMPLETED


def _read(plan: PullPlan, bootstrap_servers: str, snapshot: Snapshot) -> list[bytes]:
    if plan.limit == 0:
        return []
    source = plan.source
    deadline = time.monotonic() + READ_S_MAX
    writer = _writer_of(source.topic, snapshot)
    records: Iterator[TopicRecord]
    if writer is None:
        records = read_topic(bootstrap_servers, source.topic, source.partitions, deadline)
    else:
        committed = Committed(writer)
        topic = progress_topic(snapshot.service_id)
        for record in read_topic(bootstrap_servers, topic, 1, deadline):
            if record.value is not None:
                committed.take(parse(record.value))
        # behind the progress: what is committed by now is in the topic
        records = read_topic(bootstrap_servers, source.topic, source.partitions, deadline)
        records = committed_records(committed, records)
    return list(islice(rows_of_stream(plan, records), plan.limit))


def _writer_of(topic: str, snapshot: Snapshot) -> str | None:
    """By topic: it may be declared under several names."""
    writers = (each.query_id for each in snapshot.sources if each.topic == topic)
    return next((writer for writer in writers if writer is not None), None)


def committed_records(
    committed: Committed, records: Iterator[TopicRecord]
) -> Iterator[TopicRecord]:
    """Those that the topic of progress names."""
    for record in records:
        if committed.shows(record.partition, record.offset, record.headers):
            yield record


def rows_of_stream(plan: PullPlan, records: Iterator[TopicRecord]) -> Iterator[bytes]:
    """JSON arrays of the records that satisfy the plan, in the order of the records."""
    source = plan.source
    values = tuple(column for column in source.value_columns if column.header is None)
    convert = to_array(source)
    for record in records:
        row = _row(source, values, record, convert)
        if row is not None and (plan.where is None or plan.where(row)):
            yield laid_out(plan, row)


def _row(
    source: Source, values: tuple[Column, ...], record: TopicRecord, convert: ToArray
) -> list[Any] | None:
    """The full row, ROWTIME last; None: no event, or one that cannot be read."""
    if record.value is None:
        return None
    try:
        keys: tuple[Any, ...] = (None,) * len(source.key_columns)
        if record.key is not None and keys:
            keys = decode_key(
                record.key, source.key_columns, source.key_format, source.key_delimiter
            )
        cells = iter(row_of(convert(record.value), types_of(values)))
    except (UnfitKey, UnreadableValue, ValueError):
        return None
    rest = [
        next(cells) if column.header is None else header_value(column, record.headers)
        for column in source.value_columns
    ]
    rowtime = _rowtime(source, record, [*keys, *rest])
    return [*keys, *rest, rowtime]


def header_value(column: Column, headers: tuple[tuple[str, bytes | None], ...]) -> Any:
    """All headers as ksqlDB shows them, or the newest value under one key."""
    own = [each for each in headers if each[0] not in (HEADER_COMMIT, HEADER_ROWTIME)]
    if column.header == "":
        return [{"KEY": key, "VALUE": value} for key, value in own]
    return next((value for key, value in reversed(own) if key == column.header), None)


def _rowtime(source: Source, record: TopicRecord, row: list[Any]) -> int:
    """The record's time; the header's where a query wrote it; the column's where one is named."""
    if source.timestamp_column is not None and source.timestamp_format is None:
        names = [*source.key_columns, *source.value_columns]
        named = zip(names, row, strict=True)
        found = next(value for column, value in named if column.name == source.timestamp_column)
        return record.timestamp_ms if found is None else int(found)
    for name, value in record.headers:
        if name == HEADER_ROWTIME and value is not None and source.query_id is not None:
            return int.from_bytes(value, "big", signed=True)
    return record.timestamp_ms
