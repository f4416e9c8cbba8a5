"""Plans as they were stored by every version: one file each in `stored_plans/`, never changed.

A plan is stored with its statement and outlives the program that made it: its checkpoint holds
state of just these operators. So each must still be read, mean the same, and name nothing that is
not there any more. `REWRITE=1 pytest tests/sql/test_stored_plans.py` adds files for what today's
translation makes of STATEMENTS; a file that is there stays as it is. (Whether Spark still takes
them: tests/e2e/test_stored_plans_on_spark.py.)
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.sql.test_fixtures import SOURCES

from standpipe.data.operators.keyed import OPERATORS
from standpipe.model import SparkPlan
from standpipe.sql import plans
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.spark.to_spark import STEPS_VERSION
from standpipe.sql.syntax.parser import parse

FOLDER: Final = Path(__file__).with_name("stored_plans")
FILES: Final = sorted(FOLDER.glob("*.json"))

#: a statement of each shape of plan, under the name of its files
STATEMENTS: Final = {
    "group_by": "CREATE TABLE T AS SELECT TAIL, COUNT(*) AS N FROM FLIGHTS GROUP BY TAIL;",
    "having": (
        "CREATE TABLE T AS SELECT CARRIER, SUM(SEATS) AS N, LATEST_BY_OFFSET(DELAY) AS D"
        " FROM FLIGHTS WHERE DELAY > 1 GROUP BY CARRIER HAVING COUNT(*) > 1;"
    ),
    "tumbling": (
        "CREATE TABLE T AS SELECT CARRIER, COUNT(*) AS N FROM FLIGHTS"
        " WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CARRIER;"
    ),
    "hopping": (
        "CREATE TABLE T AS SELECT CARRIER, COUNT(*) AS N FROM FLIGHTS WINDOW HOPPING"
        " (SIZE 1 HOUR, ADVANCE BY 10 MINUTES, GRACE PERIOD 1 MINUTE) GROUP BY CARRIER;"
    ),
    "final": (
        "CREATE TABLE T AS SELECT CARRIER, COUNT(*) AS N FROM FLIGHTS"
        " WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 0 SECONDS) GROUP BY CARRIER EMIT FINAL;"
    ),
    "session": (
        "CREATE TABLE T AS SELECT CARRIER, COUNT(*) AS N FROM FLIGHTS"
        " WINDOW SESSION (5 MINUTES) GROUP BY CARRIER;"
    ),
    "rows": "CREATE STREAM T AS SELECT TAIL, MILES + 1 AS M FROM FLIGHTS WHERE SEATS > 100;",
    "explode": "CREATE STREAM T AS SELECT TAIL, EXPLODE(TAGS) AS G FROM FLIGHTS;",
    "table_group_by": "CREATE TABLE T AS SELECT MAKER, COUNT(*) AS N FROM PLANES GROUP BY MAKER;",
    "stream_table": (
        "CREATE STREAM T AS SELECT F.TAIL, F.DELAY, P.MAKER FROM FLIGHTS F"
        " LEFT JOIN PLANES P ON F.TAIL = P.TAIL;"
    ),
    "stream_stream": (
        "CREATE STREAM T AS SELECT A.TAIL, A.DELAY, B.SEATS FROM FLIGHTS A"
        " JOIN DEPARTURES B WITHIN 1 HOUR ON A.TAIL = B.TAIL;"
    ),
    "stream_stream_left": (
        "CREATE STREAM T AS SELECT A.TAIL, A.DELAY, B.SEATS FROM FLIGHTS A"
        " LEFT JOIN DEPARTURES B WITHIN 1 HOUR ON A.TAIL = B.TAIL;"
    ),
    "stream_table_positions": (
        "CREATE STREAM T AS SELECT F.TAIL, F.ROWOFFSET AS A, P.ROWPARTITION AS B FROM FLIGHTS F"
        " JOIN PLANES P ON F.TAIL = P.TAIL;"
    ),
    "tables": (
        "CREATE TABLE T AS SELECT P.TAIL, P.MAKER, B.N FROM PLANES P"
        " JOIN BY_TAIL B ON P.TAIL = B.TAIL;"
    ),
    "foreign_key": (
        "CREATE TABLE T AS SELECT B.TAIL, B.N, P.MAKER FROM BY_TAIL B"
        " JOIN BY_SEATS P ON CAST(B.N AS INT) = P.SEATS;"
    ).replace("P.MAKER", "P.N AS M"),
}


def _made(statement: str) -> SparkPlan:
    (parsed,) = parse(statement)
    plan = analyze(parsed, SOURCES, Context(next_index=7))
    assert isinstance(plan, plans.CreateTableAsPlan)
    return plan.query.plan


def _encoded(plan: SparkPlan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


@pytest.mark.parametrize("name", STATEMENTS)
def test_todays_plan_is_on_record(name: str) -> None:
    data = _encoded(_made(STATEMENTS[name]))
    path = FOLDER / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    if os.environ.get("REWRITE") and not path.exists():
        path.write_bytes(data)
    assert path.exists(), "the translation changed: REWRITE=1 records it beside the older ones"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_plan_is_read_as_it_was_written(path: Path) -> None:
    data = path.read_bytes()
    plan = msgspec.json.decode(data, type=SparkPlan)
    assert msgspec.json.decode(_encoded(plan)) == {
        **msgspec.json.decode(_encoded(plan)),
        **msgspec.json.decode(data),
    }, "a field of the file is lost or changed"
    assert plan.version <= STEPS_VERSION
    assert {step.operator for step in plan.steps} <= OPERATORS.keys()
    assert hashlib.sha256(data).hexdigest()[:8] == path.stem[-8:], "a stored plan was edited"
