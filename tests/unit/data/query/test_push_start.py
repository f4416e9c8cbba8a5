"""Where a push query begins behind a session's token: boundary rows in pairs, and what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace as replace_range

import pytest
from msgspec.structs import replace
from tests.unit.data.rows import commit

from standpipe.data.commit.committed import Committed
from standpipe.data.query.push_start import (
    CHANGES_KEPT_MS,
    SCAN_MS_MAX,
    TopicRange,
    starts_of_table,
    starts_of_topic,
)
from standpipe.errors import TokenRefused
from standpipe.model import Commit, Progress
from standpipe.session_scan import PushScan
from standpipe.session_token import FollowedTable, SeenBatch, SessionToken, TopicKey


def progress(by: Commit, ends: tuple[int, int], starts: tuple[int, int] | None) -> Progress:
    return Progress(
        query_id="Q",
        commit=by,
        sinks=dict(enumerate(ends)),
        starts={} if starts is None else dict(enumerate(starts)),
    )


LOG = (
    progress(commit(1, 0), (5, 0), None),
    progress(commit(1, 1), (5, 4), (5, 0)),
    progress(commit(1, 2), (9, 6), (5, 4)),
    progress(commit(2, 2), (12, 6), (9, 6)),  # again, by the next holder of the lease
    progress(commit(2, 3), (15, 8), (12, 6)),
)
#: of the first two, an hour later, once all before them is clean
KEPT = tuple(
    replace(each, clean_through={0: 5, 1: 4} if each is LOG[-1] else {}) for each in LOG[2:]
)


def there(
    log: tuple[Progress, ...] = LOG, first: tuple[int, int] = (0, 0), now_ms: int = 0
) -> TopicRange:
    committed = Committed("Q")
    for each in log:
        committed.take(each)
    ends = {partition: committed.end(partition) for partition in (0, 1)}
    return TopicRange(
        "t", dict(enumerate(first)), ends, committed=committed, is_compacted=True, now_ms=now_ms
    )


def whole(batch: int, epoch: int = 1) -> FollowedTable:
    return FollowedTable(1, whole=SeenBatch(1, batch, epoch))


def at(first: int, second: int) -> FollowedTable:
    return FollowedTable(1, {0: first, 1: second})


@pytest.mark.parametrize(
    ("followed", "starts", "why"),
    [
        (whole(0), (5, 0), "behind the first batch"),
        (whole(1), (5, 4), "one without records of a partition"),
        (whole(2), (9, 6), "and not behind it as the next holder committed it again"),
        (whole(2, 2), (12, 6), "which the session has seen"),
        (whole(3, 2), (15, 8), "the newest: at the end"),
        (whole(3, 1), (9, 6), "Kafka lost it: behind the last before it that is there"),
        (at(7, 1), (7, 1), "within a batch"),
        (at(15, 8), (15, 8), "at the end"),
        (at(7, 1).merged(whole(1)), (7, 4), "the further one, in each partition"),
        (at(7, 1).merged(whole(3, 2)), (15, 8), "a read was further everywhere"),
        (FollowedTable(1, {0: 7}), (7, 0), "a partition that it does not name"),
    ],
)
def test_where_it_begins(followed: FollowedTable, starts: tuple[int, int], why: str) -> None:
    assert starts_of_table(followed, there()) == dict(enumerate(starts)), why


@pytest.mark.parametrize(
    ("followed", "starts", "why"),
    [
        (whole(2), (9, 6), "its progress is there"),
        (at(5, 4), (5, 4), "the first of which it is known what is committed"),
        (at(9, 6).merged(whole(0)), (9, 6), "the push query is beyond the batch of the read"),
    ],
)
def test_what_is_left_an_hour_later(
    followed: FollowedTable, starts: tuple[int, int], why: str
) -> None:
    assert starts_of_table(followed, there(KEPT)) == dict(enumerate(starts)), why


@pytest.mark.parametrize(
    ("followed", "log", "first", "said", "why"),
    [
        (at(16, 8), LOG, (0, 0), "partition 0, up to offset 16. .* ended at 15", "ahead of it"),
        (at(15, 9), LOG, (0, 0), "partition 1, up to offset 9. .* ended at 8", "in another"),
        (FollowedTable(1, {7: 1}), LOG, (0, 0), "partition 7, .* ended at 0", "no such partition"),
        (at(6, 5), LOG, (7, 0), "partition 0, from offset 6 on. Retention", "deleted"),
        (at(7, 5), LOG, (7, 6), "partition 1, from offset 5 on. Retention", "in another"),
        (whole(0), LOG, (6, 0), "partition 0, from offset 5 on. Retention", "after a batch"),
        (at(4, 4), KEPT, (0, 0), "partition 0, from offset 4 on. Retention or comp", "compacted"),
        (at(5, 3), KEPT, (0, 0), "partition 1, from offset 3 on. Retention or comp", "in another"),
        (whole(1), KEPT, (0, 0), "the end of batch 1 .* on. Ret", "nobody knows where it ended"),
        (whole(1).merged(FollowedTable(1, {0: 9})), KEPT, (0, 0), "the end of batch 1", "of one"),
    ],
)
def test_what_is_refused(
    followed: FollowedTable, log: tuple[Progress, ...], first: tuple[int, int], said: str, why: str
) -> None:
    with pytest.raises(TokenRefused, match=said) as refused:
        starts_of_table(followed, there(log, first))
    assert "start a new session" in refused.value.message, why


#: batches 0 to 2 an hour before batch 3; progress is there of all of them
OLD = tuple(
    replace(
        each, batch_started_ms=1 if each is not LOG[-1] else 3_600_000, committed_at_ms=3_700_000
    )
    for each in LOG
)


@pytest.mark.parametrize(
    ("followed", "waited_ms", "is_refused", "why"),
    [
        (whole(1), 0, False, "what follows is still young enough"),
        (whole(1), -1, False, "younger"),
        (whole(1), 1, True, "compaction may have begun, and no pipeline removes progress"),
        (at(11, 6), 1, True, "one record of an old batch is to come"),
        (at(12, 6), 1, False, "a young batch is to come"),
        (at(12, 5), 1, True, "an old one in another partition"),
        (at(15, 8), 10**12, False, "nothing is to come"),
        (at(14, 8), 10**12, True, "an old one, the newest: in doubt"),
    ],
)
def test_what_may_be_compacted_is_refused_whatever_progress_is_kept(
    followed: FollowedTable, waited_ms: int, is_refused: bool, why: str
) -> None:
    """A pipeline that is down, or a query that was terminated, removes no progress records."""
    range_ = there(OLD, now_ms=CHANGES_KEPT_MS + waited_ms)
    refused = pytest.raises(TokenRefused, match="or compaction has removed")
    with refused if is_refused else nullcontext():
        starts_of_table(followed, range_)


def scanned(first: int, second: int, hour: int = 1) -> FollowedTable:
    return FollowedTable(1, {0: first, 1: second}, scan=PushScan(first + second, hour))


@pytest.mark.parametrize(
    ("followed", "waited_ms", "is_refused", "why"),
    [
        (scanned(0, 0), 0, False, "the first token of a query from the beginning"),
        (scanned(3, 2), 0, False, "a later one, still where progress is gone"),
        (scanned(3, 2), SCAN_MS_MAX - 1, False, "deletions of what it has shown are there"),
        (scanned(3, 2), SCAN_MS_MAX, True, "they may have left the topic"),
        (at(3, 2), 0, True, "no scan"),
        (scanned(3, 2).merged(whole(0)), 0, True, "a read was there as well"),
        (scanned(16, 2), 0, True, "ahead of the end"),
    ],
)
def test_a_query_from_the_beginning_goes_on(
    followed: FollowedTable, waited_ms: int, is_refused: bool, why: str
) -> None:
    """Below `clean_through` the order of what is left is right, whatever compaction removed."""
    refused = pytest.raises(TokenRefused) if is_refused else nullcontext()
    with refused:
        starts = starts_of_table(followed, there(KEPT, now_ms=3_600_000 + waited_ms))
        assert starts == followed.positions, why


def test_a_scan_does_not_bring_back_what_retention_removed() -> None:
    with pytest.raises(TokenRefused, match="Retention"):
        starts_of_table(scanned(3, 2), there(KEPT, (4, 0), now_ms=3_600_000))


def test_a_topic_that_is_not_compacted_keeps_its_changes() -> None:
    old = there(OLD, now_ms=10**12)
    token = SessionToken(streamed={TopicKey("t"): {0: 5, 1: 4}})
    assert starts_of_topic(token, replace_range(old, is_compacted=False)) == {0: 5, 1: 4}
    with pytest.raises(TokenRefused, match="or compaction has removed"):
        starts_of_topic(token, old)


def test_where_it_may_begin_at_its_first_record() -> None:
    assert starts_of_table(at(7, 6), there(LOG, (7, 6))) == {0: 7, 1: 6}


def topic(
    starts: Mapping[int, int], ends: Mapping[int, int], topic_id: str = "new", name: str = "s"
) -> TopicRange:
    return TopicRange(name, starts, ends, topic_id, now_ms=0)


TOKEN = SessionToken(streamed={TopicKey("s", "new"): {0: 3}, TopicKey("s"): {1: 2, 0: 1}})


@pytest.mark.parametrize(
    ("range_", "starts", "why"),
    [
        (topic({0: 0, 1: 0}, {0: 9, 1: 9}), {0: 3, 1: 2}, "the further of two entries"),
        (topic({0: 3, 1: 2}, {0: 3, 1: 2}), {0: 3, 1: 2}, "first and last"),
        (topic({0: 0, 1: 0, 2: 5}, {0: 9, 1: 9, 2: 9}), {0: 3, 1: 2, 2: 5}, "one that was added"),
        (topic({0: 0, 1: 0}, {0: 9, 1: 9}, ""), {0: 3, 1: 2}, "of a broker without ids"),
        (topic({0: 0, 1: 0}, {0: 9, 1: 9}, name="other"), None, "the session has not seen it"),
    ],
)
def test_where_it_begins_on_a_topic(
    range_: TopicRange, starts: dict[int, int] | None, why: str
) -> None:
    assert starts_of_topic(TOKEN, range_) == starts, why


@pytest.mark.parametrize(
    ("range_", "said"),
    [
        (topic({0: 0, 1: 0}, {0: 2, 1: 9}), "s, partition 0, up to offset 3. .* ended at 2"),
        (topic({0: 0, 1: 0}, {0: 9, 1: 9}, "old"), "The topic was created again"),
        (topic({0: 4, 1: 0}, {0: 9, 1: 9}), "s, partition 0, from offset 3 on. Retention"),
        (topic({0: 0}, {0: 9}), "s, partition 1, up to offset 2. .* ended at 0"),
    ],
)
def test_what_is_refused_on_a_topic(range_: TopicRange, said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        starts_of_topic(TOKEN, range_)


def test_what_was_written_does_not_say_where_to_begin() -> None:
    token = SessionToken(writes={TopicKey("s", "new"): {0: 3}})
    assert starts_of_topic(token, topic({0: 0}, {0: 9})) is None


@pytest.mark.parametrize(
    ("positions", "reached", "why"),
    [
        ({0: 0, 1: 0}, None, "nothing was shown"),
        ({0: 1, 1: 0}, (0, 1), "a record of the first batch"),
        ({0: 5, 1: 0}, (0, 1), "all of them"),
        ({0: 5, 1: 1}, (1, 1), "and one of the next"),
        ({0: 9, 1: 6}, (2, 1), "at the end of a batch"),
        ({0: 10, 1: 6}, (2, 2), "within the same one, of another holder of the lease"),
        ({0: 15, 1: 8}, (3, 2), "at the end"),
    ],
)
def test_which_batch_positions_have_reached(
    positions: dict[int, int], reached: tuple[int, int] | None, why: str
) -> None:
    committed = there().committed
    assert committed is not None
    assert committed.reached(positions) == reached, why
    committed.forget(positions)
    assert committed.reached(positions) == reached, "also once what is before them is forgotten"


def test_a_batch_that_a_load_added_to_ends_where_it_ended() -> None:
    """A read may have shown the batch before the load: its rows must not be left out."""
    load = progress(replace(LOG[-1].commit, attempt=77), (20, 8), (15, 8))
    assert starts_of_table(whole(3, 2), there((*LOG, load))) == {0: 15, 1: 8}
