"""A node's folder with filled tables, as control and tailer would leave it, and its workers.

Two tables: rows by key, and rows of one-hour windows by key. Row `number` has the same values in
every peer (`value_of`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.machine import SERVER_CORE, free_port, port_of, wait_for_port

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.private import write_secret
from standpipe.adapters.store.status_page import StatusWriter, page_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.store_keys import encode_key, partition_of, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    BatchId,
    Column,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    Offset,
    Placement,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
    Snapshot,
    Source,
    Window,
)
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig, Setting
from standpipe.node.worker.heavy_workers import socket_name

PARTITIONS = 4
POSITION = Offset(10)
#: of the rows, and of the first window
ROWTIME_MS = 1_356_998_400_000
HOUR_MS = 3_600_000
#: hours of each key, and of a day
HOURS, DAY_HOURS = 48, 24

TABLE = Source(
    name="FLIGHTS_BY_PLANE",
    kind="TABLE",
    columns=(
        Column(name="TAILNUM", type="STRING", is_key=True),
        Column(name="FLIGHTS", type="BIGINT"),
        Column(name="DISTANCE", type="BIGINT"),
        Column(name="DEST", type="STRING"),
    ),
    topic="FLIGHTS_BY_PLANE",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
    query_id="CTAS_FLIGHTS_BY_PLANE_1",
    table_id="T1",
    is_materialized=True,
)
HOURLY = Source(
    name="HOURS_BY_PLANE",
    kind="TABLE",
    columns=TABLE.columns[:3],
    topic="HOURS_BY_PLANE",
    partitions=PARTITIONS,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
    window=Window(
        kind="TUMBLING", size_ms=HOUR_MS, advance_ms=HOUR_MS, grace_ms=0, retention_ms=10**12
    ),
    query_id="CTAS_HOURS_BY_PLANE_2",
    table_id="T2",
    is_materialized=True,
)


def key_of(number: int) -> str:
    """The key of a row, 8 characters below ten million."""
    return f"N{number:07d}"


def value_of(number: int) -> bytes:
    """Its values as JSON: FLIGHTS, DISTANCE, DEST."""
    return b'[%d,%d,"abcdefghij"]' % (number % 1000, 12_345_678 + number)


def row_of(number: int) -> list[object]:
    """All of its columns."""
    return [key_of(number), number % 1000, 12_345_678 + number, "abcdefghij"]


def hourly_keys(keys: int) -> int:
    """How many keys have windows, so that there are as many rows as in the other table."""
    return max(1, keys // HOURS)


#: rows by partition: (key, value) each
Batch = Sequence[Sequence[tuple[bytes, bytes]]]


@dataclass(frozen=True)
class Records:
    """What a store is filled with: (partition, key, value)."""

    source: Source
    rows: Sequence[list[tuple[bytes, bytes]]]


def partition_among(key: str, source: Source) -> int:
    """Where Kafka's own partitioner puts it."""
    raw = encode_key((key,), source.key_columns, source.key_format)
    assert raw is not None
    return partition_of(raw, source.partitions)


def partition_of_key(key: str) -> int:
    """That of both tables."""
    return partition_among(key, TABLE)


def _rows(keys: int) -> Records:
    rows: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    for number in range(keys):
        key = key_of(number)
        row = (store_key((key,), ("STRING",)), pack_row(value_of(number), ROWTIME_MS))
        rows[partition_of_key(key)].append(row)
    return Records(TABLE, rows)


def _hours(keys: int) -> Records:
    rows: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    for number in range(hourly_keys(keys)):
        key = key_of(number)
        into = rows[partition_of_key(key)]
        for hour in range(HOURS):
            start_ms = ROWTIME_MS + hour * HOUR_MS
            value = b"[%d,%d]" % (hour, 12_345_678 + number)
            into.append((store_key((key,), ("STRING",), start_ms), pack_row(value, start_ms)))
    return Records(HOURLY, rows)


# -------------------------------------------------------------------------------------- nodes


def new_config(
    folder: Path, name: str = "node-1", config: Mapping[str, Setting] | None = None
) -> NodeConfig:
    """A node's configuration and its empty folder."""
    folder.mkdir(exist_ok=True)
    secret = folder / "secret"
    write_secret(secret, "bench")
    public, internal, peer = (f"127.0.0.1:{free_port()}" for _ in range(3))
    made = NodeConfig(
        node_id=NodeId(name),
        data_dir=str(folder / "node"),
        bootstrap_servers="",
        secret_file=str(secret),
        config=dict(config or {}),
        public=public,
        internal=internal,
        peer=peer,
    )
    made.paths.make()
    configuration.save(folder / "node.json", made)
    return made


