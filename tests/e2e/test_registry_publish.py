"""Results of queries in AVRO and JSON_SR: real Kafka, nodes, Spark and registry; read by
Confluent's own deserializers.

Events in JSON become a stream, a table and a table with windows in the format. Each row that
another program reads equals a recompute, and lookups show the same. Streams in the format are
joined, and one is written by two queries. The table is replaced by one with one column more; the
registry hangs meanwhile, the driver is killed, and the table's copy is recreated. The tests run in
their order, each on what the others left.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from tests.e2e import registry_server
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.confluent_serdes import deserialized
from tests.e2e.registry_formats import FORMATS, JSON_SR, RegistryFormat
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_pipeline import read_all
from tests.e2e.test_push_tables import Followed
from tests.e2e.test_topic_changes import make_anew

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.client import ServerRefused
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

#: FMT stands for the format
STATEMENTS: Final = """
CREATE STREAM SALES (K STRING KEY, ID INT, AMOUNT DECIMAL(9, 2), DAY DATE, AT TIMESTAMP,
                     TAGS ARRAY<STRING>, SEEN MAP<STRING, BIGINT>,
                     PLACE STRUCT<CITY STRING, ZIP INT>)
    WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');
CREATE STREAM SOLD WITH (FORMAT='FMT') AS SELECT * FROM SALES;
CREATE TABLE TOTALS WITH (VALUE_FORMAT='FMT')
    AS SELECT K, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM SALES GROUP BY K;
CREATE TABLE HOURLY WITH (FORMAT='FMT')
    AS SELECT K, COUNT(*) AS N FROM SALES WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K;
"""
REPLACED: Final = """
CREATE OR REPLACE TABLE TOTALS WITH (VALUE_FORMAT='FMT')
    AS SELECT K, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL, MAX(ID) AS NEWEST FROM SALES GROUP BY K;
"""

#: of two queries: the second begins later
WRITTEN_TWICE: Final = """
CREATE STREAM BOTH WITH (FORMAT='FMT') AS SELECT K, ID FROM SALES WHERE ID < 100;
INSERT INTO BOTH SELECT K, ID FROM SALES WHERE ID >= 200;
"""
JOINED: Final = """
CREATE STREAM MATCHED AS SELECT S.K AS K, S.ID AS ID, B.ID AS OTHER
    FROM SOLD S JOIN BOTH B WITHIN 1 MINUTE ON S.K = B.K;
"""
#: another program's: DAY may not be NULL
STRICT: Final = {"ID": "int", "DAY": "date"}


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


def as_read(row: dict[str, Any], of: RegistryFormat) -> dict[str, Any]:
    """A row as Confluent's deserializer gives it; of AVRO with texts for what JSON has not."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    read = dict(row)
    if row["SEEN"] is not None:  # Connect's way to write a map
        read["SEEN"] = [{"key": key, "value": value} for key, value in row["SEEN"].items()]
    if of is JSON_SR:
        return read
    if row["AMOUNT"] is not None:
        read["AMOUNT"] = f"{Decimal(str(row['AMOUNT'])):.2f}"
    if row["DAY"] is not None:
        read["DAY"] = str(date(1970, 1, 1) + timedelta(days=row["DAY"]))
    if row["AT"] is not None:
        read["AT"] = str(epoch + timedelta(milliseconds=row["AT"]))
    return read


def number_read(number: str, of: RegistryFormat) -> str | float:
    """A DECIMAL likewise."""
    return float(number) if of is JSON_SR else number


@pytest.fixture(scope="module", params=FORMATS, ids=lambda of: of.name)
def of(request: pytest.FixtureRequest) -> RegistryFormat:
    return request.param


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, of: RegistryFormat
) -> Iterator[RegistryServer]:
    """One for each format: a subject has schemas of one kind."""
    del of
    with registry_server.running(tmp_path_factory.mktemp("registry") / "log") as found:
        yield found


@pytest.fixture(scope="module")
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(RegistryConnection(urls=(server.url,)))


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, server: RegistryServer, of: RegistryFormat
) -> Iterator[TestCluster]:
    folder = tmp_path_factory.mktemp("publish") / "cluster"
    running = start(folder, nodes=2, config={"ksql.schema.registry.url": server.url})
    try:
        running.topic("sales")  # keeps old events, which Kafka would delete after half a minute
        running.sql(STATEMENTS.replace("FMT", of.name))
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


