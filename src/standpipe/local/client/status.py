"""`standpipe status`: nodes, tables, replicas with state and lag, queries; from HTTP alone.

It asks the nodes themselves (`GET /info`, `GET /healthcheck`, `GET /clusterStatus`, SHOW …), so it
shows what a client sees. A node that does not answer is shown as down, never left out.

Not here: sizes (`storage.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.errors import StandpipeError
from standpipe.local.client.rest_client import Entity, NodesClient
from standpipe.model import UNLABELLED, Record, ReplicaId

ASK_S_MAX = 1.0
_QUERY_FIGURES = ("batch", "inputRowsPerSecond", "badRecords", "lateRecords")


class NodeView(Record, frozen=True, kw_only=True):
    """A node as a client sees it."""

    node_id: str
    public: str
    is_up: bool
    version: str = ""
    #: what is not healthy, such as `disk: …`
    problems: tuple[str, ...] = ()


class ReplicaView(Record, frozen=True, kw_only=True):
    """A replica as some node reports it. Lag in records; None: unknown."""

    query_id: str
    partition: int
    node: str
    role: str
    position: int | None = None
    end: int | None = None
    lag: int | None = None
    #: RUNNING, CATCHING_UP, …; empty: unknown
    state: str = ""
    #: while it is being built: "copy of node-2, 45 %, 12 s left"; otherwise, or if unknown, empty
    restore: str = ""


class StatusReport(Record, frozen=True, kw_only=True):
    """The content of `standpipe status`."""

    nodes: tuple[NodeView, ...]
    tables: tuple[dict[str, Any], ...] = ()
    queries: tuple[dict[str, Any], ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    problem: str = ""


def gather(nodes: Sequence[tuple[str, str]]) -> StatusReport:
    """Ask every node; `nodes` are (node id, public address)."""
    with SyncClient(timeout_s=ASK_S_MAX) as http:
        views = tuple(ask_node(http, node_id, public) for node_id, public in nodes)
        replicas = [found for view in views if view.is_up for found in ask_replicas(http, view)]
    replicas.sort(key=lambda replica: (replica.query_id, replica.partition, replica.role))
    up = [view.public for view in views if view.is_up]
    if not up:
        return StatusReport(nodes=views, problem="no node answers")
    try:
        with NodesClient(up, timeout_s=5.0) as client:
            return _ask_cluster(client, views, tuple(replicas))
    except StandpipeError as error:
        return StatusReport(nodes=views, problem=str(error))


def ask_node(http: SyncClient, node_id: str, public: str) -> NodeView:
    """Whether a node answers, its version, and what it says of its health."""
    try:
        info = msgspec.json.decode(http.get(public, "/info").body)
    except (PathFailed, msgspec.MsgspecError):
        return NodeView(node_id=node_id, public=public, is_up=False)
    return NodeView(
        node_id=node_id,
        public=public,
        is_up=True,
        version=str(info.get("KsqlServerInfo", {}).get("version", "")),
        problems=tuple(_problems(http, public)),
    )


def _problems(http: SyncClient, public: str) -> Iterator[str]:
    try:
        health = msgspec.json.decode(http.get(public, "/healthcheck").body)
    except (PathFailed, msgspec.MsgspecError):
        yield "healthcheck: no answer"
        return
    details = cast(Entity, health.get("details") or {})
    for name, detail in cast(dict[str, Entity], details).items():
        if not detail.get("isHealthy", True):
            yield f"{name}: {detail.get('message') or 'not healthy'}"


def _ask_cluster(
    client: NodesClient, views: tuple[NodeView, ...], replicas: tuple[ReplicaView, ...]
) -> StatusReport:
    tables: list[Entity] = []
    queries: list[Entity] = []
    for entity in client.execute("SHOW TABLES; SHOW QUERIES;"):
        tables += entity.get("tables", [])
        queries += entity.get("queries", [])
    return StatusReport(
        nodes=views, tables=tuple(tables), queries=tuple(queries), replicas=replicas
    )


def replicas_of(body: Entity, node: NodeView) -> list[ReplicaView]:
    """A node's own replicas, as it reports them in its `/clusterStatus` (KLIP-12)."""
    own = cast(Entity, body.get("clusterStatus", {}).get(node.public) or {})
    lags = _lags(cast(Entity, own.get("hostStoreLags") or {}))
    extras = cast(Entity, own.get("standpipe") or {})
    states, restores = _states(extras), _restores(extras)
    found: list[ReplicaView] = []
    for query_id, held in cast(dict[str, Entity], own.get("activeStandbyPerQuery") or {}).items():
        for role, key in (("active", "activePartitions"), ("standby", "standByPartitions")):
            for item in cast(list[Entity], held.get(key) or []):
                partition = int(item["partition"])
                lag = lags.get((query_id, partition), {})
                found.append(
                    ReplicaView(
                        query_id=query_id,
                        partition=partition,
                        node=node.node_id,
                        role=role,
                        position=lag.get("currentOffsetPosition"),
                        end=lag.get("endOffsetPosition"),
                        lag=lag.get("offsetLag"),
                        state=_state_of(states, query_id, partition),
                        restore=_state_of(restores, query_id, partition),
                    )
                )
    return found


def _states(extras: Entity) -> dict[tuple[str, int], str]:
    """State by (table id, partition); the names are `<table id>-<generation>-<partition>`."""
    found: dict[tuple[str, int], str] = {}
    for name, described in cast(dict[str, Entity], extras.get("replicas") or {}).items():
        replica = ReplicaId.parse(name)
        found[replica.table_id, replica.partition] = str(described.get("state") or "")
    return found


