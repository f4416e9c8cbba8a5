"""Media types, as a table, and arbitrary Accept headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.node.worker.request.head import ACCEPT_CHARS_MAX, Form, accepted, form_of

V1, LINES, JSON = "application/vnd.ksql.v1+json", Form.LINES.value.decode(), "application/json"


@pytest.mark.parametrize(
    ("path", "accept", "form", "why"),
    [
        (b"/query", "", Form.ARRAY, "nothing said"),
        (b"/query", "*/*", Form.ARRAY, "anything"),
        (b"/query", "application/*", Form.ARRAY, "any application type"),
        (b"/query", JSON, Form.ARRAY, "another word on the old path"),
        (b"/query", LINES, Form.LINES, "named"),
        (b"/query-stream", "", Form.LINES, "default of the new path"),
        (b"/query-stream", JSON, Form.OBJECTS, "named"),
        (b"/query-stream", f"{V1}; charset=UTF-8", Form.ARRAY, "parameters are passed over"),
        (b"/query-stream", f"{JSON};q=0.1, {V1};q=0.2", Form.ARRAY, "the best liked"),
        (b"/query-stream", f"{LINES};q=0, {JSON}", Form.OBJECTS, "q=0 forbids"),
        (b"/query-stream", "text/plain", None, "not offered"),
        (b"/query-stream", "text/plain, */*;q=0.1", Form.LINES, "at least anything"),
        (b"/query", f"{V1};q=x", None, "a quality that is no number"),
    ],
)
def test_form_of(path: bytes, accept: str, form: Form | None, why: str) -> None:
    assert form_of(path, accept) is form, why


@given(st.text(max_size=60))
def test_any_accept_header_is_survived(header: str) -> None:
    assert accepted(header, (V1, JSON)) in (None, V1, JSON)


def test_a_long_accept_header_is_not_compared_type_by_type() -> None:
    """32 KiB of commas took 0.1 s of the loop."""
    assert accepted("," * (ACCEPT_CHARS_MAX - 3) + "*/*", (V1, JSON)) == V1
    assert accepted("," * (ACCEPT_CHARS_MAX - 2) + "*/*", (V1, JSON)) is None
