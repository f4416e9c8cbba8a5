"""Control in this process: statements, pipelines, pages, who is let in. No Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.unit.adapters.raw_peer import is_hung_up_on
from tests.unit.node.in_process import (
    STREAM,
    TABLE,
    Control,
    body_of,
    configs_of,
    control,
    run,
)

from standpipe.adapters.http.internal import json_reply, msgpack_reply
from standpipe.adapters.http.sealed_server import PEER_NODE
from standpipe.adapters.raft.disk import QuorumDisk
from standpipe.config.keys import STANDBYS
from standpipe.control.metadata.commands import LogPage, decode
from standpipe.errors import DataDirectoryRefused
from standpipe.model import BatchId, LeaseEpoch, NodeId, QueryStatus
from standpipe.node import configuration
from standpipe.node.controller import leader_proxy, main
from standpipe.node.controller.main import ControllerBase


def test_a_statement_that_a_batch_may_disappoint_is_answered_with_a_warning(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")
    once = TABLE.replace(" GROUP BY ID", " GROUP BY ID HAVING COUNT(*) = 1")
    assert once != TABLE

    async def story() -> None:
        async with control(config) as (node,):
            await node.execute(STREAM, "r1")
            (answer,) = body_of(await node.execute(once, "r2"))["entities"]
            assert "HAVING is judged once a batch" in answer["warnings"][0]["message"]

    run(story)


def test_a_statement_is_durable_applied_and_shown_when_it_is_answered(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        async with control(config) as (node,):
            await node.execute(STREAM, "r1")
            answer = body_of(await node.execute(TABLE, "r2"))
            # once a follower showed a table that nobody held yet
            assert answer["log_index"] == node.copy.catalog.index, "with the assignment"
            assert "will be created later" in answer["entities"][0]["warnings"][0]["message"]
            snapshot = node.shown()
            assert (snapshot.leader, snapshot.assignment.epoch) == ("a", 1)
            assert snapshot.log_index == answer["log_index"]
            assert [source.name for source in snapshot.sources] == ["S", "T"]
            replicas = [placement.replicas for placement in snapshot.assignment.placements]
            assert replicas == [("a",), ("a",)]

    run(story)
    found = QuorumDisk.open(config.paths.log)
    found.disk.close()
    payloads = [one.payload for one in found.recovered.entries if isinstance(one.payload, bytes)]
    assert [type(decode(payload)).__name__ for payload in payloads] == [
        "FoundCluster",
        "SetPlacementRules",
        "RegisterNode",
        "CreateSource",
        "CreateTableAs",
        "CommitAssignment",
    ]


def test_the_same_request_is_applied_once_and_answered_alike(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        async with control(config) as (node,):
            first = body_of(await node.execute(STREAM, "r1"))
        async with control(config) as (node,):
            assert body_of(await node.execute(STREAM, "r1")) == first, "after a restart too"
            refused = await node.execute(STREAM, "r2")
            assert (refused.status, body_of(refused)["error_code"]) == (400, 40001)

    run(story)


def test_concurrent_statements_are_judged_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            asked = [node.execute(STREAM, f"r{number}") for number in range(5)]
            statuses = [reply.status for reply in await asyncio.gather(*asked)]
            assert sorted(statuses) == [200, 400, 400, 400, 400]
            assert list(node.copy.catalog.sources) == ["S"]

    run(story)


def test_three_nodes_agree_and_any_of_them_takes_statements(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a", "b", "c")) as nodes:
            for number, node in enumerate(nodes):
                sql = STREAM.replace("STREAM S", f"STREAM S{number}").replace("'s'", f"'s{number}'")
                index = body_of(await node.execute(sql, f"r{number}"))["log_index"]
                assert node.copy.catalog.index >= index, "answered when it can be seen here"
                assert node.shown().log_index >= index
            newest = max(node.copy.catalog.index for node in nodes)
            for node in nodes:
                await node.copy.wait_for(newest, 20)
            assert nodes[0].copy.catalog == nodes[1].copy.catalog == nodes[2].copy.catalog
            assert [key.node for key in nodes[2].quorum.voters.keys] == ["a", "b", "c"]
            assert len({node.copy.identity.cluster_id for node in nodes}) == 1
            seen = [await assignment_at(node) for node in nodes]
            assert {by for by, _ in seen} == {nodes[0].quorum.leader}, "who moves copies tells"
            assert [await assignment_at(node, timeout_ms=7, path="x") for node in nodes] == seen

    run(story)


async def assignment_at(node: Control, **params: str | int) -> tuple[object, object]:
    """Who saw it, and its epoch."""
    target = f"/assignment?{urlencode(params)}"
    body = body_of(await node.client.get(node.config.internal, target))
    return body["seenBy"], body["assignmentEpoch"]


def test_a_leader_is_reached_where_it_was_named_if_the_log_is_out_of_date(tmp_path: Path) -> None:
    """As when all nodes came back elsewhere, and the leader's registration is not through yet."""

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a", "b", "c")) as nodes:
            index = 0
            for node in nodes:
                known = node.copy.catalog.nodes[node.config.node_id]
                stale = msgspec.structs.replace(known, internal="127.0.0.1:1")
                while (taken := await node.post("/register", stale)).status == 503:
                    pass  # an election on a busy machine
                index = body_of(taken)["log_index"]
            for number, node in enumerate(nodes):
                await node.copy.wait_for(index, 20)
                sql = STREAM.replace("STREAM S", f"STREAM S{number}")
                assert (await node.execute(sql, f"r{number}")).status == 200
                assert (await node.get("/quorum")).status == 200

    run(story)


