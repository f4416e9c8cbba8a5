"""Whole answers, piece by piece: what a client of each form reads."""

from __future__ import annotations

from operator import itemgetter

import pytest
from tests.samples import sample_table

from standpipe.data.query.push import PushedRow
from standpipe.errors import ServerError
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PushPlan

SOURCE = sample_table(name="S", topic="s", columns=())
PLAN = PushPlan(
    source=SOURCE, schema="`K` STRING", column_names=("K",), column_types=("STRING",),
    cells=(itemgetter(0),), key_cells=(True,),
)  # fmt: skip
ROWS = [PushedRow(b'["a"]'), PushedRow(b'["a"]', is_tombstone=True)]
HEAD = b'{"queryId":"q","columnNames":["K"],"columnTypes":["STRING"]}'
ERROR = b'{"@type":"generic_error","error_code":50000,"message":"no"}'


@pytest.mark.parametrize(
    ("form", "ended", "failed"),
    [
        (
            Form.ARRAY,
            (
                b'[{"header":{"queryId":"q","schema":"`K` STRING"}},\n'
                b'{"row":{"columns":["a"]}},\n{"row":{"columns":["a"],"tombstone":true}},\n'
                b'{"continuationToken":{"continuationToken":"t"}},\n{"finalMessage":"done"}]'
            ),
            b'{"errorMessage":' + ERROR + b"}]",
        ),
        (Form.LINES, HEAD + b'\n["a"]\n{"continuationToken":"t"}\n', ERROR + b"\n"),
        (
            Form.OBJECTS,
            b"[" + HEAD + b',\n["a"],\n{"continuationToken":"t"}]',
            b",\n" + ERROR + b"]",
        ),
    ],
)
def test_forms(form: Form, ended: bytes, failed: bytes) -> None:
    made = PushForm(form)
    pieces = (made.head(PLAN, "q"), made.rows(ROWS), made.token("t"), made.end("done"))
    assert b"".join(pieces) == ended
    assert made.failed(ServerError("no")) == failed


@pytest.mark.parametrize(
    ("form", "item"),
    [
        (Form.ARRAY, b'{"consistencyToken":{"consistencyToken":"t"}},\n'),
        (Form.LINES, b'{"consistencyToken":"t"}\n'),
        (Form.OBJECTS, b',\n{"consistencyToken":"t"}'),
    ],
)
def test_a_sessions_token_is_named_as_in_the_answer_to_a_read(form: Form, item: bytes) -> None:
    assert PushForm(form).session_token("t") == item
