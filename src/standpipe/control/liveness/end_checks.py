"""Checks a peer's lag report against the end offsets that this node reads from Kafka.

No replica can have read past the end of a changelog, and nothing beyond it is committed. So an end
offset that Kafka returned *after* a report arrived is an upper bound for that report:

    no reading, and Kafka does not answer          BELIEVED   it cannot be checked
    position and end within the newest reading     BELIEVED
    beyond it, and Kafka was asked after it came   REFUSED    it cannot be true
    beyond it, and Kafka was not asked since       DOUBTED    the sender may have read Kafka later

The margin is thus a time, not a number of records: within a margin of records, a wrong end would
still make nodes refuse all reads with a smaller bound. A doubted report waits for the next reading
(a fraction of a second), and until then the report before it counts.

Not checked: an end between the last commit and the end of the log. It is bounded by what an open
batch has written.

Pure: instants are of this node's clock, in ms. Not here: asking Kafka (`adapters.kafka.ends`), what
is kept of reports (`control.liveness.lag`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from standpipe.model import NodeId, Offset, ReplicaId
from standpipe.model_liveness import ReplicaLag

#: Without an answer of Kafka for this long while it is asked, reports are believed as they come.
ANSWER_MS_MAX: Final = 5_000
#: The end of a topic that Kafka does not find: it bounds nothing.
NO_BOUND: Final = Offset(2**63 - 1)


class Credence(Enum):
    """What a report is worth."""

    BELIEVED = auto()
    DOUBTED = auto()
    REFUSED = auto()


@dataclass(frozen=True)
class KafkaEnd:
    """The end of one changelog partition. `asked_ms`: when the request for it was sent."""

    end: Offset
    asked_ms: int


@dataclass(frozen=True)
class RefusedReport:
    """What a node reported of a replica, and Kafka's end, beyond which nothing can be true."""

    node: NodeId
    lag: ReplicaLag
    end: Offset | None


class EndChecks:
    """The newest readings of one node."""

    def __init__(self) -> None:
        self._read: dict[ReplicaId, KafkaEnd] = {}
        #: since when Kafka has been asked in vain; None: it answers, or was not asked
        self._vain_since_ms: int | None = None
        self._is_answering = False

    def asked(self, now_ms: int) -> bool:
        """Kafka is asked, or has not answered yet. True: it is given up, and reports are believed
        as they come until it answers again."""
        if self._vain_since_ms is None:
            self._vain_since_ms = now_ms
        if not self._is_answering or now_ms - self._vain_since_ms <= ANSWER_MS_MAX:
            return False
        self._is_answering = False
        self._read.clear()
        return True

    def answered(self, ends: Mapping[ReplicaId, Offset], asked_ms: int) -> None:
        """Kafka's answer to a request that was sent at `asked_ms`."""
        self._vain_since_ms, self._is_answering = None, True
        for replica, end in ends.items():
            self._read[replica] = KafkaEnd(end, asked_ms)

    def keep_only(self, exists: Callable[[ReplicaId], bool]) -> None:
        """Forget replicas of tables that no longer exist."""
        self._read = {replica: read for replica, read in self._read.items() if exists(replica)}

    def end_of(self, replica: ReplicaId) -> Offset | None:
        """The end in the newest reading; None: there is none."""
        read = self._read.get(replica)
        return None if read is None else read.end

    def is_unbounded(self, replica: ReplicaId) -> bool:
        """Whether there is no reading, or one that bounds nothing."""
        return self.end_of(replica) in (None, NO_BOUND)

    def judge(self, lag: ReplicaLag, told_ms: int) -> Credence:
        """What a report that arrived at `told_ms` is worth now."""
        read = self._read.get(lag.replica_id)
        if read is None:
            return Credence.DOUBTED if self._is_answering else Credence.BELIEVED
        if max(lag.position, lag.committed_end) <= read.end:
            return Credence.BELIEVED
        return Credence.REFUSED if read.asked_ms > told_ms else Credence.DOUBTED
