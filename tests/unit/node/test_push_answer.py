"""Where a push query starts; what goes on from there is tested with a real Kafka."""

from __future__ import annotations

import pytest

from standpipe.errors import BadRequest
from standpipe.node.push_answer import new_query_id, starts_at_end


@pytest.mark.parametrize(
    ("properties", "at_end", "why"),
    [
        ({}, True, "ksqlDB's default for push queries"),
        ({"auto.offset.reset": "Latest"}, True, "said"),
        ({"auto.offset.reset": "earliest"}, False, "said"),
        ({"ksql.streams.auto.offset.reset": "earliest"}, False, "its long name"),
    ],
)
def test_starts_at_end(properties: dict[str, str], at_end: bool, why: str) -> None:
    assert starts_at_end(properties) is at_end, why


def test_no_other_start() -> None:
    with pytest.raises(BadRequest, match="earliest or latest"):
        starts_at_end({"auto.offset.reset": "none"})


def test_ids_are_names_of_files() -> None:
    """Whatever the source is called."""
    one, two = new_query_id("../Ä" * 200), new_query_id("../Ä" * 200)
    assert one != two
    assert "/" not in one
    assert len(one) < 120
