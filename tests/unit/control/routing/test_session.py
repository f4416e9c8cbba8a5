"""Whether rows cover a session's token: boundary rows in pairs, and the definite answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.node.workers import USERS

from standpipe.control.routing.session import (
    SessionVerdict,
    Stamp,
    Wanted,
    followed_of,
    token_after,
    wanted_of,
)
from standpipe.errors import NoReplica, TokenRefused
from standpipe.model import NO_BATCH
from standpipe.session_token import FollowedTable, SeenBatch, SessionToken, TableKey

COVERED, BEHIND = SessionVerdict.COVERED, SessionVerdict.BEHIND
LOST, BEYOND = SessionVerdict.LOST, SessionVerdict.BEYOND
MARK = Wanted(SeenBatch(1, 10, 3))
ANY, AFTER = Wanted(), Wanted(after_switch=True)
SOURCE = msgspec.structs.replace(USERS, table_id="USERS_40", generation=2)


@pytest.mark.parametrize(
    ("wanted", "batch", "epoch", "is_current", "verdict", "why"),
    [
        (MARK, 10, 3, False, COVERED, "the very batch"),
        (MARK, 9, 3, False, BEHIND, "one batch less"),
        (MARK, 11, 3, False, COVERED, "one more"),
        (MARK, 10, 4, False, COVERED, "replayed by the next holder of the lease"),
        (MARK, 10, 2, False, BEHIND, "it has yet to see the replay that the session saw"),
        (MARK, 9, 4, False, LOST, "a later holder went on from an older batch"),
        (MARK, 9, 4, True, LOST, "also if nothing newer is there"),
        (MARK, 9, 3, True, BEYOND, "nothing newer was committed: forged, or lost"),
        (MARK, 10, 3, True, COVERED, "current, and enough"),
        (MARK, NO_BATCH, 3, False, BEHIND, "between two batches"),
        (MARK, NO_BATCH, 9, True, BEHIND, "it will have a batch"),
        (ANY, 0, 0, False, COVERED, "the first read of a session"),
        (ANY, NO_BATCH, 5, False, BEHIND, "not even for a first read"),
        (AFTER, 0, 5, True, COVERED, "caught up after the read arrived"),
        (AFTER, 99, 5, False, BEHIND, "batches of two generations say nothing"),
        (AFTER, NO_BATCH, 5, True, BEHIND, "no whole batch"),
    ],
)
def test_verdicts(
    wanted: Wanted, batch: int, epoch: int, is_current: bool, verdict: SessionVerdict, why: str
) -> None:
    stamp = Stamp(batch, epoch)
    assert wanted.verdict(stamp, is_current=is_current) is verdict, why
    text = wanted.why(stamp, verdict)
    assert text.startswith("Level session: wanted "), "names level, wanted and had"
    assert ("batch 10 (lease epoch 3)" in text) is (wanted is MARK)
    assert ("DATA_LOSS" in text) is (verdict is LOST)


STAMPS = st.builds(Stamp, st.integers(NO_BATCH, 6), st.integers(0, 4))
MARKS = st.builds(SeenBatch, st.just(1), st.integers(0, 6), st.integers(0, 4))


@given(STAMPS, STAMPS, MARKS, st.booleans())
def test_newer_rows_cover_no_less(
    one: Stamp, two: Stamp, mark: SeenBatch, is_current: bool
) -> None:
    if two.batch >= one.batch and two.epoch >= one.epoch:
        wanted = Wanted(mark)
        if wanted.verdict(one, is_current=is_current) is COVERED:
            assert wanted.verdict(two, is_current=is_current) is COVERED


@given(STAMPS, MARKS, MARKS)
def test_who_covers_a_merged_token_covers_both(
    stamp: Stamp, one: SeenBatch, two: SeenBatch
) -> None:
    def covers(mark: SeenBatch) -> bool:
        return Wanted(mark).verdict(stamp, is_current=False) is COVERED

    assert covers(one.merged(two)) is (covers(one) and covers(two))


@given(st.lists(STAMPS.filter(lambda one: one.batch >= 0), min_size=1), MARKS)
def test_an_answers_token_covers_its_parts(parts: list[Stamp], mark: SeenBatch) -> None:
    """And what was seen before: rows older than any of them do not pass."""
    source = msgspec.structs.replace(SOURCE, generation=1)
    before = SessionToken({TableKey("c", "USERS_40"): mark})
    after = token_after(before, source, "c", parts)
    found = wanted_of(after, source, "c").mark
    assert found is not None
    assert found.batch == max(mark.batch, *(one.batch for one in parts))
    assert found.epoch == max(mark.epoch, *(one.epoch for one in parts))
    assert after.covers(before)


def test_an_answer_without_parts_adds_nothing() -> None:
    token = SessionToken({TableKey("c", "OTHER_1"): SeenBatch(1, 2, 3)})
    assert token_after(token, SOURCE, "c", []) == token


@dataclass(frozen=True)
class Case:
    seen: tuple[str, int]
    why: str
    cluster: str = "c"


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        (Case(("USERS_40", 2), "the same generation"), Wanted(SeenBatch(2, 7, 1))),
        (Case(("USERS_40", 1), "one that was replaced"), Wanted(after_switch=True)),
        (Case(("OTHER_3", 5), "another table"), Wanted()),
        (Case(("ODD", 1), "an id of no known form"), Wanted()),
        (Case(("USERS_2_41", 1), "of a table USERS_2"), Wanted()),
    ],
    ids=lambda one: one.why if isinstance(one, Case) else "",
)
def test_what_a_token_wants_of_a_table(case: Case, wanted: Wanted) -> None:
    assert wanted_of(token_of(case), SOURCE, "c") == wanted


def token_of(case: Case) -> SessionToken:
    table, generation = case.seen
    return SessionToken({TableKey(case.cluster, table): SeenBatch(generation, 7, 1)})


@pytest.mark.parametrize(
    ("case", "error", "said"),
    [
        (Case(("USERS_40", 3), "this node's map is older"), NoReplica, "generation 3"),
        (Case(("USERS_41", 1), "created again; older map"), NoReplica, "USERS_41"),
        (Case(("USERS_39", 9), "dropped and created again"), TokenRefused, "created again"),
        (Case(("USERS_40", 2), "elsewhere", "d"), TokenRefused, "cluster 'd'"),
        (Case(("OTHER_3", 2), "another table, elsewhere", "d"), TokenRefused, "cluster 'd'"),
    ],
    ids=lambda one: one.why if isinstance(one, Case) else "",
)
def test_definite_refusals(case: Case, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        wanted_of(token_of(case), SOURCE, "c")


@pytest.mark.parametrize("other", ["USERS_39", "USERS_41"])
def test_a_living_table_with_a_like_id_is_another(other: str) -> None:
    """`users` and `USERS`: ids do not tell them apart, but both are in the map."""
    others = [SOURCE, msgspec.structs.replace(SOURCE, table_id=other)]
    assert wanted_of(token_of(Case((other, 2), "")), SOURCE, "c", others) == Wanted()


def test_a_session_that_has_read_the_new_table_goes_on() -> None:
    """It may still carry the one of that name that was dropped."""
    token = token_of(Case(("USERS_39", 9), "")).merged(token_of(Case(("USERS_40", 2), "")))
    assert wanted_of(token, SOURCE, "c") == replace(MARK, mark=SeenBatch(2, 7, 1))


@pytest.mark.parametrize(
    ("seen", "place", "goes_on"),
    [(1, 2, True), (2, 2, True), (1, 1, False), (1, None, False), (2, None, True)],
)
def test_a_push_query_goes_on_in_the_generation_that_it_followed(
    seen: int, place: int | None, goes_on: bool
) -> None:
    """What the session has seen of the one before bounds its reads, not its place."""
    table = TableKey("c", "USERS_40")
    followed = {} if place is None else {table: FollowedTable(place, {0: 5})}
    token = SessionToken({table: SeenBatch(seen, 7, 1)}, followed=followed)
    if goes_on:
        assert followed_of(token, SOURCE, "c") == token.followed_of(table)
    else:
        with pytest.raises(TokenRefused, match="was replaced since"):
            followed_of(token, SOURCE, "c")
