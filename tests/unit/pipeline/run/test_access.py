"""Missing ACLs in what Spark says. Real ones: tests/e2e/test_secured_kafka.py."""

from types import SimpleNamespace
from typing import Any

import pytest

from standpipe.pipeline.run.access import missing_acl

TOPIC = "…errors.TopicAuthorizationException: Not authorized to access topics: "
GROUP = "…errors.GroupAuthorizationException: Not authorized to access group: "


@pytest.mark.parametrize(
    ("message", "acl", "why"),
    [
        (
            f"{TOPIC}[in]",
            "Read on topic in",
            "a source",
        ),
        (
            f"{TOPIC}[out]",
            "Write on topic out",
            "the table",
        ),
        (
            f"{TOPIC}[public]",
            "Write on topic public",
            "its copy",
        ),
        (
            f"{GROUP}spark-1",
            "Read on group spark-1",
            "a group",
        ),
        ("java.io.IOException: No space left on device", "", "something else"),
    ],
)
def test_what_to_grant(message: str, acl: str, why: str) -> None:
    wanted: Any = SimpleNamespace(table=SimpleNamespace(topic="out"), published_topic="public")
    found = missing_acl(message, [wanted], lambda: "b:1")
    assert found == "" if not acl else f"User:ANONYMOUS has no right to {acl}." in found, why
