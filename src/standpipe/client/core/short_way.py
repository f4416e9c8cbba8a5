"""The short way of `get`: one request of prepared bytes, one answer of a row or none. Pure.

Most lookups are alike: the map is known and young, all nodes are well, the key is one text or whole
number, and its owner answers 200 with at most one row. The general way (`core/operations.py`) takes
such a lookup through four generators and several records, which costs more than the request itself.
The short way decides the same in two calls, between which the driver sends `request`:

    begun = short.begin(table, key, timeout_s)    None: take the general way
    found = short.row_of(begun, outcome)          UNUSUAL: go on the general way, with this outcome

It skips nothing: what it does not decide itself, it leaves to the general way.

| the general way | the short way |
|---|---|
| reads the map or the members if they are unknown, old or due | `begin` gives None |
| passes over nodes that are suspected or busy | None, unless all are well |
| keys of several columns, windows, unusual values, sessions | None |
| deadline, patience, bounds of lags | the same ones: the request is equal |
| no answer, another status, an error among the rows | UNUSUAL: the attempt takes this outcome |
| an answer from another node than was asked | UNUSUAL: it judges the map |

`tests/unit/client/core/test_short_way.py` compares the two, answer by answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from standpipe.client.core.answers import head_of, served_by
from standpipe.client.core.attempts import TIMEOUT_S_MIN
from standpipe.client.core.exchange import LINES, HttpAnswer, HttpRequest, Outcome
from standpipe.client.core.operations import LOOKUP_PATH, First, Operations
from standpipe.client.core.rows import LazyFreshness, Row
from standpipe.client.core.tables import TableMap
from standpipe.errors import StandpipeError
from standpipe.sql.types.names import folded, name_literal

_MARK: Final = b"\\u0000"


class Unusual(Enum):
    """The outcome is not that of most lookups."""

    UNUSUAL = auto()


UNUSUAL: Final = Unusual.UNUSUAL


@dataclass(slots=True)
class _Form:
    """The bodies of one table's lookups: `before`, the key's literal, `after`."""

    table: TableMap
    column: str
    before: bytes
    after: bytes
    is_text: bool


class ShortWay:
    """The short way of one client's lookups. Threads may share it, as its operations."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        #: folded name of a table -> its form, as of the map that it was made for
        self._forms: dict[str, _Form] = {}

    def begin(self, table: str, key: Mapping[str, object], timeout_s: float | None) -> First | None:
        """The request of a lookup, to be sent at once; None: take the general way."""
        operations = self._operations
        if len(key) != 1 or operations.settings.may_wait or not operations.nodes.are_well:
            return None
        name, now_s = folded(table), operations.clock()
        found = operations.usable_map(name, now_s)
        if found is None:
            return None
        form = self._forms.get(name)
        if form is None or form.table is not found:
            form = self._form_of(name, found)
        ((asked, value),) = key.items()
        if form is None or (asked != form.column and not _means(asked, form)):
            return None
        literal = _literal(value, is_text=form.is_text)
        if literal is None or not (holders := found.holders_of((value,))):
            return None
        settings = operations.settings
        remaining_s = settings.timeout_s if timeout_s is None else timeout_s
        if remaining_s <= 0:
            return None
        deadline_s = now_s + remaining_s
        if len(operations.nodes.addresses) > 1 and settings.patience_s < remaining_s:
            remaining_s = settings.patience_s
        request = HttpRequest(
            holders[0],
            LOOKUP_PATH,
            max(remaining_s, TIMEOUT_S_MIN),
            b"%b%b%b" % (form.before, literal, form.after),
            LINES,
        )
        return First(request, deadline_s, found)

    def row_of(self, begun: First, outcome: Outcome) -> Row | Unusual | None:
        """The row in an answer, None for no row."""
        if not isinstance(outcome, HttpAnswer) or outcome.status != 200:
            return UNUSUAL
        nodes, address = self._operations.nodes, begun.request.address
        node_id = served_by(outcome)
        if node_id and nodes.members.get(node_id) != address:
            return UNUSUAL
        first, _, rest = outcome.body.partition(b"\n")
        if rest and (rest[:1] != b"[" or rest.find(b"\n") != len(rest) - 1):
            return UNUSUAL  # an error, a token, several rows, or an answer that was cut
        try:
            columns, reader = head_of(first)
            values = reader.row(rest) if rest else None
        except StandpipeError:
            return UNUSUAL
        if not nodes.are_well:  # else there is nothing to forget, and no need of the time
            nodes.answered(address, self._operations.clock())
        if values is None:
            return None
        return Row(columns, values, LazyFreshness(outcome.headers))

    def _form_of(self, name: str, found: TableMap) -> _Form | None:
        """The form of a table; None: its lookups take the general way."""
        shape = found.shape
        if shape.is_windowed or shape.plain_key is None:
            return None
        column = shape.key_columns[0].name
        mark = "\0"  # JSON escapes it
        body = self._operations.settings.read_body(
            f"{found.select}{name_literal(column)} = {mark};"
        )
        before, _, after = body.partition(_MARK)
        if _MARK in after:
            return None
        form = _Form(found, column, before, after, shape.plain_key is str)
        self._forms[name] = form
        return form


def _means(asked: str, form: _Form) -> bool:
    """Whether a name is another spelling of the key column's."""
    try:
        return form.table.shape.column(asked) == form.column
    except StandpipeError:
        return False


def _literal(value: object, *, is_text: bool) -> bytes | None:
    """A key as its literal within a JSON text; None: it is unusual, or not of the column's type."""
    if is_text:
        if type(value) is not str or not value.isprintable() or "'" in value:
            return None
        if '"' in value or "\\" in value:  # JSON would escape them
            return None
        return b"'%b'" % value.encode()
    return b"%d" % value if type(value) is int else None
