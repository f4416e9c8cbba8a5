"""The URL of SQLAlchemy's dialect. With real nodes: tests/e2e/test_client_sql.py."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from standpipe.client.sqlalchemy_dialect import StandpipeDialect


@pytest.mark.parametrize(
    ("url", "nodes", "options"),
    [
        ("standpipe://n1", ["n1:8088"], {}),
        ("standpipe://n1:1?nodes=n2:2,n3:3", ["n1:1", "n2:2", "n3:3"], {}),
        (
            "standpipe://n1:1?timeout_s=2&patience_s=0.1",
            ["n1:1"],
            {"timeout_s": 2, "patience_s": 0.1},
        ),
        ("standpipe://n1:1?lag_records_max=0", ["n1:1"], {"lag_records_max": 0}),
        ("standpipe://n1:1?finds_members=false", ["n1:1"], {"finds_members": False}),
        ("standpipe://n1:1?consistency=snapshot", ["n1:1"], {"consistency": "snapshot"}),
        ("standpipe://n1:1?session=true", ["n1:1"], {"session": True}),
        (
            "standpipe://n1:1?nodes=n2:2&ca=/etc/ca.pem",
            ["https://n1:1", "https://n2:2"],
            {"ca": "/etc/ca.pem"},
        ),
    ],
)
def test_what_a_url_says(url: str, nodes: list[str], options: dict[str, Any]) -> None:
    assert StandpipeDialect().create_connect_args(make_url(url)) == ([nodes], options)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("timeout=5", "unknown option timeout; it may have nodes, timeout_s, "),
        ("timeout_s=soon", "timeout_s=soon in the URL cannot be read"),
        ("finds_members=perhaps", "finds_members=perhaps in the URL cannot be read"),
        ("timeout_s=1&timeout_s=2", "in the URL cannot be read"),
    ],
)
def test_what_it_cannot_say(query: str, words: str) -> None:
    with pytest.raises(exc.ArgumentError, match=words):
        StandpipeDialect().create_connect_args(make_url(f"standpipe://n1?{query}"))
