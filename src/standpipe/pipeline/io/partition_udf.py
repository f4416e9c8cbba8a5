"""What Spark SQL cannot do, as Arrow UDFs over whole columns: murmur2, and the bytes of doubles.

A windowed key must be in the partition of its key *without* the window (docs/INTERFACES.md), but
Kafka's producer would hash all of it. Only output rows of windowed tables pass through here.
The hash is tested against `data.encoding.store_keys.murmur2`, the simple implementation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

#: pyarrow has no type hints; what leaves this module is typed
_pa: Any = import_module("pyarrow")
_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)

_UInt32s = npt.NDArray[np.uint32]


def murmur2(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> _UInt32s:
    """Kafka's hash of many keys, as unsigned 32-bit integers. Source: Kafka, Utils.murmur2.

    Key *i* is `data[starts[i]:starts[i + 1]]`. Takes one step per 4 bytes of the longest key, each
    over all keys that are long enough.
    """
    lengths = np.diff(starts)
    begins = starts[:-1]
    padded = np.concatenate((data, np.zeros(4, np.uint8))).astype(np.uint32)
    hashes = _SEED ^ lengths.astype(np.uint32)
    for word in range(int(lengths.max(initial=0)) // 4):
        long_enough = np.flatnonzero(lengths >= 4 * (word + 1))
        mixed = _word(padded, begins[long_enough] + 4 * word) * _M
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _M
        hashes[long_enough] = (hashes[long_enough] * _M) ^ mixed
    rest = lengths & 3
    some = np.flatnonzero(rest)
    tail = _word(padded, begins[some] + (lengths[some] & ~3))
    tail &= (np.uint32(1) << (8 * rest[some]).astype(np.uint32)) - np.uint32(1)
    hashes[some] = (hashes[some] ^ tail) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))


def _word(data: _UInt32s, at: npt.NDArray[np.int64]) -> _UInt32s:
    """Four bytes, little-endian, from each of the places `at`."""
    low = data[at] | (data[at + 1] << np.uint32(8))
    return low | (data[at + 2] << np.uint32(16)) | (data[at + 3] << np.uint32(24))


def partitions(keys: Any, count: int) -> npt.NDArray[np.int32]:
    """Partition of each raw key (an Arrow array of binary without nulls) among `count`."""
    large = keys.cast(_pa.large_binary())
    buffers = large.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[large.offset : large.offset + len(large) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    positive = murmur2(data, offsets) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(count)).astype(np.int32)


def partition_column(raw_key: SparkColumn, count: int) -> SparkColumn:
    """The `partition` column of Spark's Kafka sink for a key without its window."""

    def of_keys(keys: Any) -> Any:
        return _pa.array(partitions(keys, count))

    return _arrow_udf(of_keys, t.IntegerType())(raw_key)


def double_bytes(value: SparkColumn) -> SparkColumn:
    """A DOUBLE key as Kafka's DoubleSerializer writes it; 0.0 for -0.0, which SQL calls equal."""

    def encode(values: Any) -> Any:
        numbers = values.to_numpy(zero_copy_only=False) + 0.0
        packed = cast("npt.NDArray[np.float64]", numbers).astype(">f8").tobytes()
        return _pa.array([packed[at : at + 8] for at in range(0, len(packed), 8)], _pa.binary())

    return _arrow_udf(encode, t.BinaryType())(value)


def bytes_double(value: SparkColumn) -> SparkColumn:
    """Inverse of `double_bytes`; null unless there are exactly 8 bytes."""

    def decode(values: Any) -> Any:
        raw = cast("list[bytes | None]", values.to_pylist())
        fits = [item if item and len(item) == 8 else None for item in raw]
        return _pa.array(
            [None if item is None else float(np.frombuffer(item, ">f8")[0]) for item in fits],
            _pa.float64(),
        )

    return _arrow_udf(decode, t.DoubleType())(value)


def _arrow_udf(
    function: Callable[[Any], Any], returns: t.DataType
) -> Callable[[SparkColumn], SparkColumn]:
    # PySpark infers the kind of a UDF from these, and warns if they are absent
    names = (*inspect.signature(function).parameters, "return")
    function.__annotations__ = dict.fromkeys(names, _pa.Array)
    made = cast(Any, f).arrow_udf(function, returns)
    return cast("Callable[[SparkColumn], SparkColumn]", made)
