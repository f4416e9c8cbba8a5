"""Results of queries in AVRO: real Kafka, nodes, Spark and registry; read by Confluent's own
deserializer.

Events in JSON become a stream, a table and a table with windows in AVRO. Each row that another
program reads equals a recompute, and lookups show the same. The table is replaced by one with one
column more; the registry hangs meanwhile.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from confluent_kafka import Message
from tests.e2e import registry_server
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.confluent_avro import deserialized
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_pipeline import read_all

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.data.encoding.framed_values import schema_id_of
from standpipe.data.encoding.store_keys import partition_of
from standpipe.errors import StatementError
from standpipe.local.demo.flights import Event

KEYS: Final = 12
EVENTS: Final = 300
#: of the first event: the beginning of an hour, so that the windows are known
BEGIN_MS: Final = 1_700_002_800_000
STEP_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

STATEMENTS: Final = """
CREATE STREAM SALES (K STRING KEY, ID INT, AMOUNT DECIMAL(9, 2), DAY DATE, AT TIMESTAMP,
                     TAGS ARRAY<STRING>, SEEN MAP<STRING, BIGINT>,
                     PLACE STRUCT<CITY STRING, ZIP INT>)
    WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE STREAM SALES_AVRO WITH (FORMAT='AVRO') AS SELECT * FROM SALES;
CREATE TABLE TOTALS WITH (VALUE_FORMAT='AVRO')
    AS SELECT K, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM SALES GROUP BY K;
CREATE TABLE HOURLY WITH (FORMAT='AVRO')
    AS SELECT K, COUNT(*) AS N FROM SALES WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K;
"""
REPLACED: Final = """
CREATE OR REPLACE TABLE TOTALS WITH (VALUE_FORMAT='AVRO')
    AS SELECT K, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL, MAX(ID) AS NEWEST FROM SALES GROUP BY K;
"""


#: another program's: DAY may not be NULL
STRICT: Final = json.dumps(
    {
        "type": "record",
        "name": "Strict",
        "fields": [
            {"name": "ID", "type": "int"},
            {"name": "DAY", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
)


def row_of(at: int) -> dict[str, Any]:
    """The value of an event, as in the topic; every seventh field is NULL."""
    row: dict[str, Any] = {
        "ID": at,
        "AMOUNT": float(Decimal(at * 7 % 10_000) / 100),
        "DAY": 19_000 + at,
        "AT": BEGIN_MS + at,
        "TAGS": ["a", None, f"tag-{at}"][: at % 4],
        "SEEN": {f"k{at % 3}": at} if at % 2 else {},
        "PLACE": {"CITY": f"Zürich {at}", "ZIP": None if at % 3 else 8000 + at},
    }
    dropped = list(row)[at % 11] if at % 11 < len(row) and at % 11 > 1 else None
    return {name: None if name == dropped else value for name, value in row.items()}


def key_of(at: int) -> str:
    return f"key-{at % KEYS}"


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Confluent's deserializer gives it, with texts for what JSON has not."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    read = dict(row)
    if row["AMOUNT"] is not None:
        read["AMOUNT"] = f"{Decimal(str(row['AMOUNT'])):.2f}"
    if row["DAY"] is not None:
        read["DAY"] = str(date(1970, 1, 1) + timedelta(days=row["DAY"]))
    if row["AT"] is not None:
        read["AT"] = str(epoch + timedelta(milliseconds=row["AT"]))
    if row["SEEN"] is not None:  # Connect's way to write a map
        read["SEEN"] = [{"key": key, "value": value} for key, value in row["SEEN"].items()]
    return read


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry_server.running(tmp_path_factory.mktemp("registry") / "log") as found:
        yield found


@pytest.fixture(scope="module")
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(RegistryConnection(urls=(server.url,)))


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, server: RegistryServer
) -> Iterator[TestCluster]:
    folder = tmp_path_factory.mktemp("publish") / "cluster"
    running = start(folder, nodes=2, config={"ksql.schema.registry.url": server.url})
    try:
        running.sql(STATEMENTS)
        send(running, 0, EVENTS)
        yield running
    finally:
        running.close()


def send(cluster: TestCluster, begin: int, end: int) -> None:
    events = [
        Event(
            key=key_of(at).encode(),
            value=json.dumps(row_of(at)).encode(),
            time_ms=BEGIN_MS + at * STEP_MS,
        )
        for at in range(begin, end)
    ]
    cluster.send("sales", events)


def totals(count: int) -> dict[str, list[Any]]:
    """Of a table over the first `count` events: N, TOTAL as text, the largest ID."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for at in range(count):
        rows[key_of(at)].append(row_of(at))
    found: dict[str, list[Any]] = {}
    for key, of_key in rows.items():
        amounts = [Decimal(str(row["AMOUNT"])) for row in of_key if row["AMOUNT"] is not None]
        newest = max(row["ID"] for row in of_key if row["ID"] is not None)
        found[key] = [len(of_key), f"{sum(amounts, Decimal(0)):.2f}", newest]
    return found


