"""Every scalar function, by Spark and by our evaluator: the same values, the same results?

Expressions are made from the registry: each variant of each function, over columns and over
literals. All rows are one inline table, so Spark computes a chunk of expressions while it plans,
without a job and without compiling code: hundreds of expressions take seconds.

    python -m tests.e2e.both_ways [--only NAME] [--literals N]     all of it: `make functions`
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.e2e import both_breaking, both_failing, both_lambdas, both_times, both_values
from tests.e2e.both_values import KINDS, ROWS, Kind

from standpipe.errors import NotComputable, StatementError
from standpipe.pipeline.run.start import session_functions
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.functions import registry
from standpipe.sql.functions.signature import Function
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.plans import CreateSourcePlan
from standpipe.sql.spark.expression_sql import expression_sql
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.parser import parse
from standpipe.sql.types.types import SqlType

#: Expressions of one query of Spark's
CHUNK: Final = 120
#: results that are random, if there is no argument
_UNLIKE: Final = frozenset({"RANDOM", "UUID"})


@dataclass(frozen=True, slots=True)
class Trial:
    """One expression. `about`: what is tried, for example ``ABS(INTEGER)``; `text`: ksqlDB's SQL;
    `rows`: the rows that it is computed for, by index."""

    about: str
    text: str
    rows: tuple[int, ...]


#: text, the columns that it names, Spark's result, ours
Difference = tuple[str, dict[str, object], object, object]


@dataclass(slots=True)
class Result:
    """`pairs`: results that were compared. `differences`: by `Trial.about`."""

    pairs: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    missing: set[str] = field(default_factory=set[str])
    differences: dict[str, list[Difference]] = field(default_factory=dict[str, list[Difference]])


# ------------------------------------------------------------------------------- what is tried


def trials(literals: int, only: str | None = None) -> list[Trial]:
    """Trials of all functions, operators and conversions. `literals`: how many of each have
    literals in place of columns."""
    chance = random.Random(20)
    made: list[Trial] = []
    for about, template, kinds in _shapes():
        if only is not None and only not in about:
            continue
        if not kinds:
            made.append(Trial(about, template, (0,)))
            continue
        made.append(_over_columns(about, template, kinds))
        for row in chance.sample(range(ROWS), literals):
            written = _over_literals(about, template, kinds, row)
            if written is not None:
                made.append(written)
    return made


Shape = tuple[str, str, tuple[Kind, ...]]


def _shapes() -> Iterator[Shape]:
    """(about, text with {0} {1} …, kinds of the arguments)."""
    yield from both_values.operators()
    yield from both_lambdas.calls()
    yield from both_failing.expressions()
    yield from both_times.calls()
    for name in registry.names():
        if registry.is_aggregate(name) or registry.is_table_function(name):
            continue
        for variant in registry.variants(name):
            if variant.parameters or name not in _UNLIKE:
                yield from _calls(variant)


def _calls(variant: Function) -> Iterator[Shape]:
    for kinds in both_values.kinds_of(variant):
        listed = ", ".join(f"{{{n}}}" for n in range(len(kinds)))
        about = f"{variant.name}({', '.join(map(str, (kind.type for kind in kinds)))})"
        yield about, f"{variant.name}({listed})", kinds


def _over_columns(about: str, template: str, kinds: Sequence[Kind]) -> Trial:
    used: Counter[str] = Counter()
    names: list[str] = []
    for kind in kinds:
        names.append(f"{kind.name}_{used[kind.name]}")
        used[kind.name] += 1
    return Trial(about, template.format(*names), tuple(range(ROWS)))


def _over_literals(about: str, template: str, kinds: Sequence[Kind], row: int) -> Trial | None:
    used: Counter[str] = Counter()
    written: list[str] = []
    for kind in kinds:
        value = both_values.value(kind, used[kind.name], row)
        used[kind.name] += 1
        text = both_values.literal(value, kind.type)
        if text is None:
            return None
        written.append(text)
    return Trial(f"{about} of literals", template.format(*written), (0,))


# --------------------------------------------------------------------------------- both results


def _names() -> PullNames:
    """All columns, as those of one stream."""
    (statement,) = parse(
        "CREATE STREAM S (K INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    plan = analyze(statement, {}, Context(next_index=1))
    assert isinstance(plan, CreateSourcePlan)
    columns = [
        (f"{kind.name}_{copy}", kind.type) for kind in KINDS.values() for copy in range(kind.copies)
    ]
    return PullNames(plan.source, "S", tuple(columns), 0)


class Both:
    """Computes trials with Spark and with the evaluator, over the rows of `both_values`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.names = _names()
        self.rows = both_values.rows(self.names)
        if spark is not None:  # as a view: the rows are then parsed once
            session_functions.register(spark)
            spark.sql(both_values.table_sql()).createOrReplaceTempView("both_ways")

    def run(self, given: Sequence[Trial]) -> Result:
        """Compares all trials."""
        result = Result()
        ready: list[tuple[Trial, SqlType, str, list[object]]] = []
        for trial in given:
            node = expression(trial.text)
            try:
                typed = Typer(self.names, "SELECT").type(node)
                text = expression_sql(typed)
            except StatementError as error:
                result.refused[str(error).splitlines()[0]] += 1
                continue
            ours = self.ours(trial, node)
            if ours is None:
                result.missing.add(trial.about.partition("(")[0])
                continue
            ready.append((trial, typed.type, both_values.plain_sql(text, typed.type), ours))
        for start in range(0, len(ready), CHUNK):
            chunk = ready[start : start + CHUNK]
            for (trial, of, _, ours), spark in zip(
                chunk, self.by_spark([each[2] for each in chunk]), strict=True
            ):
                self._compare(trial, of, spark, ours, result)
        return result

    def ours(self, trial: Trial, node: ast.Expression) -> list[object] | None:
        """The evaluator's results; None if it refuses the expression by name."""
        try:
            compute = Evaluator(self.names, "SELECT").compile(node)
        except StatementError:
            return None
        return [_attempt(compute, self.rows[row]) for row in trial.rows]

    def by_spark(self, texts: Sequence[str]) -> list[list[object]]:
        """For each expression its results in all rows; what an expression raises counts as its
        result."""
        listed = ", ".join(f"{text} AS `v{n}`" for n, text in enumerate(texts))
        try:
            table = self.spark.sql(f"SELECT {listed} FROM both_ways")
            found = [row.asDict(recursive=True) for row in table.collect()]
        except (PySparkException, ValueError, OverflowError, ArithmeticError) as error:
            if len(texts) == 1:
                return [[Failure(type(error).__name__ + ": " + str(error)[:200])] * ROWS]
            half = len(texts) // 2
            return [*self.by_spark(texts[:half]), *self.by_spark(texts[half:])]
        return [[row[f"v{n}"] for row in found] for n in range(len(texts))]

    def _compare(
        self, trial: Trial, of: SqlType, spark: Sequence[object], ours: list[object], to: Result
    ) -> None:
        for place, row in enumerate(trial.rows):
            to.pairs += 1
            if not both_values.alike(spark[row], ours[place], of):
                given = {
                    name: self.rows[row][n]
                    for n, (name, _) in enumerate(self.names.row)
                    if name in trial.text
                }
                to.differences.setdefault(trial.about, []).append(
                    (trial.text, given, spark[row], ours[place])
                )


