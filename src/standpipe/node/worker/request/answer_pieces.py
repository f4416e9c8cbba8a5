"""A large answer in pieces: `answer.render_rows` for rows that come batch by batch. Pure.

    head, rows, rows …, tail        or, if it fails on the way:  head, rows, failed

The bytes together are those of `render_rows`. An error comes as the last item, in the shape that a
push query's has, since the status line has long been sent.

Not here: small answers (`node.worker.request.answer`), which are sent whole with their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.errors import StandpipeError
from standpipe.node.worker.request.answer import render_rows, token_tail
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

#: about so much is handed to the connection at a time, which then may tell to wait
PIECE_BYTES: Final = 64 * 1024
#: an answer with more rows comes in pieces; sum up the bytes of fewer, which takes no time
WHOLE_ROWS_MAX: Final = 2_000


@dataclass(frozen=True)
class AnswerPieces:
    """The layout of one answer. `at_ms` (Unix) makes the query id."""

    form: Form
    plan: PullPlan
    at_ms: int
    #: of the session that asked; None: none did
    token: str | None = None

    def head(self) -> bytes:
        """What comes before the first row."""
        whole = render_rows(self.form, self.plan, (), self.at_ms)
        return whole if self.form is Form.LINES else whole[:-1]

    def rows(self, rows: Sequence[bytes]) -> bytes:
        """Some rows."""
        if not rows:
            return b""
        if self.form is Form.ARRAY:
            columns = b'}},\n{"row":{"columns":'.join(rows)
            return b',\n{"row":{"columns":%b}}' % columns
        if self.form is Form.LINES:
            return b"\n".join((*rows, b""))
        return b",\n" + b",\n".join(rows)

    def tail(self, final_message: str = "") -> bytes:
        """What comes after the last row."""
        if self.token is not None:
            return token_tail(self.form, self.token)
        if self.form is Form.LINES:
            return b""
        if self.form is Form.ARRAY and final_message:
            return b',\n{"finalMessage":"%b"}]' % final_message.encode()
        return b"]"

    def failed(self, error: StandpipeError) -> bytes:
        """The end of an answer that began well."""
        body = msgspec.json.encode(error.body())
        if self.form is Form.ARRAY:
            return b',\n{"errorMessage":%b}]' % body
        return body + b"\n" if self.form is Form.LINES else b",\n%b]" % body


def batches_of(rows: Sequence[bytes], bytes_max: int = PIECE_BYTES) -> Iterator[Sequence[bytes]]:
    """The rows in order, in batches of about `bytes_max`, and at least one row each."""
    start = size = 0
    for index, row in enumerate(rows):
        size += len(row)
        if size >= bytes_max:
            yield rows[start : index + 1]
            start, size = index + 1, 0
    if start < len(rows):
        yield rows[start:]


def is_large(rows: Sequence[bytes], bytes_max: int = PIECE_BYTES) -> bool:
    """Whether an answer with these rows is sent in pieces."""
    return len(rows) > WHOLE_ROWS_MAX or sum(map(len, rows)) > bytes_max
