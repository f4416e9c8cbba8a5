"""How far the tables are: a follower of the progress topic (docs/INTERFACES.md).

A progress record gives the source offsets up to which a query's events are committed, and the
committed end of each partition of its table.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from standpipe.model import NO_BATCH, Progress


class DemoProgress:
    """Reads the progress topic in a separate thread; `newest` is replaced as a whole."""

    def __init__(self, bootstrap_servers: str, service_id: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "standpipe-demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._topic = f"{service_id}_progress"
        self._stop = threading.Event()
        #: query id -> its newest batch
        self.newest: Mapping[str, Progress] = {}
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(5.0)

    def events(self, query_id: str, topic: str) -> int:
        """Source events that the query has committed, over all partitions."""
        progress = self.newest.get(query_id)
        return sum(progress.sources.get(topic, {}).values()) if progress else 0

    def sinks(self, query_id: str) -> Mapping[int, int]:
        """Committed end of each partition of the query's table."""
        progress = self.newest.get(query_id)
        return progress.sinks if progress else {}

    def _follow(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        decoder = msgspec.json.Decoder(Progress)
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                value = message.value()
                if message.error() is None and value is not None:
                    self._take(decoder.decode(value))
        self._consumer.close()

    def _take(self, progress: Progress) -> None:
        before = self.newest.get(progress.query_id)
        if progress.commit.batch == NO_BATCH:
            return  # a fence
        if before is not None and progress.commit.lease_epoch < before.commit.lease_epoch:
            return
        self.newest = {**self.newest, progress.query_id: progress}
