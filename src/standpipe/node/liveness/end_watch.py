"""Asks Kafka for the end offsets that lag reports are checked against, and logs wrong reports.

It asks only while a report is beyond Kafka's newest answer, or there is no answer for a partition:
never in an idle cluster, at most every ENDS_LOOK_MS in a busy one.

Not here: the verdict (`control.liveness.end_checks`), the connection (`adapters.kafka.ends`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import structlog

from standpipe.adapters.clock import Clock
from standpipe.adapters.kafka.connection import Kafka, connection_of
from standpipe.adapters.kafka.ends import Ends, EndsReader
from standpipe.adapters.kafka.reader import Partition
from standpipe.control.liveness.end_checks import NO_BOUND, EndChecks
from standpipe.control.liveness.lag import Ledger
from standpipe.control.metadata.catalog import Catalog
from standpipe.errors import KafkaUnavailable
from standpipe.model import Offset, ReplicaId

ENDS_LOOK_MS: Final = 250

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class EndWatch:
    """The ledger of one node, with its checks. `look` is to be called each ENDS_LOOK_MS."""

    def __init__(
        self,
        kafka: Kafka,
        catalog: Callable[[], Catalog],
        clock: Clock,
        reader: EndsReader | None = None,
    ) -> None:
        self._checks = EndChecks()
        self.ledger = Ledger(self._checks)
        self._catalog, self._clock = catalog, clock
        #: None: a node without Kafka, as in tests
        self._reader = reader or (
            EndsReader(kafka) if connection_of(kafka).bootstrap_servers else None
        )
        self._answer: Future[Ends] | None = None
        self._asked: dict[Partition, ReplicaId] = {}
        self._asked_ms = 0
        self._seen: Catalog | None = None
        self._topics: dict[tuple[str, int], str] = {}

    def look(self) -> None:
        """Take an answer of Kafka, ask for what is open, and log what was refused."""
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            self._take(answer)
        self._say()
        if self._reader is None or not self.ledger.unchecked:
            return
        if self._answer is None:
            self._asked = self._open()
            if self._asked:
                self._asked_ms = self._clock.boot_ms()
                self._answer = self._reader.ask(self._asked)
        if self._answer is not None and self._checks.asked(self._clock.boot_ms()):
            _log.warning("Kafka does not tell where topics end: lag reports are not checked")
            self.ledger.weigh()

    def _take(self, answer: Future[Ends]) -> None:
        try:
            told = answer.result()
        except KafkaUnavailable as error:
            _log.debug("no ends", why=error.message)
            return
        ends = {
            self._asked[partition]: NO_BOUND if end is None else Offset(end)
            for partition, end in told.items()
        }
        self._checks.answered(ends, self._asked_ms)
        self.ledger.weigh(ends)

    def _open(self) -> dict[Partition, ReplicaId]:
        """What to ask for. A replica of no table in the log is left out: nobody reads it."""
        catalog = self._catalog()
        if catalog is not self._seen:
            self._seen = catalog
            self._topics = {
                (source.table_id or "", source.generation): source.stored_form().topic
                for source in catalog.generations
                if source.is_materialized
            }
            self._checks.keep_only(lambda replica: replica[:2] in self._topics)
        return {
            Partition(topic, replica.partition): replica
            for replica in self.ledger.unchecked
            if (topic := self._topics.get((replica.table_id, replica.generation)))
        }

    def _say(self) -> None:
        for refused in self.ledger.refusals:
            _log.warning(
                "lag report refused: it is beyond the end of the topic in Kafka",
                peer=refused.node,
                replica=str(refused.lag.replica_id),
                reported_position=refused.lag.position,
                reported_end=refused.lag.committed_end,
                kafka_end=refused.end,
                next_step="if it goes on, check who runs as that node, and change the secret",
            )
        self.ledger.refusals.clear()