def values_of(server: RegistryServer, topic: str, messages: list[Message]) -> list[Any]:
    """The values of records, as Confluent's deserializer reads them."""
    there = [(topic, "value", data) for each in messages if (data := each.value()) is not None]
    read = iter(deserialized(server.url, there))
    return [None if each.value() is None else next(read) for each in messages]


def folded(cluster: TestCluster, server: RegistryServer, topic: str) -> dict[bytes, Any]:
    """What a reader of a table's public topic makes of it: the newest value of each key."""
    messages = read_all(cluster.bootstrap_servers, topic, 4)
    rows: dict[bytes, Any] = {}
    for message, value in zip(messages, values_of(server, topic, messages), strict=True):
        key = message.key()
        assert key is not None
        rows[key if isinstance(key, bytes) else key.encode()] = value
    return {key: value for key, value in rows.items() if value is not None}


def wait_for_totals(cluster: TestCluster, count: int) -> None:
    """Lookups answer on all nodes: the table's own topic needs no registry."""
    for node, _ in cluster.addresses:
        for key, (number, total, _) in totals(count).items():
            cluster.wait_for_rows(
                f"SELECT K, N, CAST(TOTAL AS STRING) AS T FROM TOTALS WHERE K = '{key}';",
                [[key, number, total]],
                entry=node,
            )


@pytest.mark.timeout(1800)
def test_a_stream_in_avro(
    cluster: TestCluster, server: RegistryServer, registry: SchemaRegistry
) -> None:
    def all_there() -> list[Message] | None:
        messages = read_all(cluster.bootstrap_servers, "SALES_AVRO", 4)
        return messages if len(messages) >= EVENTS else None

    messages = wait_until(all_there, "all events in AVRO")
    assert messages is not None
    keys = deserialized(
        server.url, [("SALES_AVRO", "key", bytes(each.key() or b"")) for each in messages]
    )
    values = values_of(server, "SALES_AVRO", messages)
    found = sorted(zip(keys, values, strict=True), key=repr)
    expected = [(key_of(at), as_read(row_of(at))) for at in range(EVENTS)]
    assert found == sorted(expected, key=repr), "each once"
    newest = registry.latest("SALES_AVRO-value").schema_id
    assert {schema_id_of(bytes(each.value() or b"")) for each in messages} == {newest}
    for each in messages:  # as Kafka's own producer places such keys
        assert each.partition() == partition_of(bytes(each.key() or b""), 4)
    pulled = cluster.pull("SELECT K, ID FROM SALES_AVRO WHERE ID = 7;")
    assert [list(row) for row in pulled.rows] == [[key_of(7), 7]]


@pytest.mark.timeout(1800)
def test_a_table_in_avro(cluster: TestCluster, server: RegistryServer) -> None:
    wait_for_totals(cluster, EVENTS)
    expected = {
        key.encode(): {"N": number, "TOTAL": total}
        for key, (number, total, _) in totals(EVENTS).items()
    }
    wait_until(
        lambda: folded(cluster, server, "TOTALS") == expected or None,
        "the public topic",
        lambda: str(folded(cluster, server, "TOTALS")),
    )
    (described,) = cluster.sql("DESCRIBE TOTALS;")
    shown = described["sourceDescription"]
    assert (shown["topic"], shown["keyFormat"], shown["valueFormat"]) == (
        *("TOTALS", "KAFKA", "AVRO"),
    )


