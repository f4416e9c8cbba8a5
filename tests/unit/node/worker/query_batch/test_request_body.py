"""Bodies of /query-batch: which tables and keys they may name, and the statements for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.node.workers import USERS

from standpipe.control.routing.bounds import AskedBounds
from standpipe.data.query.partition_keys import PartitionKeys
from standpipe.errors import BadRequest
from standpipe.model import Column, Source, Window
from standpipe.node.worker.query_batch import request_body
from standpipe.session_token import LEVEL_PROPERTY
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.lookup.template import KEYS_MAX
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.limits import TEXT_CHARS_MAX

HOUR_MS = 3_600_000
HOURLY = Window(
    kind="TUMBLING", size_ms=HOUR_MS, advance_ms=HOUR_MS, grace_ms=0, retention_ms=HOUR_MS
)
parser.parse("SHOW TABLES;")  # its tables are made once, which takes longer than an example may


def with_key(*types: str) -> Source:
    keys = [Column(name=f"K{n}", type=of, is_key=True) for n, of in enumerate(types)]
    return replace(USERS, columns=(*keys, *USERS.columns[1:]))


@pytest.mark.parametrize("place", ["properties", "streamsProperties"])
def test_a_batch_has_no_session(place: str) -> None:
    """Nor is it ignored beside properties of the other spelling."""
    other = "streamsProperties" if place == "properties" else "properties"
    asked = {"table": "T", "keys": [], place: {LEVEL_PROPERTY: "session"}, other: {"max.x": "1"}}
    with pytest.raises(BadRequest, match="read level session"):
        request_body.parse_batch(json.dumps(asked).encode())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (replace(USERS, window=HOURLY), "is windowed"),
        (replace(USERS, kind="STREAM"), "is a stream"),
        (with_key("STRING", "STRING"), "(K0 STRING, K1 STRING)"),
        (with_key("DOUBLE"), "(K0 DOUBLE)"),
        (with_key(), "()"),
    ],
)
def test_which_tables_a_batch_cannot_read(source: Source, why: str) -> None:
    with pytest.raises(BadRequest, match="Use /query") as refused:
        request_body.sample(source)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "key", "is_key"),
    [
        ("STRING", "", True),
        ("STRING", "x" * request_body.KEY_CHARACTERS_MAX, True),
        ("STRING", "x" * (request_body.KEY_CHARACTERS_MAX + 1), False),
        ("STRING", 1, False),
        ("BIGINT", "1", False),
        ("BIGINT", 2**63 - 1, True),
        ("BIGINT", 2**63, False),
        ("BIGINT", -(2**63), True),
        ("BIGINT", -(2**63) - 1, False),
        ("INTEGER", 2**31 - 1, True),
        ("INTEGER", -(2**31), True),
        ("INTEGER", 2**31, False),
    ],
)
def test_which_keys_fit_the_column(type_: str, key: str | int, is_key: bool) -> None:
    source = with_key(type_)
    good: list[str | int] = ["a"] if type_ == "STRING" else [1]
    request_body.check_keys(source, good)
    if is_key:
        request_body.check_keys(source, [*good, key])
    else:
        with pytest.raises(BadRequest, match=r"keys\[1\]"):
            request_body.check_keys(source, [*good, key])


KEYS = {
    "STRING": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
}


@given(
    st.sampled_from(sorted(KEYS)).flatmap(
        lambda of: st.tuples(st.just(of), st.lists(KEYS[of], min_size=1, max_size=9, unique=True))
    ),
    st.sampled_from(["USERS", "users", "SELECT", "a`b", "A B"]),
)
def test_a_statement_asks_for_its_keys(asked: tuple[str, list[object]], name: str) -> None:
    """As parser and analyser read it, whatever stands in names and keys."""
    type_, keys = asked
    source = replace(with_key(type_), name=name)
    plan = PlanCache({name: source}).plan(request_body.statement(source, keys), {})  # type: ignore[arg-type]
    assert plan.source == source
    assert plan.keys == tuple((key,) for key in keys)
    assert plan.projection is None


@given(st.lists(st.text("a'", max_size=30), max_size=60), st.integers(1, 20), st.integers(1, 99))
def test_slices_are_all_keys_in_order(texts: list[str], keys_max: int, size_max: int) -> None:
    keys = [(text,) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_body, "STATEMENT_KEYS_MAX", keys_max)
        patch.setattr(request_body, "STATEMENT_CHARACTERS_MAX", size_max)
        parts = [keys[each] for each in request_body.slices(PartitionKeys(keys))]
    assert [key for part in parts for key in part] == keys
    assert all(0 < len(part) <= keys_max for part in parts)
    for part in parts:
        size = sum(len(text.replace("'", "''")) + 4 for (text,) in part)
        assert len(part) == 1 or size <= size_max


def test_a_statement_is_one_that_nodes_take() -> None:
    """Its longest has room for the longest key and the longest names."""
    assert request_body.STATEMENT_KEYS_MAX <= KEYS_MAX
    longest = 2 * request_body.KEY_CHARACTERS_MAX + request_body.STATEMENT_CHARACTERS_MAX
    assert longest + 3000 < TEXT_CHARS_MAX


def test_what_a_body_says() -> None:
    body = {"table": "t", "keys": ["a", 1], "streamsProperties": {"acceptable.offset.lag": "5"}}
    found = request_body.parse_batch(json.dumps(body).encode())
    assert found == ("t", ["a", 1], {"acceptable.offset.lag": "5"}, AskedBounds(5), False)
    forwarded = json.loads(request_body.body_of("SELECT", found.properties))
    assert forwarded == {"ksql": "SELECT", "streamsProperties": {"acceptable.offset.lag": "5"}}


def test_a_forwarded_body_names_the_level_only_if_it_is_not_the_usual_one() -> None:
    """A peer of an older release may not know the property."""
    for level, sent in (("eventual", {}), ("snapshot", {LEVEL_PROPERTY: "snapshot"})):
        given = {LEVEL_PROPERTY: level, "standpipe.consistency": "local"}
        assert json.loads(request_body.body_of("S;", given)) == {
            "ksql": "S;",
            "streamsProperties": sent,
        }
