"""Where a query begins in its topics."""

from __future__ import annotations

import json

from standpipe.pipeline.io.kafka_options import starting_offsets


def test_where_a_query_begins() -> None:
    assert starting_offsets("s", None) == "earliest"
    assert json.loads(starting_offsets("s", {0: 5, 1: 0})) == {"s": {"0": 5, "1": 0}}
