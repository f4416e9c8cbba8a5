"""When the rows of a table are written to its public topic at a query's start. Which rows: on real
Spark in tests/e2e/test_avro_records_on_spark.py."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.data.commit.committed import Committed
from standpipe.pipeline.io.sink_writer import LeftOut
from standpipe.pipeline.run.start import public_topic
from standpipe.sql.declarations.published import kept_form

(WANTED,) = wanted_of(
    """
    CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
    CREATE TABLE T AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;
    """
)
TABLE = kept_form(replace(WANTED.table, value_format="AVRO"))


class _TopicsAreReadError(Exception):
    pass


class _Session:
    @property
    def read(self) -> Any:
        raise _TopicsAreReadError


class _Committed:
    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends

    def ends(self) -> dict[int, int]:
        return self._ends

    def ranges(self, *_: int) -> list[tuple[int, int]]:
        return [(0, 5)]


class _Reads:
    config: Mapping[Any, int] = defaultdict(int)

    def options(self, *_: object, **__: object) -> dict[str, str]:
        return {}


def published(generation: int, ends: dict[int, int]) -> LeftOut:
    wanted = dataclasses.replace(WANTED, table=replace(TABLE, generation=generation))
    return public_topic.publish_rows(
        cast(Any, _Session()),
        wanted,
        "T",
        cast(Committed, _Committed(ends)),
        reads=cast(Any, _Reads()),
        limits=cast(Any, None),
    )


def test_a_new_table_leaves_what_its_topic_holds() -> None:
    """It would be deleted by tombstones, as the table has no rows yet."""
    assert published(1, {}) == LeftOut()


@pytest.mark.parametrize(("generation", "ends"), [(1, {0: 5}), (2, {0: 5}), (2, {})])
def test_of_other_tables_both_topics_are_read(generation: int, ends: dict[int, int]) -> None:
    with pytest.raises(_TopicsAreReadError):
        published(generation, ends)