def _restores(extras: Entity) -> dict[tuple[str, int], str]:
    """The progress of replicas that are being built, by the same keys as `_states`."""
    found: dict[tuple[str, int], str] = {}
    for name, described in cast(dict[str, Entity], extras.get("replicas") or {}).items():
        if (view := cast(Entity, described.get("restore") or {})) and view["total"]:
            replica = ReplicaId.parse(name)
            source = f"copy of {view['peer']}" if view["peer"] else str(view["source"])
            share = f"{min(1.0, view['done'] / view['total']):.0%}"
            eta_ms = view["eta_ms"]
            left = "" if eta_ms is None else f", {eta_ms / 1000:.0f} s left"
            found[replica.table_id, replica.partition] = f"{source}, {share}{left}"
    return found


def _state_of(states: dict[tuple[str, int], str], query_id: str, partition: int) -> str:
    """A table's id is its query's id without the prefix for its kind: CTAS_T_7 fills T_7."""
    return states.get((query_id.partition("_")[2], partition), "")


def ask_replicas(http: SyncClient, node: NodeView) -> list[ReplicaView]:
    """The replicas that a node reports as its own; none if it does not answer."""
    try:
        body = msgspec.json.decode(http.get(node.public, "/clusterStatus").body)
    except (PathFailed, msgspec.MsgspecError):
        return []
    return replicas_of(body, node)


def _lags(body: Entity) -> dict[tuple[str, int], dict[str, int]]:
    """Lags by (query id, partition). Store names are `<query id>#<store>`."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    for store, lags in cast(dict[str, Entity], body.get("stateStoreLags") or {}).items():
        by_partition = cast(dict[str, dict[str, int]], lags.get("lagByPartition") or {})
        for partition, lag in by_partition.items():
            found[store.partition("#")[0], int(partition)] = lag
    return found


def render(status: StatusReport) -> RenderableType:
    """The status as tables for a terminal."""
    parts: list[RenderableType] = [_nodes(status)]
    for node in status.nodes:
        parts += [Text(f"{node.node_id}: {problem}", style="red") for problem in node.problems]
    if status.problem:
        parts.append(Text(status.problem, style="red"))
    if status.queries:
        parts.append(_queries(status))
    if status.tables:
        parts.append(_tables(status))
    if status.replicas:
        parts.append(_replicas(status))
    return Group(*parts)


def _nodes(status: StatusReport) -> Table:
    table = Table("Node", "Address", "State", "Version", box=box.SIMPLE_HEAD, title_justify="left")
    for node in status.nodes:
        if node.is_up:
            is_well = not node.problems
            state = Text("up", style="green") if is_well else Text("not healthy", style="red")
        else:
            state = Text("down", style="red")
        table.add_row(node.node_id, node.public, state, node.version)
    return table


def _replicas(status: StatusReport) -> Table:
    """One line per table partition: its active, its standbys, and the lag of each."""
    table = Table("Query", "Partition", "Active", "Standbys", box=box.SIMPLE_HEAD)
    places = dict.fromkeys((r.query_id, r.partition) for r in status.replicas)
    for query_id, partition in places:
        held = [r for r in status.replicas if (r.query_id, r.partition) == (query_id, partition)]
        cells = [
            ", ".join(_replica_text(r) for r in held if r.role == role)
            for role in ("active", "standby")
        ]
        table.add_row(query_id, str(partition), *cells)
    return table


def _replica_text(replica: ReplicaView) -> str:
    lag = "lag unknown" if replica.lag is None else f"lag {replica.lag}"
    state = f"{replica.state}, " if replica.state != "RUNNING" and replica.state else ""
    restore = f", {replica.restore}" if replica.restore else ""
    return f"{replica.node} ({state}{lag}{restore})"


def _queries(status: StatusReport) -> Table:
    """One line per persistent query, with its pipeline's last report."""
    names = ("Query", "State", "Pipeline", "Batch", "Rows/s", "Bad", "Late")
    table = Table(*names, box=box.SIMPLE_HEAD)
    for query in status.queries:
        said = cast(Entity, query.get("standpipe") or {})
        state = str(said.get("state") or query.get("state") or "unknown")
        reason = " ".join(str(said[key]) for key in ("reason", "message") if said.get(key))
        if (percent := said.get("progressPercent")) is not None:
            reason = f"builds the next generation of the table: {percent} % {reason}"
        table.add_row(
            str(query.get("id")),
            Text(f"{state} {reason}".strip(), style="green" if state == "RUNNING" else "red"),
            str(said.get("pipeline") or "–") + (" (isolated)" if said.get("isolatedUnder") else ""),
            *(_figure(said.get(key)) for key in _QUERY_FIGURES),
        )
    return table


def _tables(status: StatusReport) -> Table:
    table = Table("Table", "Topic", "Key", "Value", "Windowed", box=box.SIMPLE_HEAD)
    for row in status.tables:
        formats = (str(row.get("keyFormat")), str(row.get("valueFormat")))
        windowed = "yes" if row.get("isWindowed") else "no"
        table.add_row(str(row.get("name")), str(row.get("topic")), *formats, windowed)
    return table


def _figure(value: object) -> str:
    if value is None or value in UNLABELLED:
        return "–"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
