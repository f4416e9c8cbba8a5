"""Sends the demo's events to Kafka: as fast as possible, then at a steady rate with probes.

The producer partitions like Java's (`murmur2_random`), so that a key's events go to the same
partition as those that ksqlDB or Kafka Streams would write; acks = all.

Not here: what the events are (flights.py), how far the tables are (progress.py).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.control.metadata.topic_reconciler import CreateTopic
from standpipe.errors import KafkaUnavailable
from standpipe.local.demo.flights import Event
from standpipe.local.demo.questions import Probe

PARTITIONS = 4
PROBE_EVERY_S = 0.25
TICK_S = 0.01
SHOWN_S_MAX = 10.0
FLUSH_S_MAX = 30.0
#: the events are from 2013: keep them permanently, and do not roll a segment for each week of 2013
TOPIC_CONFIG = {"retention.ms": "-1", "segment.ms": str(20 * 365 * 86_400_000)}


def create_topics(bootstrap_servers: str, names: Iterable[str]) -> None:
    """Create the source topics; an existing one is kept. Raises KafkaUnavailable.

    Returns when the broker lists them: it learns of new topics shortly after the controller.
    """
    admin = KafkaAdmin(bootstrap_servers)
    missing = set(names)
    for name in missing:
        admin.carry_out(CreateTopic(name, PARTITIONS, TOPIC_CONFIG))
    deadline = time.monotonic() + SHOWN_S_MAX
    while missing := missing - admin.partition_counts().keys():
        if time.monotonic() > deadline:
            raise KafkaUnavailable(
                f"Kafka does not list the topics that it created: {sorted(missing)}"
            )
        time.sleep(TICK_S)


@dataclass(frozen=True)
class FeedRate:
    """The rate of a steady feed.

    `probe(i)` is called every PROBE_EVERY_S; the function that it returns is called with the
    instant (Unix seconds) at which Kafka acknowledged event i.
    """

    per_second: float
    probe: Callable[[int], Callable[[float], None] | None]
    stop: threading.Event


class Feed:
    """One producer. Counts acknowledged events; a failed delivery stops the feed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": "murmur2_random",
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "enable.idempotence": True,  # a retry must not count a flight twice
                "log_level": 2,  # not what a broker reports while it starts or stops
            }
        )
        self.acked = 0
        self.error = ""

    def send_all(self, topic: str, events: Iterable[Event]) -> None:
        """Send at full speed; return when all events are acknowledged."""
        for event in events:
            self._send(topic, event, self._delivered)
        self.flush()

    def send_paced(
        self,
        topic: str,
        events: Sequence[Event],
        pace: FeedRate,
    ) -> None:
        """Send at a steady rate; events that are overdue are sent at once.

        After `pace.stop` the rest is sent at full speed: no event is left out.
        """
        started, sent, next_probe = time.monotonic(), 0, 0.0
        while sent < len(events) and not pace.stop.is_set():
            elapsed = time.monotonic() - started
            due = min(len(events), int(elapsed * pace.per_second) + 1)
            while sent < due:
                wanted = pace.probe(sent) if elapsed >= next_probe else None
                if wanted is not None:
                    next_probe = elapsed + PROBE_EVERY_S
                self._send(topic, events[sent], self._telling(wanted))
                sent += 1
            self._producer.poll(0)
            time.sleep(TICK_S)
        for event in events[sent:]:
            self._send(topic, event, self._delivered)
        self.flush()

    def _telling(
        self, wanted: Callable[[float], None] | None
    ) -> Callable[[KafkaError | None, Message], None]:
        if wanted is None:
            return self._delivered

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(error, message)
            if error is None:
                wanted(time.time())

        return delivered

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises KafkaUnavailable if it is not."""
        left = self._producer.flush(FLUSH_S_MAX)
        if left or self.error:
            raise KafkaUnavailable(f"{left} events were not acknowledged; {self.error}")

    def _send(
        self, topic: str, event: Event, told: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, event.value, event.key, timestamp=event.time_ms, on_delivery=told
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.error = str(error)
        else:
            self.acked += 1


class ProbeBook:
    """Makes a probe for event i: its aircraft, and the count of flights including event i."""

    def __init__(
        self, tailnums: Sequence[str | None], loaded: int, tell: Callable[[Probe], None]
    ) -> None:
        self._tailnums = tailnums
        self._loaded = loaded
        self._tell = tell
        seen: Counter[str] = Counter()
        #: per event after the load: flights of its aircraft up to and including that event
        self._counts: list[int] = []
        for index, tailnum in enumerate(tailnums):
            if tailnum is not None:
                seen[tailnum] += 1
            if index >= loaded:
                self._counts.append(seen[tailnum] if tailnum is not None else 0)

    def __call__(self, index: int) -> Callable[[float], None] | None:
        """None for an event without tail number. `index` 0 is the first event after the load."""
        tailnum = self._tailnums[self._loaded + index]
        if tailnum is None:
            return None
        count = self._counts[index]
        return lambda acked: self._tell(Probe(tailnum=tailnum, count=count, acked=acked))
