"""Rows of an answer as record batches, compared with values that Spark would hand out."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import types as t

from standpipe.errors import ServerError
from standpipe.spark_source import columns as module
from standpipe.spark_source.columns import record_batches, spark_schema, spark_type
from standpipe.sql.types.types import parse_type

AT = datetime(2020, 2, 29, 12, 30, 0, 1000, UTC)
#: type, cell as a node writes it, value in Spark
CELLS = [
    ("BOOLEAN", "true", True),
    ("INTEGER", "-5", -5),
    ("BIGINT", str(2**62), 2**62),
    ("DOUBLE", "1.5", 1.5),
    ("DOUBLE", '"-Infinity"', float("-inf")),
    ("STRING", '"näme"', "näme"),
    ("DECIMAL(6, 2)", "12.3", Decimal("12.30")),
    ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
    ("BYTES", '"AP8="', b"\x00\xff"),
    ("DATE", '"2020-02-29"', date(2020, 2, 29)),
    ("TIME", '"12:30:15.001"', 45_015_001),
    ("TIME", "1", 1),
    ("TIMESTAMP", '"2020-02-29T12:30:00.001"', AT),
    ("ARRAY<STRING>", '["x",null]', ["x", None]),
    ("MAP<STRING, INTEGER>", '{"k":1,"n":null}', [("k", 1), ("n", None)]),
    ("STRUCT<`X` DECIMAL(4, 2), `y` TIME>", '{"x":1.5,"y":1}', {"X": Decimal("1.50"), "y": 1}),
    ("ARRAY<TIME>", '["00:00:01",null]', [1000, None]),
    ("MAP<STRING, TIME>", '{"k":"00:00:01","n":null}', [("k", 1000), ("n", None)]),
    ("ARRAY<STRUCT<`T` TIMESTAMP>>", '[{"T":"2020-02-29T12:30:00.001"}]', [{"T": AT}]),
]


@pytest.mark.parametrize(("of", "cell", "value"), CELLS, ids=lambda each: str(each)[:30])
def test_a_value_of_each_type(of: str, cell: str, value: object) -> None:
    schema = spark_schema({"C": parse_type(of)})
    lines = [f"[{cell}]".encode(), b"[null]"]
    (batch,) = record_batches(lines, [of], schema)
    assert batch.column(0).to_pylist() == [value, None]


def test_the_types_of_spark() -> None:
    found = {of: spark_type(parse_type(of)) for of, _, _ in CELLS}
    assert found["TIME"] == t.IntegerType()
    assert found["DECIMAL(6, 2)"] == t.DecimalType(6, 2)
    assert found["MAP<STRING, TIME>"] == t.MapType(t.StringType(), t.IntegerType())
    assert found["ARRAY<STRUCT<`T` TIMESTAMP>>"] == t.ArrayType(
        t.StructType([t.StructField("T", t.TimestampType())])
    )


def test_many_rows_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 2)
    schema = spark_schema({"A": parse_type("BIGINT"), "B": parse_type("STRING")})
    lines = [f'[{n},"{n}"]'.encode() for n in range(5)]
    found = list(record_batches(lines, ["BIGINT", "STRING"], schema))
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert [row for batch in found for row in batch.column(0).to_pylist()] == [0, 1, 2, 3, 4]
    assert list(record_batches([], ["BIGINT", "STRING"], schema)) == []


def test_a_line_that_is_no_row() -> None:
    schema = spark_schema({"A": parse_type("BIGINT")})
    with pytest.raises(ServerError, match="cannot be read"):
        list(record_batches([b"[1,2]"], ["BIGINT"], schema))
