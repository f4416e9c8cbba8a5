"""What of a statement would reach Spark, read as Spark would read it.

Literals and quoted names are cut out of a plan, and every word that is left must be one that our
templates use. Not here: Spark itself (tests/e2e).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from standpipe.errors import StandpipeError
from standpipe.model import Source, SparkPlan
from standpipe.sql import plans
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.functions import registry
from standpipe.sql.syntax.parser import parse

SETUP = (Path(__file__).parent / "setup.sql").read_text()


def setup() -> dict[str, Source]:
    known: dict[str, Source] = {}
    for statement in parse(SETUP):
        plan = analyze(statement, known, Context(next_index=1))
        assert isinstance(plan, (plans.CreateSourcePlan, plans.CreateTableAsPlan))
        known[plan.source.name] = plan.source
    return known


SOURCES = setup()
_LITERALS = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|X'[0-9a-f]*'")
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: words of the emitter's own text, beside those in the functions' templates
_OWN_TEXT = """
SELECT FROM AS WHERE IS NOT NULL GROUP BY AND OR IN LIKE ESCAPE CASE WHEN THEN ELSE END
EXCEPT JOIN ON UNION ALL FILTER INTERVAL SECOND TRUE FALSE CAST COALESCE DIV WINDOW
START UNIX_MILLIS MAX MAX_BY STRUCT ARRAY MAP NAMED_STRUCT EXPLODE ARRAYS_ZIP GREATEST
IF CONCAT ELEMENT_AT TRY_ELEMENT_AT DATE_FROM_UNIX_DATE TIMESTAMP_MILLIS TO_TIMESTAMP
TRANSFORM MAP_FILTER AGGREGATE MAP_ENTRIES MAP_FROM_ENTRIES KEY VALUE BIGINT INT STRING
DOUBLE DECIMAL BOOLEAN BINARY DATE TIMESTAMP D L BD M NOTHING STANDPIPE_LIKE STANDPIPE_STREAM_TIME
BOOL_OR CROSS SORT
"""
_OWN = frozenset(_OWN_TEXT.split())
_TEMPLATES = {
    word.upper()
    for name in registry.names()
    for variant in registry.variants(name)
    for word in _WORDS.findall(_LITERALS.sub("", f"{variant.template} {variant.size}"))
}


def reached(statement: str) -> Iterator[SparkPlan]:
    """The plans that a request would hand to Spark; refusals hand over none."""
    known = dict(SOURCES)
    try:
        for parsed in parse(statement):
            plan = analyze(parsed, known, Context(topics={"here": 2}, next_index=7))
            if isinstance(plan, plans.CreateSourcePlan):
                known[plan.source.name] = plan.source
            elif isinstance(plan, plans.CreateTableAsPlan):
                yield plan.query.plan
    except StandpipeError:
        return


def strangers(plan: SparkPlan) -> set[str]:
    """Words outside of literals and quoted names that no template of ours has."""
    found: set[str] = set()
    for sql in texts(plan):
        text = _LITERALS.sub(" ", sql)
        assert "${" not in sql, "spark.sql would substitute"
        assert ";" not in text
        assert "--" not in text
        found |= {word.upper() for word in _WORDS.findall(text)}
    return found - _OWN - _TEMPLATES


def texts(plan: SparkPlan) -> list[str]:
    """All that Spark runs of a plan."""
    return [plan.sql, plan.batch_sql or "", *(step.sql for step in plan.steps)]