@dataclass(frozen=True)
class Reader:
    """Another program: it reads topics with Confluent's deserializer."""

    cluster: TestCluster
    server: RegistryServer
    of: RegistryFormat

    def messages(self, topic: str) -> list[Message]:
        return read_all(self.cluster.bootstrap_servers, topic, 4)

    def keys(self, topic: str, keys: Iterable[bytes]) -> list[Any]:
        return deserialized(self.server.url, [(topic, "key", key) for key in keys], self.of.kind)

    def values(self, topic: str, messages: list[Message]) -> list[Any]:
        there = [(topic, "value", data) for each in messages if (data := each.value()) is not None]
        read = iter(deserialized(self.server.url, there, self.of.kind))
        return [None if each.value() is None else next(read) for each in messages]

    def folded(self, topic: str) -> dict[bytes, Any]:
        """What it makes of a table's public topic: the newest value of each key."""
        messages = self.messages(topic)
        rows: dict[bytes, Any] = {}
        for message, value in zip(messages, self.values(topic, messages), strict=True):
            key = message.key()
            assert key is not None
            rows[key if isinstance(key, bytes) else key.encode()] = value
        return {key: value for key, value in rows.items() if value is not None}

    def wait_for_totals(self, count: int, *names: str) -> None:
        """Until the copy of TOTALS has the columns `names` of a table over so many events."""
        expected: dict[bytes, Any] = {}
        for key, (number, total, newest) in totals(count).items():
            row = {"N": number, "TOTAL": number_read(total, self.of), "NEWEST": newest}
            expected[key.encode()] = {name: row[name] for name in names}
        seen: list[Any] = []

        def is_there() -> bool | None:
            seen[:] = [self.folded("TOTALS")]
            return seen[0] == expected or None

        wait_until(is_there, f"the copy over {count} events", lambda: str(seen))


@pytest.fixture
def reader(cluster: TestCluster, server: RegistryServer, of: RegistryFormat) -> Reader:
    return Reader(cluster, server, of)


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
def test_a_stream(
    cluster: TestCluster, reader: Reader, registry: SchemaRegistry, of: RegistryFormat
) -> None:
    def all_there() -> list[Message] | None:
        messages = reader.messages("SOLD")
        return messages if len(messages) >= EVENTS else None

    messages = wait_until(all_there, "all events")
    assert messages is not None
    keys = reader.keys("SOLD", (bytes(each.key() or b"") for each in messages))
    values = reader.values("SOLD", messages)
    found = sorted(zip(keys, values, strict=True), key=repr)
    expected = [(key_of(at), as_read(row_of(at), of)) for at in range(EVENTS)]
    assert found == sorted(expected, key=repr), "each once"
    newest = registry.latest("SOLD-value").schema_id
    assert {schema_id_of(bytes(each.value() or b"")) for each in messages} == {newest}
    for each in messages:  # as Kafka's own producer places such keys
        assert each.partition() == partition_of(bytes(each.key() or b""), 4)
    pulled = cluster.pull("SELECT K, ID FROM SOLD WHERE ID = 7;")
    assert [list(row) for row in pulled.rows] == [[key_of(7), 7]]


@pytest.mark.timeout(1800)
def test_a_table(cluster: TestCluster, reader: Reader, of: RegistryFormat) -> None:
    wait_for_totals(cluster, EVENTS)
    reader.wait_for_totals(EVENTS, "N", "TOTAL")
    (described,) = cluster.sql("DESCRIBE TOTALS;")
    shown = described["sourceDescription"]
    assert (shown["topic"], shown["keyFormat"], shown["valueFormat"]) == (
        *("TOTALS", "KAFKA", of.name),
    )


