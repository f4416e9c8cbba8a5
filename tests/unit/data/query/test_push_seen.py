"""Which rows of a repair a push query leaves out. Histories: test_push_seen_history.py."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.unit.data.query.test_push import PLAN, progress
from tests.unit.data.rows import commit

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.repair import Repeated
from standpipe.data.encoding.store_keys import HEADER_COMMIT, commit_header
from standpipe.data.query.push import PushQuery
from standpipe.data.query.push_seen import Seen
from standpipe.data.query.push_start import CHANGES_KEPT_MS
from standpipe.data.query.record_rows import Share, TopicRecord
from standpipe.model import Commit, Progress

NOW_MS = 10**12


@pytest.mark.parametrize(
    ("missed", "foreign", "offset", "foreign_ms", "has", "why"),
    [
        (None, None, 12, 0, True, "this query has met it"),
        (None, None, 9, 0, False, "it was before the start, and may have been compacted"),
        (None, None, 9, NOW_MS - CHANGES_KEPT_MS, True, "it was there, whoever came past it"),
        (None, None, 9, NOW_MS - CHANGES_KEPT_MS - 1, False, "that is not sure any more"),
        (13, None, 12, 0, False, "the hole may be where it was"),
        (13, None, 12, NOW_MS, True, "the hole is of another key"),
        (12, None, 12, 0, True, "the hole is before it"),
        (None, 15, 12, NOW_MS, False, "the client may have a foreign row"),
        (None, 14, 12, NOW_MS, True, "foreign records of the key came later"),
    ],
)
def test_who_has_a_row(
    missed: int | None, foreign: int | None, offset: int, foreign_ms: int, has: bool, why: str
) -> None:
    seen = Seen({0: 10, 1: 99})
    if missed is not None:
        seen.missed(0, missed)
    if foreign is not None:
        seen.perhaps_foreign(0, foreign)
    assert seen.has(0, Repeated(offset, 15, foreign_ms), NOW_MS) is has, why


# ------------------------------------------------------------------------------- in a query

A, Z, REPAIRED = commit(1, 0, attempt=1), commit(0, 0), commit(1, 0, attempt=2)
OLD_MS = NOW_MS - 2 * CHANGES_KEPT_MS


def record(offset: int, number: int, by: Commit, *more: tuple[str, bytes]) -> TopicRecord:
    headers = ((HEADER_COMMIT, commit_header(by)), *more)
    return TopicRecord(b"k", b'{"V":%d}' % number, 0, headers, 0, offset)


FIRST, FOREIGN = record(0, 1, A), record(1, 9, Z)
AGAIN = record(2, 1, REPAIRED, Repeated(0, 1, OLD_MS).header)
SOON = record(2, 1, REPAIRED, Repeated(0, 1, NOW_MS).header)


def shown(progress: Sequence[Progress], *records: TopicRecord) -> list[bytes]:
    """Values in the order in which a query from the beginning shows them."""
    query = PushQuery(PLAN, {0: 0}, Committed("Q"))
    for each in progress:
        query.progress(each)
    for each in records:
        query.heard(each)
    return [row.columns[1:2] for row in query.take(Share(9, 10**6), NOW_MS)]


EXACT = (progress(A, 0, 2), progress(REPAIRED, 2, 3))
#: the first record of progress was removed since
BY_ORDER = (msgspec.structs.replace(progress(REPAIRED, 2, 3), clean_through={0: 3}),)


@pytest.mark.parametrize(
    ("progress", "records", "values", "why"),
    [
        (EXACT, (FIRST, FOREIGN, AGAIN), b"1", "it was shown"),
        (EXACT, (AGAIN,), b"1", "the first one was compacted away"),
        (EXACT, (FOREIGN, AGAIN), b"1", "likewise, and nothing hides it"),
        (BY_ORDER, (FIRST, FOREIGN, AGAIN), b"191", "who wrote the second one is not known"),
        (BY_ORDER, (FIRST, SOON), b"1", "nothing came in between"),
        (EXACT, (FIRST, FOREIGN, SOON), b"1", "soon after it"),
        (EXACT, (FIRST, FOREIGN, record(2, 1, REPAIRED)), b"11", "of a release that tells nothing"),
    ],
)
def test_what_a_query_shows_of_a_repair(
    progress: Sequence[Progress], records: Sequence[TopicRecord], values: bytes, why: str
) -> None:
    assert b"".join(shown(progress, *records)) == values, why
