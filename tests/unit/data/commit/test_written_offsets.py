"""Whether rows have what a session wrote, and what is said if not."""

from __future__ import annotations

import pytest
from tests.unit.data.commit.test_covered_offsets import batch

from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds, TopicOffsets
from standpipe.data.commit.written_offsets import Writes, first_covering, lacking
from standpipe.session_token import TopicKey


def known(*ends: int, topic_id: str = "", epoch: int = 1) -> CoveredBatches:
    """Batches from 0 on, that cover S so far."""
    batches = [batch(n, epoch, topic_id, S=end) for n, end in enumerate(ends)]
    return CoveredBatches(batches=tuple(batches))


def wrote(end: int, topic: str = "S", topic_id: str = "") -> Writes:
    return {TopicKey(topic, topic_id): {0: end}}


@pytest.mark.parametrize(
    ("writes", "has", "number", "why"),
    [
        (wrote(5), known(4, 5, 6), 1, "the oldest that does"),
        (wrote(7), known(4, 5, 6), None, "none"),
        (wrote(9, "T"), known(4, 5), 0, "the table does not depend on that topic"),
        (wrote(5), known(), None, "nothing is known"),
        (wrote(5, topic_id="x"), known(5), 0, "which topic it was is not said"),
        (wrote(5, topic_id="x"), known(5, topic_id="x"), 0, "the same topic"),
        (wrote(5), known(5, topic_id="x"), 0, "the writer did not know which"),
        (wrote(5, topic_id="x"), known(9, topic_id="y"), None, "another topic of that name"),
        ({TopicKey("S"): {0: 5, 1: 1}}, known(5), None, "another partition"),
        ({**wrote(5), **wrote(6, topic_id="x")}, known(5, 6), 1, "both count"),
    ],
)
def test_the_first_batch_that_covers(
    writes: Writes, has: CoveredBatches, number: int | None, why: str
) -> None:
    found = first_covering(writes, has)
    assert (None if found is None else found.batch) == number, why


def ends(end: int, topic_id: str = "", partition: int = 0) -> ToldEnds:
    topics = {"S": TopicOffsets(topic_id=topic_id, offsets={partition: end})}
    return ToldEnds(asked_boot_ms=1, topics=topics)


@pytest.mark.parametrize(
    ("writes", "has", "rows", "told", "is_final", "said"),
    [
        (wrote(9), known(4, 6), (0, 1), None, False, "up to offset 9, had 4"),
        (wrote(9), known(4, 6), (7, 1), None, False, "up to offset 9, had 6"),
        (wrote(6), known(4, 6), (0, 1), None, False, "had 4"),
        (wrote(9), known(4, 6, epoch=2), (7, 1), None, False, "had less"),
        (wrote(4), known(4, epoch=2), (7, 1), None, False, "wanted batch 0 (lease epoch 2), which"),
        (wrote(9), known(), (7, 1), ends(2), False, "not known yet"),
        (wrote(9), known(4), (7, 1), ends(9), False, "had 4"),
        (wrote(9), known(4), (7, 1), ends(8), True, "ended at 8"),
        (wrote(9), known(4), (7, 1), ends(99, partition=1), True, "ended at 0"),
        (wrote(9, topic_id="x"), known(4, topic_id="y"), (7, 1), None, False, "an older topic"),
        (wrote(9, topic_id="x"), known(4, topic_id="y"), (7, 1), ends(9, "x"), False, "older"),
        (wrote(3, topic_id="x"), known(4, topic_id="y"), (7, 1), ends(9, "y"), True, "again"),
    ],
)
def test_what_is_said(
    writes: Writes,
    has: CoveredBatches,
    rows: tuple[int, int],
    told: ToldEnds | None,
    is_final: bool,
    said: str,
) -> None:
    lack = lacking(writes, has, *rows, told)
    assert lack.is_final is is_final
    assert said in lack.why
