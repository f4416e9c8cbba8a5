"""Answers of nodes as rows, entities and errors. Pure.

Layouts: `node/worker/request/answer.py` and `node/worker/push/encoding.py`. A pull query is asked
for in LINES, and its error may come after its first rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from standpipe.client.core.exchange import Head, HttpAnswer
from standpipe.client.core.rows import Columns, LazyFreshness, RowSet
from standpipe.client.core.session import token_in
from standpipe.data.encoding.answer_values import CellReader, reader_of
from standpipe.errors import StandpipeError, StatementError, TokenRefused

_HEAD_KEPT_MAX: Final = 1024
_SERVED_BY: Final = b"\r\nstandpipe-served-by: "
_NAMES: Final = b'"columnNames"'
#: the first line of an answer without its query id -> what it says
_heads: dict[bytes, tuple[Columns, CellReader]] = {}
_COLUMN: Final = re.compile(r"\s*`((?:[^`]|``)*)`\s*")


class ServerRefused(StandpipeError):
    """A node answered with an error that is not about the statement's text.

    `http_status` and `error_code` are the answer's; 0: it gave none. `again_after_s`: its
    Retry-After, in seconds; None: it gave none.
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.http_status = 0
        self.error_code = 0
        self.again_after_s: float | None = None


def no_answer(body: bytes) -> ServerRefused:
    """The error for what no node would answer: something else listens there."""
    return ServerRefused(
        f"this is no answer of a node: {body[:200]!r}; check that its address is the public one"
    )


class _AnswerHead(msgspec.Struct):
    columnNames: tuple[str, ...]  # noqa: N815 ksqlDB's name
    columnTypes: tuple[str, ...]  # noqa: N815 ksqlDB's name


_head_decoder: Final = msgspec.json.Decoder(_AnswerHead)


class RowLines(NamedTuple):
    """The rows of an answer as they came: each line is a JSON array of the columns' values."""

    columns: Columns
    lines: list[bytes]


def rows_of(answer: HttpAnswer, statement: str) -> RowSet:
    """The rows of a pull query. Raises what the answer says, also after its first rows."""
    columns, reader, lines = _parts_of(answer, statement)
    return RowSet(columns, reader.rows(lines), LazyFreshness(answer.headers))


def lines_of(answer: HttpAnswer, statement: str) -> RowLines:
    """The same, not decoded. Raises what the answer says, also after its first rows."""
    columns, _, lines = _parts_of(answer, statement)
    return RowLines(columns, lines)


def _parts_of(answer: HttpAnswer, statement: str) -> tuple[Columns, CellReader, list[bytes]]:
    first, *lines = answer.body.split(b"\n")
    columns, reader = head_of(first)
    if lines and not lines[-1]:
        lines.pop()
    if lines and token_in(lines[-1]) is not None:
        lines.pop()
    elif lines and lines[-1][:1] == b"{":
        raise error_of(msgspec.json.decode(lines[-1], type=dict[str, Any]), statement)
    return columns, reader, lines


def served_by(answer: HttpAnswer) -> str:
    """The node that answered; "": it is not said."""
    headers = answer.headers
    if isinstance(headers, Head):  # without reading the other lines
        _, found, rest = headers.raw.partition(_SERVED_BY)
        return rest.partition(b"\r\n")[0].decode("latin-1") if found else ""
    return headers.get("standpipe-served-by", "")


def head_of(line: bytes) -> tuple[Columns, CellReader]:
    """What an answer's first line says. Raises ServerRefused if it is none."""
    known = line[line.find(_NAMES) :]  # the query's id comes before it, and differs
    found = _heads.get(known)
    if found is None:
        try:
            head = _head_decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise no_answer(line) from error
        found = Columns(head.columnNames, head.columnTypes), reader_of(head.columnTypes)
        if len(_heads) >= _HEAD_KEPT_MAX:
            _heads.clear()
        _heads[known] = found
    return found


def columns_of_schema(text: str) -> Columns:
    """The columns of a header's `schema`: "`ID` STRING KEY, `N` BIGINT". Raises ServerRefused."""
    names: list[str] = []
    types: list[str] = []
    at = 0
    while match := _COLUMN.match(text, at):
        names.append(match[1].replace("``", "`"))
        end = _end_of_type(text, match.end())
        types.append(text[match.end() : end].strip().removesuffix(" KEY"))
        at = end + 1
    if at <= len(text) and text.strip():
        raise ServerRefused(f"a schema that cannot be read: {text!r}")
    return Columns(tuple(names), tuple(types))


def _end_of_type(text: str, at: int) -> int:
    """Where the comma after a type is, or the end: commas in <…>, (…) and names do not count."""
    depth = 0
    while at < len(text) and (depth or text[at] != ","):
        if text[at] == "`":
            at = text.find("`", at + 1)
            if at < 0:
                return len(text)
        depth += (text[at] in "<(") - (text[at] in ">)")
        at += 1
    return at


def entities_of(answer: HttpAnswer) -> list[dict[str, Any]]:
    """The answer of /ksql: one entity per statement that has one. Raises ServerRefused."""
    try:
        return msgspec.json.decode(answer.body, type=list[dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise no_answer(answer.body) from error


def error_of_answer(answer: HttpAnswer, statement: str = "") -> StandpipeError:
    """The error that an answer with another status than 200 stands for."""
    try:
        error = error_of(msgspec.json.decode(answer.body, type=dict[str, Any]), statement)
    except msgspec.MsgspecError:
        text = answer.body[:500].decode(errors="replace")
        error = ServerRefused(f"HTTP {answer.status}: {text}")
    if isinstance(error, ServerRefused):
        error.http_status = answer.status
        error.again_after_s = again_after(answer)
    return error


def again_after(answer: HttpAnswer) -> float | None:
    """Seconds of Retry-After; None: there is none, or it is no number."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def error_code(answer: HttpAnswer) -> int:
    """The error's code; 0: the body has none."""
    try:
        return int(msgspec.json.decode(answer.body, type=dict[str, Any]).get("error_code", 0))
    except (msgspec.MsgspecError, TypeError, ValueError):
        return 0


def error_of(body: Mapping[str, Any], statement: str) -> StandpipeError:
    """The exception for an error body in ksqlDB's shape, with our extras under `standpipe`."""
    inner = body.get("errorMessage", body)
    if isinstance(inner, dict):
        inner = cast("dict[str, Any]", inner)
        body = inner if "standpipe" in inner or "error_code" in inner else body
        inner = inner.get("message", inner)
    message = str(inner)
    extras: Mapping[str, Any] = body.get("standpipe") or {}
    code = int(body.get("error_code") or 0)
    text = str(body.get("statementText") or statement)
    is_of_statement = body.get("@type") == "statement_error"
    if is_of_statement and code // 100 in (0, 400):
        return StatementError(
            message,
            statement=text,
            line=extras.get("line"),
            column=extras.get("column"),
            hint=str(extras.get("hint") or ""),
        )
    if code == TokenRefused.code:
        return TokenRefused(message, **dict(extras))
    # a statement that is right, and was not carried out: Kafka or the metadata log is away
    which = {"statement": text} if is_of_statement else {}
    refused = ServerRefused(message, **{**extras, **which})
    refused.error_code = code
    return refused
