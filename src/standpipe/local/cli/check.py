"""`standpipe check`: would the statements of these files run here? No cluster is needed.

Not here: the judgement (`node/worker/statements/dry_run.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.text import Text

from standpipe.local.cli.consoles import data_console
from standpipe.local.cli.options import AsJson
from standpipe.local.cli.sql_files import read_sql, read_standard_input

if TYPE_CHECKING:
    from standpipe.node.worker.statements.dry_run import StatementVerdict, Status

EXAMPLE: Final = "Example: standpipe check --avro-as-json streams.sql tables.sql"
#: characters of a statement on its line
_SHOWN_MAX: Final = 60
_STYLES: Final[dict[Status, str]] = {"refused": "red", "blocked": "yellow", "connector": "dim"}
_COUNTED: Final[dict[Status, str]] = {
    "ok": "run",
    "refused": "refused",
    "blocked": "blocked by these",
    "connector": "for Kafka Connect",
}


class CheckedStatement(msgspec.Struct, frozen=True):
    """A line of `--json`."""

    file: str
    line: int
    status: Status
    reason: str
    statement: str


def check(
    files: Annotated[
        list[str], typer.Argument(help="Files of SQL, in the order in which they run; - is stdin.")
    ],
    *,
    avro_as_json: Annotated[
        bool,
        typer.Option(
            "--avro-as-json",
            help="Judge AVRO, JSON_SR and PROTOBUF as JSON, to see what else is in the way.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say for each statement whether it would run here, and if not, why. Needs no cluster.

    The files are judged as one session of a new cluster: each statement sees those before it, and
    a topic that none of them makes is taken to be there. The exit status is 1 if any statement is
    refused; statements about connectors do not count."""
    console = data_console()
    counts: Counter[Status] = Counter()
    for each in _checked(files, avro_as_json=avro_as_json):
        counts[each.status] += 1
        if as_json:
            print(msgspec.json.encode(each).decode())
        else:
            console.print(_line(each), highlight=False, soft_wrap=True)
    if not as_json:
        said = ", ".join(
            f"{counts[name]} {text}" for name, text in _COUNTED.items() if counts[name]
        )
        console.print(f"{counts.total()} statements: {said or 'none'}", highlight=False)
    raise typer.Exit(1 if counts["refused"] or counts["blocked"] else 0)


def _checked(files: Sequence[str], *, avro_as_json: bool) -> Iterator[CheckedStatement]:
    from standpipe.node.worker.statements.dry_run import DryRun  # a slow import

    run = DryRun(as_json=avro_as_json)
    for file in files:
        text = read_standard_input() if file == "-" else read_sql(file)
        for verdict in run.verdicts(text):
            yield _named(file, verdict)


def _named(file: str, verdict: StatementVerdict) -> CheckedStatement:
    return CheckedStatement(file, verdict.line, verdict.status, verdict.reason, verdict.statement)


def _line(checked: CheckedStatement) -> Text:
    words = " ".join(checked.statement.split())
    shown = words if len(words) <= _SHOWN_MAX else f"{words[: _SHOWN_MAX - 1]}…"
    line = Text(f"{checked.file}:{checked.line} ")
    line.append(f"{checked.status:9}", style=_STYLES.get(checked.status, "green"))
    line.append(f" {shown}")
    if checked.reason:
        line.append(f"\n    {checked.reason}", style="dim")
    return line
