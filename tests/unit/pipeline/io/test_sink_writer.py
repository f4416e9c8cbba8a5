"""How large a row may be, and what is said of one that is too large. The writing itself: on a real
Spark in tests/e2e (test_pipeline, test_pipeline_formats)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from standpipe.pipeline.io.sink_writer import (
    OVERHEAD_BYTES,
    WriteLimits,
    _producer,
    may_repeat_tasks,
    parsed,
    row_bytes_max,
)

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("configured", "topics", "bytes_max", "why"),
    [
        (MIB, [8 * MIB], MIB, "ours is smaller"),
        (8 * MIB, [MIB], MIB - OVERHEAD_BYTES, "the topic's is"),
        (8 * MIB, [4 * MIB, MIB], MIB - OVERHEAD_BYTES, "that of the public topic"),
        (8 * MIB, [None], MIB + 12 - OVERHEAD_BYTES, "Kafka does not tell us: its default"),
        (MIB, [None, 9000], 9000 - OVERHEAD_BYTES, "of one it does"),
    ],
)
def test_row_bytes_max(configured: int, topics: list[int | None], bytes_max: int, why: str) -> None:
    assert row_bytes_max(configured, topics) == bytes_max, why


@pytest.mark.parametrize(
    ("bytes_max", "looks", "request_bytes", "why"),
    [
        (1024, True, MIB, "a batch of small rows is as large as ever"),
        (5 * MIB, True, 5 * MIB + OVERHEAD_BYTES, "Java's own limit of 1 MiB does not count"),
        (1024, False, 1024 + OVERHEAD_BYTES, "nobody measures the rows, so Kafka's client does"),
    ],
)
def test_the_producers_own_limit_is_beyond_ours(
    bytes_max: int, looks: bool, request_bytes: int, why: str
) -> None:
    options = _producer("b:1", WriteLimits(bytes_max=bytes_max, samples_max=1, looks=looks))
    assert int(options["max.request.size"]) == request_bytes, why
    assert int(options["buffer.memory"]) >= 2 * request_bytes, "it must hold one at least"


@pytest.mark.parametrize(
    ("master", "repeats"),
    [
        ("local", False),
        ("local[2]", False),
        ("local[*]", False),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
        ("yarn", True),
        ("k8s://https://host", True),
    ],
)
def test_where_spark_runs_a_task_again(master: str, repeats: bool) -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert may_repeat_tasks(cast(SparkSession, session)) is repeats


def test_what_is_said_of_rows_that_are_too_large() -> None:
    found = parsed('{"count":3,"of":[{"key":"SQ==","topic":"t","bytes":12}]}', 9)
    assert found.count == 3
    assert found.samples == [
        {
            "topic": "t",
            "partition": None,
            "offset": None,
            "reason": "ROW_TOO_LARGE",
            "key_base64": "SQ==",
            "bytes": 12,
            "bytes_max": 9,
        }
    ]
    assert parsed('{"count":0}', 9).samples == []


def test_what_is_said_of_rows_that_their_schema_has_not() -> None:
    found = parsed('{"count":2,"of":[{"key":null,"topic":"t"}]}', None)
    assert found.count == 2
    (sample,) = found.samples
    assert (sample["reason"], sample["topic"], sample["key_base64"]) == (
        "ROW_NOT_IN_SCHEMA",
        "t",
        None,
    )
    assert "bytes" not in sample