@dataclass(frozen=True, slots=True)
class Failure:
    """An expression that raised: no value equals it."""

    text: str


def _attempt(compute: Any, row: Sequence[object]) -> object:
    try:
        return compute(row)
    except NotComputable:
        return None  # Spark's is null: it cannot refuse one row
    except Exception as error:
        return Failure(repr(error))


def expression(text: str) -> ast.Expression:
    """The parsed expression."""
    (statement,) = parse(f"SELECT {text} AS V FROM S;")
    assert isinstance(statement, ast.Query)
    item: Any = statement.items[0]
    return item.expression


# ------------------------------------------------------------------------------- what may differ

#: (about, a part of the expression's text or of a value) -> why the two differ there.
#: `about` may be the beginning of what is tried.
_OLD_ZONES: Final = "years before 1900: Java and the system have different tz databases"
EXPLAINED: Final[Sequence[tuple[str, str, str]]] = (
    ("", "[-MM]", "Spark's test of a pattern out of a column knows no brackets: NULL"),
    *((name, "'CET'", _OLD_ZONES) for name in ("CONVERT_TZ", "FORMAT_TIMESTAMP", "TIMESTAMPTOSTR")),
)


def why(about: str, text: str, given: Mapping[str, object]) -> str | None:
    """Why a difference is there; None if nobody knows."""
    shown = text + repr(given)
    return next(
        (why for what, part, why in EXPLAINED if about.startswith(what) and part in shown), None
    )


def unexplained(result: Result) -> dict[str, list[Difference]]:
    """The differences without a reason."""
    left = {
        about: [each for each in found if why(about, each[0], each[1]) is None]
        for about, found in result.differences.items()
    }
    return {about: found for about, found in left.items() if found}


# ------------------------------------------------------------------------------------- all of it


def report(result: Result, *, shown: int = 8) -> str:
    """The differences that have no reason, with some samples of each."""
    lines: list[str] = []
    for about, found in sorted(unexplained(result).items()):
        lines.append(f"{about}: {len(found)} differences")
        lines += [
            f"    {text} of {given}: Spark {spark!r}, ours {ours!r}"
            for text, given, spark, ours in found[:shown]
        ]
    return "\n".join(lines)


def local_session() -> SparkSession:
    """A session of this process, set as the driver's where expressions depend on it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.maxPlanStringLength", "4096")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.caseSensitive", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
        .config("spark.sql.variant.allowDuplicateKeys", "true")
        .getOrCreate()
    )


def main() -> int:
    """Compares everything, with more literals. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a part of what is tried, such as LPAD")
    parser.add_argument("--literals", type=int, default=12, help="how many of each")
    options = parser.parse_args()
    spark = local_session()
    try:
        result = Both(spark).run(trials(options.literals, options.only))
        broken = both_breaking.not_null_in(spark) if options.only is None else []
    finally:
        spark.stop()
    print(report(result))
    print("\n".join(broken))
    explained = sum(map(len, result.differences.values()))
    unexplained_count = sum(map(len, unexplained(result).values()))
    print(
        f"{result.pairs} results compared; {explained - unexplained_count} differ for a reason,"
        f" {unexplained_count} do not; not in Python: {', '.join(sorted(result.missing))}"
    )
    if options.only is None:
        print(f"{len(both_breaking.BREAKING) - len(broken)} values that break expressions: NULL")
    return 1 if unexplained_count or broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
