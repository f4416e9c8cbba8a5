"""Bytes of answers that a worker has collected and not sent yet, under one limit. Pure.

Rows of a scan are held until the client has taken them, and a client may take them slowly. What is
held is charged to its query while it grows, and given back when the answer is out or abandoned. So
is what a scan has copied from the store and not decoded yet. Without room it copies less.

Not here: who waits for the answer (`node.worker.request.scan_requester`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from standpipe.errors import BadRequest, TooManyRequests

#: of all answers of a worker; an eighth of what a worker may take by default
HELD_BYTES_MAX: Final = 128 * 1024 * 1024

#: of `bytes_max`, a share like this is not copied into
ROWS_SHARE: Final = 8


@dataclass
class AnswerBudget:
    """The answers of one worker."""

    bytes_max: int = HELD_BYTES_MAX
    held_bytes: int = 0

    def take(self, held_bytes: int, more_bytes: int, lent_bytes: int = 0) -> None:
        """A query that holds `held_bytes` wants more. Raises BadRequest if one answer cannot be
        that large, TooManyRequests if the others leave no room for it now. `lent_bytes`: what its
        own scans have copied, which is to become such rows."""
        if held_bytes + more_bytes > self.bytes_max:
            raise BadRequest(
                f"the answer would take more than {self.bytes_max} bytes: name keys, a range or a"
                " LIMIT"
            )
        if self.held_bytes - lent_bytes + more_bytes > self.bytes_max:
            raise TooManyRequests(
                "answers that their clients have not taken yet fill the memory of this worker:"
                " retry in a second"
            )
        self.held_bytes += more_bytes

    @property
    def room_bytes(self) -> int:
        """What scans may still copy: some room is left to the rows of answers."""
        return max(0, self.bytes_max - self.bytes_max // ROWS_SHARE - self.held_bytes)

    def lend(self, more_bytes: int) -> None:
        """A scan has copied more, or less than 0: has decoded some. It is never refused."""
        self.held_bytes += more_bytes

    def give_back(self, bytes_: int) -> None:
        """An answer is out, or nobody wants it."""
        self.held_bytes -= bytes_
