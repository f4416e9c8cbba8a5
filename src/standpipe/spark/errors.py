"""What a program that serves a DataFrame has to expect."""

from __future__ import annotations

from typing import Final

from standpipe.errors import SetupError, StandpipeError

#: `ServeEnded.reason` -> what it means; docs/errors.md is generated from it
REASONS: Final = {
    "FENCED": "The cluster has granted the lease again, as the program was silent for too long: "
    "readers ignore what it still writes. Start it again to stand by.",
    "DROPPED": "DROP TABLE: the table is gone.",
    "TERMINATED": "TERMINATE of the query: the table stays as it is.",
    "PAUSED": "PAUSE of the query: start the program again after RESUME.",
    "APART": "Of `serve_many`: a table was left out for a while, or its last program was paused, "
    "so others are several batches ahead of it. The message says how to go on.",
    "FAILED": "Spark, Kafka or the program's own code has failed; the message has the error.",
}


class ServeRefused(SetupError):
    """A table cannot be served or read as it is asked for; nothing was written."""

    name = "E-SERVE-001"


class ServeEnded(StandpipeError):
    """A served query has ended, and would not go on by itself.

    `reason`: one of REASONS, or one of those of all queries (`pipeline.failures.REASONS`), such as
    CHECKPOINT_LOST.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
