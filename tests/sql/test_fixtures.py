"""Statements and what they mean, as text: every pair of tests/sql/*.sql.

A pair is a statement, `----`, and a summary of its plan or `! code line:col message`; a blank line
ends it. Lines before the statement that begin with # are prose. Sources: setup.sql.
`REWRITE=1 pytest tests/sql` records the answers anew; review the diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql import plans
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.declarations.formats import schema_text
from standpipe.sql.syntax.parser import parse

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.sql") if path.name != "setup.sql")
CONTEXT = Context(topics={"here": 2}, next_index=7)


@dataclass
class Pair:
    prose: str
    statement: str
    answer: str


def pairs(text: str) -> Iterator[Pair]:
    for block in text.strip().split("\n\n"):
        head, _, answer = block.partition("\n----\n")
        lines = head.split("\n")
        prose = [line for line in lines if line.startswith("#")]
        yield Pair("\n".join(prose), "\n".join(lines[len(prose) :]), answer)


def setup() -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for statement in parse((HERE / "setup.sql").read_text()):
        plan = analyze(statement, sources, Context(next_index=1))
        assert isinstance(plan, (plans.CreateSourcePlan, plans.CreateTableAsPlan))
        sources[plan.source.name] = plan.source
    return sources


SOURCES = setup()


def answer(statement: str) -> str:
    try:
        (parsed,) = parse(statement)
        return summary(analyze(parsed, SOURCES, CONTEXT))
    except StatementError as error:
        hint = f"\n!   {error.hint}" if error.hint else ""
        message = error.message.replace("\n\n", "\n").replace("\n", "\n!   ")
        return f"! {error.code} {error.line}:{error.column} {message}{hint}"


def summary(plan: plans.Plan) -> str:
    if isinstance(plan, plans.CreateSourcePlan):
        made = " (to be made)" if plan.create_topic else ""
        return _source(plan.source, made)
    if isinstance(plan, plans.AlterSourcePlan):
        return _source(plan.source, "")
    if isinstance(plan, plans.CreateTableAsPlan | plans.TransientPlan):
        query = plan.query
        read = "; ".join(
            f"{each.topic} as {each.view}, watermark {each.watermark_delay_ms}"
            for each in query.plan.inputs
        )
        is_made = isinstance(plan, plans.CreateTableAsPlan) and plan.create_topic
        made = _source(plan.source, " (to be made)" if is_made else "")
        text = f"{made}\n{query.query_id} reads {read}\n{query.plan.sql}"
        return f"{text}\nshows {plan.shown}" if isinstance(plan, plans.TransientPlan) else text
    if isinstance(plan, plans.PullPlan):
        return _pull(plan)
    if isinstance(plan, plans.PushPlan):
        return _push(plan)
    if isinstance(plan, plans.ExplainAssignmentPlan):
        return "assignment"
    if isinstance(plan, plans.ExplainRoutePlan):
        return f"route of {plan.pull.source.name} {list(plan.pull.keys)}"
    if isinstance(plan, plans.InsertValuesPlan):
        return f"insert into {plan.source.topic} {plan.values!r} at {plan.rowtime_ms}"
    if isinstance(plan, plans.ShowLagPlan):
        return f"lag of {'all tables' if plan.source is None else plan.source.name}"
    if isinstance(plan, plans.DescribePlan):
        return f"describe {plan.source.name} extended={plan.extended}"
    return repr(plan)


def _source(source: Source, made: str) -> str:
    text = (
        f"{source.kind} {source.name}: {schema_text(source.columns)}\n"
        f"topic {source.topic} x {source.partitions}{made}, {source.key_format} → "
        f"{source.value_format}"
    )
    if source.window:
        window = source.window
        text += (
            f"\n{window.kind} {window.size_ms} grace {window.grace_ms} keep {window.retention_ms}"
        )
    if source.timestamp_column:
        text += f"\ntime from {source.timestamp_column} {source.timestamp_format or ''}".rstrip()
    if not source.wrap_single_value:
        text += "\nsingle value not wrapped"
    if source.offset_lag_max is not None:
        text += f"\nmay trail by {source.offset_lag_max}"
    if source.is_direct:
        text += f"\nfollowed directly, as {source.table_id}, version {source.version_column or '-'}"
    if times := source.time_bounds:
        text += f"\nmay be {times[0]} ms behind, sources {times[1]}"
    return text


def _pull(plan: plans.PullPlan) -> str:
    shown = "*" if plan.projection is None else plan.projection
    bounds = [
        f"{name.removesuffix('_ms')}={value}"
        for name in plan.__struct_fields__
        if name.startswith("window_") and (value := getattr(plan, name)) is not None
    ]
    keys = "scan" if plan.is_scan else str(list(plan.keys))
    shown = "computed" if plan.cells is not None else shown
    filtered = "" if plan.where is None else " filtered"
    if plan.is_merged:
        filtered += " counted" if plan.is_count else f" in order after {plan.after}"
    if plan.key_low is not None:
        bounds.append(f"key {'>' if plan.is_low_open else '>='} {plan.key_low!r}")
    if plan.key_high is not None:
        bounds.append(f"key {'<' if plan.is_high_open else '<='} {plan.key_high!r}")
    if plan.conditions is not None:
        bounds += [
            f"and column {each.column} {each.sign} {'-' * each.is_negated}{each.literal.decode()}"
            for each in plan.conditions
        ]
        bounds.append("and nothing else")
    lines = [f"{plan.source.name} {keys}{filtered} → {shown}", plan.schema, " ".join(bounds)]
    lines.append("" if plan.limit is None else f"limit {plan.limit}")
    return "\n".join(line for line in lines if line)


def _push(plan: plans.PushPlan) -> str:
    keys = [name for name, key in zip(plan.column_names, plan.key_cells, strict=True) if key]
    filtered = "" if plan.where is None else " filtered, may leave" if plan.is_left else " filtered"
    limit = "" if plan.limit is None else f"\nlimit {plan.limit}"
    return f"push {plan.source.name}{filtered}, keys {keys}\n{plan.schema}{limit}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file(path: Path) -> None:
    found = list(pairs(path.read_text()))
    if os.environ.get("REWRITE"):
        blocks = [
            "\n".join(filter(None, (pair.prose, pair.statement)))
            + f"\n----\n{answer(pair.statement)}"
            for pair in found
        ]
        path.write_text("\n\n".join(blocks) + "\n")
        return
    for pair in found:
        assert answer(pair.statement) == pair.answer, pair.statement
