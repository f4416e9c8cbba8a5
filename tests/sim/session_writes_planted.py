"""Bugs put into the reads of sessions that have written: the judge must catch each of them."""

from __future__ import annotations

from typing import Any

from standpipe.data.commit import written_offsets
from standpipe.node.worker.pull import session_read
from standpipe.node.worker.pull.session_read import KnownToken

from .runner import Plant, replacing
from .session_writes import WritingWorld


def believe_the_newest_batch_that_is_told() -> list[Plant]:
    """It covers the write, and the rows are older."""
    return [(session_read, "_is_after", lambda *_: True)]


def take_what_is_not_told_for_covered() -> list[Plant]:
    """A table of which nothing is known yet counts as one that depends on nothing."""

    def make(has_writes: Any) -> Any:
        def lax(self: KnownToken, stamp: Any) -> bool:
            return not self.files.of(self.table).batches or has_writes(self, stamp)

        return lax

    return [replacing(KnownToken, "has_writes", make)]


def one_record_too_few() -> list[Plant]:
    """The offset of the record, not the one after it, must be covered."""

    def make(missing: Any) -> Any:
        def lax(writes: Any, has: Any) -> Any:
            less = {
                key: {each: max(end - 1, 0) for each, end in ends.items()}
                for key, ends in writes.items()
            }
            return missing(less, has)

        return lax

    return [replacing(written_offsets, "_missing", make)]


def tell_a_batch_what_the_next_one_covers() -> list[Plant]:
    """The tailer asks what is covered after it has asked which batch is the newest."""

    def make(covered_by: Any) -> Any:
        def late(self: WritingWorld, batch: int, epoch: int, covers: int) -> Any:
            later = [c.covers for commits in self.generations for c in commits if c.batch > batch]
            return covered_by(self, batch, epoch, max([covers, *later[:1]]))

        return late

    return [replacing(WritingWorld, "covered_by", make)]


def answer_as_a_release_that_knows_no_writes() -> list[Plant]:
    """Rows are held against what the session has read, and nothing else."""
    return [(KnownToken, "has_writes", lambda *_: True)]


WRITE_PLANTS = (
    believe_the_newest_batch_that_is_told,
    take_what_is_not_told_for_covered,
    one_record_too_few,
    tell_a_batch_what_the_next_one_covers,
    answer_as_a_release_that_knows_no_writes,
)
