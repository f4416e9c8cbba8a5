"""Header columns and windowed sources, as a CREATE declares them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standpipe.errors import StatementError
from standpipe.sql.plans import CreateSourcePlan, Plan

WITH = "KAFKA_TOPIC='here', VALUE_FORMAT='JSON'"


def create(columns: str, more: str = "") -> str:
    return f"CREATE STREAM s ({columns}) WITH ({WITH}{more});"


def test_header_columns(plan: Callable[..., Plan]) -> None:
    headers = "h BYTES HEADER('abc'), a ARRAY<STRUCT<key STRING, value BYTES>> HEADERS"
    columns = f"k STRING KEY, v INT, {headers}"
    made = plan(create(columns))
    assert isinstance(made, CreateSourcePlan)
    assert [column.header for column in made.source.columns] == [None, None, "abc", ""]


@pytest.mark.parametrize(
    ("kind", "size", "window"),
    [
        ("Tumbling", ", WINDOW_SIZE='30 seconds'", ("TUMBLING", 30_000)),
        ("session", "", ("SESSION", 0)),
    ],
)
def test_windows(plan: Callable[..., Plan], kind: str, size: str, window: tuple[str, int]) -> None:
    made = plan(create("k STRING KEY, v INT", f", WINDOW_TYPE='{kind}'{size}"))
    assert isinstance(made, CreateSourcePlan)
    assert made.source.window is not None
    assert (made.source.window.kind, made.source.window.size_ms) == window


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            create("k STRING KEY, h INT HEADER('k')"),
            "Invalid type for HEADER('k') column: expected BYTES, got INTEGER",
        ),
        (
            create("k STRING KEY, h ARRAY<STRUCT<key STRING, v BYTES>> HEADERS"),
            "`KEY` STRING, `VALUE` BYTES>>, got ARRAY<STRUCT<`KEY` STRING, `V` BYTES>>",
        ),
        (create("v INT", ", WINDOW_TYPE='SESSION'"), "Windowed sources require a key column."),
        (create("k INT KEY, v INT", ", WINDOW_TYPE='TUMBLING'"), "require 'WINDOW_SIZE'"),
        (create("k INT KEY, v INT", ", WINDOW_TYPE='ROUND'"), "String must be one of: SESSION"),
        (
            create("k INT KEY, v INT", ", WINDOW_TYPE='HOPPING', WINDOW_SIZE='3 bobs'"),
            "Unknown time unit: 'BOBS'",
        ),
        (
            create("k INT KEY, v INT", ", WINDOW_TYPE='HOPPING', WINDOW_SIZE='0 DAYS'"),
            "It must be above 0",
        ),
        (
            create("k INT KEY, v INT", f", WINDOW_TYPE='HOPPING', WINDOW_SIZE='{10**11} DAYS'"),
            "It must be at most 2305843009213693 ms",
        ),
        (
            create(
                "k INT KEY, v INT", f", WINDOW_TYPE='TUMBLING', WINDOW_SIZE='{'9' * 5000} DAYS'"
            ),
            "Not numeric",
        ),
        (
            create("k INT KEY, v INT", ", WINDOW_TYPE='HOPPING', WINDOW_SIZE='day'"),
            "Expected string with format",
        ),
    ],
)
def test_refusals(plan: Callable[..., Plan], text: str, message: str) -> None:
    with pytest.raises(StatementError) as raised:
        plan(text)
    assert message in raised.value.message
