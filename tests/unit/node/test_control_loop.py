"""Holder and follower in one process: real logs on disk, no sockets, no Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standpipe.adapters.http_client import (
    SECRET_HEADER,
    Call,
    InternalApp,
    PeerUnreachable,
    Reply,
    error_reply,
    msgpack_reply,
)
from standpipe.adapters.kafka_admin import TopicKeeper
from standpipe.adapters.raft_disk import DiskRecord, DiskThread, Journal, LogFile
from standpipe.adapters.snapshot_file import read
from standpipe.control import catalog as catalogs
from standpipe.errors import DataDirectoryRefused, LogUnavailable, StatementError
from standpipe.model import BatchId, LeaseEpoch, LogPage, NodeId, QueryStatus, Snapshot
from standpipe.node import node_config
from standpipe.node.control_loop import Copy, Follower, Holder, register, routes
from standpipe.node.node_config import NodeConfig

STREAM = (
    "CREATE STREAM S (ID STRING KEY, V INTEGER) "
    "WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"


def config_of(name: str, directory: Path) -> NodeConfig:
    return NodeConfig(
        node_id=NodeId(name),
        data_dir=str(directory / name),
        bootstrap_servers="",
        public=f"{name}:1",
        internal=f"{name}:2",
        peer=f"{name}:3",
        holder=NodeId("a"),
        secret_file="",
    )


def opened(config: NodeConfig) -> Copy:
    identity = node_config.claim(config)
    log = LogFile.open(config.paths.log / "commands.log")
    copy = Copy(config, identity, Journal(log, DiskThread()))
    copy.replay(log.records)
    return copy


@contextlib.asynccontextmanager
async def holder_at(directory: Path) -> AsyncIterator[tuple[Copy, Holder]]:
    """A holder that runs, founded and registered."""
    copy = opened(config_of("a", directory))
    holder = Holder(copy, TopicKeeper("", "default_"), standby_count=1)
    running = asyncio.create_task(holder.run())
    await asyncio.sleep(0)  # its turn comes first, as in control_loop.run
    await register(copy, holder)
    try:
        yield copy, holder
    finally:
        running.cancel()
        await copy.journal.close()


class NearClient:
    """An HttpClient whose peer is a holder in the same process. `away`: it does not answer."""

    def __init__(self, copy: Copy, holder: Holder) -> None:
        self._routes = routes(copy, holder)
        self.away = False

    async def get(self, address: str, path: str, **params: Any) -> Reply:
        return await self._call("GET", path, {k: str(v) for k, v in params.items()}, b"")

    async def post(self, address: str, path: str, body: bytes, **_: Any) -> Reply:
        return await self._call("POST", path, {}, body)

    async def _call(self, method: str, path: str, params: dict[str, str], body: bytes) -> Reply:
        await asyncio.sleep(0)  # a real call lets others run
        if self.away:
            raise PeerUnreachable("it is away")
        try:
            return await self._routes[method, path](Call(path, params, body))
        except StatementError as error:
            return error_reply(error)


def statement(sql: str, request_id: str) -> Call:
    body = {"ksql": sql, "streamsProperties": {"a": True}, "request_id": request_id}
    return Call("/execute", {}, msgspec.json.encode(body))


def shown(copy: Copy) -> Snapshot:
    snapshot = read(copy.config.paths.snapshot)
    assert snapshot is not None
    return snapshot


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_statement_is_durable_applied_and_shown_when_it_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            await holder.write(statement(STREAM, "r1"))
            answer = (await holder.write(statement(TABLE, "r2"))).json()
            assert answer["log_index"] == 4
            assert answer["entities"][0]["commandStatus"]["queryId"] == "CTAS_T_4"
            assert "will follow" in answer["entities"][0]["warnings"][0]["message"]
            snapshot = shown(copy)
            assert (snapshot.log_index, snapshot.assignment.epoch) == (5, 1)
            assert [source.name for source in snapshot.sources] == ["S", "T"]
            assert [placement.replicas for placement in snapshot.assignment.placements] == [
                ("a",),
                ("a",),
            ]
        records = LogFile.open(tmp_path / "a" / "log" / "commands.log").records
        kinds = [type(catalogs.decode(record.payload)).__name__ for record in records]
        assert kinds == [
            "FoundCluster",
            "RegisterNode",
            "CreateSource",
            "CreateTableAs",
            "CommitAssignment",
        ]

    run(story)


def test_the_same_request_is_applied_once_and_answered_alike(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (_, holder):
            first = await holder.write(statement(STREAM, "r1"))
        async with holder_at(tmp_path) as (copy, holder):
            again = await holder.write(statement(STREAM, "r1"))
            assert again.json() == first.json(), "after a restart too"
            assert copy.catalog.index == 3
            with pytest.raises(StatementError, match="already exists"):
                await holder.write(statement(STREAM, "r2"))

    run(story)


def test_concurrent_statements_are_judged_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            answers = await asyncio.gather(
                *(holder.write(statement(STREAM, f"r{number}")) for number in range(5)),
                return_exceptions=True,
            )
            refusals = [answer for answer in answers if isinstance(answer, StatementError)]
            assert len(refusals) == 4
            assert list(copy.catalog.sources) == ["S"]

    run(story)


def test_a_pipeline_start_is_a_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (_, holder):
            call = Call("/pipeline/start", {}, b'{"pipeline_id": "p"}')
            epochs = [(await holder.write(call)).json()["lease_epoch"] for _ in range(2)]
            assert epochs == [1, 2]
        async with holder_at(tmp_path) as (_, holder):
            assert (await holder.write(call)).json()["lease_epoch"] == 3

    run(story)


def test_registering_again_is_no_new_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            await register(copy, holder)
            assert copy.catalog.index == 2

    run(story)


def test_a_holder_without_its_log_does_not_start_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path):
            pass
        (tmp_path / "a" / "log" / "commands.log").unlink()
        copy = opened(config_of("a", tmp_path))
        with pytest.raises(DataDirectoryRefused, match="held the log"):
            await Holder(copy, TopicKeeper("", "default_"), standby_count=1).run()
        assert copy.catalog.index == 0
        await copy.journal.close()

    run(story)


def test_a_follower_copies_forwards_and_goes_on_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            client = NearClient(copy, holder)
            mine = opened(config_of("b", tmp_path))
            assert not mine.config.paths.snapshot.exists()
            follower = Follower(mine, client, "a:2")  # type: ignore[arg-type]
            running = asyncio.create_task(follower.run())
            await register(mine, follower)
            reply = await follower.write(statement(STREAM, "r1"))
            index = reply.json()["log_index"]
            assert mine.catalog.index == index, "answered when it can be seen here"
            assert mine.catalog == copy.catalog
            assert shown(mine).log_holder == "a"
            refused = await follower.write(statement(STREAM, "r2"))
            assert (refused.status, refused.json()["error_code"]) == (400, 40001)
            client.away = True
            with pytest.raises(LogUnavailable, match="does not answer"):
                await follower.write(statement(TABLE, "r3"))
            running.cancel()
            await mine.journal.close()
        alone = opened(config_of("b", tmp_path))
        alone.show()
        assert shown(alone).log_index == index, "from its own disk"
        await alone.journal.close()

    run(story)


def test_stamps_grow_over_restarts(tmp_path: Path) -> None:
    async def story() -> None:
        stamps: list[int] = []
        for _ in range(3):
            async with holder_at(tmp_path) as (copy, _holder):
                copy.publish()
                stamps.append(shown(copy).stamp)
        assert stamps == sorted(set(stamps))

    run(story)


@pytest.mark.parametrize(
    ("start", "entries"), [(1, [1, 2]), (2, [2]), (3, []), (0, [1, 2])], ids=str
)
def test_the_log_is_served_in_pages(tmp_path: Path, start: int, entries: list[int]) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            page = routes(copy, holder)["GET", "/log"]
            reply = await page(Call("/log", {"from": str(start), "wait_ms": "0"}, b""))
            read_page = reply.msgpack(LogPage)
            assert [entry.index for entry in read_page.entries] == entries
            assert (read_page.last_index, read_page.holder) == (2, "a")
            assert read_page.cluster_id == copy.catalog.cluster_id

    run(story)


def status(epoch: int, state: str) -> QueryStatus:
    return QueryStatus(
        query_id="CTAS_T_4",
        state=state,  # type: ignore[arg-type]
        lease_epoch=LeaseEpoch(epoch),
        batch=BatchId(1),
    )


def test_statuses_are_shown_for_queries_that_exist(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            take = routes(copy, holder)["POST", "/query-status"]

            async def post(*statuses: QueryStatus) -> None:
                body = msgspec.msgpack.encode(statuses)
                assert (await take(Call("/query-status", {}, body))).json() == {"ok": True}

            await post(status(2, "RUNNING"))
            assert shown(copy).query_statuses == (), "no such query"
            await holder.write(statement(STREAM, "r1"))
            await holder.write(statement(TABLE, "r2"))
            assert [one.state for one in shown(copy).query_statuses] == ["RUNNING"]
            await post(status(1, "FAILED"))
            assert [one.state for one in shown(copy).query_statuses] == ["RUNNING"], "a zombie"
            await post(status(2, "FAILED"))
            assert [one.state for one in shown(copy).query_statuses] == ["FAILED"]

    run(story)


def test_a_command_of_a_newer_program_is_not_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with holder_at(tmp_path) as (copy, _):
            alien = DiskRecord(3, msgspec.msgpack.encode({"type": "grant_lease"}))
            with pytest.raises(catalogs.UnknownCommand, match="grant_lease"):
                await copy.append([alien])
            assert copy.journal.last_index == 2

    run(story)


SECRET = (SECRET_HEADER.encode(), b"swordfish")


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "answer"),
    [
        ("GET", "/describe", [SECRET], b"", 200),
        ("GET", "/describe", [], b"", 401),
        ("GET", "/describe", [(SECRET[0], b"wrong")], b"", 401),
        ("POST", "/query-status", [], None, 401),
        ("GET", "/none", [SECRET], b"", 404),
        ("POST", "/describe", [SECRET], b"", 404),
        ("GET", "/log", [SECRET], b"", 200),
        ("POST", "/execute", [SECRET], b"{", 400),
        ("POST", "/execute", [SECRET], b'{"ksql": "SHOW STREAMS;"}', 400),
        ("POST", "/execute", [SECRET], b'{"ksql": "S", "request_id": ""}', 400),
        ("POST", "/query-status", [SECRET], b"\xc1", 400),
        ("POST", "/execute", [SECRET], b"x" * 2000, 413),
    ],
)
def test_who_is_let_in(
    tmp_path: Path,
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes | None,
    answer: int,
) -> None:
    async def receive() -> dict[str, object]:
        assert body is not None, "the body was read before the secret"
        return {"type": "http.request", "body": body}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def story() -> None:
        async with holder_at(tmp_path) as (copy, holder):
            app = InternalApp("swordfish", routes(copy, holder), body_bytes_max=1024)
            scope = {"method": method, "path": path, "headers": headers, "query_string": b"from=1"}
            await app(scope, receive, send)

    run(story)
    assert sent[0]["status"] == answer
    if answer >= 400:
        assert msgspec.json.decode(sent[1]["body"])["error_code"] // 100 == answer


def test_pages_are_msgpack() -> None:
    assert msgpack_reply([1]).headers == {"content-type": "application/msgpack"}
