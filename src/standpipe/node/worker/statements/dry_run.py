"""Would these statements run? The judgement of a node, without a node: `standpipe check`.

Each statement is judged by the functions that POST /ksql, /query and /query-stream use
(`judge.py`), against the catalog that the accepted ones before it would make. Unlike a request, a
text is not ended by the first refusal. A topic that no statement makes is taken to be there.

Not here: whether Spark accepts the plan, which is known only where a pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

import msgspec

from standpipe.control.ddl import passed_over
from standpipe.control.ddl.limits import DEFAULT_LIMITS
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.errors import SqlSyntaxError, StandpipeError, StatementError
from standpipe.node.worker.statements.judge import RequestSession, after, judge
from standpipe.sql.declarations.properties import (
    FORMATS_REFUSED,
    REGISTRY_FORMATS,
    REGISTRY_KEYS,
)
from standpipe.sql.expressions.statement_values import StatementValues, in_text, in_tree
from standpipe.sql.syntax import ast, parser, variables
from standpipe.sql.syntax.ast_statements import (
    CreateAs,
    CreateSource,
    Elsewhere,
    Property,
    SetProperty,
    Show,
)

#: `ok`: it runs. `refused`: it does not. `blocked`: only because a refused one would have made what
#: it names. `connector`: it is about Kafka Connect, which runs beside Standpipe.
Status = Literal["ok", "refused", "blocked", "connector"]

_SCRIPT: Final = re.compile(r"RUN\s+SCRIPT\b", re.IGNORECASE)
#: how a statement begins that would make a stream or table, if it could be read
_CREATE: Final = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:SOURCE\s+)?(?:STREAM|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"(?:(?P<plain>\w+)|(?P<mark>[`\"])(?P<quoted>[^`\"]+)(?P=mark))",
    re.IGNORECASE,
)
_SCRIPT_REASON: Final = "RUN SCRIPT is a command of the prompt: check the script's file as well."
_FORMAT_KEYS: Final = frozenset({"FORMAT", "KEY_FORMAT", "VALUE_FORMAT"})
_OF_REGISTRY: Final = frozenset((*REGISTRY_FORMATS, *FORMATS_REFUSED))
_DEFAULT_FORMATS: Final = "ksql.persistence.default.format."
#: what RANDOM() and the like are: any value will do
_VALUES: Final = StatementValues(0, b"")
#: the catalog of a new cluster
_NEW: Final = msgspec.structs.replace(EMPTY, feature_level=feature_levels.NEWEST)
#: of a topic that no statement makes
_PARTITIONS: Final = 1


class StatementVerdict(msgspec.Struct, frozen=True):
    """What becomes of one statement. `line`: where it begins in the text, from 1. `reason`: why it
    is refused, or a warning if it is not. `makes`: the stream or table that it is to make, or "".
    `names`: those that it reads, writes or shows."""

    line: int
    statement: str
    status: Status
    reason: str = ""
    makes: str = ""
    names: frozenset[str] = frozenset()


class _Topics(Mapping[str, int]):
    """Topics that statements make, and any other that one expects to be there (`assumed`)."""

    def __init__(self, known: Mapping[str, int], assumed: set[str]) -> None:
        self._known, self._assumed = known, assumed

    def __getitem__(self, name: str) -> int:
        if name not in self._known:
            self._assumed.add(name)
        return self._known.get(name, _PARTITIONS)

    def get(self, key: str, default: object = None) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A look that does not expect the topic: the one that PARTITIONS would make."""
        return self._known.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass
