"""Java's methods as columns (`pipeline/io/java_functions.py`), against our own simple versions."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from standpipe.data.encoding import store_keys
from standpipe.pipeline.io.java_functions import bytes_double, double_bytes, partition_column

PARTITIONS = 7
CHANCE = random.Random(1)
KEYS = [CHANCE.randbytes(length) for length in range(40) for _ in range(5)]
NUMBERS = [0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan]


def frame(spark: SparkSession, values: Sequence[object], type_name: str) -> DataFrame:
    return spark.createDataFrame([(value,) for value in [*values, None]], f"value {type_name}")


def test_partitions_are_those_of_the_nodes(spark: SparkSession) -> None:
    keys = frame(spark, [bytearray(key) for key in KEYS], "binary")
    found = keys.select(partition_column(f.col("value"), PARTITIONS).alias("found")).collect()
    expected = [store_keys.partition_of(key, PARTITIONS) for key in KEYS]
    assert [row["found"] for row in found] == [*expected, None]


def test_a_double_and_its_bytes(spark: SparkSession) -> None:
    """As a KAFKA key: both zeros are one key, and so is each NaN."""
    numbers = frame(spark, NUMBERS, "double").select(double_bytes(f.col("value")).alias("raw"))
    rows = numbers.select("raw", bytes_double(f.col("raw")).alias("back")).collect()
    expected = [struct.pack(">d", number + 0.0) for number in NUMBERS]
    assert [row["raw"] and bytes(row["raw"]) for row in rows] == [*expected, None]
    assert [row["back"] for row in rows] == pytest.approx([*NUMBERS, None], nan_ok=True)


@pytest.mark.parametrize("length", [0, 7, 9])
def test_other_bytes_are_no_double(spark: SparkSession, length: int) -> None:
    raw = frame(spark, [bytearray(length)], "binary").select(
        bytes_double(f.col("value")).alias("n")
    )
    assert [row["n"] for row in raw.collect()] == [None, None]
