"""Prints answers: as tables with rich, or as JSON lines for other programs.

Not here: the requests (`local/client/rest_client.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, cast

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from standpipe.client.core.answers import columns_of_schema, error_of
from standpipe.errors import SetupError, StandpipeError, StatementError
from standpipe.freshness import Freshness
from standpipe.local.cli import assignment_output, lag_output
from standpipe.local.client.exact_cells import ExactCells
from standpipe.local.client.rest_client import Entity, PullAnswer

#: fields of a listing that only programs need; `--json` includes them
HIDDEN = ("@type", "standpipe", "statusCount", "sinkKafkaTopics", "queryType")
LIVE_WIDTH = 16
#: width to which a column is padded in a pipe or a file
PADDED_MAX = 100
NUMERIC = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


def print_pull(console: Console, answer: PullAnswer, *, as_json: bool) -> None:
    """Print the rows of a pull query and, below, which node served them and how fresh they are."""
    if as_json:
        for row in answer.rows:
            _line(console, dict(zip(answer.column_names, row, strict=True)))
        return
    if console.is_terminal:
        console.print(_pull_table(answer))
    else:
        for line in _pull_lines(answer):
            _write(console, line)
    console.print(Text(footer(len(answer.rows), answer.fresh), style="dim"))


def _pull_table(answer: PullAnswer) -> Table:
    """On a terminal: values are cut where the columns together are wider than it is."""
    table = _table()
    for name, type_ in zip(answer.column_names, answer.column_types, strict=True):
        table.add_column(name, justify="right" if type_.startswith(NUMERIC) else "left")
    for row in answer.rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _pull_lines(answer: PullAnswer) -> Iterator[str]:
    """In a pipe or a file: every value is whole. One that is very long widens its own line only:
    padded, a thousand rows beside it would be as long."""
    rows = [[_cell(value) for value in row] for row in answer.rows]
    columns = zip(answer.column_names, *rows, strict=True)
    widths = [min(PADDED_MAX, max(map(cell_len, column))) for column in columns]
    is_right = [type_.startswith(NUMERIC) for type_ in answer.column_types]
    yield _aligned(answer.column_names, widths, is_right)
    yield _aligned(["─" * width for width in widths], widths, is_right)
    for row in rows:
        yield _aligned(row, widths, is_right)


class LiveOutput:
    """Prints the answer of a push query or PRINT, line by line."""

    def __init__(self, console: Console, text: str, *, as_json: bool) -> None:
        self._console = console
        self._text = text
        self._as_json = as_json
        self._names: tuple[str, ...] = ()
        self._rows = ExactCells(())

    def line(self, line: str) -> None:
        """Print a line of the answer. Raises StandpipeError if it is an error."""
        if not line.startswith(("[{", "{")):
            self._say(line)  # the output of PRINT
            return
        item = self._rows.decode(line.strip().removeprefix("[").removesuffix(",").removesuffix("]"))
        if "header" in item:
            columns = columns_of_schema(item["header"]["schema"])
            self._names, self._rows = columns.names, ExactCells(columns.types)
            if not self._as_json:
                self._say(self._cells(self._names), style="bold")
        elif "row" in item:
            cells = self._rows.row(item["row"]["columns"])
            self._row(cells, is_gone=item["row"].get("tombstone", False))
        elif "errorMessage" in item:
            raise error_of(item["errorMessage"], self._text)
        elif "finalMessage" in item and not self._as_json:
            self._say(item["finalMessage"], style="dim")

    def _row(self, cells: Sequence[Any], *, is_gone: bool) -> None:
        if self._as_json:
            mark = {"@tombstone": True} if is_gone else {}
            _line(self._console, dict(zip(self._names, cells, strict=True)) | mark)
        else:
            self._say(self._cells(map(_cell, cells)), style="dim strike" if is_gone else "")

    def _cells(self, texts: Iterable[str]) -> str:
        """The widths of later values are unknown, so columns are a tab wide, or more if needed."""
        widths = [max(LIVE_WIDTH, len(name)) for name in self._names]
        return _aligned(list(texts), widths, [False] * len(widths))

    def _say(self, text: str, style: str = "") -> None:
        if self._console.is_terminal:
            self._console.print(Text(text, style=style), soft_wrap=True)
        else:
            _write(self._console, text)


def footer(rows: int, fresh: Freshness) -> str:
    """`1 row · served by node-2 (active, RUNNING) · lag 0 records, 12 ms · batch 41`."""
    parts = [f"{rows} row{'' if rows == 1 else 's'}"]
    if fresh.served_by:
        state = ", ".join(word for word in (fresh.role, fresh.state) if word)
        parts.append(f"served by {fresh.served_by} ({state})")
    lags = [
        f"{fresh.offset_lag} records" if fresh.offset_lag is not None else "",
        f"{fresh.replica_lag_ms} ms" if fresh.replica_lag_ms is not None else "",
    ]
    if any(lags):
        parts.append(f"lag {', '.join(lag for lag in lags if lag)}")
    if fresh.source_lag_ms is not None:
        parts.append(f"source {fresh.source_lag_ms} ms ago")
    if fresh.batch is not None:
        parts.append(f"batch {fresh.batch}")
    return " · ".join(parts)


def print_entity(console: Console, entity: Entity, *, as_json: bool) -> None:
    """Print one answer of /ksql: a message, a listing or a description."""
    if as_json:
        _line(console, entity)
        return
    status = cast(dict[str, Any] | None, entity.get("commandStatus"))
    if status is not None:
        console.print(str(status.get("message", status)), highlight=False, markup=False)
    elif entity.get("@type") == "assignment":
        assignment_output.print_view(console, entity)
    elif entity.get("@type") == "lag":
        lag_output.print_lags(console, entity)
    elif "sourceDescription" in entity:
        _print_description(console, cast(Entity, entity["sourceDescription"]))
    else:
        _print_listing(console, entity)
    for warning in cast(list[Any], entity.get("warnings") or []):
        text = cast(Entity, warning).get("message") if isinstance(warning, dict) else warning
        console.print(f"warning: {text}", style="yellow", markup=False)


def _print_description(console: Console, description: Entity) -> None:
    table = _table("Field", "Type")
    for field in cast(list[Entity], description.get("fields") or []):
        schema = field.get("schema")
        type_ = _type_text(cast(Entity, schema)) if isinstance(schema, dict) else str(schema)
        mark = f" ({field['type'].lower()})" if field.get("type") else ""
        table.add_row(str(field.get("name")), f"{type_}{mark}")
    console.print(f"{description.get('name')} ({description.get('type')})", style="bold")
    console.print(table)
    rest = {
        key: value
        for key, value in description.items()
        if key not in ("name", "type", "fields", "@type") and value not in (None, "", [], {})
    }
    for key, value in rest.items():
        console.print(f"{key}: {_cell(value)}", style="dim", markup=False, highlight=False)


def _type_text(schema: Entity) -> str:
    member = cast(Entity | None, schema.get("memberSchema"))
    inner = f"<{_type_text(member)}>" if member else ""
    return f"{schema.get('type', '?')}{inner}"


def _print_listing(console: Console, entity: Entity) -> None:
    """Print any listing: the first list of objects in it becomes a table."""
    for value in entity.values():
        rows = cast(list[Any], value) if isinstance(value, list) else []
        if rows and all(isinstance(row, dict) for row in rows):
            _print_rows(console, cast(list[Entity], rows))
            return
    empty = [k for k, v in entity.items() if isinstance(v, list) and k != "warnings"]
    rest = {k: v for k, v in entity.items() if k not in ("@type", "statementText", "warnings")}
    text = f"no {empty[0]}" if empty and not any(rest.values()) else _cell(rest)
    console.print(text, highlight=False, markup=False)


def _print_rows(console: Console, rows: Sequence[Entity]) -> None:
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n not in HIDDEN]
    table = _table(*names)
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in names))
    console.print(table)


def print_error(console: Console, error: StandpipeError) -> None:
    """Print an error without traceback, in red, with the position or the next step."""
    if isinstance(error, StatementError):
        console.print(Text(error.pointed(), style="red"), soft_wrap=True)
    elif isinstance(error, SetupError):
        head, _, step = str(error).partition("\n  Next: ")
        console.print(Text(head, style="red"), soft_wrap=True)
        console.print(Text(f"  Next: {step}"), soft_wrap=True)
    else:
        console.print(Text(error.message, style="red"), soft_wrap=True)


def _aligned(texts: Sequence[str], widths: Sequence[int], is_right: Sequence[bool]) -> str:
    """A line of columns: nothing is cut, and nothing follows the last text."""
    parts: list[str] = []
    for text, width, right in zip(texts, widths, is_right, strict=True):
        blanks = " " * (width - cell_len(text))
        is_last = len(parts) == len(texts) - 1
        parts.append(blanks + text if right else text if is_last else text + blanks)
    return "  ".join(parts)


def _table(*names: str) -> Table:
    return Table(*names, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)


def _cell(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool | dict | list | Decimal):
        return _json(cast("object", value))
    return str(value)


def _line(console: Console, value: object) -> None:
    _write(console, _json(value))


def _json(value: object) -> str:
    return msgspec.json.encode(_with_digits(value)).decode()


def _with_digits(value: object) -> object:
    """A Decimal as a number with all its digits: msgspec's has an exponent if it is very small."""
    if isinstance(value, Decimal):
        return msgspec.Raw(f"{value:f}".encode())
    if isinstance(value, dict):
        return {key: _with_digits(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_with_digits(each) for each in cast("list[object]", value)]
    return value


def _write(console: Console, text: str) -> None:
    """Write a line for another program: rich would make blanks of a tab."""
    print(text, file=console.file, flush=True)
