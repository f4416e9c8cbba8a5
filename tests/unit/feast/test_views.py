"""Which table a feature view is, what it must have, and what Feast gets of its rows. No Feast: its
objects have a few attributes here. With Feast and real nodes: tests/feast (`make feast`)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from standpipe.client.core.rows import Columns, Row
from standpipe.client.core.tables import SourceShape
from standpipe.feast.views import FeatureViewRefused, ViewTable, sql_types
from standpipe.model import Column
from standpipe.sql.types.types import parse_type

AT = datetime(2026, 3, 1, tzinfo=UTC)


def typed(**fields: str) -> list[Any]:
    """Feast's fields, of which only name and type are read."""
    return [
        SimpleNamespace(name=name, dtype=SimpleNamespace(to_value_type=lambda of=of: named(of)))
        for name, of in fields.items()
    ]


def named(of: str) -> Any:
    return SimpleNamespace(name=of)


@dataclass
class View:
    name: str = "scores"
    tags: dict[str, str] = field(default_factory=dict)
    entity_columns: list[Any] = field(default_factory=lambda: typed(user_id="STRING"))
    features: list[Any] = field(default_factory=lambda: typed(score="DOUBLE", n="INT64"))
    batch_source: Any = None


def table(template: str = "{view}", **more: Any) -> ViewTable:
    return ViewTable.of(View(**more), "shop", template)


def shape(columns: str, *keys: str, is_windowed: bool = False) -> SourceShape:
    types = {
        name: parse_type(of) for name, of in (each.split(" ", 1) for each in columns.split("; "))
    }
    return SourceShape(
        name="SCORES",
        columns=types,
        key_columns=tuple(Column(name=key, type=str(types[key]), is_key=True) for key in keys),
        key_format="KAFKA",
        is_windowed=is_windowed,
    )


@pytest.mark.parametrize(
    ("tags", "template", "name", "why"),
    [
        ({}, "{view}", "SCORES", "the view's own name, as SQL folds it"),
        ({}, "{project}_{view}", "SHOP_SCORES", "views of several projects"),
        ({"standpipe_table": "Other"}, "{project}_{view}", "OTHER", "the tag counts more"),
        ({"standpipe_table": "`Other`"}, "{view}", "Other", "a name in lower case, as in SQL"),
    ],
)
def test_the_table_of_a_view(tags: dict[str, str], template: str, name: str, why: str) -> None:
    assert table(template, tags=tags).name == name, why


@pytest.mark.parametrize("template", ["{views}", "{0}", "{view"])
def test_a_template_that_is_not_understood(template: str) -> None:
    with pytest.raises(FeatureViewRefused, match=r"write \{view\} or"):
        table(template)


def test_the_timestamp_column() -> None:
    source = SimpleNamespace(timestamp_field="seen_at")
    assert table().timestamp == "EVENT_TIMESTAMP"
    assert table(batch_source=SimpleNamespace(timestamp_field="")).timestamp == "EVENT_TIMESTAMP"
    assert table(batch_source=source).timestamp == "SEEN_AT"
    assert table(batch_source=source, tags={"standpipe_timestamp": "at"}).timestamp == "AT"


def test_what_is_written_to() -> None:
    assert table(tags={"standpipe_input": "clicks"}).target() == "clicks"
    with pytest.raises(FeatureViewRefused, match=r"table SCORES: Feast cannot write it.*input"):
        table().target()


FITTING = "USER_ID STRING; SCORE DOUBLE; N BIGINT"


@pytest.mark.parametrize(
    ("view", "found", "refusal"),
    [
        ({}, shape(FITTING, "USER_ID"), None),
        ({}, shape(FITTING + "; MORE STRING", "USER_ID"), None),
        ({}, shape("USER_ID STRING; SCORE DECIMAL(4, 2); N INTEGER", "USER_ID"), None),
        ({}, shape("USER_ID STRING; score DOUBLE; N BIGINT", "USER_ID"), None),
        ({}, shape("USER_ID STRING; SCORE DOUBLE", "USER_ID"), "no column N, only USER_ID, SCORE"),
        ({}, shape("USER_ID STRING; SCORE STRING; N BIGINT", "USER_ID"), "SCORE is of type STRING"),
        ({}, shape(FITTING, "USER_ID", is_windowed=True), "a row for each window"),
        (
            {},
            shape(FITTING, "USER_ID", "N"),
            "its key is USER_ID, N, and the join keys are user_id",
        ),
        ({}, shape(FITTING, "N"), "its key is N"),
        (
            {},
            shape("USER_ID BIGINT; SCORE DOUBLE; N BIGINT", "USER_ID"),
            "USER_ID is of type BIGINT",
        ),
        (
            {"entity_columns": typed(user_id="INT32")},
            shape("USER_ID BIGINT; SCORE DOUBLE; N BIGINT", "USER_ID"),
            None,
        ),
        (
            {"features": typed(score="FLOAT_LIST"), "tags": {"standpipe_timestamp": "AT"}},
            shape("USER_ID STRING; SCORE ARRAY<DOUBLE>", "USER_ID"),
            "no column AT: change standpipe_timestamp",
        ),
        (
            {"features": typed(n="VALUE_LIST")},
            shape(FITTING, "USER_ID"),
            "a VALUE_LIST is read from no type of SQL",
        ),
    ],
)
def test_whether_a_table_fits(view: Any, found: SourceShape, refusal: str | None) -> None:
    if refusal is None:
        table(**view).check(found)
        return
    with pytest.raises(FeatureViewRefused, match=refusal) as caught:
        table(**view).check(found)
    assert "feature view scores, table SCORES" in str(caught.value)


