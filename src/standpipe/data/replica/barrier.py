"""Read level `linearizable`: whether rows have all that was committed when a read arrived. Pure.

A *barrier* is a record that was appended to the progress topic after the read arrived, with the
read index of the metadata log, which was asked for after that, too. Rows are as new as the barrier
if all that progress below it commits is applied. The page of a replica says how far that is; it was
read before the rows, which must not be older than it.

An offset says nothing in another topic of the same name. So both name the topic's id, and where
these differ, the progress topic was deleted and created again: nothing that comes later makes such
rows right, so the read is refused at once, and a new one gets a new barrier.

Not here: who appends barriers (`node.worker.pull.linearizable`), how the tailer finds how far the
rows are (`data.replica.applied_progress`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from standpipe.data.commit.topic_identity import differ
from standpipe.data.replica.positions import StoreMeta
from standpipe.model import NO_BATCH, ReplicaStatus
from standpipe.session_token import LINEARIZABLE

#: The key of all barriers: no progress record has it, and compaction keeps the newest of them. The
#: value is null, so every reader passes over them, as over the tombstone of a record.
BARRIER_KEY: Final = b'["barrier"]'


class Barrier(NamedTuple):
    """What a replica must have before it answers."""

    #: offset behind the barrier in the progress topic
    progress_end: int
    #: of the metadata log
    log_index: int
    #: Kafka's id of the progress topic, asked for after the append; "": not known. In a header of
    #: its own
    topic_id: str = ""

    def text(self) -> str:
        """Its numbers, as a header says them."""
        return f"{self.progress_end},{self.log_index}"

    @classmethod
    def parse(cls, text: str, topic_id: str = "") -> Barrier:
        """Inverse of `text`. Raises ValueError."""
        end, index = text.split(",")
        found = cls(int(end), int(index), topic_id)
        if found.progress_end < 1 or found.log_index < 0:  # a barrier is a record itself
            raise ValueError(f"no barrier: {text!r}")
        return found

    def is_of_other_topic(self, page: ReplicaStatus) -> bool:
        """Whether a replica's page speaks of another topic."""
        return differ(self.topic_id, page.progress_topic_id)

    def is_reached(self, page: ReplicaStatus) -> bool:
        """Whether a replica's page says that its rows have all that is below the barrier."""
        return page.progress_end >= self.progress_end and not self.is_of_other_topic(page)

    def lack(self, page: ReplicaStatus, rows: StoreMeta) -> str | None:
        """Why the rows may lack something, as a sentence: level, wanted, had. None: they do not.

        `page`: read before the rows. `rows`: recorded in the transaction that they were read in.
        """
        if self.is_of_other_topic(page):
            had = f"had that of topic {page.progress_topic_id}: it was deleted and created again"
            return f"Level {LINEARIZABLE}: wanted progress of topic {self.topic_id}, {had}."
        if not self.is_reached(page):
            had = f"had what is below offset {page.progress_end}"
        elif rows.batch == NO_BATCH:
            had = "had rows between two batches"
        elif _place(rows) < _place(page):
            had = "had rows that are older than the replica's status"
        else:
            return None
        end = self.progress_end
        return f"Level {LINEARIZABLE}: wanted all that progress below offset {end} commits, {had}."


def _place(of: StoreMeta | ReplicaStatus) -> tuple[int, int, int]:
    """Among the states of one replica: its rank (`data.commit.progress.Rank`)."""
    return (of.position, of.lease_epoch, of.batch)
