"""Direct tables against a catalog, from the text to the command."""

from __future__ import annotations

import pytest
from tests.unit.control.ddl.test_propose import after, asked

from standpipe.control.ddl.propose import judge
from standpipe.errors import StatementError

DIRECT = (
    "CREATE SOURCE TABLE {} (ID STRING PRIMARY KEY, V INT)"
    " WITH (KAFKA_TOPIC='{}', VALUE_FORMAT='JSON', APPLY='DIRECT');"
)
TOPICS = {"here": 2, "BY_ID": 4}
WRITTEN = after(
    "CREATE STREAM S (ID STRING KEY, V INT)"
    " WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=4);",
    "CREATE TABLE BY_ID AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;",
)


def test_not_over_the_topic_of_a_query() -> None:
    with pytest.raises(StatementError) as refused:
        judge(asked(DIRECT.format("D", "BY_ID")), WRITTEN, TOPICS)
    assert "would show what is not committed. Read BY_ID instead." in refused.value.message


def test_refused_until_nodes_can_apply_it() -> None:
    with pytest.raises(StatementError, match="not supported yet"):
        judge(asked(DIRECT.format("D", "here")), WRITTEN, TOPICS)