@pytest.mark.parametrize(
    ("feast_type", "known"),
    [
        ("INT32", ("INTEGER",)),
        ("INT64_LIST", ("ARRAY<BIGINT>", "ARRAY<INTEGER>")),
        ("STRING_SET", ("ARRAY<STRING>", "ARRAY<DATE>", "ARRAY<TIME>", "ARRAY<DECIMAL>")),
        ("MAP_LIST", ("STRING", "ARRAY")),
        ("ZONED_TIMESTAMP", ()),
        ("VALUE_SET", ()),
    ],
)
def test_types_that_features_are_read_from(feast_type: str, known: tuple[str, ...]) -> None:
    assert sql_types(feast_type) == known


COLUMNS = Columns(
    ("USER_ID", "SCORE", "N", "EVENT_TIMESTAMP"), ("STRING", "DOUBLE", "BIGINT", "TIMESTAMP")
)


def as_text(feast_type: str, values: Any) -> list[str]:
    return [f"{feast_type} {value}" for value in values]


def test_rows_in_the_order_of_the_keys() -> None:
    rows = [Row(COLUMNS, ("a", 0.5, 1, AT)), None, Row(COLUMNS, ("b", None, 2, None))]
    assert table().found(rows, ["n", "score"], as_text) == [
        (AT, {"n": "INT64 1", "score": "DOUBLE 0.5"}),
        (None, None),
        (None, {"n": "INT64 2", "score": "DOUBLE None"}),
    ]
    assert table().found(rows, None, as_text)[0][1] == {"score": "DOUBLE 0.5", "n": "INT64 1"}
    assert table().found(rows, [], as_text) == [(AT, {}), (None, None), (None, {})]
    assert table().found([None], ["n"], as_text) == [(None, None)]
    assert table().found([], ["n"], as_text) == []


def test_a_table_without_timestamps() -> None:
    row = Row(Columns(("USER_ID", "N"), ("STRING", "BIGINT")), ("a", 1))
    assert table().found([row], ["n"], as_text) == [(None, {"n": "INT64 1"})]


def test_rows_that_do_not_fit() -> None:
    def too_large(_: str, values: Any) -> list[Any]:
        raise ValueError("Value out of range: 2147483648")

    row = Row(COLUMNS, ("a", 0.5, 2**31, AT))
    with pytest.raises(FeatureViewRefused, match="a value of n is no INT64: Value out of range"):
        table().found([row], ["n"], too_large)
    with pytest.raises(FeatureViewRefused, match="the view has no feature other"):
        table().found([row], ["other"], as_text)
    other = Row(Columns(("USER_ID", "N"), ("STRING", "STRING")), ("b", "x"))
    with pytest.raises(FeatureViewRefused, match="N is of type STRING"):
        table().found([row, other], ["n"], as_text)


def test_a_row_to_insert() -> None:
    made = table().record({"user_id": "a"}, {"score": Decimal(1), "n": 2}, AT)
    assert made == {"user_id": "a", "score": Decimal(1), "n": 2, "EVENT_TIMESTAMP": AT}
    renamed = table(tags={"standpipe_timestamp": "UPDATED_AT"})
    assert renamed.record({}, {"score": 1.0, "n": 2}, AT)["EVENT_TIMESTAMP"] == AT, "of the input"
    with pytest.raises(FeatureViewRefused, match=r"a write lacks n\. Write all features"):
        table().record({"user_id": "a"}, {"score": 1.0}, AT)


def test_the_message_without_feast() -> None:
    program = "import sys; sys.modules['feast'] = None; import standpipe.feast as ours; {}"
    run = [sys.executable, "-c"]
    asked = [*run, program.format("ours.StandpipeOnlineStore")]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert "pip install 'standpipe[feast]'" in ran.stderr
    other = [*run, program.format("ours.Other")]
    ran = subprocess.run(other, capture_output=True, text=True, check=False)
    assert "AttributeError: module 'standpipe.feast' has no attribute 'Other'" in ran.stderr