def make_node(
    folder: Path,
    keys: int,
    settings: Mapping[str, Setting] | None = None,
    *,
    with_hours: bool = False,
) -> NodeConfig:
    """A node that holds the table of rows by key. `with_hours`: the other one, too."""
    config = new_config(folder, config=settings)
    fill(config, keys, with_hours=with_hours)
    publish(config, sources=(TABLE, HOURLY) if with_hours else (TABLE,))
    return config


def fill(config: NodeConfig, keys: int, *, with_hours: bool = False) -> None:
    """Write the stores and the pages of their state."""
    for made in (_rows, _hours) if with_hours else (_rows,):
        records = made(keys)
        write_rows(config, records.source, [records.rows])


def write_rows(config: NodeConfig, source: Source, batches: Iterable[Batch]) -> None:
    """The stores of one table, and the pages of their state."""
    table_id, last = str(source.table_id), 1
    identities = [
        StoreIdentity(table_id=table_id, generation=1, partition=partition)
        for partition in range(source.partitions)
    ]
    folder = config.paths.state / f"{table_id}-1"
    writers = [StoreWriter(folder / str(each.partition), each) for each in identities]
    for number, batch in enumerate(batches, 1):
        last = number
        for writer, identity, puts in zip(writers, identities, batch, strict=True):
            writer.apply(
                puts, [], StoreMeta(identity=identity, position=POSITION, batch=BatchId(last))
            )
    for writer, identity in zip(writers, identities, strict=True):
        writer.close()
        page = page_path(config.paths.run, ReplicaId(table_id, 1, identity.partition))
        StatusWriter(page).write(running(last))


def running(batch: int = 1) -> ReplicaStatus:
    """The state of a replica that has everything."""
    return ReplicaStatus(
        state=ReplicaState.RUNNING,
        position=POSITION,
        committed_end=POSITION,
        log_end=POSITION,
        batch=BatchId(batch),
        lease_epoch=LeaseEpoch(1),
        confirmed_boot_ms=Clock().boot_ms(),
        source_instant_ms=int(time.time() * 1000),
        foreign_records=0,
        rows=1,
        watermark_ms=0,
    )


def publish(
    holder: NodeConfig,
    *others: NodeConfig,
    sources: tuple[Source, ...] = (TABLE,),
    absent: Sequence[NodeInfo] = (),
) -> None:
    """The map of a cluster in which one node holds all, for each of its nodes. `absent`: nodes of
    the map that do not run."""
    placements = tuple(
        Placement(
            table_id=str(source.table_id),
            generation=1,
            partition=partition,
            replicas=(holder.node_id,),
        )
        for source in sources
        for partition in range(source.partitions)
    )
    nodes = tuple(
        NodeInfo(
            node_id=each.node_id,
            public=each.public,
            internal=each.internal,
            peer=each.peer,
            incarnation="bench",
        )
        for each in (holder, *others)
    )
    for each in (holder, *others):
        found = Snapshot(
            stamp=1,
            node_id=each.node_id,
            service_id="default_",
            cluster_id="bench",
            log_index=LogIndex(1),
            leader=holder.node_id,
            nodes=(*nodes, *absent),
            sources=sources,
            queries=(),
            assignment=Assignment(epoch=AssignmentEpoch(1), placements=placements),
        )
        published.write(each.paths.snapshot, found)


# ------------------------------------------------------------------------------------ workers

_WORKER: Final = "standpipe.node.worker.main"
#: the import of the C file fails, as where it was never built
_WITHOUT_C: Final = f"""
import runpy, sys
sys.modules["standpipe.data.encoding._native"] = None
runpy.run_module("{_WORKER}", run_name="__main__", alter_sys=True)
"""


@contextmanager
def worker(
    folder: Path, config: NodeConfig, *, with_heavy: bool = False, without_c: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of lookups. `with_heavy`: beside a heavy one, on the same core. `without_c`: as
    where no C compiler was at hand."""
    process = _started_worker(folder, "--worker=0", without_c=without_c)
    try:
        wait_for_port(port_of(config.public))
        if with_heavy:
            with _heavy_worker(folder, config):
                yield process
        else:
            yield process
    finally:
        process.terminate()
        process.wait(5)


def _started_worker(
    folder: Path, *arguments: str, without_c: bool = False
) -> subprocess.Popen[bytes]:
    node_file = f"--node-file={folder / 'node.json'}"
    program = ["-c", _WITHOUT_C] if without_c else ["-m", _WORKER]
    command = ["taskset", "-c", SERVER_CORE, sys.executable, *program]
    return subprocess.Popen([*command, node_file, *arguments])


@contextmanager
def _heavy_worker(folder: Path, config: NodeConfig) -> Iterator[None]:
    number = config.heavy_numbers()[0]
    process = _started_worker(folder, f"--worker={number}", "--heavy")
    try:
        while not (config.paths.run / socket_name(number)).exists():
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(5)
