"""What travels in a plan, and what a schema may name.

`tests/e2e/test_spark_format.py` has real nodes and Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import types as t
from tests.unit.client.core.test_tables import shape_of

import pyspark_standpipe
from standpipe.client.core.rows import Columns
from standpipe.spark_source import source
from standpipe.spark_source.options import ReadOptions, ReadRefused
from standpipe.spark_source.source import (
    FetchedRows,
    PartitionRead,
    StandpipeSource,
    TableRead,
    columns_of,
    packed_slices,
)

OPTIONS = ReadOptions.read({"nodes": "h:1", "table": "T"})
SCHEMA = t.StructType(
    [t.StructField("K0", t.StringType()), t.StructField("n", t.DecimalType(9, 2))]
)


def unpacked(slices: Sequence[bytes]) -> list[list[bytes]]:
    return [zlib.decompress(each).split(b"\n") for each in slices]


def test_pyspark_finds_the_format() -> None:
    assert pyspark_standpipe.DefaultSource is StandpipeSource
    assert StandpipeSource.name() == "standpipe"


def test_rows_are_cut_into_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SLICE_BYTES", 6)
    lines = [b"[1]", b"[22]", b"[333]", b"[4444444]", b"[5]"]
    found = unpacked(list(packed_slices(lines)))
    assert found == [[b"[1]", b"[22]"], [b"[333]", b"[4444444]"], [b"[5]"]]
    assert unpacked(list(packed_slices([]))) == [[b""]], "one task, without a row"


def test_a_task_decodes_what_came_with_the_plan() -> None:
    sent = dumps(
        (
            TableRead(OPTIONS, SCHEMA),
            FetchedRows(zlib.compress(b'["a",1.5]\n["b",null]'), ("STRING", "DECIMAL(9, 2)")),
        )
    )
    reader, part = loads(sent)
    (batch,) = reader.read(part)
    assert [str(each) for each in batch.column(1).to_pylist()] == ["1.50", "None"]
    assert list(reader.read(FetchedRows(zlib.compress(b""), ("STRING", "DECIMAL(9, 2)")))) == []
    assert batch.schema.names == ["K0", "n"]


def test_a_partition_can_be_sent() -> None:
    columns = Columns(("K0",), ("STRING",))
    found = loads(dumps(PartitionRead("SELECT", 3, ("a:1",), columns)))
    assert (found.number, found.holders, found.columns) == (3, ("a:1",), columns)


def test_columns_that_a_schema_names() -> None:
    found = columns_of(shape_of("STRING"), SCHEMA)
    assert found == Columns(("K0", "n"), ("STRING", "DECIMAL(9, 2)"))


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (t.StructField("N", t.LongType()), "no column N(.|\n)*K0, n, M"),
        (t.StructField("n", t.LongType()), r"is decimal\(9,2\), not bigint"),
    ],
)
def test_columns_that_the_table_has_not(field: t.StructField, says: str) -> None:
    with pytest.raises(ReadRefused, match=says):
        columns_of(shape_of("STRING"), t.StructType([field]))


def test_it_only_reads_batches() -> None:
    made = StandpipeSource({"nodes": "h:1", "table": "T"})
    with pytest.raises(ReadRefused, match="only reads"):
        made.writer(SCHEMA, overwrite=False)
    with pytest.raises(ReadRefused, match="only reads"):
        made.streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(ReadRefused, match="reads one batch"):
        made.streamReader(SCHEMA)
