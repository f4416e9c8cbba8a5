r"""Bytes of a push query's answer, piece by piece. Pure.

| form | first | each item | end |
|---|---|---|---|
| ARRAY | `[{"header":{queryId,schema}},\n` | `{"row":{"columns":[…]}},\n` | `{"finalMessage":…}]` |
| LINES | `{queryId,columnNames,columnTypes}\n` | `[…]\n` | |
| OBJECTS | `[{queryId,columnNames,columnTypes}` | `,\n[…]` | `]` |

Every item of ARRAY and LINES ends with its line, so a client that reads lines has it at once; the
final message, which a push query always has, closes the array. A deleted row of a table is
`{"row":{"columns":[key, null, …],"tombstone":true}}` in ARRAY; the other two forms cannot express
it and leave it out, as ksqlDB does. Source: ksqlDB's REST API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from standpipe.data.query.push import PushedRow
from standpipe.errors import StandpipeError
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PushPlan

_encode = msgspec.json.encode


@dataclass(frozen=True)
class PushForm:
    """The layout of one answer."""

    form: Form

    def head(self, plan: PushPlan, query_id: str) -> bytes:
        """What comes before the first row: query id, columns and types."""
        if self.form is Form.ARRAY:
            header = {"header": {"queryId": query_id, "schema": plan.schema}}
            return b"[" + self._item(_encode(header))
        names, types = plan.column_names, plan.column_types
        header = {"queryId": query_id, "columnNames": names, "columnTypes": types}
        return _encode(header) + b"\n" if self.form is Form.LINES else b"[" + _encode(header)

    def rows(self, rows: Iterable[PushedRow]) -> bytes:
        """Rows as items of the layout; tombstones only in ARRAY."""
        if self.form is not Form.ARRAY:
            return b"".join(self._item(each.columns) for each in rows if not each.is_tombstone)
        mark = (b"", b',"tombstone":true')
        return b"".join(
            self._item(b'{"row":{"columns":%b%b}}' % (each.columns, mark[each.is_tombstone]))
            for each in rows
        )

    def token(self, text: str) -> bytes:
        """Where the client may resume after all that came before."""
        return self._named("continuationToken", text)

    def session_token(self, text: str) -> bytes:
        """The same, as the token of the client's session."""
        return self._named("consistencyToken", text)

    def failed(self, error: StandpipeError) -> bytes:
        """The end of an answer that began well: an error, in its last item."""
        body = _encode(error.body())
        if self.form is Form.ARRAY:
            return b'{"errorMessage":%b}]' % body
        return self._item(body) + self._closing

    def end(self, message: str) -> bytes:
        """The end of an answer, with its final message where the layout has one."""
        if self.form is Form.ARRAY:
            return _encode({"finalMessage": message}) + b"]"
        return self._closing

    @property
    def _closing(self) -> bytes:
        return b"]" if self.form is Form.OBJECTS else b""

    def _named(self, name: str, text: str) -> bytes:
        token: dict[str, object] = {name: text}
        return self._item(_encode({name: token} if self.form is Form.ARRAY else token))

    def _item(self, item: bytes) -> bytes:
        if self.form is Form.OBJECTS:
            return b",\n" + item
        return item + (b",\n" if self.form is Form.ARRAY else b"\n")