@pytest.mark.timeout(1800)
def test_a_windowed_table_in_avro(cluster: TestCluster, server: RegistryServer) -> None:
    """Its key is in AVRO as well; the start of the window follows it."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for at in range(EVENTS):
        time_ms = BEGIN_MS + at * STEP_MS
        counts[key_of(at), time_ms - time_ms % HOUR_MS] += 1
    for (key, start_ms), number in itertools.islice(counts.items(), 3):
        text = f"SELECT K, N FROM HOURLY WHERE K = '{key}' AND WINDOWSTART = {start_ms};"
        cluster.wait_for_rows(text, [[key, number]])

    def read() -> dict[tuple[str, int], int]:
        rows = folded(cluster, server, "HOURLY")
        keys = deserialized(server.url, [("HOURLY", "key", raw[:-8]) for raw in rows])
        starts = [int.from_bytes(raw[-8:], "big") for raw in rows]
        return {
            (key, at): value["N"]
            for key, at, value in zip(keys, starts, rows.values(), strict=True)
        }

    wait_until(lambda: read() == counts or None, "all windows", lambda: str(read()))


@pytest.mark.timeout(1800)
def test_rows_that_a_given_schema_has_not(
    cluster: TestCluster, server: RegistryServer, registry: SchemaRegistry
) -> None:
    """Left out and told; the others are there, and the query runs on."""
    schema_id = registry.register("somebody-value", "AVRO", STRICT)
    cluster.sql(
        f"CREATE STREAM STRICT WITH (VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID={schema_id})"
        " AS SELECT K, ID, DAY FROM SALES;"
    )
    rows = [as_read(row_of(at)) for at in range(EVENTS)]
    expected = [{"ID": row["ID"], "DAY": row["DAY"]} for row in rows if row["DAY"] is not None]
    assert 0 < len(expected) < EVENTS

    def read() -> list[Any]:
        messages = read_all(cluster.bootstrap_servers, "STRICT", 4)
        assert {schema_id_of(bytes(each.value() or b"")) for each in messages} <= {schema_id}
        return sorted(values_of(server, "STRICT", messages), key=lambda row: row["ID"])

    wait_until(lambda: read() == expected or None, "all rows but those", lambda: str(read()))

    def is_told() -> bool | None:
        log = read_all(cluster.bootstrap_servers, "default_ksql_processing_log", 1)
        entries = [json.loads(each.value() or b"{}") for each in log]
        told = [each for each in entries if each.get("reason") == "ROW_NOT_IN_SCHEMA"]
        return (bool(told) and {each["topic"] for each in told} == {"STRICT"}) or None

    wait_until(is_told, "an entry in the processing log")


@pytest.mark.timeout(1800)
def test_a_second_version(
    cluster: TestCluster, server: RegistryServer, registry: SchemaRegistry
) -> None:
    """CREATE OR REPLACE with one column more: the next version under the same subject, and each row
    of the public topic has it in the end."""
    before = registry.latest("TOTALS-value")
    cluster.sql(REPLACED)
    after = registry.latest("TOTALS-value")
    assert before.schema_id != after.schema_id
    assert "NEWEST" in after.text

    def is_second() -> bool | None:
        (described,) = cluster.sql("DESCRIBE TOTALS;")
        return described["sourceDescription"]["standpipe"]["generation"] == 2 or None

    wait_until(is_second, "reads to move")
    wait_for_totals(cluster, EVENTS)
    names = ("N", "TOTAL", "NEWEST")
    expected = {
        key.encode(): dict(zip(names, row, strict=True)) for key, row in totals(EVENTS).items()
    }
    wait_until(
        lambda: folded(cluster, server, "TOTALS") == expected or None,
        "the public topic under the second version",
        lambda: str(folded(cluster, server, "TOTALS")),
    )


@pytest.mark.timeout(1800)
def test_a_registry_that_hangs(cluster: TestCluster, server: RegistryServer) -> None:
    """Queries write on, and lookups answer; a statement that needs it is refused, and not logged.
    Runs after the others."""
    statement = "CREATE STREAM LATE WITH (VALUE_FORMAT='AVRO') AS SELECT K, ID FROM SALES;"
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        send(cluster, EVENTS, EVENTS + KEYS)
        wait_for_totals(cluster, EVENTS + KEYS)
        with pytest.raises(StatementError, match=r"Schema registry: .* does not answer"):
            cluster.sql(statement)
        (listed,) = cluster.sql("SHOW STREAMS;")
        assert "LATE" not in {each["name"] for each in listed["streams"]}
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    numbers = {key.encode(): row[0] for key, row in totals(EVENTS + KEYS).items()}

    def read() -> dict[bytes, int]:
        return {key: row["N"] for key, row in folded(cluster, server, "TOTALS").items()}

    wait_until(lambda: read() == numbers or None, "what was written meanwhile", lambda: str(read()))
    cluster.sql(statement)


def test_a_name_that_avro_has_not(cluster: TestCluster) -> None:
    with pytest.raises(StatementError, match="Illegal character in: a b"):
        cluster.sql(
            "CREATE STREAM BAD WITH (VALUE_FORMAT='AVRO') AS SELECT K, ID AS `a b` FROM SALES;"
        )
