"""Nodes compare their replicas: who is asked, what is an alarm, and who is made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from standpipe.adapters.http.internal import Call, PeerSilent, PeerUnreachable, Reply, json_reply
from standpipe.data.replica.digest_verdict import KeptDigests, StoreDigest
from standpipe.data.replica.positions import StoreIdentity
from standpipe.errors import NotFound, NotReady
from standpipe.model import Assignment, BatchId, NodeId, NodeInfo, Offset, Placement
from standpipe.node.configuration import NodeConfig
from standpipe.node.controller.digest_check import (
    AGAIN_S,
    KEPT,
    LOCAL,
    REBUILD,
    RETRY_S,
    WHOLE,
    RebuildRequest,
    Verification,
)

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
NAMES = ("a", "b", "c")
#: (batch, digest) each, oldest first; None: the node is down
Kept = Sequence[tuple[int, int]] | None
#: (batch, digest, recomputed); None: the node is down
Read = tuple[int, int, int] | None


def said(batch: int, digest: int, recomputed: int | None = None) -> StoreDigest:
    position = Offset(10 * batch)
    return StoreDigest(
        position=position, batch=BatchId(batch), digest=digest, recomputed=recomputed
    )


class Nodes:
    """What nodes answer, by name; what they were told."""

    def __init__(self, kept: Mapping[str, Kept], read: Mapping[str, Read]) -> None:
        self.kept, self.read = kept, read
        self.asked: list[tuple[str, str]] = []
        self.told: list[tuple[str, RebuildRequest]] = []
        self.told_status: int | PeerSilent = 200
        self.garbled: set[str] = set()

    async def get(self, address: str, path: str, **parameters: Any) -> Reply:
        self.asked.append((address, path))
        assert parameters["to"] == address
        if address in self.garbled:
            return Reply(200, {}, b"\0\0")
        if path == KEPT:
            recent = self.kept[address]
            if recent is None:
                raise PeerUnreachable("down")
            of = tuple(said(*each) for each in recent)
            return json_reply([KeptDigests(identity=IDENTITY, recent=of)])
        assert (path, parameters["recompute"]) == (LOCAL, "true")
        read = self.read[address]
        if read is None:
            raise PeerUnreachable("down")
        return json_reply(said(*read))

    async def post_json(self, address: str, path: str, value: RebuildRequest, *, to: str) -> Reply:
        assert (path, to) == (REBUILD, address), "of the node that lives there"
        self.told.append((address, value))
        if isinstance(self.told_status, PeerSilent):
            raise self.told_status
        return json_reply({}, self.told_status)


def verification(
    folder: Path, nodes: Nodes, *, me: str = "a", warmups: str = "", every_ms: int = 1
) -> Verification:
    known = {
        NodeId(name): NodeInfo(
            node_id=NodeId(name), public=name, internal=name, peer=name, incarnation="x"
        )
        for name in nodes.kept
    }
    holders = tuple(NodeId(name) for name in nodes.kept)
    placement = Placement(
        table_id="t",
        generation=1,
        partition=0,
        replicas=tuple(name for name in holders if name not in warmups),
        warmups=tuple(name for name in holders if name in warmups),
    )
    table = SimpleNamespace(table_id="t", generation=1, is_materialized=True, name="T")
    catalog = SimpleNamespace(
        assignment=Assignment(placements=(placement,)), nodes=known, sources={"T": table}
    )
    config = NodeConfig(
        node_id=NodeId(me),
        data_dir=str(folder),
        bootstrap_servers="",
        public="p:1",
        internal="p:2",
        peer="p:3",
        secret_file="",
    )
    config.paths.make()
    copy = cast("Any", SimpleNamespace(catalog=catalog))
    return Verification(config, copy, cast("Any", nodes), every_ms=every_ms)


def alarms(of: Verification) -> list[Any]:
    with capture_logs() as logs:
        asyncio.run(of._compare())
    return [line for line in logs if line["event"] == "REPLICAS_DIFFER"]


@pytest.mark.parametrize(
    ("kept", "read", "odd", "told", "why"),
    [
        ([[(4, 7)], [(4, 7)], [(4, 7)]], [], None, [], "equal"),
        ([[(4, 7)], [(5, 8)], None], [], None, [], "at different batches, one is away"),
        ([[(4, 7)], [(4, 8)], [(4, 7)]], [(4, 7, 7), (4, 8, 8), (4, 7, 7)], ["b"], ["b"],
         "two of three"),
        ([[(4, 7)], [(4, 8)], [(4, 7)]], [(4, 7, 7), (6, 8, 8), (5, 7, 7)], ["b"], ["b"],
         "they went on meanwhile: what they remember decides"),
        ([[(4, 7)], [(4, 8)], [(4, 7)]], [(4, 7, 7), (4, 8, 8), None], ["b"], ["b"],
         "one that remembered is gone, another goes on"),
        ([[(4, 7)], [(4, 8)], None], [(4, 7, 7), (4, 8, 8), None], [], [],
         "which of two, nobody knows"),
        ([[(4, 7)], [(4, 8)], None], [(4, 7, 7), (4, 8, 9), None], ["b"], ["b"],
         "the rows of one are not what was written"),
        ([None, [(4, 7)], [(4, 8)]], [None, (4, 7, 6), (4, 8, 9)], ["b", "c"], [],
         "one is down and both others are odd: somebody must answer"),
        ([[(4, 7)], [(4, 8)], [(4, 9)]], [(4, 7, 6), (4, 8, 5), (4, 9, 4)], ["a", "b", "c"], [],
         "all of them"),
    ],
)  # fmt: skip
def test_compare(
    tmp_path: Path,
    kept: list[Kept],
    read: list[Read],
    odd: list[str] | None,
    told: list[str],
    why: str,
) -> None:
    nodes = Nodes(dict(zip(NAMES, kept, strict=True)), dict(zip(NAMES, read, strict=False)))
    found = alarms(verification(tmp_path, nodes))
    assert [list(one["odd"]) for one in found] == ([] if odd is None else [odd]), why
    assert [name for name, _ in nodes.told] == told, why
    for one in found:
        remembered = {name for name, recent in zip(NAMES, kept, strict=True) if recent}
        assert set(one["said"]) == remembered, "every owner is named with what it said"
        assert one["replica"] == str(IDENTITY.replica_id)
        is_rebuilt = one["next_step"] == "the diverged replica is rebuilt"
        assert is_rebuilt is bool(told), "else an operator has to do something"
    assert all(body.identity == IDENTITY and "other rows" in body.why for _, body in nodes.told)


def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    """A file of digests that a power loss had emptied ended the controllers of other nodes."""
    nodes = Nodes({"a": [(4, 7)], "b": [(4, 8)]}, {"a": (4, 7, 7), "b": (4, 8, 9)})
    nodes.garbled = {"b"}
    of = verification(tmp_path, nodes)
    assert alarms(of) == []
    (placement,) = of._copy.catalog.assignment.placements
    read = asyncio.run(of._ask(NodeId("b"), placement, recompute=True))
    assert read.of is None
    assert "cannot be read" in read.error


def test_a_warm_up_goes_on_for_nobody(tmp_path: Path) -> None:
    """It is sound, but not read; so the only replica stays."""
    kept: dict[str, Kept] = {"a": [(4, 7)], "b": [(4, 8)]}
    nodes = Nodes(kept, {"a": (4, 7, 6), "b": (4, 8, 8)})
    (alarm,) = alarms(verification(tmp_path, nodes, warmups="b"))
    assert (list(alarm["odd"]), nodes.told) == (["a"], [])


def test_the_first_holder_compares(tmp_path: Path) -> None:
    differing: dict[str, Kept] = {"a": [(4, 7)], "b": [(4, 8)]}
    nodes = Nodes(differing, {"a": (4, 7, 7), "b": (4, 8, 9)})
    assert alarms(verification(tmp_path, nodes, me="b")) == []
    assert nodes.asked == []
    assert alarms(verification(tmp_path, Nodes({"a": [(4, 7)]}, {}))) == [], "alone"


def test_what_differs_is_read_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes({"a": [(4, 7)], "b": [(4, 8)]}, {"a": (4, 7, 7), "b": (4, 8, 9)})
    made, now_s = verification(tmp_path, nodes), 1e6
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    for later_s, found, told in ((0, 1, 1), (AGAIN_S - 1, 0, 1), (1, 1, 2)):
        now_s += later_s
        assert (len(alarms(made)), len(nodes.told)) == (found, told)


@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_node_that_does_not_take_it_is_a_warning(tmp_path: Path, status: int) -> None:
    nodes = Nodes({"a": [(4, 7)], "b": [(4, 8)]}, {"a": (4, 7, 7), "b": (4, 8, 9)})
    nodes.told_status = status
    with capture_logs() as logs:
        asyncio.run(verification(tmp_path, nodes)._compare())
    warned = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warned == ([] if status == 200 else ["rebuild request failed"])


@pytest.mark.parametrize("failure", [503, PeerSilent("it is busy")])
def test_a_node_that_did_not_take_it_is_asked_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int | PeerSilent
) -> None:
    """A node that was too busy for one second kept its wrong rows for ten minutes."""
    nodes = Nodes({"a": [(4, 7)], "b": [(4, 8)]}, {"a": (4, 7, 7), "b": (4, 8, 9)})
    made, now_s = verification(tmp_path, nodes), 1e6
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    nodes.told_status = failure
    assert (len(alarms(made)), len(nodes.told)) == (1, 1)
    nodes.told_status = 200
    for later_s, found, told in ((RETRY_S - 1, 0, 1), (1, 1, 2), (RETRY_S, 0, 2)):
        now_s += later_s
        assert (len(alarms(made)), len(nodes.told)) == (found, told)


def test_asked_for_a_whole_table(tmp_path: Path) -> None:
    """As `standpipe table verify --recompute` does; an odd one is made anew then too."""
    nodes = Nodes({"a": [], "b": []}, {"a": (4, 7, 7), "b": (4, 8, 9)})
    routes = verification(tmp_path, nodes).routes()
    parameters = {"name": "T", "recompute": "true", "patient": "true"}
    reply = asyncio.run(cast("Any", routes["GET", WHOLE](Call(WHOLE, parameters, b""))))
    (verdict,) = reply.json()["verdicts"]
    assert (verdict["agreement"], verdict["odd"]) == ("different", ["b"])
    assert [name for name, _ in nodes.told] == ["b"]


def test_a_rebuild_is_left_to_the_tailer(tmp_path: Path) -> None:
    made = verification(tmp_path, Nodes({"a": [], "b": []}, {}))
    rebuild = made.routes()["POST", REBUILD]

    def asked(identity: StoreIdentity) -> Reply:
        body = msgspec.json.encode(RebuildRequest(identity=identity, why="others have other rows"))
        return asyncio.run(cast("Any", rebuild(Call(REBUILD, {}, body))))

    assert asked(IDENTITY).ok
    folder = made._paths.rebuilds
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        str(IDENTITY.replica_id): "others have other rows"
    }
    with pytest.raises(NotFound, match="no replica"):
        asked(msgspec.structs.replace(IDENTITY, partition=9))


def test_what_the_tailer_has_not_said_is_not_ready(tmp_path: Path) -> None:
    made = verification(tmp_path, Nodes({"a": []}, {}))
    kept = made.routes()["GET", KEPT]
    with pytest.raises(NotReady):
        asyncio.run(cast("Any", kept(Call(KEPT, {}, b""))))
    made._paths.digests.write_bytes(b"[]")
    assert asyncio.run(cast("Any", kept(Call(KEPT, {}, b"")))).body == b"[]"
