"""Session tokens: a join-semilattice whose text survives the wire, and refuses everything else."""

from __future__ import annotations

from base64 import b64decode, b64encode

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from standpipe.errors import TokenRefused
from standpipe.session_scan import PushScan
from standpipe.session_token import (
    TABLES_MAX,
    TOKEN_CHARS_MAX,
    FollowedTable,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
    merged,
    written_token,
)

NUMBERS = st.integers(0, 5) | st.integers(0, 2**63 - 1)
TABLES = st.builds(TableKey, st.sampled_from(["c1", "c2"]), st.sampled_from(["T_1", "T_2", "U_9"]))
MARKS = st.builds(SeenBatch, st.integers(1, 3), NUMBERS, NUMBERS)
TOPICS = st.builds(TopicKey, st.sampled_from(["s", "t.1"]), st.sampled_from(["", "a-b_C", "d+/="]))
ENDS = st.dictionaries(st.integers(0, 3) | st.just(2**31 - 1), NUMBERS, min_size=1, max_size=3)


@st.composite
def followed_tables(draw: st.DrawFn) -> FollowedTable:
    """With one of its parts at least: an entry without numbers is none."""
    generation = draw(st.integers(1, 3))
    batches = st.none() | st.builds(SeenBatch, st.just(generation), NUMBERS, NUMBERS)
    newest, whole = draw(batches), draw(batches)
    positions = draw(ENDS if newest is whole is None else ENDS | st.just({}))
    scan = (
        PushScan.of(positions, draw(st.integers(0, 2)))
        if positions and draw(st.booleans())
        else None
    )
    return FollowedTable(generation, positions, newest, whole, scan)


#: as they are once merged: what their marks say by themselves is not said twice
TOKENS = st.builds(
    SessionToken,
    st.dictionaries(TABLES, MARKS, max_size=4),
    st.dictionaries(TOPICS, ENDS, max_size=3),
    st.dictionaries(TABLES, followed_tables(), max_size=3),
    st.dictionaries(TOPICS, ENDS, max_size=2),
).map(lambda token: token.merged())
GOLDEN = SessionToken({TableKey("c1", "SCORES_12"): SeenBatch(2, 41, 3)})


def wire(value: object) -> str:
    return b64encode(msgspec.json.encode(value)).decode()


def vector(**tables: object) -> str:
    named = {name.replace("__", ":"): seen for name, seen in tables.items()}
    return wire({"version": 0, "offsetVector": named})


@given(TOKENS, TOKENS, TOKENS)
def test_merging_is_a_join(one: SessionToken, two: SessionToken, three: SessionToken) -> None:
    both = one.merged(two)
    assert both == two.merged(one)
    assert both.merged(three) == one.merged(two.merged(three)) == one.merged(two, three)
    assert one.merged(one) == one
    assert one.merged(SessionToken()) == one
    assert both.covers(one)
    assert both.covers(two)
    for table, batch in {**one.seen, **two.seen}.items():
        assert both.seen[table].merged(batch) == both.seen[table], "no read is older"
    if three.covers(one) and three.covers(two):
        assert three.covers(both), "and it is the least one that does"


@given(TOKENS)
def test_a_text_is_read_back(token: SessionToken) -> None:
    assert SessionToken.parse(token.text()) == token
    assert merged([token.text(), ""]) == token.text()


def test_the_form_on_the_wire() -> None:
    """ksqlDB's: topics, partitions, offsets. A client of its own can merge it."""
    assert msgspec.json.decode(b64decode(GOLDEN.text())) == {
        "version": 0,
        "offsetVector": {"sp:c1:SCORES_12:2": {"-1": 41, "-2": 3}},
    }
    assert not SessionToken().text()
    token = GOLDEN.merged(written_token("clicks", {3: 41}, "x-Y_1"), written_token("t", {0: 0}))
    assert msgspec.json.decode(b64decode(token.text())) == {
        "version": 0,
        "offsetVector": {
            "sp:c1:SCORES_12:2": {"-1": 41, "-2": 3},
            "clicks@x-Y_1": {"3": 42},
            "t": {"0": 1},
        },
    }


@pytest.mark.parametrize(
    ("topic", "offsets"),
    [
        ("", {0: 1}),
        ("a b", {0: 1}),
        ("a@b", {0: 1}),
        ("t", {-1: 1}),
        ("t", {2**31: 1}),
        ("t", {0: -1}),
        ("t", {0: 2**63 - 1}),
    ],
)
def test_what_nobody_can_have_written(topic: str, offsets: dict[int, int]) -> None:
    with pytest.raises(ValueError, match=r"topic|offset"):
        written_token(topic, offsets)


