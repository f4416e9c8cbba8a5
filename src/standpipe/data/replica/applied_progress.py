"""Up to which offset of the progress topic a replica's rows have all that is committed. Pure.

A tailer reads the progress topic ahead of the tables. While it has read it up to offset P, the
newest target of a replica is N: all that progress below P commits there is N or comes before it in
rank. Once the rows show N, or a later target, they have all of that, and P may be published. So a
replica that is always a batch behind still gets on.

Not here: reading progress (`node.tailer.progress`), who waits for P (`data.replica.barrier`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from standpipe.data.commit.progress import Rank
from standpipe.data.commit.topic_identity import differ

#: pairs of (N, P) that are kept; if a replica is further behind, the oldest go: it gets on later
PAIRS_MAX: Final = 256


class AppliedProgress:
    """Of one replica, as long as its store is open."""

    def __init__(self) -> None:
        #: below it, the rows have all that progress commits; 0: nothing is known
        self.end = 0
        #: of that, what the replica's page says
        self.told = 0
        #: Kafka's id of the topic with these offsets; "": not known
        self.topic_id = ""
        self._read_up_to = 0
        #: (newest target, end of the progress that was read by then), in order; not shown yet
        self._pairs: deque[tuple[Rank, int]] = deque(maxlen=PAIRS_MAX)

    def note(
        self, read_up_to: int, newest: Rank | None, shown: Rank | None, topic_id: str = ""
    ) -> None:
        """All targets of progress below `read_up_to` were handed over. `newest`: the last of them;
        None: not all progress is known. `shown`: what the rows show; None: they are of no batch, or
        are not read. `topic_id`: of the topic that was read; "": it is not known.

        If less is read than before, or the topic is another one, it is read again: what was known
        is forgotten.
        """
        if read_up_to < self._read_up_to or differ(self.topic_id, topic_id):
            self._pairs.clear()
            self.end = 0
        self._read_up_to, self.topic_id = read_up_to, topic_id or self.topic_id
        if newest is not None:
            if self._pairs and self._pairs[-1][0] == newest:
                self._pairs.pop()
            self._pairs.append((newest, read_up_to))
        while self._pairs and shown is not None and self._pairs[0][0] <= shown:
            self.end = max(self.end, self._pairs.popleft()[1])

    def is_awaited(self, barrier_end: int) -> bool:
        """Whether a read may wait for an end that the page does not say yet. `barrier_end`: behind
        the newest barrier. The rows may have reached an older one only."""
        return self.told < barrier_end and self.told < self.end
