"""Whether rows have all that was committed below a barrier."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.node.workers import page

from standpipe.data.commit.progress import fence, progress_key
from standpipe.data.commit.seal import ProgressReader, ProgressSeal, left_of
from standpipe.data.replica.barrier import BARRIER_KEY, Barrier
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset

IDENTITY = StoreIdentity(table_id="T1", generation=1, partition=0)
BARRIER = Barrier(41, 7)


def meta(position: int = 100, epoch: int = 1, batch: int = 7) -> StoreMeta:
    return StoreMeta(
        identity=IDENTITY,
        position=Offset(position),
        lease_epoch=LeaseEpoch(epoch),
        batch=BatchId(batch),
    )


@pytest.mark.parametrize(
    ("end", "rows", "lack", "why"),
    [
        (41, meta(), None, "just there"),
        (40, meta(), "had what is below offset 40", "the barrier itself is not read"),
        (99, meta(batch=8, position=120), None, "the rows have gone on"),
        (99, meta(batch=6), "older than the replica's status", "another file, of a batch before"),
        (99, meta(position=99, batch=8), "older than", "of a log that was cut"),
        (99, meta(epoch=2, batch=6), None, "another pipeline went on from there"),
        (99, meta(batch=NO_BATCH), "between two batches", "a gap"),
        (0, meta(batch=99), "had what is below offset 0", "a tailer that does not say it"),
    ],
)
def test_what_rows_lack(end: int, rows: StoreMeta, lack: str | None, why: str) -> None:
    found = BARRIER.lack(replace(page(), progress_end=end), rows)
    if lack is None:
        assert found is None, why
        return
    assert found is not None, why
    assert lack in found, why
    assert found.startswith("Level linearizable: wanted all that progress below offset 41 commits")


@pytest.mark.parametrize(
    ("wanted", "had", "end", "is_reached", "why"),
    [
        ("X", "X", 41, True, "the same topic"),
        ("X", "Y", 99, False, "an offset of another one says nothing"),
        ("X", "Y", 12, False, "nor does it when it is lower"),
        ("", "Y", 41, True, "a node that does not know the topic's id: by the offset"),
        ("X", "", 41, True, "a tailer that does not know it yet: likewise"),
        ("X", "", 40, False, "likewise"),
    ],
)
def test_in_which_topic(wanted: str, had: str, end: int, is_reached: bool, why: str) -> None:
    barrier = BARRIER._replace(topic_id=wanted)
    shown = replace(page(), progress_end=end, progress_topic_id=had)
    assert barrier.is_reached(shown) is is_reached, why
    is_other = bool(wanted and had and wanted != had)
    assert barrier.is_of_other_topic(shown) is is_other, why
    found = barrier.lack(shown, meta())
    assert (found is None) is is_reached, why
    if is_other:
        assert found == (
            "Level linearizable: wanted progress of topic X, had that of topic Y: it was deleted "
            "and created again."
        )


def test_as_a_header() -> None:
    assert Barrier.parse(BARRIER.text()) == BARRIER
    named = BARRIER._replace(topic_id="X")
    assert named.text() == BARRIER.text(), "a node of an older release reads it"
    assert Barrier.parse(named.text(), "X") == named


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "a,b", "0,5", "-1,5", "5,-1", "5;1"])
def test_what_is_no_barrier(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Barrier.parse(text)


def test_readers_of_progress_pass_over_it() -> None:
    """It is a tombstone of a key that no record has: nothing is removed, nothing counts as
    ignored."""
    seal = ProgressSeal("secret", "p")
    reader = ProgressReader(seal)
    record = fence('["barrier"]', LeaseEpoch(1), nonce=1)
    key = progress_key(record)
    assert key != BARRIER_KEY
    left = left_of([(key, b"{", ()), (BARRIER_KEY, None, ()), (BARRIER_KEY, None, ())], reader)
    assert left.ignored == [key], "only what was no record before"
    assert sum(reader.ignored.values()) == 1
