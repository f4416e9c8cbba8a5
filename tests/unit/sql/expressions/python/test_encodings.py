"""Parts of URLs, as java.net.URI gives them to ksqlDB's UrlParser, and BYTES as text."""

from __future__ import annotations

import pytest

from standpipe.sql.expressions.python.encodings import FUNCTIONS, to_bytes

URL = "https://me@shop.example:8443/a%20b/c+d?item=1%262&q&empty=&plus=a+b&q=2#x%23y"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("PROTOCOL", "https"),
        ("HOST", "shop.example"),
        ("PORT", 8443),
        ("PATH", "/a b/c+d"),
        ("QUERY", "item=1&2&q&empty=&plus=a+b&q=2"),
        ("FRAGMENT", "x#y"),
    ],
)
def test_escapes_are_decoded_and_plus_is_itself(part: str, value: object) -> None:
    assert FUNCTIONS[f"URL_EXTRACT_{part}"].compute(URL) == value


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("q", "", "the first of its name, without a value"),
        ("empty", "", ""),
        ("plus", "a+b", "no form encoding here"),
        ("item", "1", "the escaped & is decoded before pairs are told apart, as in ksqlDB"),
        ("2", "", "so it begins another pair"),
        ("other", None, ""),
    ],
)
def test_a_parameter(name: str, value: str | None, why: str) -> None:
    assert FUNCTIONS["URL_EXTRACT_PARAMETER"].compute(URL, name) == value, why


def test_a_url_without_a_query_has_no_parameter() -> None:
    found = FUNCTIONS["URL_EXTRACT_PARAMETER"].compute
    assert found("http://a.example/", "") is None
    assert found("no url at all", "q") is None


@pytest.mark.parametrize(
    ("text", "data"),
    [("YQ==", b"a"), ("YQ", b"a"), ("", b""), ("YQ=", None), ("Y", None), ("YQ é", None)],
)
def test_encodings_take_base64_as_java_does(text: str, data: bytes | None) -> None:
    """Padding may be left out, as Spark and CAST have it: a pull query made NULL of it."""
    assert to_bytes(text, "BASE64") == data
