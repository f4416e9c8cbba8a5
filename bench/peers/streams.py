"""Kafka Streams' interactive queries, two instances with standbys, behind Vert.x.

A broker of its own has the topic of the rows; it stands on the core of the load with the least
priority, idle but for the polls of the instances. Both instances stand on the core of the servers:
each holds every key, as active or as standby, so that any of them answers any key from its own
store. One is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
from bench.load import http
from bench.load.machine import (
    free_port,
    least_priority,
    server,
    start_behind_load,
    wait_for_port,
)
from bench.load.tables import PARTITIONS, key_of, partition_of_key, value_of
from bench.peers.java import JavaProgram
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from standpipe.local.cluster.broker import Broker

TOPIC: Final = "flights-by-plane"
INSTANCES: Final = 2
FILL_S_MAX: Final = 600
#: the rows and RocksDB's blocks are outside of the heap
_JVM_OPTIONS: Final = ("-Xms1g", "-Xmx1g")
_kafka: Any = confluent_kafka


class Streams(NamedTuple):
    """The instance that is asked, and the processes beside it."""

    pid: int
    port: int
    beside: tuple[int, ...] = ()


def route_of(key: str) -> str:
    """Where it answers a row."""
    return f"/rows/{key}"


@contextmanager
def streams(folder: Path, keys: int) -> Iterator[Streams]:
    """Both instances with all rows. Raises BrokerDied, JarsMissing or JavaMissing."""
    folder.mkdir()
    program = JavaProgram(Path(__file__).with_name("LookupPeer.java"), folder, ["streams", "web"])
    with ExitStack() as stack:
        broker = Broker(folder / "kafka", say=lambda _: None)
        stack.callback(broker.stop)
        start_behind_load(broker.start)
        fill(broker.bootstrap_servers, keys)
        started: list[Streams] = []
        for number in range(INSTANCES):
            port = free_port()
            place = folder / f"instance-{number}"
            place.mkdir()
            command = program.command(
                *(broker.bootstrap_servers, TOPIC, str(PARTITIONS), str(place), str(port)),
                str(INSTANCES > 1).lower(),
                options=_JVM_OPTIONS,
            )
            child = stack.enter_context(server(command, folder / f"instance-{number}.log"))
            started.append(Streams(child.pid, port))
        for each in started:
            wait_for_port(each.port, 60)
        for each in started:
            await_rows(each.port, keys)
        assert broker.pid is not None
        least_priority(broker.pid)
        first, *others = started
        yield first._replace(beside=(broker.pid, *(each.pid for each in others)))


def fill(servers: str, keys: int) -> None:
    """Write all rows to a new topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = _kafka.Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 2})
    failed: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for number in range(keys):
        key = key_of(number)
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value_of(number),
                    key.encode(),
                    partition=partition_of_key(key),
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(60)
    if left or failed:
        raise RuntimeError(f"{left} rows were not written, {failed[:1]}")


def await_rows(port: int, keys: int) -> None:
    """Until the instance has all partitions, and all of their records."""
    until = time.monotonic() + FILL_S_MAX
    while True:
        answer = http.ask(port, http.get("/lag"))
        if answer.status == 200 and int(answer.body) == 0:
            # a lag is of a store that is there: the last row shows that it was filled
            last = http.ask(port, http.get(route_of(key_of(keys - 1))))
            if last.status == 200:
                return
        if time.monotonic() > until:
            raise RuntimeError(f"Kafka Streams lacks rows: {answer.status} {answer.body!r}")
        time.sleep(0.2)