@pytest.mark.timeout(1800)
def test_a_windowed_table(cluster: TestCluster, reader: Reader) -> None:
    """Its key is in the format as well; the start of the window follows it."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for at in range(EVENTS):
        time_ms = BEGIN_MS + at * STEP_MS
        counts[key_of(at), time_ms - time_ms % HOUR_MS] += 1
    for (key, start_ms), number in itertools.islice(counts.items(), 3):
        text = f"SELECT K, N FROM HOURLY WHERE K = '{key}' AND WINDOWSTART = {start_ms};"
        cluster.wait_for_rows(text, [[key, number]])

    def read() -> dict[tuple[str, int], int]:
        rows = reader.folded("HOURLY")
        keys = reader.keys("HOURLY", (raw[:-8] for raw in rows))
        starts = [int.from_bytes(raw[-8:], "big") for raw in rows]
        return {
            (key, at): value["N"]
            for key, at, value in zip(keys, starts, rows.values(), strict=True)
        }

    wait_until(lambda: read() == counts or None, "all windows", lambda: str(read()))


@pytest.mark.timeout(1800)
def test_a_stream_that_two_queries_write(
    cluster: TestCluster, reader: Reader, of: RegistryFormat
) -> None:
    """A key has the same bytes in the rows of both."""
    cluster.sql(WRITTEN_TWICE.replace("FMT", of.name))
    expected = [(key_of(at), {"ID": at}) for at in (*range(100), *range(200, EVENTS))]

    def read() -> list[Any]:
        messages = reader.messages("BOTH")
        keys = reader.keys("BOTH", (bytes(each.key() or b"") for each in messages))
        found = zip(keys, reader.values("BOTH", messages), strict=True)
        return sorted(found, key=lambda row: row[1]["ID"])

    wait_until(lambda: read() == expected or None, "the rows of both", lambda: str(read()))
    raw = {bytes(each.key() or b"") for each in reader.messages("BOTH")}
    assert len(raw) == KEYS


@pytest.mark.timeout(1800)
def test_two_streams_joined(cluster: TestCluster, of: RegistryFormat) -> None:
    """Both written by queries of ours; a push query counts the result in Spark."""
    cluster.sql(JOINED)
    both = [*range(100), *range(200, EVENTS)]
    expected = [[key_of(at), at, at] for at in both]
    cluster.wait_for_rows("SELECT K, ID, OTHER FROM MATCHED WHERE OTHER >= 0;", expected)
    (described,) = cluster.sql("DESCRIBE MATCHED;")
    assert described["sourceDescription"]["valueFormat"] == of.name
    counted = Followed(cluster, "SELECT K, COUNT(*) AS N FROM MATCHED GROUP BY K EMIT CHANGES;")
    counted.rows_until({"columns": [key_of(5), sum(key_of(at) == key_of(5) for at in both)]})
    counted.close()


@pytest.mark.timeout(1800)
def test_rows_that_a_given_schema_has_not(
    cluster: TestCluster, reader: Reader, registry: SchemaRegistry, of: RegistryFormat
) -> None:
    """Left out and told; the others are there, and the query runs on."""
    text = of.schema("Strict", STRICT)
    schema_id = registry.register("somebody-value", of.kind, text)
    cluster.sql(
        f"CREATE STREAM STRICT WITH (VALUE_FORMAT='{of.name}', VALUE_SCHEMA_ID={schema_id})"
        " AS SELECT K, ID, DAY FROM SALES;"
    )
    rows = [as_read(row_of(at), of) for at in range(EVENTS)]
    expected = [{"ID": row["ID"], "DAY": row["DAY"]} for row in rows if row["DAY"] is not None]
    assert 0 < len(expected) < EVENTS

    def read() -> list[Any]:
        messages = reader.messages("STRICT")
        assert {schema_id_of(bytes(each.value() or b"")) for each in messages} <= {schema_id}
        return sorted(reader.values("STRICT", messages), key=lambda row: row["ID"])

    wait_until(lambda: read() == expected or None, "all rows but those", lambda: str(read()))

    def is_told() -> bool | None:
        log = read_all(cluster.bootstrap_servers, "default_ksql_processing_log", 1)
        entries = [json.loads(each.value() or b"{}") for each in log]
        told = [each for each in entries if each.get("reason") == "ROW_NOT_IN_SCHEMA"]
        return (bool(told) and {each["topic"] for each in told} == {"STRICT"}) or None

    wait_until(is_told, "an entry in the processing log")


@pytest.mark.timeout(1800)
def test_a_second_version(
    cluster: TestCluster, reader: Reader, registry: SchemaRegistry, of: RegistryFormat
) -> None:
    """CREATE OR REPLACE with one column more: the next version under the same subject, and each row
    of the public topic has it in the end."""
    before = registry.latest("TOTALS-value")
    cluster.sql(REPLACED.replace("FMT", of.name))
    after = registry.latest("TOTALS-value")
    assert before.schema_id != after.schema_id
    assert "NEWEST" in after.text

    def is_second() -> bool | None:
        (described,) = cluster.sql("DESCRIBE TOTALS;")
        return described["sourceDescription"]["standpipe"]["generation"] == 2 or None

    wait_until(is_second, "reads to move")
    wait_for_totals(cluster, EVENTS)
    reader.wait_for_totals(EVENTS, "N", "TOTAL", "NEWEST")


@pytest.mark.timeout(1800)
def test_a_registry_that_hangs(
    cluster: TestCluster, reader: Reader, server: RegistryServer, of: RegistryFormat
) -> None:
    """Queries write on, and lookups answer; a statement that needs it is refused, and not
    logged."""
    statement = f"CREATE STREAM LATE WITH (VALUE_FORMAT='{of.name}') AS SELECT K, ID FROM SALES;"
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        send(cluster, EVENTS, EVENTS + KEYS)
        wait_for_totals(cluster, EVENTS + KEYS)
        with pytest.raises(ServerRefused, match=r"Schema registry: .* does not answer"):
            cluster.sql(statement)
        (listed,) = cluster.sql("SHOW STREAMS;")
        assert "LATE" not in {each["name"] for each in listed["streams"]}
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    reader.wait_for_totals(EVENTS + KEYS, "N", "TOTAL", "NEWEST")

    def is_taken() -> bool:
        cluster.sql(statement)  # refused at first: the registry has requests of before to answer
        return True

    wait_until(is_taken, "the registry answers again")


@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed(cluster: TestCluster, reader: Reader) -> None:
    """The next one goes on where it ended: no row is missing in the stream, or twice in what is
    committed."""
    count = EVENTS + 2 * KEYS
    cluster.local.kill_pipeline()
    send(cluster, EVENTS + KEYS, count)
    wait_for_totals(cluster, count)
    reader.wait_for_totals(count, "N", "TOTAL", "NEWEST")
    cluster.wait_for_rows("SELECT ID FROM SOLD;", [[row_of(at)["ID"]] for at in range(count)])


@pytest.mark.timeout(1800)
def test_a_copy_that_is_recreated(cluster: TestCluster, reader: Reader) -> None:
    """A notice says that it lacks rows, lookups answer as before, and it is filled at the query's
    next start."""
    count, query_id = EVENTS + 2 * KEYS, cluster.query_of("TOTALS")
    make_anew(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), "TOTALS")

    def is_told() -> bool:
        return "lacks older rows" in json.dumps(cluster.sql("SHOW QUERIES;"))

    wait_until(is_told, "a notice")
    wait_for_totals(cluster, count)
    assert reader.folded("TOTALS") == {}
    log = cluster.local.directory.logs / "pipeline.log"

    def ends() -> int:
        ended = [line for line in log.read_text().splitlines() if "no longer wanted" in line]
        return sum(query_id in line for line in ended)

    ends_before = ends()  # its run was ended when it took the table over, too
    cluster.sql(f"PAUSE {query_id};")  # a RESUME at once would pass it by: it polls
    wait_until(lambda: ends() > ends_before, "the pipeline ends the query")
    cluster.sql(f"RESUME {query_id};")
    reader.wait_for_totals(count, "N", "TOTAL", "NEWEST")
    send(cluster, count, count + KEYS)
    reader.wait_for_totals(count + KEYS, "N", "TOTAL", "NEWEST")


def test_a_name_that_avro_has_not(cluster: TestCluster) -> None:
    with pytest.raises(StatementError, match="Illegal character in: a b"):
        cluster.sql(
            "CREATE STREAM BAD WITH (VALUE_FORMAT='AVRO') AS SELECT K, ID AS `a b` FROM SALES;"
        )
