"""SHOW LAG: how far tables are behind their sources, and replicas behind what is committed. Pure.

    event ──► source topic ──► committed by a pipeline ──► applied by each replica
              tables: sourceBacklogRecords, sourceLagMs    replicas: offsetLag, replicaLagMs

`sourceLagMs` of a replica is the whole way. That of a table is the least of its replicas: what one
of them has is committed. A number that is not known is null, never 0, and `unknown` says why, and
since when if it was known before. Peers report their replicas each
`ksql.lag.reporting.send.interval.ms`, and when they move, so a peer's numbers in ms may be too
large by that, and never too small.

Not here: what is read for it (`node.worker.statements.execute`), the backlog
(`data.commit.source_backlog`), which of these numbers refuse a read (`control.routing.route`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from standpipe.config.liveness import LAG_SEND
from standpipe.control.liveness.lag import known_lag_ms, known_source_lag_ms
from standpipe.data.commit.covered_offsets import CoveredBatches, ToldEnds
from standpipe.data.commit.source_backlog import SourceBacklog, source_backlog
from standpipe.data.replica.positions import (
    end_age_ms,
    replica_lag_ms,
    source_lag_ms,
    tailer_silent_ms,
)
from standpipe.model import (
    OF_LOG,
    UNLABELLED,
    BatchId,
    Health,
    NodeId,
    Placement,
    ReplicaId,
    ReplicaStatus,
    Source,
)
from standpipe.model_liveness import KnownLag
from standpipe.node.liveness.peer_state import PeerState
from standpipe.node.worker.pull.route_cache import TAILER_SILENT_MS_MAX
from standpipe.node.worker.statements.show import Entity, Scene, entity

#: A committed end that Kafka has not confirmed for so long may no longer be the end: a tailer asks
#: many times a second.
END_SILENT_MS_MAX: Final = 3000
#: Likewise, for where the source topics end: a tailer asks twice a second, less often if there are
#: many partitions (`node.tailer.source_ends`).
SOURCES_SILENT_MS_MAX: Final = 5000

NO_REPLICA: Final = "This host has no replica yet."
NOTHING_COMMITTED: Final = "Nothing is committed in this partition, as far as this host knows."
UNCONFIRMED: Final = "No replica has confirmed the committed end since its machine started."
NEVER_CURRENT: Final = "It has not had all that is committed since its machine started."
UNDATED: Final = "It is not known up to when its rows have all source records."
NO_WATERMARK: Final = "Its query keeps no watermark, or has none yet."
NO_BATCHES: Final = "It follows a topic of another program (APPLY='DIRECT'), which has no batches."
OTHER_BATCH: Final = "No replica on this host shows that batch."
HOST_DOWN: Final = "Its host is down."
NOT_REPORTED: Final = "Its host does not know it, or has not reported it."


class _Row:
    """Fields of one line, and why some of them are null."""

    def __init__(self, **known: object) -> None:
        self._values = dict(known)
        self._unknown: dict[str, str] = {}

    def put(self, name: str, value: object, why: str) -> None:
        """`why`: what to say if the value is None."""
        self._values[name] = value
        if value is None:
            self._unknown[name] = why

    def described(self) -> dict[str, object]:
        return {**self._values, "unknown": self._unknown}


@dataclass(frozen=True, kw_only=True)
class TableLag:
    """What SHOW LAG says of one table."""

    table: Mapping[str, object]
    replicas: Sequence[Mapping[str, object]]
    topics: Sequence[Mapping[str, object]]


def lag_entity(lags: Sequence[TableLag], text: str, *, with_topics: bool) -> Entity:
    """The entity of SHOW LAG. `with_topics`: one table was named, so its source topics follow."""
    content: dict[str, object] = {
        "tables": [each.table for each in lags],
        "replicas": [row for each in lags for row in each.replicas],
    }
    if with_topics:
        content["topics"] = [row for each in lags for row in each.topics]
    return entity("lag", text, **content)


@dataclass(frozen=True, kw_only=True)
class LagScene:
    """What this node knows about the lags of one table at the moment of an answer."""

    scene: Scene
    peers: PeerState
    placements: Mapping[ReplicaId, Placement]
    #: where source topics ended when Kafka answered this node's tailer last; None: it has not
    ends: ToldEnds | None
    #: what the batches of the table cover, if this node holds a replica of it
    covered: CoveredBatches

    def of(self, source: Source) -> TableLag:
        """The lags of one table."""
        partitions = [
            placement
            for number in range(source.partitions)
            if (placement := self.placements.get(source.replica_id(number))) is not None
        ]
        watermarks = self._watermarks(partitions)
        replicas = [
            row
            for placement in partitions
            for row in self._partition(source, placement, watermarks)
        ]
        backlog = self._backlog(partitions)
        return TableLag(
            table=self._table(source, replicas, backlog, watermarks),
            replicas=replicas,
            topics=[
                {
                    "table": source.name,
                    "topic": each.topic,
                    "partition": each.partition,
                    "end": each.end,
                    "covered": each.covered,
                    "backlogRecords": each.records,
                }
                for each in backlog.partitions
            ],
        )

    # ---------------------------------------------------------------- event to committed

    def _table(
        self,
        source: Source,
        replicas: Sequence[Mapping[str, object]],
        backlog: SourceBacklog,
        watermarks: Mapping[BatchId, int],
    ) -> Mapping[str, object]:
        query = next(
            (q for q in self.scene.snapshot.queries if q.query_id == source.query_id), None
        )
        row = _Row(
            table=source.name,
            generation=source.generation,
            queryId=source.query_id,
        )
        ended = None if source.is_direct else "TERMINATED"
        state = ended if query is None else self.scene.query_state(query)
        row.put("queryState", state, NO_BATCHES)
        batch = max(_numbers(replicas, "batch"), default=None)
        no_batch = "No replica that this host knows of shows a whole batch."
        row.put("batch", batch, NO_BATCHES if source.is_direct else no_batch)
        why = f"{NO_BATCHES} See the replicas." if source.is_direct else backlog.why
        row.put("sourceBacklogRecords", backlog.records, why)
        row.put("sourceLagMs", min(_numbers(replicas, "sourceLagMs"), default=None), UNDATED)
        watermark_ms = None if batch is None else watermarks.get(BatchId(batch), 0) or None
        is_shown = batch is not None and batch in watermarks
        row.put("watermarkMs", watermark_ms, NO_WATERMARK if is_shown else OTHER_BATCH)
        return row.described()

    def _backlog(self, partitions: Sequence[Placement]) -> SourceBacklog:
        node_id = self.scene.snapshot.node_id
        if not any(node_id in placement.holders for placement in partitions):
            why = f"{node_id} holds no replica of the table, so it does not ask for its sources."
            return SourceBacklog(None, why)
        if self.ends is None:
            return SourceBacklog(None, "Kafka has not said yet where the source topics end.")
        age_ms = self.scene.instant.boot_ms - self.ends.asked_boot_ms
        asked = sum(len(each.offsets) for each in self.ends.topics.values())
        if age_ms > SOURCES_SILENT_MS_MAX + asked:
            what = "Kafka has not said where the source topics end"
            return SourceBacklog(None, self._since(age_ms, what))
        return source_backlog(self.covered, self.ends)

    # ---------------------------------------------------------------- committed to applied

    def _partition(
        self, source: Source, placement: Placement, watermarks: Mapping[BatchId, int]
    ) -> Iterator[Mapping[str, object]]:
        replica_id, own = placement.replica_id, self.scene.snapshot.node_id
        reported = self.peers.of(replica_id).lags
        for node_id in placement.holders:
            row = _Row(
                table=source.name,
                partition=placement.partition,
                node=node_id,
                role=_role(placement, node_id),
            )
            if node_id == own:
                self._own(row, replica_id, self.scene.replicas.get(replica_id))
            elif (known := reported.get(node_id)) is not None:
                self._peer(row, replica_id, known, watermarks)
            else:
                _all_unknown(row, self._why_silent(node_id))
            yield row.described()

    def _own(self, row: _Row, replica_id: ReplicaId, status: ReplicaStatus | None) -> None:
        if status is None:
            _all_unknown(row, NO_REPLICA, state="ABSENT")
            return
        boot_ms, unix_ms = self.scene.instant.boot_ms, self.scene.instant.unix_ms
        row.put("state", status.state.name, "")
        self._records(row, replica_id, status.position)
        row.put("replicaLagMs", replica_lag_ms(status, boot_ms), NEVER_CURRENT)
        source_ms = source_lag_ms(
            status, status.source_instant_ms, now_ms=unix_ms, now_boot_ms=boot_ms
        )
        row.put("sourceLagMs", source_ms, UNDATED)
        _put_batch(row, status.batch)
        row.put("watermarkMs", status.watermark_ms or None, NO_WATERMARK)
        row.put("ageMs", tailer_silent_ms(status, boot_ms), NOT_REPORTED)

    def _peer(
        self,
        row: _Row,
        replica_id: ReplicaId,
        known: KnownLag,
        watermarks: Mapping[BatchId, int],
    ) -> None:
        boot_ms, lag = self.scene.instant.boot_ms, known.lag
        row.put("state", lag.state.name, "")
        self._records(row, replica_id, lag.position)
        row.put("replicaLagMs", known_lag_ms(known, boot_ms), NEVER_CURRENT)
        row.put("sourceLagMs", known_source_lag_ms(known, boot_ms), NOT_REPORTED)
        _put_batch(row, lag.batch)
        is_shown = lag.batch in watermarks
        watermark_ms = watermarks.get(lag.batch, 0) or None
        row.put("watermarkMs", watermark_ms, NO_WATERMARK if is_shown else OTHER_BATCH)
        row.put("ageMs", boot_ms - known.at_boot_ms, "")

    def _records(self, row: _Row, replica_id: ReplicaId, position: int) -> None:
        """Position, committed end and what lies between; the last two are unknown if the newest end
        that is known may be an old one."""
        end, why = self._end(replica_id)
        row.put("position", position, "")
        row.put("committedEnd", end, why)
        row.put("offsetLag", None if end is None else max(0, end - position), why)

    def _end(self, replica_id: ReplicaId) -> tuple[int | None, str]:
        """The committed end of a partition, and why it is not known.

        Whoever had all that was committed at some instant confirms the end as of then.
        """
        status, boot_ms = self.scene.replicas.get(replica_id), self.scene.instant.boot_ms
        ends = [self.peers.end_of(replica_id)]
        own_ms = None
        if status is not None:
            ends.append(status.committed_end)
            own_ms = end_age_ms(status, boot_ms)
        told_ms = [
            lag_ms
            for known in self.peers.of(replica_id).lags.values()
            if (lag_ms := known_lag_ms(known, boot_ms)) is not None
        ]
        ages_ms = [*told_ms, *([] if own_ms is None else [own_ms])]
        if (end := max(ends)) < 0:
            return None, NOTHING_COMMITTED
        if not ages_ms:
            return None, UNCONFIRMED
        is_current = own_ms is not None and own_ms <= END_SILENT_MS_MAX
        told_ms_max = END_SILENT_MS_MAX + self.scene.settings[LAG_SEND]
        if is_current or min(told_ms, default=told_ms_max + 1) <= told_ms_max:
            return end, ""
        return None, self._since(min(ages_ms), "Kafka has not confirmed the committed end")

    # ---------------------------------------------------------------- why not

    def _since(self, age_ms: int, what: str) -> str:
        """`what`, which says what Kafka has not done, unless this node's tailer is to blame."""
        said = "this host's tailer has been silent" if self._is_tailer_silent else what
        return f"Unknown since {self._at(age_ms)}: {said}."

    def _at(self, age_ms: int) -> str:
        at = datetime.fromtimestamp((self.scene.instant.unix_ms - age_ms) / 1000, UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    @cached_property
    def _is_tailer_silent(self) -> bool:
        boot_ms = self.scene.instant.boot_ms
        silent_ms = (
            tailer_silent_ms(status, boot_ms)
            for status in self.scene.replicas.values()
            if status is not None
        )
        return min((ms for ms in silent_ms if ms is not None), default=0) >= TAILER_SILENT_MS_MAX

    def _why_silent(self, node_id: NodeId) -> str:
        peer = self.peers.liveness.get(node_id)
        if peer is None or peer.health is not Health.DOWN:
            return NOT_REPORTED
        if not peer.beat_boot_ms:
            return HOST_DOWN
        silent_ms = self.scene.instant.boot_ms - peer.beat_boot_ms
        return f"Unknown since {self._at(silent_ms)}: its host sends no heartbeats."

    def _watermarks(self, partitions: Sequence[Placement]) -> Mapping[BatchId, int]:
        """{batch: watermark} of the replicas on this host: a batch has one, in all partitions."""
        statuses = (self.scene.replicas.get(placement.replica_id) for placement in partitions)
        return {
            status.batch: status.watermark_ms
            for status in statuses
            if status is not None and status.batch not in UNLABELLED
        }


def _put_batch(row: _Row, batch: BatchId) -> None:
    shown = None if batch in UNLABELLED else batch
    torn = "Its rows are those of no whole batch."
    row.put("batch", shown, NO_BATCHES if batch == OF_LOG else torn)


def _all_unknown(row: _Row, why: str, state: str | None = None) -> None:
    row.put("state", state, why)
    for name in ("position", "committedEnd", "offsetLag", "replicaLagMs", "sourceLagMs", "batch"):
        row.put(name, None, why)
    row.put("watermarkMs", None, why)
    row.put("ageMs", None, why)


def _role(placement: Placement, node_id: NodeId) -> str:
    if node_id in placement.warmups:
        return "WARM_UP"
    return "ACTIVE" if placement.replicas[:1] == (node_id,) else "STANDBY"


def _numbers(rows: Sequence[Mapping[str, object]], name: str) -> list[int]:
    return [value for row in rows if isinstance(value := row[name], int)]
