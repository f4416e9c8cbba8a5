"""Records that cannot be read: counted for the status, and a sample of them for people.

The count comes from the plan itself (`source.open_view` observes it); a batch that had none costs
nothing more. Otherwise the batch's offsets are read once more, with the same parser, until enough
samples are found. They go into the processing log before the batch is committed.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from standpipe.config.keys import BAD_RECORDS_SAMPLED, RECORD_BYTES_MAX
from standpipe.model import SparkInput
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.source import RAW_BYTES_MAX, needs_headers, parse

Offsets = Mapping[str, Mapping[int, int]]  # topic -> partition -> offset


def sample(
    spark: SparkSession,
    source: SparkInput,
    reads: KafkaReads,
    *,
    starts: Offsets,
    ends: Offsets,
) -> list[dict[str, Any]]:
    """Bad records of one input between two offsets, at most `BAD_RECORDS_SAMPLED` of them."""
    topic = source.topic
    records = (
        spark.read.format("kafka")
        .options(**reads.options(topic, headers=needs_headers(source)))
        .option("startingOffsets", _offsets_option(topic, starts, ends))
        .option("endingOffsets", json.dumps({topic: ends.get(topic, {})}))
        .load()
    )
    parsed = parse(records, source, bytes_max=reads.config[RECORD_BYTES_MAX])
    bad = parsed.filter("__bad IS NOT NULL")
    rows = bad.select("partition", "offset", "key", "value", "__bad")
    return [
        {
            "topic": topic,
            "partition": row["partition"],
            "offset": row["offset"],
            "reason": row["__bad"],
            "key_base64": _head(row["key"]),
            "value_base64": _head(row["value"]),
        }
        for row in rows.limit(reads.config[BAD_RECORDS_SAMPLED]).collect()
    ]


def to_log_records(query_id: str, samples: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Values for the processing log: one JSON object per sample."""
    now_ms = time.time_ns() // 1_000_000
    return [json.dumps({"query_id": query_id, "at_ms": now_ms, **one}).encode() for one in samples]


def _offsets_option(topic: str, starts: Offsets, ends: Offsets) -> str:
    """Spark wants every partition that exists; -2 is the earliest of one that is new."""
    known = starts.get(topic, {})
    return json.dumps({topic: {p: known.get(p, -2) for p in ends.get(topic, {})}})


def _head(raw: bytes | bytearray | None) -> str | None:
    return None if raw is None else base64.b64encode(bytes(raw[:RAW_BYTES_MAX])).decode()
