"""What a program that serves a DataFrame has to expect."""

from __future__ import annotations

from standpipe.errors import SetupError, StandpipeError


class ServeRefused(SetupError):
    """A DataFrame cannot be served as it is asked for; nothing was written."""

    name = "E-SERVE-001"


class ServeEnded(StandpipeError):
    """A served query has ended, and would not go on by itself.

    `reason`: FENCED (another application holds the lease), DROPPED, TERMINATED, PAUSED, FAILED
    (Spark or the user's code; the message has its error), or a reason of docs/errors.md, such as
    CHECKPOINT_LOST.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
