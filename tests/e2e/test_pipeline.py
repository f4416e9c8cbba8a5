"""The pipeline alone, on real Kafka and real Spark: a driver process, a node that is faked.

What is in the topics afterwards is folded as a tailer folds it (exact matches of what progress
records name) and must equal a pandas recompute of the same events. Not here: nodes (test_serve).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.e2e.topic_ends import end_offset
from tests.unit.pipeline.fake_node import SECRET, FakeNode
from tests.unit.pipeline.queries_of import commands_of

from standpipe.config import keys
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.commands import (
    CreateTableAs,
    SetFeatureLevel,
    SetQueryState,
    TerminateQuery,
)
from standpipe.data.commit.committed import Committed
from standpipe.data.encoding import native
from standpipe.data.encoding import store_keys as records
from standpipe.data.encoding.row_values import object_names
from standpipe.data.encoding.store_keys import commit_header, partition_of, rowtime_header
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import (
    NO_BATCH,
    Commit,
    LeaseEpoch,
    PersistentQuery,
    Progress,
    QueryStatus,
    Source,
)
from standpipe.pipeline.commit.checkpoint import Checkpoint, Identity
from standpipe.pipeline.commit.checkpoint_cleanup import KEPT_MS, UNWANTED_FILE
from standpipe.pipeline.run.stopping import EXIT_FAILED

DAY_MS = 86_400_000
PARTITIONS = 4
PROGRESS, PROCESSING_LOG = "default__progress", "default_ksql_processing_log"
BATCH_RECORDS = 500
#: of the tests: their topics are all in one Kafka
NUMBERS = itertools.count(1)


def sql(tag: str) -> str:
    return f"""
CREATE STREAM F{tag} (TAILNUM STRING KEY, CARRIER STRING, DELAY INT, DEST STRING, AT BIGINT)
  WITH (KAFKA_TOPIC='f{tag}', VALUE_FORMAT='JSON', TIMESTAMP='AT', PARTITIONS=4);
CREATE TABLE PLANES{tag} WITH (PARTITIONS=4) AS SELECT TAILNUM, COUNT(*) AS FLIGHTS,
    AVG(DELAY) AS MEAN_DELAY, LATEST_BY_OFFSET(DEST) AS LAST_DEST
  FROM F{tag} GROUP BY TAILNUM EMIT CHANGES;
CREATE TABLE DAYS{tag} WITH (PARTITIONS=4) AS SELECT CARRIER, COUNT(*) AS FLIGHTS,
    MAX(DELAY) AS WORST
  FROM F{tag} WINDOW TUMBLING (SIZE 1 DAYS, RETENTION 400 DAYS, GRACE PERIOD 300 DAYS)
  GROUP BY CARRIER EMIT CHANGES;