def test_a_plan_that_no_entry_can_hold_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not asked again for ten seconds, as if nobody led."""
    monkeypatch.setattr(main, "ENTRY_BYTES_MAX", 900)
    monkeypatch.setattr(leader_proxy, "WRITE_S_MAX", 1e9)

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            long = STREAM.replace("V INTEGER", ", ".join(f"V{i} INTEGER" for i in range(40)))
            refused = await node.execute(long, "r1")
            assert (refused.status, body_of(refused)["error_code"]) == (413, 41300)
            assert (await node.execute(STREAM, "r2")).status == 200, "others go on"

    run(story)


def test_the_leader_hands_over_when_it_ends(tmp_path: Path) -> None:
    async def story() -> None:
        configs = configs_of(tmp_path, "a", "b", "c")
        async with control(*configs) as nodes:
            (first,) = [node for node in nodes if node.quorum.leading is not None]
            left = [node for node in nodes if node is not first]
            await first.close()
            await left[0].until(lambda: any(node.quorum.leading is not None for node in left))
            assert (await left[1].execute(STREAM, "r1")).status == 200

    run(story)


def test_a_pipeline_start_is_a_command(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        start = {"pipeline_id": "p"}
        async with control(config) as (node,):
            asked = [await node.post("/pipeline/start", start) for _ in range(2)]
            assert [body_of(reply)["lease_epoch"] for reply in asked] == [1, 2]
            once = [await node.post("/pipeline/start", start | {"request_id": "x"}) for _ in "ab"]
            assert [body_of(reply)["lease_epoch"] for reply in once] == [3, 3], "a retry"
        async with control(config) as (node,):
            assert body_of(await node.post("/pipeline/start", start))["lease_epoch"] == 4

    run(story)


def test_a_leader_that_refuses_its_own_file_goes_on_leading(tmp_path: Path) -> None:
    # its register raised BadRequest in its own process, which ended: no leader lasted
    (config,) = configs_of(tmp_path, "a")
    other_rules = msgspec.structs.replace(config, config={STANDBYS.name: 2})

    async def story() -> None:
        async with control(config):
            pass
        with capture_logs() as logs:
            async with control(other_rules) as (node,):
                await node.until(lambda: any("refuses" in line["event"] for line in logs))
                assert (await node.execute(STREAM, "r1")).ok
                assert not node.living.done()
        (line,) = [line for line in logs if "refuses" in line["event"]]  # once, not at each try
        assert "num.standby.replicas is 1 in this cluster and 2 in the file" in line["answer"]

    run(story)


def test_a_query_is_isolated_and_given_back_through_any_node(tmp_path: Path) -> None:
    configs = configs_of(tmp_path, "a", "b")

    async def story() -> None:
        async with control(*configs) as nodes:
            (follower,) = [node for node in nodes if node.quorum.leading is None]
            start = {"pipeline_id": "p", "isolates": "T"}
            reply = await follower.post("/pipeline/start", start)
            said = "T is not isolated. Isolated are: none"
            assert (reply.status, body_of(reply)["message"]) == (400, said)
            reply = await follower.post("/queries/isolate", {"name": "t", "undo": True})
            assert (reply.status, body_of(reply)["message"]) == (400, said)
            for _ in "ab":  # a repeated one changes nothing
                reply = await follower.post("/queries/isolate", {"name": "t"})
                index = body_of(reply).pop("log_index")
                there = {"log_index": index, "name": "T", "queries": [], "pipelines": []}
                assert body_of(reply) == there
                assert follower.copy.catalog.isolated == {"T": ()}, "this node has it, too"
            assert (await follower.post("/pipeline/start", start)).ok
            assert follower.copy.catalog.isolated == {"T": ("p",)}
            reply = await follower.post("/queries/isolate", {"name": "t", "undo": True})
            assert body_of(reply)["pipelines"] == []
            assert follower.copy.catalog.isolated == follower.copy.catalog.pipelines == {}

    run(story)


def test_registering_again_is_no_new_command(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        for _ in range(2):
            async with control(config) as (node,):
                index = node.copy.catalog.index
                member = configuration.member(config, node.copy.identity)
                assert (await node.post("/register", member)).ok
                assert node.copy.catalog.index == index

    run(story)


def test_stamps_grow_over_restarts(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        stamps: list[int] = []
        for _ in range(3):
            async with control(config) as (node,):
                # a restarted node publishes nothing until its copy is as new as what it showed
                await node.until(lambda: node.shown().stamp not in stamps)
                stamps.append(node.shown().stamp)
        assert stamps == sorted(stamps)

    run(story)


# -- founding ---------------------------------------------------------------------------------


def test_a_founder_without_its_log_does_not_start_over(tmp_path: Path) -> None:
    (config,) = configs_of(tmp_path, "a")

    async def story() -> None:
        async with control(config):
            pass
        for path in config.paths.log.iterdir():
            path.unlink()
        with pytest.raises(DataDirectoryRefused, match=r"log of a, of cluster .*, is gone"):
            async with control(config):
                pass

    run(story)


# -- routes -----------------------------------------------------------------------------------


def test_the_log_is_served_in_pages(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            whole = (await node.get("/log", **{"from": 1, "wait_ms": 0})).msgpack(LogPage)
            indexes = [entry.index for entry in whole.entries]
            assert len(indexes) == 3, "FoundCluster, SetPlacementRules, RegisterNode"
            assert (whole.last_index, whole.leader) == (indexes[-1], "a")
            assert whole.cluster_id == node.copy.catalog.cluster_id
            for start, left in ((indexes[1], indexes[1:]), (indexes[-1] + 1, [])):
                reply = await node.get("/log", **{"from": start, "wait_ms": 0})
                page = reply.msgpack(LogPage)
                assert [entry.index for entry in page.entries] == left

    run(story)


def status(epoch: int, state: Any, query_id: str) -> QueryStatus:
    return QueryStatus(
        query_id=query_id, state=state, lease_epoch=LeaseEpoch(epoch), batch=BatchId(1)
    )


def test_statuses_are_shown_for_queries_that_exist(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):

            async def said(epoch: int, state: str, query_id: str) -> list[str]:
                body = msgspec.msgpack.encode([status(epoch, state, query_id)])
                reply = await node.client.post(node.config.internal, "/query-status", body)
                assert reply.json() == {"ok": True}
                return [one.state for one in node.shown().query_statuses]

            assert await said(2, "RUNNING", "CTAS_T_9") == [], "no such query"
            await node.execute(STREAM, "r1")
            made = body_of(await node.execute(TABLE, "r2"))
            query_id = made["entities"][0]["commandStatus"]["queryId"]
            assert await said(2, "RUNNING", query_id) == ["RUNNING"]
            assert await said(1, "FAILED", query_id) == ["RUNNING"], "a zombie"
            assert await said(2, "FAILED", query_id) == ["FAILED"]

    run(story)


class Echo:
    """A part with a route and a task."""

    def __init__(self, base: ControllerBase) -> None:
        self._base = base
        self._ran = asyncio.Event()

    def routes(self) -> Any:
        async def echo(_: Any) -> Any:
            await self._ran.wait()
            return json_reply({"nodes": list(self._base.copy.catalog.nodes)})

        return {("GET", "/echo"): echo}

    async def run(self) -> Any:
        self._ran.set()
        await asyncio.Event().wait()


def test_parts_live_beside_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with control(*configs_of(tmp_path, "a"), tasks=[Echo]) as (node,):
            assert (await node.get("/echo")).json() == {"nodes": ["a"]}

    run(story)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/heartbeat"), ("POST", "/execute"), ("GET", "/log"), ("POST", "/quorum/add-voter")],
)
def test_a_node_that_is_still_opening_asks_to_come_again(
    tmp_path: Path, method: str, path: str
) -> None:
    """404 would say that there is no such route, and a beat or a statement would give up."""
    founder, *_ = configs_of(tmp_path, "a", "b", "c")

    async def story() -> None:
        alone = Control(founder, [])  # no majority of the voters is there: it may not found
        try:
            reply = await (alone.get(path) if method == "GET" else alone.post(path, {}))
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert body_of(reply)["error_code"] == 50307
            assert (await alone.get("/quorum/self")).status == 200
        finally:
            await alone.close()

    run(story)


def test_a_peer_that_dials_a_node_that_is_still_opening_is_to_dial_again(tmp_path: Path) -> None:
    """One that was kept waiting was closed by nobody when the node ended."""
    founder, *_ = configs_of(tmp_path, "a", "b", "c")

    async def story() -> None:
        alone = Control(founder, [])
        try:
            assert await is_hung_up_on(founder.internal)
        finally:
            await alone.close()

    run(story)


OLD_SECRET = (b"standpipe-secret", b"swordfish")
NODE, OPERATOR, NOBODY = NodeId("b"), NodeId(""), None


@pytest.mark.parametrize(
    ("method", "path", "peer", "body", "answer"),
    [
        ("GET", "/describe", NODE, b"", 200),
        ("GET", "/describe", OPERATOR, b"", 200),
        ("GET", "/describe", NOBODY, b"", 401),
        ("POST", "/query-status", NOBODY, None, 401),
        ("GET", "/none", NODE, b"", 404),
        ("POST", "/describe", NODE, b"", 404),
        ("GET", "/log", NODE, b"", 200),
        ("GET", "/quorum", OPERATOR, b"", 200),
        ("POST", "/execute", NODE, b"{", 400),
        ("POST", "/execute", NODE, b'{"ksql": "SHOW STREAMS;"}', 400),
        ("POST", "/execute", NODE, b'{"ksql": "S", "request_id": ""}', 400),
        ("POST", "/query-status", NODE, b"\xc1", 400),
        ("POST", "/execute", NODE, b"x" * 2000, 413),
    ],
)
def test_who_is_let_in(
    tmp_path: Path,
    method: str,
    path: str,
    peer: NodeId | None,
    body: bytes | None,
    answer: int,
) -> None:
    async def receive() -> dict[str, object]:
        assert body is not None, "the body was read for nobody"
        return {"type": "http.request", "body": body}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def story() -> None:
        async with control(*configs_of(tmp_path, "a")) as (node,):
            scope = {"method": method, "path": path, "headers": [OLD_SECRET]}
            scope |= {"query_string": b"from=1", "extensions": {PEER_NODE: peer}}
            await node.app(scope, receive, send)

    run(story)
    assert sent[0]["status"] == answer
    if answer >= 400:
        assert msgspec.json.decode(sent[1]["body"])["error_code"] // 100 == answer


def test_pages_are_msgpack() -> None:
    assert msgpack_reply([1]).headers == {"content-type": "application/msgpack"}


NAMED, OTHER = DataDirectoryRefused("in use", next_step="stop it"), ValueError("a bug")


@pytest.mark.parametrize(
    ("failures", "is_named", "why"),
    [
        ([NAMED], True, "what its process reports"),
        ([NAMED, DataDirectoryRefused("too", next_step="wait")], True, "the first"),
        ([ExceptionGroup("inner", [NAMED])], True, "of a group in the group, too"),
        ([NAMED, OTHER], False, "a bug is not hidden by it"),
        ([OTHER], False, "nothing has a name"),
    ],
)
def test_a_group_of_tasks_fails_as_the_task_that_failed(
    failures: list[Exception], is_named: bool, why: str
) -> None:
    group = ExceptionGroup("tasks", failures)
    assert main.named(group) is (NAMED if is_named else group), why