class DryRun:
    """Texts one after another, as in one session of the prompt.

    `as_json`: formats that need a schema registry are judged as JSON, to see what else a text has.
    """

    as_json: bool = False
    _catalog: Catalog = field(default_factory=lambda: _NEW)
    _session: RequestSession = field(default_factory=lambda: RequestSession({}, {}))
    #: sources that are not there because the statements that make them were refused
    _missing: set[str] = field(default_factory=set[str])
    #: topics that statements expected to be there
    _assumed: set[str] = field(default_factory=set[str])

    def verdicts(self, text: str) -> Iterator[StatementVerdict]:
        """One for each statement, in order."""
        line = 0
        for piece in variables.split(text):
            yield from self._of("\n" * line + piece)
            line += piece.count("\n")

    def _of(self, text: str) -> Iterator[StatementVerdict]:
        is_on = variables.substitutes(self._session.properties)
        try:
            parsed = variables.parse(text, self._session.variables, is_on=is_on)
        except StandpipeError as error:
            verdict = _unparsed(text, error)
            self._lacks(verdict.makes)
            yield verdict
            return
        for statement in parsed:
            yield self._verdict(statement)

    def _verdict(self, statement: ast.Statement) -> StatementVerdict:
        line, text = statement.at.line, statement.text
        is_connect = isinstance(statement, Elsewhere) and statement.what != "ASSERT SCHEMA"
        if is_connect or (isinstance(statement, Show) and "CONNECTOR" in statement.what):
            return StatementVerdict(line, text, "connector", "Run Kafka Connect beside Standpipe.")
        creates = isinstance(statement, (CreateSource, CreateAs))
        makes, names = statement.creation.name if creates else "", _named(statement)
        needs = sorted(self._missing & names)
        status: Status = "ok"
        reason = ""
        try:
            before = self._catalog
            self._carry_out(_as_json(statement) if self.as_json else statement)
            self._missing.discard(makes)
            made = self._catalog.sources.get(makes)
            if made is not None and made is not before.sources.get(makes):
                reason = " ".join(passed_over.warnings(made, before))
        except StandpipeError as error:
            self._lacks(makes)
            status, reason = "refused", _reason(error)
            if needs:
                status = "blocked"
                reason = f"It needs {', '.join(needs)}, which a refused statement was to make."
        return StatementVerdict(line, text, status, reason, makes, names)

    def _lacks(self, made: str) -> None:
        """Note that the statement which was to make it is refused."""
        if made and made not in self._catalog.sources:
            self._missing.add(made)

    def _carry_out(self, statement: ast.Statement) -> None:
        statement = in_tree(statement, _VALUES)
        if isinstance(statement, ast.Query) and statement.emit is None:
            above = "\n" * (statement.at.line - 1)  # so that positions stay
            statement = parser.parse(above + in_text(statement.text, _VALUES))[0]
        known = {
            source.topic: source.partitions
            for source in self._catalog.sources.values()
            if source.topic not in self._assumed  # how many partitions these have is not known
        }
        topics = cast("Mapping[str, int]", _Topics(known, self._assumed))
        judged = judge(statement, self._catalog, self._session, topics)
        self._catalog = after(judged, self._catalog, DEFAULT_LIMITS)
        self._session = self._session.after(judged.plan)


def _unparsed(text: str, error: StandpipeError) -> StatementVerdict:
    """Of a text that is no statement; blank lines and comments may stand before it."""
    written = (error.statement if isinstance(error, StatementError) else "") or text.strip()
    line = text.count("\n", 0, max(0, text.find(written))) + 1
    if _SCRIPT.match(written):
        return StatementVerdict(line, written, "refused", _SCRIPT_REASON)
    found = _CREATE.match(written)
    makes = found["plain"].upper() if found and found["plain"] else found["quoted"] if found else ""
    return StatementVerdict(line, written, "refused", _reason(error), makes)


def _reason(error: StandpipeError) -> str:
    """One line: what is wrong, where, and the hint."""
    if isinstance(error, SqlSyntaxError):
        return error.message.splitlines()[-1] + (f". {error.hint}" if error.hint else "")
    message = " ".join(error.message.split())
    hint = error.hint if isinstance(error, StatementError) else ""
    return f"{message} {hint}".strip() if hint and hint not in message else message


def _named(statement: ast.Statement) -> frozenset[str]:
    """The sources that a statement reads, writes or shows."""
    names: set[str] = set()
    for node, _ in ast.walk(statement):
        if isinstance(node, ast.Relation):
            names.add(node.name)
    target = getattr(statement, "target", None) or getattr(statement, "name", None)
    return frozenset(names | ({target} if isinstance(target, str) else set()))


def _as_json(statement: ast.Statement) -> ast.Statement:
    """The statement with JSON in place of formats that need a schema registry."""

    def change(node: object) -> object:
        if isinstance(node, Property) and node.name in _FORMAT_KEYS and _needs_registry(node.value):
            return Property(node.at, node.name, _json(node.value))
        return None

    if isinstance(statement, SetProperty) and statement.name.startswith(_DEFAULT_FORMATS):
        is_other = (statement.value or "").upper() in _OF_REGISTRY
        return replace(statement, value="JSON") if is_other else statement
    if isinstance(statement, (CreateSource, CreateAs)):  # JSON has nothing of a registry
        kept = tuple(each for each in statement.properties if not _is_of_registry(each.name))
        statement = replace(statement, properties=kept)
    return cast("ast.Statement", ast.rewritten(statement, change))


def _is_of_registry(name: str) -> bool:
    return name in REGISTRY_KEYS


def _needs_registry(value: ast.LiteralValue) -> bool:
    return str(value.value).upper() in _OF_REGISTRY


def _json(value: ast.LiteralValue) -> ast.LiteralValue:
    return ast.LiteralValue(value.at, "STRING", "JSON", "'JSON'")