"""


def eventually(what: str, holds: Callable[[], Any], *, within_s: float = 300) -> Any:
    """The first true answer of `holds`."""
    began = time.monotonic()
    deadline = began + within_s
    while not (answer := holds()):
        looked = time.monotonic()
        assert looked < deadline, what
        # each look reads topics, and the driver wants the processor, too
        time.sleep(max(0.3, 3 * (looked - began)))
        began = time.monotonic()
    return answer


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "java\n"
    except OSError:
        return False


@dataclass
class Driver:
    """`python -m standpipe.pipeline.run.driver` as a child."""

    process: subprocess.Popen[bytes]
    log: Path

    def jvm_pid(self) -> int:
        """Of Spark's JVM; a driver's first child is a Python that looks for Java, and ends."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def look() -> int | None:
            return next((p for p in map(int, children.read_text().split()) if is_java(p)), None)

        return eventually("a JVM", look)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class World:
    """Topics of one test, a fake node that wants its queries, and its drivers."""

    bootstrap_servers: str
    directory: Path
    tag: str
    node: FakeNode
    drivers: list[Driver] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: str = "checkpoints"
    #: whether its tables share a query
    together: bool = True

    def __post_init__(self) -> None:
        (self.directory / "secret").write_text(SECRET)
        self.make_topics({f"f{self.tag}": PARTITIONS})
        for command in commands_of(sql(self.tag)):
            if isinstance(command, CreateTableAs):
                self.make_topics({command.topic.name: PARTITIONS})
            self.node.log(command)

    def make_topics(self, topics: dict[str, int]) -> None:
        make_topics(self.bootstrap_servers, topics)

    def table(self, name: str) -> Source:
        return self.node.catalog().sources[f"{name}{self.tag}"]

    def query(self, name: str) -> PersistentQuery:
        return self.node.catalog().queries[str(self.table(name).query_id)]

    def driver(self) -> Driver:
        """One that runs, or a new one."""
        running = [each for each in self.drivers if each.process.poll() is None]
        return running[0] if running else self.drive()

    def drive(self, failpoint: str = "") -> Driver:
        log = self.directory / f"driver-{len(self.drivers)}.log"
        environment = {**os.environ, "STANDPIPE_FAILPOINT": failpoint}
        command = [sys.executable, "-m", "standpipe.pipeline.run.driver"]
        command += ["--nodes", self.node.address, "--bootstrap-servers", self.bootstrap_servers]
        command += ["--checkpoints", str(self.directory / self.checkpoints)]
        command += ["--secret-file", str(self.directory / "secret")]
        command += ["--config", f"{keys.BATCH_OFFSETS_MAX.name}={BATCH_RECORDS}"]
        command += ["--config", f"{keys.QUERY_GROUPS.name}={str(self.together).lower()}"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        driver = Driver(process, log)
        self.drivers.append(driver)
        return driver

    def send(self, values: list[bytes], *, key: bytes | None = None) -> None:
        """Raw values; without `key`, each under the TAILNUM of its JSON."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,  # else a retry on a busy machine changes the order
                "compression.type": "lz4",
                "message.max.bytes": 8_000_000,  # of which the broker sees what is left
            }
        )
        for value in values:
            own = key if key is not None else json.loads(value)["tailnum"].encode()
            producer.produce(f"f{self.tag}", value, own)
        assert producer.flush(120) == 0

    def send_flights(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        made = [
            {
                "tailnum": f"N{chance.randrange(60)}",
                "carrier": chance.choice(["UA", "AA", "Zürich Air"]),
                "DELAY" if chance.random() < 0.3 else "delay": chance.choice(
                    [None, *range(-9, 90)]
                ),
                "dest": chance.choice(["IAH", "SFO", None, 'a"\\b']),
                "at": chance.randrange(20) * DAY_MS + chance.randrange(DAY_MS),
            }
            for _ in range(count)
        ]
        # in the order of each partition, which is that of LATEST_BY_OFFSET
        self.events += [{name.lower(): value for name, value in one.items()} for one in made]
        self.send([msgspec.json.encode(one) for one in made])

    def read(self, topic: str, partitions: int) -> list[Message]:
        return read_all(self.bootstrap_servers, topic, partitions)

    def progress(self, query_id: str) -> list[Progress]:
        """Valid progress records of batches, in order."""
        floor, valid = 0, list[Progress]()
        for message in self.read(PROGRESS, 1):
            if message.value() is None:  # pruned
                continue
            record = msgspec.json.decode(message.value(), type=Progress)
            if record.query_id == query_id and record.commit.lease_epoch >= floor:
                floor = record.commit.lease_epoch
                if record.commit.batch != NO_BATCH:
                    valid.append(record)
        return valid

    def is_caught_up(self, name: str) -> bool:
        """The newest progress record covers all source records."""
        valid = self.progress(self.query(name).query_id)
        ends = {m.partition(): m.offset() + 1 for m in self.read(f"f{self.tag}", PARTITIONS)}
        covered = valid[-1].sources.get(f"f{self.tag}", {}) if valid else {}
        return all(covered.get(partition, 0) >= end for partition, end in ends.items())

    def wait_until_caught_up(self) -> None:
        for name in ("PLANES", "DAYS"):
            eventually(f"{name} covers all events", lambda name=name: self.is_caught_up(name))


def make_topics(bootstrap_servers: str, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = [NewTopic(topic, count, 1) for topic, count in topics.items()]
    for answer in admin.create_topics(new).values():
        answer.result()


def read_all(bootstrap_servers: str, topic: str, partitions: int) -> list[Message]:
    """Every record of a topic, partition by partition; none before a driver has created it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        }
    )
    found: list[Message] = []
    try:
        if len(consumer.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
            return found
        for partition in range(partitions):
            place = TopicPartition(topic, partition, OFFSET_BEGINNING)
            end = end_offset(consumer, place)
            consumer.assign([place])
            at = 0
            while at < end:
                for message in consumer.consume(min(1000, end - at), timeout=1):
                    assert message.error() is None, message.error()
                    found.append(message)
                    at = message.offset() + 1
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka"), any_port()) as broker:
        make_topics(broker.bootstrap_servers, {PROGRESS: 1, PROCESSING_LOG: 1})
        yield broker


@pytest.fixture
def world(kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    tag = f"_{next(NUMBERS)}"
    with FakeNode(getattr(request, "param", feature_levels.NEWEST)) as node:
        world = World(kafka.bootstrap_servers, tmp_path, tag, node)
        try:
            yield world
        finally:
            for driver in world.drivers:
                driver.kill()


@dataclass
class Calm:
    """What tests share that do their driver no harm: most of what each of them would take is the
    start of a driver."""

    directory: Path
    node: FakeNode
    drivers: list[Driver] = field(default_factory=list)
    #: of dropped queries, from before the first start: unwanted for long, and unwanted from now on
    gone: Path = Path()
    kept: Path = Path()


@pytest.fixture(scope="module")
def of_calm(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    directory = tmp_path_factory.mktemp("calm")
    checkpoints = directory / World.checkpoints
    with FakeNode() as node:
        calm = Calm(directory, node)
        calm.kept, calm.gone = checkpoints / "CTAS_A_1-1", checkpoints / "CTAS_B_2-1"
        for root in (calm.kept, calm.gone):
            Checkpoint(root, LeaseEpoch(3)).claim(
                Identity(
                    service_id="default_",
                    query_id=root.name[:-2],
                    table_id="t",
                    generation=1,
                    plan_sha256="",
                )
            )
        (calm.gone / UNWANTED_FILE).write_text(str(time.time_ns() // 10**6 - KEPT_MS))
        try:
            yield calm
        finally:
            for driver in calm.drivers:
                driver.kill()


@pytest.fixture
def calm(kafka: Broker, of_calm: Calm) -> Iterator[World]:
    """Topics of one test, whose node and driver were there before. Who ends the driver lets the
    next test start one."""
    tag, servers = f"_{next(NUMBERS)}", kafka.bootstrap_servers
    world = World(servers, of_calm.directory, tag, of_calm.node, of_calm.drivers)
    world.driver()
    yield world
    # those after it have the driver for themselves
    world.node.log(TerminateQuery(query_ids=tuple(world.node.catalog().queries)))


# ----------------------------------------------------------------------------- fold and recompute


def header(message: Message, name: str) -> bytes:
    (value,) = [value for key, value in message.headers() or [] if key == name]
    return value


def fold(world: World, name: str) -> tuple[dict[Any, dict[str, Any] | None], int]:
    """Rows as a tailer shows them, and how many foreign records it left out."""
    table, query = world.table(name), world.query(name)
    named: set[Commit] = {record.commit for record in world.progress(query.query_id)}
    rows: dict[Any, dict[str, Any] | None] = {}
    foreign = 0
    for message in world.read(table.topic, PARTITIONS):
        if records.parse_commit_header(header(message, "sp-commit")) not in named:
            foreign += 1
            continue
        raw, start_ms = message.key(), None
        if table.window:
            raw, start_ms = records.split_windowed_key(raw)
        assert records.partition_of(raw, PARTITIONS) == message.partition(), raw
        key = raw.decode() if start_ms is None else (raw.decode(), start_ms)
        if message.value() is None:  # without a rowtime where a repair wrote it
            rows[key] = None
            continue
        rowtime_ms = records.parse_rowtime_header(header(message, "sp-rowtime"))
        rows[key] = {**json.loads(message.value()), "ROWTIME": rowtime_ms}
    return rows, foreign


def go_at_once(world: World, name: str) -> bool:
    """Whether the compiled loop of a restore takes what Spark has written, rows with a value."""
    table = world.table(name)
    heads = native.heads_of(object_names(table))
    rows = [m for m in world.read(table.topic, PARTITIONS) if m.value() is not None]
    packed = [
        native.pack_rows([m.value()], [m.headers()], header(m, "sp-commit"), heads) for m in rows
    ]
    return len(packed) > 0 and None not in packed


def expected(world: World, name: str) -> dict[Any, dict[str, Any]]:
    """The same, by pandas. Events of one key are in one partition, so their order is known."""
    frame = pd.DataFrame(world.events).astype({"delay": "Float64"})
    rows: dict[Any, dict[str, Any]] = {}
    if name == "PLANES":
        for key, group in frame.groupby("tailnum"):
            mean = group.delay.mean()
            rows[key] = {
                "FLIGHTS": len(group),
                "MEAN_DELAY": 0.0 if pd.isna(mean) else pytest.approx(float(mean)),
                "LAST_DEST": next(iter(group.dest.dropna()[::-1]), None),
                "ROWTIME": group["at"].max(),
            }
        return rows
    for key, group in frame.groupby(["carrier", frame["at"] // DAY_MS * DAY_MS]):
        worst = group.delay.max()
        rows[key] = {
            "FLIGHTS": len(group),
            "WORST": None if pd.isna(worst) else int(worst),
            "ROWTIME": group["at"].max(),
        }
    return rows


def check_tables(world: World) -> dict[str, int]:
    """Both tables equal the recompute. Returns the foreign records of each."""
    foreign: dict[str, int] = {}
    for name in ("PLANES", "DAYS"):
        rows, foreign[name] = fold(world, name)
        assert rows == expected(world, name)
    return foreign


# ------------------------------------------------------------------------------------------ tests


def test_tables_equal_a_recompute_and_bad_records_are_on_record(calm: World) -> None:
    calm.send_flights(1200, seed=1)
    bad = [b"{", b"[1]", b'{"delay": "late"}', b" ", b'{"delay": 1, "at": null}']
    calm.send(bad, key=b"N1")
    calm.send_flights(300, seed=2)
    calm.wait_until_caught_up()

    assert check_tables(calm) == {"PLANES": 0, "DAYS": 0}
    for name in ("PLANES", "DAYS"):
        assert go_at_once(calm, name) is native.IS_COMPILED
        query_id = calm.query(name).query_id
        batches = [record.commit.batch for record in calm.progress(query_id)]
        # the newest may be told again when nothing comes for a while
        assert [*dict.fromkeys(batches)] == [*range(max(batches) + 1)], "every batch, in order"
        assert len(batches) >= 3, "maxOffsetsPerTrigger bounds a batch"

        def all_counted(query_id: str = query_id) -> QueryStatus | None:
            status = calm.node.status(query_id)
            return status if status and status.bad_records == len(bad) else None

        assert eventually("bad records are reported", all_counted).state == "RUNNING"
        lines = [json.loads(m.value()) for m in calm.read(PROCESSING_LOG, 1)]
        samples = [line for line in lines if line["query_id"] == query_id]
        assert sorted(b64decode(line["value_base64"]) for line in samples) == sorted(bad)
        reasons = {b64decode(line["value_base64"]): line["reason"] for line in samples}
        assert reasons[bad[-1]] == "TIMESTAMP"
        assert reasons[bad[0]] == "VALUE"
        assert {line["topic"] for line in samples} == {f"f{calm.tag}"}


def test_the_checkpoint_of_a_query_that_was_dropped_long_ago_is_removed(
    calm: World, of_calm: Calm
) -> None:
    """As a driver starts; the tests before this one have their tables from it."""
    eventually("it is removed", lambda: not of_calm.gone.exists())
    assert (of_calm.kept / UNWANTED_FILE).exists()
    assert calm.driver().process.poll() is None


def add_query(world: World, statement: str) -> str:
    """Let the world run this query instead of its own two. Returns the name of its table."""
    source, _, _ = sql(world.tag).partition("CREATE TABLE")
    _, command = commands_of(source + statement)
    assert isinstance(command, CreateTableAs)
    world.make_topics({command.topic.name: PARTITIONS})
    world.node.log(command)
    others = tuple(world.query(name).query_id for name in ("PLANES", "DAYS"))
    world.node.log(SetQueryState(query_ids=others, state="PAUSED"))
    return command.source.name.removesuffix(world.tag)


def logged(world: World, query_id: str) -> list[dict[str, Any]]:
    lines = [json.loads(message.value()) for message in world.read(PROCESSING_LOG, 1)]
    return [line for line in lines if line["query_id"] == query_id]


def test_records_and_rows_that_are_too_large_or_too_deep_stop_no_query(calm: World) -> None:
    """Each was RETRYING for ever, on the same batch."""
    name = add_query(
        calm,
        f"CREATE TABLE LISTS{calm.tag} WITH (PARTITIONS=4) AS SELECT TAILNUM, "
        f"COLLECT_LIST(DEST) AS DESTS FROM F{calm.tag} GROUP BY TAILNUM EMIT CHANGES;",
    )
    query_id = calm.query(name).query_id
    part = b'{"tailnum": "BIG", "at": 1000, "dest": "%b"}' % (b"y" * 300_000)
    calm.send([part] * 2)
    eventually("the list is a row", lambda: fold(calm, name)[0].get("BIG"))

    huge = b'{"at": 1000, "dest": "%b"}' % (b"x" * 3_000_000)  # a few KB on the wire
    deep = b'{"at": 1000, "dest": "d", "more": %b}' % (b"[" * 10_000 + b"]" * 10_000)
    calm.send([huge, deep], key=b"N1")
    calm.send([part] * 2)
    calm.send([b'{"tailnum": "N1", "at": 1000, "dest": "IAH"}'])
    eventually("it goes on", lambda: calm.is_caught_up(name))

    rows, _ = fold(calm, name)  # what is foreign is of the batch that Kafka refused
    assert (rows["BIG"], rows["N1"]["DESTS"]) == (None, ["IAH"])
    reasons = {"TOO_LARGE", "VALUE", "ROW_TOO_LARGE"}

    def all_logged() -> dict[str, Any] | None:
        found = {line["reason"]: line for line in logged(calm, query_id)}
        return found if found.keys() == reasons else None

    found = eventually("they are logged", all_logged)

    def counted() -> QueryStatus | None:
        status = calm.node.status(query_id)
        return status if status and status.bad_records else None

    assert eventually("they are counted", counted).state == "RUNNING"
    for reason in ("TOO_LARGE", "VALUE"):
        place = {part: found[reason][part] for part in ("topic", "partition")}
        assert place == {"topic": f"f{calm.tag}", "partition": partition_of(b"N1", PARTITIONS)}
        assert found[reason]["offset"] >= 0
    assert b64decode(found["TOO_LARGE"]["value_base64"]) == huge[:512]
    row = found["ROW_TOO_LARGE"]
    assert (row["topic"], b64decode(row["key_base64"])) == (calm.table(name).topic, b"BIG")
    assert row["bytes"] > row["bytes_max"] > 1_000_000


def test_late_records_are_told_batch_by_batch(calm: World) -> None:
    name = add_query(
        calm,
        f"CREATE TABLE LATE{calm.tag} WITH (PARTITIONS=4) AS SELECT TAILNUM, COUNT(*) AS FLIGHTS "
        f"FROM F{calm.tag} WINDOW TUMBLING (SIZE 1 DAYS, GRACE PERIOD 0 SECONDS) "
        "GROUP BY TAILNUM EMIT CHANGES;",
    )
    query_id = calm.query(name).query_id
    for day in (100, 101, 1):  # the third is behind the watermark that the batches before it set
        if day == 1:  # Spark's report on an idle query, after 10 s, hid that on the batch after it
            time.sleep(12)
        calm.send([b'{"tailnum": "N1", "at": %d}' % (day * DAY_MS)])
        eventually("it is covered", lambda: calm.is_caught_up(name))
    (line,) = eventually("it is told", lambda: logged(calm, query_id))
    assert (line["reason"], line["count"]) == ("LATE", 1)
    assert line["watermark_ms"] > DAY_MS
    place = {"topic": f"f{calm.tag}", "partition": partition_of(b"N1", PARTITIONS)}
    assert line["ranges"] == [{**place, "from": 2, "to": 3}]


def write_foreign(world: World, name: str, records: dict[bytes, bytes | None], by: Commit) -> None:
    """What a straggler of `by` writes into a table topic, long after its batch."""
    producer = Producer({"bootstrap.servers": world.bootstrap_servers})
    for raw, value in records.items():
        producer.produce(
            world.table(name).topic,
            value,
            raw,
            partition=partition_of(raw, PARTITIONS),
            headers=[("sp-commit", commit_header(by)), ("sp-rowtime", rowtime_header(7))],
        )
    assert producer.flush(120) == 0


def test_rows_that_a_straggler_shadows_are_repaired_while_the_query_is_idle(calm: World) -> None:
    calm.send_flights(300, seed=12)
    calm.wait_until_caught_up()
    query_id = calm.query("PLANES").query_id
    before, _ = fold(calm, "PLANES")
    (last, *_) = reversed(calm.progress(query_id))
    shadowed = {str(key).encode(): b'{"FLIGHTS":-1}' for key in [*before][:5]}
    shadowed |= {str([*before][6]).encode(): None, b"never there": b'{"FLIGHTS":-2}'}
    # the attempt is the one that was committed: a task that Spark had given up, and ran again
    write_foreign(calm, "PLANES", shadowed, last.commit)

    def news() -> list[Progress]:
        found = calm.progress(query_id)
        return found[[one.commit for one in found].index(last.commit) + 1 :]

    ends = ends_of(calm, "PLANES")
    # a repair first, and then, for nothing else comes, what is clean by now
    eventually("all to be told clean", lambda: is_clean(news(), ends))
    for one in news():
        assert one.commit.batch == last.commit.batch, "a repair is no batch of its own"
        assert one.sources == last.sources
    commits = {one.commit for one in news()}
    found = calm.read(calm.table("PLANES").topic, PARTITIONS)
    by_repair = [m for m in found if records.parse_commit_header(header(m, "sp-commit")) in commits]
    assert len(by_repair) == len(shadowed)
    assert left_by_compaction(found) == {k: row for k, row in before.items() if row is not None}
    assert left_by_compaction(found) == expected(calm, "PLANES")

    calm.send_flights(300, seed=13)
    calm.wait_until_caught_up()
    found = calm.read(calm.table("PLANES").topic, PARTITIONS)
    assert left_by_compaction(found) == expected(calm, "PLANES"), "and it goes on"


def left_by_compaction(found: list[Message]) -> dict[str, dict[str, Any]]:
    """The table for who reads its topic by offset alone, when compaction was there."""
    newest = {message.key(): message for message in found}
    return {
        key.decode(): {
            **json.loads(message.value()),
            "ROWTIME": records.parse_rowtime_header(header(message, "sp-rowtime")),
        }
        for key, message in newest.items()
        if message.value() is not None
    }


def ends_of(world: World, name: str) -> dict[int, int]:
    """Behind the last record of each partition of a table's topic that has any."""
    found = world.read(world.table(name).topic, PARTITIONS)
    return {message.partition(): message.offset() + 1 for message in found}


def is_clean(progress: list[Progress], ends: dict[int, int]) -> bool:
    told = progress[-1].clean_through if progress else {}
    return all(told.get(partition, 0) >= end for partition, end in ends.items())


def test_pipelines_share_the_queries_and_take_over(calm: World) -> None:
    """One is stopped in the middle of a batch, loses its leases, and goes on where it stood."""
    first, second = calm.driver(), calm.drive()
    drivers = {driver.process.pid: driver for driver in (first, second)}

    def holder(name: str) -> int:
        lease = calm.node.catalog().leases.get(calm.query(name).query_id)
        return int(lease.pipeline_id.split("-")[-2]) if lease else 0

    eventually("each has a query", lambda: {holder("PLANES"), holder("DAYS")} == set(drivers))
    calm.send_flights(1000, seed=6)
    calm.wait_until_caught_up()
    stopped = drivers[holder("PLANES")]
    pids = (stopped.process.pid, stopped.jvm_pid())
    before = calm.progress(calm.query("PLANES").query_id)[-1].commit
    calm.send_flights(1500, seed=7)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        eventually("the other took over", lambda: holder("PLANES") not in (0, pids[0]))
        calm.wait_until_caught_up()
        calm.send_flights(300, seed=8)
        calm.wait_until_caught_up()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    eventually("it has a share again", lambda: {holder("PLANES"), holder("DAYS")} == set(drivers))
    calm.send_flights(300, seed=9)
    calm.wait_until_caught_up()
    check_tables(calm)
    assert [driver.process.poll() for driver in drivers.values()] == [None, None]
    epochs = [r.commit.lease_epoch for r in calm.progress(calm.query("PLANES").query_id)]
    assert epochs == sorted(epochs)
    assert epochs[-1] > before.lease_epoch
    # who has nothing to do gets ready for what the other one does
    calm.node.log(TerminateQuery(query_ids=(calm.query("DAYS").query_id,)))
    idle = next(driver for pid, driver in drivers.items() if pid != holder("PLANES"))
    rehearsed = f'"query_id": "{calm.query("PLANES").query_id}", "event": "rehearsed"'
    eventually("a rehearsal", lambda: rehearsed in idle.log.read_text())
    assert "no rehearsal" not in idle.log.read_text()
    second.process.send_signal(signal.SIGTERM)  # the first one is for other tests
    assert second.process.wait(60) == 0, second.log.read_text()


def give_planes_the_checkpoint_of_days(world: World) -> None:
    """PLANES then fails by name."""
    world.send_flights(300, seed=5)
    first = world.driver()
    world.wait_until_caught_up()
    jvm = first.jvm_pid()
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(60) == 0, first.log.read_text()
    eventually("it ends in order, and its JVM with it", lambda: not is_running(jvm))
    planes, days = (
        world.directory / world.checkpoints / f"{world.query(name).query_id}-1"
        for name in ("PLANES", "DAYS")
    )
    planes.rename(planes.with_name("aside"))
    days.rename(planes)

    world.drive()
    query_id = world.query("PLANES").query_id
    status = eventually(
        "it fails by name",
        lambda: (s := world.node.status(query_id)) and s.state == "FAILED" and s,
    )
    assert status.reason == "CHECKPOINT_MISMATCH"
    assert "belongs to another query" in status.message


def test_in_a_group_the_checkpoint_of_another_query_is_refused(calm: World) -> None:
    """The others have the group's, and go on."""
    give_planes_the_checkpoint_of_days(calm)
    calm.send_flights(300, seed=6)
    eventually("days goes on", lambda: calm.is_caught_up("DAYS"))
    rows, _ = fold(calm, "DAYS")
    assert rows == expected(calm, "DAYS")


def test_a_jvm_that_crashes_says_so_in_the_log_and_leaves_no_file(calm: World) -> None:
    """The last of those that share a driver, which it ends."""
    driver = calm.driver()
    jvm = driver.jvm_pid()
    eventually("it is registered", lambda: "registered" in driver.log.read_text())
    os.kill(jvm, signal.SIGSEGV)
    assert driver.process.wait(300) == EXIT_FAILED, driver.log.read_text()
    assert "A fatal error has been detected by the Java Runtime" in driver.log.read_text()
    assert not [*Path.cwd().glob(f"hs_err_pid{jvm}*")]


def test_the_checkpoint_of_another_query_is_refused_and_others_go_on(world: World) -> None:
    world.together = False
    give_planes_the_checkpoint_of_days(world)
    # days has no checkpoint any more, though readers have seen its batches: named as well
    days_id = world.query("DAYS").query_id
    lost = eventually(
        "days is lost", lambda: (s := world.node.status(days_id)) and s.state == "FAILED" and s
    )
    assert lost.reason == "CHECKPOINT_LOST"
    # another query, created now, runs
    for command in commands_of(sql(f"{world.tag}_B")):
        if isinstance(command, CreateTableAs):
            world.make_topics({command.topic.name: PARTITIONS})
        world.node.log(command)
    world.make_topics({f"f{world.tag}_B": PARTITIONS})
    other = str(world.node.catalog().sources[f"PLANES{world.tag}_B"].query_id)
    eventually("others go on", lambda: (s := world.node.status(other)) and s.state == "RUNNING")


def test_a_driver_killed_before_and_after_the_commit(world: World) -> None:
    world.send_flights(1500, seed=3)
    for failpoint in ("before-progress@1", "after-progress@2"):
        driver = world.drive(failpoint)
        jvm = driver.jvm_pid()
        assert driver.process.wait(300) == -signal.SIGKILL, driver.log.read_text()
        eventually("the JVM does not outlive it", lambda jvm=jvm: not is_running(jvm))
    world.drive()
    world.send_flights(200, seed=4)
    world.wait_until_caught_up()
    foreign = check_tables(world)
    assert sum(foreign.values()) > 0, "the attempt before the kill is in the topic, and not seen"
    epochs = {r.commit.lease_epoch for r in world.progress(world.query("PLANES").query_id)}
    assert len(epochs) > 1, "each start goes on under an epoch of its own"


def test_a_stream_is_written_once_where_its_driver_died_behind_the_commit(world: World) -> None:
    """Spark had not said that the batch is done, so it runs it again; and readers of a stream,
    which has no keys, would see each row twice."""
    name = add_query(
        world, f"CREATE STREAM COPY{world.tag} AS SELECT TAILNUM, DEST FROM F{world.tag};"
    )
    query_id, topic = world.query(name).query_id, world.table(name).topic
    world.send_flights(1500, seed=6)
    driver = world.drive("after-progress@1")
    assert driver.process.wait(300) == -signal.SIGKILL, driver.log.read_text()
    world.drive()
    eventually("all events are copied", lambda: world.is_caught_up(name))

    committed = Committed(query_id)
    for record in world.progress(query_id):
        committed.take(record)
    seen = [
        message
        for message in world.read(topic, PARTITIONS)
        if committed.shows(message.partition(), message.offset(), message.headers() or [])
    ]
    assert len(seen) == len(world.events) == 1500
    dests = Counter((m.key().decode(), json.loads(m.value())["DEST"]) for m in seen)
    assert dests == Counter((event["tailnum"], event["dest"]) for event in world.events)


@pytest.mark.parametrize("world", [feature_levels.LEASES - 1], indirect=True)
def test_below_the_level_of_leases_a_newer_pipeline_fences_the_older(world: World) -> None:
    world.send_flights(300, seed=6)
    old = world.drive()
    world.wait_until_caught_up()
    new = world.drive()
    assert old.process.wait(120) == 3, old.log.read_text()
    assert "fenced" in old.log.read_text()
    world.send_flights(300, seed=7)
    world.wait_until_caught_up()
    world.node.log(SetFeatureLevel(level=feature_levels.LEASES))
    eventually("it holds leases", lambda: len(world.node.catalog().leases) == 2)
    world.send_flights(300, seed=8)
    world.wait_until_caught_up()
    check_tables(world)
    assert new.process.poll() is None