def test_partitions_that_were_written_are_short() -> None:
    ends = dict.fromkeys(range(1_000), 10**9)
    text = written_token("clicks", ends, "x" * 22).text()
    assert len(text) <= 24 * len(ends)
    assert not written_token("clicks", {}).text()


def test_maxima_as_ksqldbs_clients_take_them_are_a_merge() -> None:
    """They keep both generations of a table, of which the newer one counts."""
    both = vector(sp__c1__T_1__1={"-1": 90, "-2": 4}, sp__c1__T_1__2={"-1": 3, "-2": 5})
    assert SessionToken.parse(both).marks == {TableKey("c1", "T_1"): SeenBatch(2, 3, 5)}


def test_it_is_compact() -> None:
    """One table of 1,000 partitions is as long as one of a single partition."""
    token = SessionToken({TableKey("a" * 32, "SCORES_12"): SeenBatch(1, 10**6, 10**3)})
    assert len(token.text()) <= 150


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%%%", "no base64"),
        ("é", "no ASCII"),
        (b64encode(b"\xff\xfe").decode(), "no JSON"),
        (wire([]), "no object"),
        (wire({"version": 0}), "a field is missing"),
        (wire({"version": 0, "offsetVector": {}, "more": 1}), "an unknown field"),
        (wire({"version": 1, "offsetVector": {}}), "a newer version"),
        (wire({"version": -1, "offsetVector": {}}), "no version"),
        (wire({"version": 0, "offsetVector": {"t": {}}}), "no partition"),
        (wire({"version": 0, "offsetVector": {"t": {"-1": 5}}}), "a batch of a topic"),
        (wire({"version": 0, "offsetVector": {"t": {"00": 5}}}), "another spelling"),
        (wire({"version": 0, "offsetVector": {"t": {"2147483648": 5}}}), "no partition's number"),
        (wire({"version": 0, "offsetVector": {"t": {"0": -1}}}), "no offset"),
        (wire({"version": 0, "offsetVector": {"a b": {"0": 5}}}), "no topic's name"),
        (wire({"version": 0, "offsetVector": {"t@": {"0": 5}}}), "no topic's id"),
        (vector(sp__c1__T_1={"-1": 1, "-2": 1}), "no generation"),
        (vector(sp__c1__T_1__0={"-1": 1, "-2": 1}), "generations begin at 1"),
        (vector(sp__c1__T_1__01={"-1": 1, "-2": 1}), "a number in another spelling"),
        (vector(sp__c1__T_1__1={"-1": 1}), "no lease epoch"),
        (vector(sp__c1__T_1__1={"-1": 1, "-2": 1, "0": 1}), "a number too many"),
        (vector(sp__c1__T_1__1={"-1": -1, "-2": 1}), "no batch"),
        (vector(sp__c1__T_1__1={"-1": 2**63, "-2": 1}), "more than a batch can be"),
        (vector(sp__c1__T_1__1={"-1": "1", "-2": 1}), "a text"),
        (vector(sp__c1__T_1__1={"-1": 1.5, "-2": 1}), "a fraction"),
        (
            vector(**{f"sp__c1__T_{n}__1": {"-1": 1, "-2": 1} for n in range(TABLES_MAX + 1)}),
            "many",
        ),
        ("A" * (TOKEN_CHARS_MAX + 4), "too long"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        SessionToken.parse(text)
    assert len(refused.value.message) < 300, why


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: b64encode(raw).decode()))
@example(b64encode(b'{"version":0,"offsetVector":' + b"[" * 40).decode())
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    try:
        token = SessionToken.parse(text)
    except TokenRefused:
        return
    assert SessionToken.parse(token.text()) == token


@given(TOKENS, st.data())
def test_a_damaged_text_never_passes_for_more_tables(
    token: SessionToken, data: st.DataObject
) -> None:
    """Nor for more topics. What push queries have shown of one may pass for what was written to
    another: "at03" is the name of a topic, and "at:" is none."""
    text = token.text()
    if not text:
        return
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from("Az09+/=")) + text[at + 1 :]
    try:
        found = SessionToken.parse(damaged)
    except TokenRefused:
        return
    assert entry_count(found) <= entry_count(token)


