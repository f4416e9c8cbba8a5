"""What Feast's own tests ask of an online store, against real nodes: `make feast`.

Feast's tests of online stores are not in its package, but in its repository
(sdk/python/tests/integration/online_store); what they check is listed here, each with its test.

| Feast's test | here |
|---|---|
| test_write_to_online_store | `test_written_and_read` |
| test_online_retrieval_with_event_timestamps | `test_event_timestamps` |
| test_async_online_retrieval_with_event_timestamps | `test_with_asyncio` |
| test_online_retrieval_success, …_with_shared_batch_source | `test_two_views_of_one_source` |
| test_write_to_online_store_event_check | `test_an_older_row_does_not_replace_a_newer_one` |
| test_feature_get_online_features_types_match | `test_each_type_there_and_back` |
| test_push_features_and_read | `test_pushed_through_spark` |
| test_e2e_consistency (materialize) | `test_materialized` |
| entities that are not there, full feature names, feature services | `test_keys_in_order` |
| test_online_store_cleanup, test_entity_ttl_online_store | none: Feast removes no row |
| vector and document search, versioned reads | none: there is no such index |
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pytest
from feast import (
    Entity,
    FeatureService,
    FeatureStore,
    FeatureView,
    Field,
    FileSource,
    PushSource,
    RepoConfig,
    ValueType,
    types,
)
from feast.data_source import PushMode

import standpipe
from standpipe.client import Client, NodesUnreachable, StandpipeError
from standpipe.feast.views import FeatureViewRefused

NODES = os.environ.get("STANDPIPE_NODES", "")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WAIT_S_MAX = 240.0
NUMBERS = count(1)

driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64)
user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.STRING)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with standpipe.connect(NODES, timeout_s=WAIT_S_MAX) as made:
        yield made


def store(folder: Path, **settings: Any) -> FeatureStore:
    number = next(NUMBERS)
    return FeatureStore(
        config=RepoConfig(
            project=f"p{number}",
            registry=str(folder / f"registry-{number}.db"),
            provider="local",
            online_store={
                "type": "standpipe.feast.StandpipeOnlineStore",
                "nodes": NODES,
                "timeout_s": WAIT_S_MAX,
                **settings,
            },
            offline_store={"type": "file"},
            entity_key_serialization_version=3,
        )
    )


@pytest.fixture
def fs(tmp_path: Path) -> FeatureStore:
    return store(tmp_path)


def direct(client: Client, name: str, columns: str, more: str = "") -> None:
    """A table without Spark: what is inserted into NAME_INPUT is a row of NAME."""
    topic = f"KAFKA_TOPIC='{name.lower()}', VALUE_FORMAT='JSON'"
    client.execute(f"CREATE TABLE {name}_INPUT ({columns}) WITH ({topic}, PARTITIONS=2);")
    client.execute(f"CREATE SOURCE TABLE {name} ({columns}) WITH ({topic}, APPLY='DIRECT'{more});")


DRIVER_COLUMNS = (
    "DRIVER_ID BIGINT PRIMARY KEY, CONV_RATE DOUBLE, TRIPS INTEGER, EVENT_TIMESTAMP TIMESTAMP"
)
DRIVER_FIELDS = [
    Field(name="driver_id", dtype=types.Int64),
    Field(name="conv_rate", dtype=types.Float32),
    Field(name="trips", dtype=types.Int32),
]


def frame(**columns: list[Any]) -> pd.DataFrame:
    made = pd.DataFrame(columns)
    if "event_timestamp" not in made:
        made["event_timestamp"] = pd.Timestamp(NOW)
    return made


def source_of(folder: Path, name: str, rows: pd.DataFrame) -> FileSource:
    path = folder / f"{name}.parquet"
    rows.to_parquet(path)
    return FileSource(name=name, path=str(path), timestamp_field="event_timestamp")


DRIVERS = frame(driver_id=[1, 2], conv_rate=[0.5, 0.3], trips=[4, 5])


def driver_view(folder: Path, name: str, tags: dict[str, str] | None = None) -> FeatureView:
    return FeatureView(
        name=name,
        entities=[driver],
        schema=DRIVER_FIELDS,
        source=source_of(folder, f"{name}_source", DRIVERS),
        ttl=timedelta(days=1),
        tags={"standpipe_input": f"{name}_input"} if tags is None else tags,
    )


def wait_for(look: Callable[[], Any], wanted: object) -> None:
    """A row is read some ms after it was written, through Spark some seconds."""
    deadline, seen = time.monotonic() + WAIT_S_MAX, None
    while time.monotonic() < deadline:
        if (seen := look()) == wanted:
            return
        time.sleep(0.05)  # between two looks
    raise AssertionError(f"{seen} instead of {wanted}")


def read(fs: FeatureStore, features: Any, rows: list[dict[str, Any]], **more: Any) -> Any:
    return fs.get_online_features(features=features, entity_rows=rows, **more).to_dict()


def test_written_and_read(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    direct(client, "WRITTEN", DRIVER_COLUMNS)
    fs.apply([driver, driver_view(tmp_path, "written")])
    fs.write_to_online_store("written", frame(driver_id=[123], conv_rate=[0.85], trips=[14]))
    features = ["written:trips", "written:conv_rate"]

    def look() -> Any:
        return read(fs, features, [{"driver_id": 123}])

    wait_for(lambda: look()["trips"], [14])
    assert look()["conv_rate"] == [pytest.approx(0.85)]
    fs.write_to_online_store("written", frame(driver_id=[123], conv_rate=[None], trips=[15]))
    wait_for(lambda: look()["trips"], [15])
    assert look()["conv_rate"] == [None], "a row is written whole"


def test_event_timestamps(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    direct(client, "TIMED", DRIVER_COLUMNS)
    view = driver_view(tmp_path, "timed")
    fs.apply([driver, view])
    times = [pd.to_datetime(1646263500, unit="s"), pd.to_datetime(1646263600, unit="s")]
    rows = frame(driver_id=[1, 2], conv_rate=[0.5, 0.3], trips=[4, 5], event_timestamp=times)
    fs.write_to_online_store("timed", rows)
    entities = [{"driver_id": 1}, {"driver_id": 2}, {"driver_id": 3}]
    wait_for(lambda: read(fs, ["timed:trips"], entities)["trips"], [4, 5, None])
    found = fs.get_online_features(features=["timed:trips"], entity_rows=entities).to_df(True)
    assert list(found["trips__ts"]) == [1646263500, 1646263600, 0], "naive ones are UTC"


def test_with_asyncio(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    """In two event loops, one after the other."""
    direct(client, "ASYNCED", DRIVER_COLUMNS)
    fs.apply([driver, driver_view(tmp_path, "asynced")])
    entities = [{"driver_id": number} for number in (1, 9, 2)]

    async def look() -> Any:
        found = await fs.get_online_features_async(
            features=["asynced:trips", "asynced:conv_rate"], entity_rows=entities
        )
        return found.to_dict()["trips"]

    async def whole() -> None:
        await fs.initialize()
        await fs.write_to_online_store_async("asynced", DRIVERS)
        deadline = time.monotonic() + WAIT_S_MAX
        while await look() != [4, None, 5]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await fs.close()

    asyncio.run(whole())
    assert asyncio.run(look()) == [4, None, 5]


def test_two_views_of_one_source(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    direct(client, "SHARED", DRIVER_COLUMNS)
    source = source_of(tmp_path, "shared_source", DRIVERS)
    tags = {"standpipe_table": "Shared", "standpipe_input": "shared_input"}
    less = FeatureView(
        name="less",
        entities=[driver],
        schema=[DRIVER_FIELDS[0], DRIVER_FIELDS[2]],
        source=source,
        tags=tags,
    )
    more = FeatureView(
        name="more", entities=[driver], schema=DRIVER_FIELDS, source=source, tags=tags
    )
    fs.apply([driver, less, more])
    fs.write_to_online_store("more", DRIVERS)
    entities = [{"driver_id": 1}, {"driver_id": 2}]
    wait_for(lambda: read(fs, ["less:trips"], entities)["trips"], [4, 5])
    found = read(fs, ["less:trips", "more:trips"], entities, full_feature_names=True)
    assert (found["less__trips"], found["more__trips"]) == ([4, 5], [4, 5])
    with pytest.raises(KeyError):
        read(fs, ["less:conv_rate"], entities)


def test_keys_in_order(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    """300 keys, some twice, some that are not there: more than one request has."""
    direct(client, "ORDERED", DRIVER_COLUMNS)
    fs.apply([driver, view := driver_view(tmp_path, "ordered")])
    fs.apply([FeatureService(name="all_of_it", features=[view])])
    numbers = list(range(300))
    rates = [number / 4 for number in numbers]
    fs.write_to_online_store("ordered", frame(driver_id=numbers, conv_rate=rates, trips=numbers))
    asked = [number for number in range(310, -1, -1) for _ in range(1 + number % 2)]
    wanted = [number if number < 300 else None for number in asked]
    entities = [{"driver_id": number} for number in asked]
    wait_for(lambda: read(fs, ["ordered:trips"], entities)["trips"], wanted)
    found = read(fs, fs.get_feature_service("all_of_it"), entities, full_feature_names=True)
    assert found["ordered__trips"] == wanted
    assert found["ordered__conv_rate"] == [None if n is None else n / 4 for n in wanted]


def test_an_older_row_does_not_replace_a_newer_one(
    fs: FeatureStore, client: Client, tmp_path: Path
) -> None:
    direct(client, "LATEST", DRIVER_COLUMNS, ", VERSION_COLUMN='EVENT_TIMESTAMP'")
    fs.apply([driver, driver_view(tmp_path, "latest")])

    def write(key: int, trips: int, at: datetime) -> None:
        rows = frame(driver_id=[key], conv_rate=[0.0], trips=[trips], event_timestamp=[at])
        fs.write_to_online_store("latest", rows)

    write(1, 10, NOW)
    write(1, 9, NOW - HOUR)
    write(2, 1, NOW - HOUR)
    entities = [{"driver_id": 1}, {"driver_id": 2}]
    wait_for(lambda: read(fs, ["latest:trips"], entities)["trips"], [10, 1])
    write(1, 11, NOW + HOUR)
    wait_for(lambda: read(fs, ["latest:trips"], entities)["trips"], [11, 1])


def test_materialized(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    direct(client, "MATERIAL", DRIVER_COLUMNS, ", VERSION_COLUMN='EVENT_TIMESTAMP'")
    rows = pd.DataFrame(
        {
            "driver_id": [number % 250 for number in range(500)],
            "conv_rate": [0.5] * 500,
            "trips": list(range(500)),
            "event_timestamp": [NOW + timedelta(seconds=number) for number in range(500)],
        }
    )
    view = FeatureView(
        name="material",
        entities=[driver],
        schema=DRIVER_FIELDS,
        source=source_of(tmp_path, "material_source", rows),
        tags={"standpipe_input": "material_input"},
    )
    fs.apply([driver, view])
    fs.materialize(NOW - HOUR, NOW + HOUR)
    entities = [{"driver_id": number} for number in (0, 7, 249, 250)]
    wanted = [250, 257, 499, None]
    wait_for(lambda: read(fs, ["material:trips"], entities)["trips"], wanted)


EVERY_TYPE: list[tuple[str, Any, str, list[Any]]] = [
    ("b", types.Bool, "BOOLEAN", [True, False]),
    ("i32", types.Int32, "INTEGER", [-5, 0]),
    ("i64", types.Int64, "BIGINT", [2**53 + 1, -(2**62)]),
    ("f32", types.Float32, "DOUBLE", [0.5, 0.0]),
    ("f64", types.Float64, "DOUBLE", [0.1, -1e300]),
    ("s", types.String, "STRING", ["it's ünï", ""]),
    ("raw", types.Bytes, "BYTES", [b"\x00\xff", b"x"]),
    ("at", types.UnixTimestamp, "TIMESTAMP", [NOW, datetime(1969, 1, 1, tzinfo=UTC)]),
    ("u", types.Uuid, "STRING", [str(UUID(int=5)), str(UUID(int=6))]),
    ("d", types.Decimal, "STRING", [Decimal("1.50"), Decimal(-2)]),
    ("bs", types.Array(types.Bool), "ARRAY<BOOLEAN>", [[True, False], [False]]),
    ("i32s", types.Array(types.Int32), "ARRAY<INTEGER>", [[1, 2], [0]]),
    ("i64s", types.Array(types.Int64), "ARRAY<BIGINT>", [[2**53 + 1], [3]]),
    ("f32s", types.Array(types.Float32), "ARRAY<DOUBLE>", [[0.5, 0.25], [1.0]]),
    ("f64s", types.Array(types.Float64), "ARRAY<DOUBLE>", [[0.1], [1.0, 2.0]]),
    ("ss", types.Array(types.String), "ARRAY<STRING>", [["it's", ""], ["b"]]),
    ("m", types.Map, "STRING", [{"k": 1, "l": "x"}, {"k": 2, "l": "it's"}]),
]


def test_each_type_there_and_back(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {of}" for name, _, of, _ in EVERY_TYPE)
    direct(client, "TYPED", f"USER_ID STRING PRIMARY KEY, {columns}, EVENT_TIMESTAMP TIMESTAMP")
    view = FeatureView(
        name="typed",
        entities=[user],
        schema=[
            Field(name="user_id", dtype=types.String),
            *(Field(name=name, dtype=of) for name, of, _, _ in EVERY_TYPE),
        ],
        source=source_of(tmp_path, "typed_source", frame(user_id=["ada"])),
        tags={"standpipe_input": "typed_input"},
    )
    fs.apply([user, view])
    values = {name: listed for name, _, _, listed in EVERY_TYPE}
    fs.write_to_online_store("typed", frame(user_id=["ada", "o'Hara"], **values))
    names = [f"typed:{name}" for name in values]
    entities = [{"user_id": "o'Hara"}, {"user_id": "nobody"}, {"user_id": "ada"}]
    wait_for(lambda: read(fs, ["typed:i32"], entities)["i32"], [0, None, -5])
    found = read(fs, names, entities)
    for name, listed in values.items():
        shown = [str(each) if name == "u" and each else each for each in found[name]]
        assert shown == [listed[1], None, listed[0]], name


def test_pushed_through_spark(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    """The table is written by a query, and has a key of two columns; the view pushes to what the
    query reads."""
    client.execute(
        "CREATE STREAM CLICKS (USER_ID STRING KEY, DRIVER_ID BIGINT, SCORE DOUBLE,"
        " EVENT_TIMESTAMP TIMESTAMP)"
        " WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=2);"
        "CREATE TABLE PAIRS WITH (KEY_FORMAT='JSON') AS"
        " SELECT USER_ID, DRIVER_ID, LATEST_BY_OFFSET(SCORE) AS SCORE,"
        " LATEST_BY_OFFSET(EVENT_TIMESTAMP) AS EVENT_TIMESTAMP,"
        " LATEST_BY_OFFSET(EVENT_TIMESTAMP) AS UPDATED_AT"
        " FROM CLICKS GROUP BY USER_ID, DRIVER_ID EMIT CHANGES;"
        "CREATE TABLE HOURLY AS SELECT USER_ID, COUNT(*) AS N FROM CLICKS"
        " WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY USER_ID EMIT CHANGES;"
    )
    rows = frame(user_id=["ada", "ada", "bob"], driver_id=[1, 2, 1], score=[0.1, 0.2, 0.3])
    schema = [
        Field(name="user_id", dtype=types.String),
        Field(name="driver_id", dtype=types.Int64),
        Field(name="score", dtype=types.Float64),
    ]
    batch = source_of(tmp_path, "clicks_source", rows)

    def view(**tags: str) -> FeatureView:
        return FeatureView(
            name="pairs",
            entities=[user, driver],
            schema=schema,
            source=PushSource(name="clicks_push", batch_source=batch),
            tags=tags,
        )

    fs.apply([user, driver, view(standpipe_timestamp="UPDATED_AT")])
    with pytest.raises(FeatureViewRefused, match="view pairs, table PAIRS: Feast cannot write it"):
        fs.push("clicks_push", rows, to=PushMode.ONLINE)
    fs.apply([view(standpipe_input="PAIRS")])
    with pytest.raises(FeatureViewRefused, match="written by query"):
        fs.push("clicks_push", rows, to=PushMode.ONLINE)
    fs.apply([view(standpipe_input="clicks", standpipe_timestamp="UPDATED_AT")])
    fs.push("clicks_push", rows, to=PushMode.ONLINE)
    entities = [
        {"driver_id": number, "user_id": name}
        for name, number in (("bob", 1), ("ada", 2), ("bob", 2), ("ada", 1))
    ]
    scores = [0.3, 0.2, None, 0.1]
    wait_for(lambda: read(fs, ["pairs:score"], entities)["score"], scores)
    found = fs.get_online_features(features=["pairs:score"], entity_rows=entities[:1])
    assert list(found.to_df(True)["score__ts"]) == [int(NOW.timestamp())]
    by_hour = FeatureView(
        name="hourly",
        entities=[user],
        schema=[schema[0], Field(name="n", dtype=types.Int64)],
        source=batch,
    )
    with pytest.raises(FeatureViewRefused, match="a row for each window"):
        fs.apply([by_hour])


def test_what_does_not_fit_is_refused_by_name(
    fs: FeatureStore, client: Client, tmp_path: Path
) -> None:
    direct(client, "STRICT", "USER_ID STRING PRIMARY KEY, TRIPS BIGINT")
    with pytest.raises(
        FeatureViewRefused, match=r"feature view absent, table ABSENT: .*CREATE TABLE"
    ):
        fs.apply([driver, driver_view(tmp_path, "absent")])
    with pytest.raises(
        FeatureViewRefused, match="its key is USER_ID, and the join keys are driver_id"
    ):
        fs.apply([driver, driver_view(tmp_path, "strict")])
    source = source_of(tmp_path, "strict_source", frame(user_id=["a"]))

    def view(*fields: Field, **tags: str) -> FeatureView:
        key = Field(name="user_id", dtype=types.String)
        return FeatureView(
            name="strict", entities=[user], schema=[key, *fields], source=source, tags=tags
        )

    trips = Field(name="trips", dtype=types.Int64)
    with pytest.raises(FeatureViewRefused, match="has no column OTHER"):
        fs.apply([user, view(trips, Field(name="other", dtype=types.Int64))])
    with pytest.raises(FeatureViewRefused, match="TRIPS is of type BIGINT, and a INT32 is read"):
        fs.apply([user, view(Field(name="trips", dtype=types.Int32))])
    with pytest.raises(FeatureViewRefused, match="has no column SEEN: change standpipe_timestamp"):
        fs.apply([user, view(trips, standpipe_timestamp="seen")])
    fs.apply([user, view(trips, standpipe_input="strict_input")])
    with pytest.raises(FeatureViewRefused, match="no column EVENT_TIMESTAMP"):
        fs.write_to_online_store("strict", frame(user_id=["ada"], trips=[1]))
    client.insert("STRICT_INPUT", {"user_id": "ada", "trips": 7})
    wait_for(lambda: read(fs, ["strict:trips"], [{"user_id": "ada"}])["trips"], [7])
    found = fs.get_online_features(features=["strict:trips"], entity_rows=[{"user_id": "ada"}])
    assert list(found.to_df(True)["trips__ts"]) == [0], "a table without timestamps"


def test_a_table_made_again_with_another_type(
    fs: FeatureStore, client: Client, tmp_path: Path
) -> None:
    direct(client, "REMADE", DRIVER_COLUMNS)
    fs.apply([driver, driver_view(tmp_path, "remade")])
    fs.write_to_online_store("remade", DRIVERS)
    entities = [{"driver_id": 1}]
    wait_for(lambda: read(fs, ["remade:trips"], entities)["trips"], [4])
    client.execute("DROP TABLE REMADE; DROP TABLE REMADE_INPUT DELETE TOPIC;")
    with pytest.raises(FeatureViewRefused, match="If it is missing, create it"):
        wait_for(lambda: read(fs, ["remade:trips"], entities), None)
    columns = DRIVER_COLUMNS.replace("TRIPS INTEGER", "TRIPS STRING")
    direct(client, "REMADE2", columns)
    client.insert("REMADE2_INPUT", {"driver_id": 1, "trips": "many"})
    fs.get_feature_view("remade")
    other = driver_view(tmp_path, "remade", {"standpipe_table": "remade2"})
    with pytest.raises(FeatureViewRefused, match="TRIPS is of type STRING"):
        wait_for(
            lambda: fs._get_provider().online_store.online_read(
                fs.config, other, _keys_of(1), ["trips"]
            ),
            None,
        )


def _keys_of(number: int) -> list[Any]:
    from feast.protos.feast.types.EntityKey_pb2 import EntityKey
    from feast.protos.feast.types.Value_pb2 import Value

    return [EntityKey(join_keys=["driver_id"], entity_values=[Value(int64_val=number)])]


def test_tables_outlive_their_views(fs: FeatureStore, client: Client, tmp_path: Path) -> None:
    direct(client, "LASTING", DRIVER_COLUMNS)
    view = driver_view(tmp_path, "lasting")
    fs.apply([driver, view])
    fs.apply([], objects_to_delete=[view], partial=False)
    fs.apply([driver, view])
    fs.teardown()
    assert "LASTING" in {each["name"] for each in client.execute("SHOW TABLES;")[0]["tables"]}


def test_bounds_and_levels_reach_the_nodes(client: Client, tmp_path: Path) -> None:
    """A direct table has no batches: it refuses what asks for one, so the setting has arrived."""
    direct(client, "LEVELS", DRIVER_COLUMNS)
    strict = store(tmp_path, consistency="snapshot")
    strict.apply([driver, driver_view(tmp_path, "levels")])
    with pytest.raises(StandpipeError, match="snapshot") as caught:
        read(strict, ["levels:trips"], [{"driver_id": 1}])
    assert "feature view levels, table LEVELS" in f"{caught.value} {caught.value.__notes__}"


def test_no_node_answers(tmp_path: Path) -> None:
    alone = store(tmp_path, nodes="127.0.0.1:1", timeout_s=1)
    with pytest.raises(NodesUnreachable) as caught:
        alone.apply([driver, driver_view(tmp_path, "nowhere")])
    assert caught.value.__notes__ == ["feature view nowhere, table NOWHERE"]


def test_a_key_of_the_config_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="secret_file"):
        store(tmp_path, secret_file="x").config.online_store  # noqa: B018 it is parsed when asked


def test_a_child_process_has_connections_of_its_own(
    fs: FeatureStore, client: Client, tmp_path: Path
) -> None:
    direct(client, "FORKED", DRIVER_COLUMNS)
    fs.apply([driver, driver_view(tmp_path, "forked")])
    fs.write_to_online_store("forked", DRIVERS)
    entities = [{"driver_id": 1}, {"driver_id": 2}]
    wait_for(lambda: read(fs, ["forked:trips"], entities)["trips"], [4, 5])

    def trips(driver_id: int) -> list[list[int]]:
        entity = [{"driver_id": driver_id}]
        return [read(fs, ["forked:trips"], entity)["trips"] for _ in range(50)]

    child = os.fork()
    if not child:
        os._exit(0 if trips(1) == [[4]] * 50 else 1)
    assert trips(2) == [[5]] * 50
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
