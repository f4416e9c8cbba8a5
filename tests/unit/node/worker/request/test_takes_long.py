"""Which plans are left to a heavy worker."""

from __future__ import annotations

import pytest
from tests.samples import sample_stream, sample_table

from standpipe.node.worker.request.takes_long import TakesLong, refuse_long
from standpipe.sql.lookup.plan_cache import PlanCache

PLANS = PlanCache(
    {
        "USERS": sample_table(name="USERS", is_materialized=True),
        "EVENTS": sample_stream(name="EVENTS"),
    }
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT * FROM USERS;", "a scan"),
        ("SELECT * FROM USERS LIMIT 1;", "rows that a filter leaves out are read, too"),
        ("SELECT COUNT(*) FROM USERS;", "it reads all rows"),
        ("SELECT REPLACE(K, 'a', 'b') FROM USERS WHERE K = 'a';", "a text of any length"),
        ("SELECT * FROM USERS WHERE K = 'a' AND K LIKE '%b%';", "a pattern"),
        ("SELECT * FROM EVENTS;", "a topic is read"),
    ],
)
def test_long_ones(text: str, why: str) -> None:
    with pytest.raises(TakesLong):
        refuse_long(PLANS.plan(text, {}))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM USERS WHERE K = 'a';",
        "SELECT * FROM USERS WHERE K IN ('a', 'b', 'c');",
        "SELECT K, ROWTIME FROM USERS WHERE K = 'a' LIMIT 1;",
    ],
)
def test_lookups(text: str) -> None:
    refuse_long(PLANS.plan(text, {}))