def entry_count(token: SessionToken) -> int:
    return sum(map(len, (token.marks, token.writes, token.followed, token.streamed)))


@given(TOKENS)
def test_what_reads_need_of_a_token(token: SessionToken) -> None:
    """All that push queries have shown, and no place at which one goes on."""
    reads = token.for_reads()
    both = SessionToken(token.marks, token.writes).merged(reads)
    assert (both.seen, both.offsets, both.streamed) == (token.seen, token.offsets, {})
    for table, each in token.merged(reads).followed.items():
        place = token.followed_of(table)
        assert place is not None
        assert (each.positions, each.whole) == (place.positions, place.whole)


def test_a_place_of_push_queries_on_the_wire() -> None:
    place = FollowedTable(2, {0: 7, 3: 9}, SeenBatch(2, 41, 3), SeenBatch(2, 40, 3))
    followed = {TableKey("c1", "SCORES_12"): place}
    token = SessionToken(followed=followed, streamed={TopicKey("clicks", "x"): {1: 5}})
    assert msgspec.json.decode(b64decode(token.text())) == {
        "version": 0,
        "offsetVector": {
            "at:c1:SCORES_12:2": {"-1": 41, "-2": 3, "-3": 40, "-4": 3, "0": 7, "3": 9},
            "at:clicks@x": {"1": 5},
        },
    }
    assert SessionToken.parse(token.text()) == token


def test_what_was_shown_of_an_older_generation_counts_until_the_newer_one_was_seen() -> None:
    """A query over the newer one gives a token before its first row. The session forgot that it had
    seen the table: a replica of any batch answered."""
    table = TableKey("c1", "T_1")
    shown = SessionToken(followed={table: FollowedTable(1, {0: 40}, SeenBatch(1, 7, 2))})
    both = shown.merged(SessionToken(followed={table: FollowedTable(2, {0: 0})}))
    assert both.seen == {table: SeenBatch(1, 7, 2)}
    assert both.followed_of(table) == FollowedTable(2, {0: 0})
    assert SessionToken.parse(both.text()) == both
    newer = SessionToken(followed={table: FollowedTable(2, {0: 5}, SeenBatch(2, 1, 3))})
    assert both.merged(newer).seen == {table: SeenBatch(2, 1, 3)}


def test_a_newer_generation_that_was_read_is_all_that_counts() -> None:
    table = TableKey("c1", "T_1")
    followed = SessionToken(followed={table: FollowedTable(1, {0: 7})})
    assert followed.merged(SessionToken({table: SeenBatch(2, 3, 1)})).followed == {}


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"-1": 1},
        {"-1": 1, "-2": 1, "-3": 1},
        {"-3": 1},
        {"-6": 1, "0": 1},
        {"-5": 1},
        {"00": 1},
        {"0": -1},
        {"2147483648": 1},
    ],
)
def test_what_is_no_place_of_a_push_query(numbers: dict[str, int]) -> None:
    for name in ("at:c1:T_1:1", "at:t"):
        with pytest.raises(TokenRefused):
            SessionToken.parse(wire({"version": 0, "offsetVector": {name: numbers}}))


@pytest.mark.parametrize(
    ("other", "is_scan", "why"),
    [
        (FollowedTable(1, newest=SeenBatch(1, 9, 1)), True, "what reads may not be older than"),
        (FollowedTable(1, {0: 3}), True, "of a query that is behind it"),
        (FollowedTable(1, {0: 3, 1: 5}), False, "of one that is ahead in a partition"),
        (FollowedTable(1, {2: 1}), False, "of one that has been in another"),
        (FollowedTable(1, {0: 9, 1: 4}, scan=PushScan(13, 1)), True, "of a scan that is ahead"),
        (
            FollowedTable(1, {0: 3, 1: 8}, scan=PushScan(11, 9)),
            False,
            "of one that is not, nor behind",
        ),
        (FollowedTable(2, {0: 0}), False, "of a newer generation"),
    ],
)
def test_a_scan_is_one_as_long_as_its_positions_are(
    other: FollowedTable, is_scan: bool, why: str
) -> None:
    table = TableKey("c", "T_1")
    token = SessionToken(followed={table: FollowedTable(1, {0: 7, 1: 4}, scan=PushScan(11, 5))})
    assert SessionToken.parse(token.text()) == token
    both = token.merged(SessionToken(followed={table: other}))
    assert (both.followed[table].scan is not None) == is_scan, why
    assert SessionToken.parse(both.text()) == both
