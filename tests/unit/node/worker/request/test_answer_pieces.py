"""A large answer in pieces is the answer that a small one would be."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import sample_table

from standpipe.errors import KafkaUnavailable
from standpipe.node.worker.request.answer import render_rows
from standpipe.node.worker.request.answer_pieces import AnswerPieces, batches_of, is_large
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

PLAN = PullPlan(
    source=sample_table(),
    keys=(),
    schema="`K` STRING KEY",
    column_names=("K",),
    column_types=("STRING",),
    is_scan=True,
)
AT_MS = 7


@given(
    st.lists(st.integers(0, 99).map(lambda number: b"[%d]" % number), max_size=20),
    st.integers(1, 12),
    st.sampled_from(Form),
    st.sampled_from(["", "Query Completed"]),
)
def test_pieces_are_the_whole(rows: list[bytes], bytes_max: int, form: Form, final: str) -> None:
    layout = AnswerPieces(form, PLAN, AT_MS)
    batches = list(batches_of(rows, bytes_max))
    assert list(chain(*batches)) == rows
    assert all(batches), "no batch is empty"
    pieces = [layout.head(), *map(layout.rows, batches), layout.tail(final)]
    assert b"".join(pieces) == render_rows(form, PLAN, rows, AT_MS, final)


@pytest.mark.parametrize("form", [Form.ARRAY, Form.OBJECTS, Form.LINES])
def test_an_error_on_the_way_is_the_last_item(form: Form) -> None:
    layout = AnswerPieces(form, PLAN, AT_MS)
    body = layout.head() + layout.rows([b'["a"]']) + layout.failed(KafkaUnavailable("gone"))
    items = list(map(json.loads, body.splitlines())) if form is Form.LINES else json.loads(body)
    last = items[-1]["errorMessage"] if form is Form.ARRAY else items[-1]
    assert (last["error_code"], last["message"]) == (50308, "gone")
    assert len(items) == 3


@pytest.mark.parametrize(
    ("rows", "large", "why"),
    [
        ([], False, "nothing"),
        ([b"x" * 50] * 2_000, True, "many bytes"),
        ([b"x"] * 2_000, False, "few bytes"),
        ([b"x"] * 2_001, True, "too many to add up their bytes"),
        ([b"x" * 70_000], True, "one large row"),
    ],
)
def test_is_large(rows: list[bytes], large: bool, why: str) -> None:
    assert is_large(rows) is large, why
