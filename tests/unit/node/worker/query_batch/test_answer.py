"""The answer of a batch: the same bytes, whether or not anything was compiled."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.unit.node.workers import USERS

from standpipe.data.encoding import native
from standpipe.data.query.pull import cell_json
from standpipe.freshness import Freshness
from standpipe.model import BatchId, Column, NodeId
from standpipe.node.worker.query_batch.answer import (
    NO_ROW,
    BatchAnswer,
    BatchForm,
    PartitionFreshness,
)
from standpipe.sql.plans import PullPlan, Value

PART = PartitionFreshness(
    0, Freshness(served_by=NodeId("a"), role="active", state="RUNNING", batch=BatchId(7))
)
CELLS = {"STRING": '"é"', "DOUBLE": "1.5", "BOOLEAN": "true", "DATE": '"1970-01-02"'}


def answer_of(keys: Sequence[Value], key_type: str = "STRING", *types: str) -> BatchAnswer:
    """Every third key has no row, and every fourth row some nulls."""
    columns = (
        Column(name="K", type=key_type, is_key=True),
        *(Column(name=f"C{n}", type=of) for n, of in enumerate(types)),
    )
    plan = PullPlan(
        source=replace(USERS, columns=columns),
        keys=(),
        schema="",
        column_names=tuple(column.name for column in columns),
        column_types=(key_type, *types),
    )
    rows = dict.fromkeys(keys, NO_ROW)
    for place, key in enumerate(rows):
        cells = [CELLS.get(of, f"{place}") for of in types]
        if place % 4 == 3:
            cells = ["null"] * len(cells)
        if place % 3 < 2:
            rows[key] = b"[" + b",".join([cell_json(key), *(c.encode() for c in cells)]) + b"]"
    return BatchAnswer(plan, keys, rows, [PART])


KEYS = [f"k{number}" for number in range(20)]
ALL = ("STRING", "BIGINT", "INTEGER", "DOUBLE", "BOOLEAN")


@pytest.mark.parametrize("form", list(BatchForm))
@pytest.mark.parametrize(
    ("keys", "types"),
    [
        (KEYS, ("STRING", *ALL)),
        ([*KEYS, "k3", "k2", "k2"], ("STRING", *ALL)),
        ([7, -7, 2**63 - 1, 0, 7], ("BIGINT", "STRING")),
        ([7, -7, 2**31 - 1], ("INTEGER", "BOOLEAN", "DOUBLE")),
        (['"', "\\", "\n", "é", "💧"], ("STRING", "BIGINT")),
        (KEYS[:3], ("STRING",)),
        (KEYS, ("STRING", "DATE", "BIGINT")),
        ([], ("STRING", "BIGINT")),
    ],
)
def test_the_same_bytes_with_what_is_compiled(
    keys: list[Value], types: tuple[str, ...], form: BatchForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answer_of(keys, *types)
    found = answer.body(form)
    monkeypatch.setattr(native, "_native", None)
    assert answer_of(keys, *types).body(form) == found
    if form is BatchForm.JSON:
        shown = json.loads(found)["rows"]
        assert [row and row[0] for row in shown if row] == [
            key for key in keys if answer.rows[key] is not NO_ROW
        ]
        assert len(shown) == len(keys)
        return
    with pa.ipc.open_stream(found) as stream:
        table = stream.read_all()
    table.validate(full=True)
    assert table["K"].to_pylist() == keys
    missing = [place for place, key in enumerate(keys) if answer.rows[key] is NO_ROW]
    assert json.loads(table.schema.metadata[b"standpipe.missing"]) == missing


def test_which_answers_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made beside the loop."""
    usual, dated = answer_of(KEYS, *ALL), answer_of(KEYS, "STRING", "DATE")
    large = answer_of([f"{'x' * 100}{number}" for number in range(2000)], *ALL)
    assert not any(each.takes_long(BatchForm.JSON) for each in (usual, dated, large))
    assert dated.takes_long(BatchForm.ARROW)
    assert large.takes_long(BatchForm.ARROW)
    assert usual.takes_long(BatchForm.ARROW) is not native.IS_COMPILED
    monkeypatch.setattr(native, "IS_COMPILED", False)
    assert usual.takes_long(BatchForm.ARROW)
