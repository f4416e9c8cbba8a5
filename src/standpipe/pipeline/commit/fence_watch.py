"""Notices that the progress topic has fenced a query whose lease this pipeline holds.

All readers ignore what a query's pipeline commits after a record of a newer lease epoch. Usually
another pipeline was granted the lease, and the catalog shows that within seconds. If it does not,
the fence is *foreign*: an attacker who has the secret wrote it, or another cluster that shares
topic and secret, such as one that was started from a backup. The query would continue without an
error, and its table would no longer change, with a lag of zero.

One thread for all queries. Not here: which records count (`data/commit/seal.py`), failing a query
(`run/scheduler.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from standpipe.adapters.kafka.connection import Kafka
from standpipe.model import LeaseEpoch, Progress
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.topic_reader import TopicReader

POLL_S: Final = 0.5


class FenceSeen(NamedTuple):
    """A newer lease epoch of a query in the progress topic, and when it was read first (monotonic
    seconds)."""

    lease_epoch: LeaseEpoch
    at_s: float


class Confirmed(NamedTuple):
    """The leader has renewed this pipeline's leases: when that was asked for (monotonic seconds),
    and the newest entry of its log at that time."""

    at_s: float
    log_index: int


def is_foreign(
    seen: FenceSeen | None,
    ours: LeaseEpoch,
    granted: LeaseEpoch | None,
    *,
    confirmed: Confirmed | None,
    catalog_index: int,
) -> bool:
    """Whether no lease explains a fence.

    `granted`: the lease epoch that the catalog says this pipeline holds. A lease is logged before
    its holder writes a fence. So a catalog that includes all that the leader had logged at some
    moment after the fence was read, and still gives the lease to us, has not granted it to another.
    """
    if seen is None or seen.lease_epoch <= ours or granted != ours:
        return False
    if confirmed is None or confirmed.at_s <= seen.at_s:
        return False
    return catalog_index >= confirmed.log_index


def foreign_fence(seen: FenceSeen, ours: LeaseEpoch, *, resolution: str) -> QueryFailed:
    """The failure of a query with a foreign fence."""
    return QueryFailed(
        "FOREIGN_FENCE",
        f"the progress topic has a record under lease epoch {seen.lease_epoch}, which this cluster "
        f"has not granted (ours is {ours}), so no reader sees what the query commits. Another "
        "cluster with the same ksql.service.id and secret writes to this Kafka, or someone who "
        f"knows the secret: stop it first. {resolution}",
    )


class FenceWatch:
    """Follows the progress topic from its beginning, in a thread. An exception there ends a
    pipeline's process (`run/driver.py`), and in an application what it serves (`spark/query.py`).
    """

    def __init__(
        self, kafka: Kafka, log: ProgressLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kafka, self._log, self._clock = kafka, log, clock
        #: why the topic is no longer followed, so that a foreign fence would go unnoticed
        self.failure: Exception | None = None
        self._seen: dict[str, FenceSeen] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start following."""
        threading.Thread(target=self._run, name="fences", daemon=True).start()

    def stop(self) -> None:
        """End the thread after its current step."""
        self._stopped.set()

    def newest(self, query_id: str) -> FenceSeen | None:
        """The newest lease epoch of a query in the topic; None: no record of it was read."""
        return self._seen.get(query_id)

    def take(self, record: Progress) -> None:
        """The next record of the topic that readers do not ignore."""
        before = self._seen.get(record.query_id)
        epoch = record.commit.lease_epoch
        if before is None or epoch > before.lease_epoch:
            self._seen[record.query_id] = FenceSeen(epoch, self._clock())

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self.failure = error
            raise

    def _follow(self) -> None:
        reader = TopicReader(self._kafka, self._log.topic, {0: 0})
        progress = self._log.reader()
        try:
            while not self._stopped.is_set():
                for _, records, _ in reader.poll(POLL_S):
                    for each in records:
                        if each.value is not None:
                            found = progress.read(each.key, each.value, each.headers)
                            if found is not None:
                                self.take(found)
        finally:
            reader.close()
