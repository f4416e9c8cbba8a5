"""Which columns CREATE OR REPLACE may change. Texts: ksqlDB's StructuredDataSource."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import stream

from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.ddl import evolution

BEFORE = stream("S")  # ID STRING KEY, V INTEGER
ID, V = BEFORE.columns
W = Column(name="W", type="STRING")


def source(*columns: Column, **changes: Any) -> Source:
    return msgspec.structs.replace(BEFORE, columns=columns or BEFORE.columns, **changes)


@pytest.mark.parametrize("after", [source(), source(ID, V, W)], ids=["the same", "one more"])
def test_columns_may_be_added_behind_the_others(after: Source) -> None:
    evolution.check_upgrade(BEFORE, after)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (source(ID, W), "(The following columns are changed, missing or reordered: [`V` INTEGER])"),
        (source(ID), "(The following columns are changed, missing or reordered: [`V` INTEGER])"),
        (source(ID, W, V), "changed, missing or reordered: [`V` INTEGER])"),
        (source(V), "(Key columns must be identical. The following key columns are changed,"),
        (source(kind="TABLE"), "has type = STREAM which is not upgradeable to TABLE"),
        (source(topic="t"), "has topic = s (4 partitions, KAFKA/JSON) which is not upgradeable"),
        (
            source(ID, W, kind="TABLE"),
            "upgradeable to TABLE\n\tAND DataSource '`S`' has schema = `ID` STRING KEY, `V`",
        ),
    ],
)
def test_what_is_not_upgradeable_is_named(after: Source, why: str) -> None:
    with pytest.raises(StatementError) as refused:
        evolution.check_upgrade(BEFORE, after)
    assert refused.value.message.startswith("Cannot upgrade data source: DataSource '`S`' has ")
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        ("INTEGER", "BIGINT", True),
        ("INTEGER", "DOUBLE", True),
        ("BIGINT", "DOUBLE", True),
        ("DATE", "TIMESTAMP", True),
        ("BIGINT", "INTEGER", False),
        ("DOUBLE", "BIGINT", False),
        ("STRING", "BIGINT", False),
    ],
)
def test_a_rebuilt_column_holds_what_it_held(old: str, new: str, is_allowed: bool) -> None:
    before, after = (source(ID, Column(name="V", type=type_)) for type_ in (old, new))
    if is_allowed:
        evolution.check_rebuild(before, after)
        return
    with pytest.raises(StatementError, match=f"would not fit their existing values: .`V` {old}"):
        evolution.check_rebuild(before, after)


def test_a_public_topic_is_the_topic_that_counts() -> None:
    replaced = source(topic="C-changelog", public_topic="s")
    evolution.check_rebuild(BEFORE, replaced)
    evolution.check_rebuild(replaced, replaced)
