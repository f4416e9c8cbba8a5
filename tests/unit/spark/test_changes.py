"""The column that says which rows are gone. On Spark and Kafka: tests/e2e/test_read_on_spark.py."""

from __future__ import annotations

import pytest
from tests.samples import sample_table

from standpipe.model import Column, Window
from standpipe.spark.changes import check_name
from standpipe.spark.errors import ServeRefused

TABLE = sample_table(
    columns=(
        Column(name="K", type="STRING", is_key=True),
        Column(name="_DELETED", type="BOOLEAN"),
    )
)


@pytest.mark.parametrize("deleted", ["_deleted", "_DELETED", "k"])
def test_a_name_that_a_column_has_is_refused(deleted: str) -> None:
    with pytest.raises(ServeRefused, match=r"has a column .* of its own"):
        check_name(TABLE, deleted)


def test_the_bounds_of_windows_are_names_of_columns() -> None:
    window = Window(kind="TUMBLING", size_ms=10, advance_ms=10, grace_ms=0, retention_ms=0)
    with pytest.raises(ServeRefused, match="a column WINDOWEND of its own"):
        check_name(sample_table(window=window), "windowEnd")
    check_name(sample_table(), "windowEnd")
