"""The counters of a node's workers, for a Prometheus scrape that any of them may answer.

The workers of a node share one port, so a scrape reaches any of them. Each one therefore writes its
counts to `run/metrics-<worker>` once a second, and the one that answers adds those of the others,
with the label `worker`. The controller does the same for the connections of its port, as the worker
`control`. A counter of a restarted worker starts at 0 again, which Prometheus expects; the file of
a worker that is gone stays until its number is used again.

Counting is a plain addition: the hot path can afford 0.3 us per request, not 2. States (STATES) are
not counted at all: they are read at each scrape, and are the same whichever worker is asked, so
they carry no label `worker`. An unknown state has no sample; it is never 0. Modelled on ksqlDB's
pull metrics. Names follow Prometheus's rules: unit last, `_total` for counters.

Not here: where states are read (`node.worker.inspect.gauges`).
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from standpipe.adapters.files import published
from standpipe.adapters.http.connections import REFUSALS, CutReason

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

#: Upper bounds of latency buckets, in seconds.
LATENCY_BOUNDS = (
    *(0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)

#: of most lookups
_FIRST_BOUND = LATENCY_BOUNDS[0]

#: name without `_total` -> (labels, meaning)
COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    "standpipe_pull_requests": (("route",), "Pull queries answered, by where the rows were."),
    "standpipe_pull_errors": (("code",), "Pull queries that failed, by error code."),
    "standpipe_pull_forwards": (("outcome",), "Reads sent to another node, one per partition."),
    "standpipe_pull_forwarded_in": (("outcome",), "Reads that another node sent here."),
    "standpipe_pull_fast_path_faults": (
        ("kind",),
        "Unexpected exceptions on the fast path of pull queries; the slow path answered instead.",
    ),
    "standpipe_waiting_reads_refused": (
        ("kind",),
        "Reads that could not wait, since too many of their kind did (429).",
    ),
    "standpipe_snapshot_reads": (
        ("rounds",),
        (
            "Reads of several parts at level snapshot, by the rounds that they took; `refused`: "
            "their parts did not come to one batch."
        ),
    ),
    "standpipe_barriers_sent": (
        (),
        "Barriers of linearizable reads that were sent to the progress topic.",
    ),
    "standpipe_barriers_failed": ((), "Of these, those that Kafka or the quorum did not answer."),
    "standpipe_requests_passed_on": (
        ("outcome",),
        (
            "Requests that a worker left to a heavy worker, as they may take long: `answered`; "
            "`abandoned` by the client; `ended`, like the heavy worker; `unreached`: there is none."
        ),
    ),
    "standpipe_push_queries": (("end",), "Push queries and PRINTs that ended, by reason."),
    "standpipe_statements": (("outcome",), "Requests to /ksql."),
    "standpipe_connections_refused": (
        ("reason",),
        "Connections closed at once: too many of an `address`, or in `all`; no `descriptors` left.",
    ),
    "standpipe_connections_cut": (
        ("reason",),
        "Connections cut: no whole `head` in time, a slow `body`, or to make `room`.",
    ),
    "standpipe_inserted_rows": ((), "Rows that INSERT INTO … VALUES and /inserts-stream produced."),
}
#: what a worker has now; whole name -> (labels, meaning)
GAUGES: dict[str, tuple[tuple[str, ...], str]] = {
    "standpipe_waiting_reads": (
        ("kind",),
        "Waiting reads: for `session`, `snapshot` or `linearizable`, a `barrier`, `costly_rows`.",
    ),
    "standpipe_unacknowledged_barriers": (
        (),
        "Barriers that are sent, and neither acknowledged nor failed.",
    ),
}
LATENCY_NAME = "standpipe_pull_latency_seconds"
LATENCY_MEANING = "Time from a whole request to its answer."
#: other durations, with the same buckets; whole name -> meaning
TIMINGS: dict[str, str] = {
    "standpipe_barrier_append_seconds": (
        "Time from sending a barrier until Kafka and the quorum have both answered."
    ),
    "standpipe_barrier_seen_seconds": (
        "Time from then until rows of this node are there, if one of the barrier's reads asks it."
    ),
}

_REPLICA = ("table", "generation", "partition")
#: what a scrape reads; whole name -> (labels, meaning). With `_total` it is a counter, kept by the
#: parent, control, the tailer or a pipeline and 0 again when that restarts; else a gauge.
STATES: dict[str, tuple[tuple[str, ...], str]] = {
    "standpipe_disk_size_bytes": ((), "Size of the disk that the node's data directory is on."),
    "standpipe_disk_free_bytes": (
        (),
        "What the node may still write there; below 10 % and 1 GiB, /healthcheck fails.",
    ),
    "standpipe_disk_free_inodes": (
        (),
        "Files that it may still make there; below 10 % and 10,000, /healthcheck fails.",
    ),
    "standpipe_process_open_fds": (
        ("process",),
        "File descriptors of each process of the node; above 90 % of them, /healthcheck fails.",
    ),
    "standpipe_process_max_fds": (("process",), "Most file descriptors that it may have open."),
    "standpipe_snapshot_age_seconds": (
        (),
        "Since control renewed this node's map of the cluster; above 5, /healthcheck fails.",
    ),
    "standpipe_quorum_has_leader": (
        (),
        "1: this node knows who leads the metadata quorum; 0: statements that change it fail.",
    ),
    "standpipe_quorum_applied_index": (
        (),
        "Index of the newest command of the metadata log that this node has applied.",
    ),
    "standpipe_quorum_sync_seconds": (
        (),
        "Slowest write of the metadata log in the last minute, until it was durable.",
    ),
    "standpipe_topics_failing": (
        (),
        "1: topics are not as statements want them, and /healthcheck fails; only at the leader.",
    ),
    "standpipe_replica_state": (
        (*_REPLICA, "state"),
        "1 for the state that a copy on this node is in.",
    ),
    "standpipe_replica_offset_lag_records": (
        _REPLICA,
        "Records by which a copy trails the committed end.",
    ),
    "standpipe_replica_lag_seconds": (
        _REPLICA,
        "Since a copy was last known to be at the committed end.",
    ),
    "standpipe_replica_source_lag_seconds": (
        _REPLICA,
        "Age of the newest source records that a copy surely shows.",
    ),
    "standpipe_replica_rows": (_REPLICA, "Rows of a copy."),
    "standpipe_replica_foreign_records_total": (
        _REPLICA,
        "Records of no committed batch, left out by a copy since its store was made.",
    ),
    "standpipe_replica_store_bytes": (_REPLICA, "What a copy's store takes on the disk."),
    "standpipe_replica_store_map_bytes": (
        _REPLICA,
        "Up to which size a copy's store may grow before its map is doubled.",
    ),
    "standpipe_progress_records_ignored_total": (
        ("reason",),
        "Records of the progress topic that this node ignores: FORGED, UNSIGNED or UNREADABLE.",
    ),
    "standpipe_query_state": (
        ("query_id", "state", "reason"),
        "1 for the state that a pipeline reports of a query; PAUSED; UNRESPONSIVE: none does.",
    ),
    "standpipe_query_report_age_seconds": (
        ("query_id",),
        "Since a pipeline said anything of a query that is not paused (it does each second).",
    ),
    "standpipe_query_bad_records_total": (
        ("query_id",),
        "Records that a query could not read.",
    ),
    "standpipe_query_late_records_total": (
        ("query_id",),
        "Records that came after the window that they belong to was closed.",
    ),
    "standpipe_query_repaired_rows_total": (
        ("query_id",),
        "Rows of a query's table that records of no committed batch had shadowed, written again.",
    ),
    "standpipe_worker_ends_total": (
        ("number", "reason"),
        "Times that the parent had to end a worker: wedged (its loop made no turn), memory.",
    ),
    "standpipe_peer_up": (
        ("peer",),
        "1: this node hears a peer's heartbeats; 0: it considers it down.",
    ),
    "standpipe_lag_reports_refused_total": (
        (),
        "Peers' lag reports of single replicas beyond the end that Kafka tells this node.",
    ),
}
#: values of a metric's labels, in order, and the number
Sample = tuple[tuple[str, ...], float]
#: name in STATES -> its samples
State = tuple[str, Iterable[Sample]]


class Timing(msgspec.Struct):
    """A histogram."""

    #: per bucket, the last one is above all bounds
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    seconds: float = 0.0


class Dump(msgspec.Struct):
    """Counts of one process as stored in `run/`."""

    worker: int | str
    counts: dict[str, dict[str, int]]  # metric -> value of its only label ("": none) -> count
    latency_counts: list[int]  # per bucket, the last one is above all bounds
    latency_seconds: float
    gauges: dict[str, dict[str, int]] = {}  # metric -> value of its only label -> number
    timings: dict[str, Timing] = {}


@dataclass
class Metrics:
    """Counts of this process. `worker`: its number, or `control`; `folder`: the node's `run/`."""

    worker: int | str
    folder: Path
    counts: dict[str, dict[str, int]] = field(default_factory=lambda: {n: {} for n in COUNTERS})
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    latency_seconds: float = 0.0
    gauges: dict[str, dict[str, int]] = field(default_factory=lambda: {n: {} for n in GAUGES})
    timings: dict[str, Timing] = field(default_factory=lambda: {n: Timing() for n in TIMINGS})

    def __post_init__(self) -> None:
        self._pulls = self.counts["standpipe_pull_requests"]
        #: pull queries that were answered here within the first bound, not yet in `counts`, and
        #: the seconds that they took: most are, and to count them so takes half the steps
        self._quick, self._quick_seconds = 0, 0.0

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Add to a counter of COUNTERS."""
        values = self.counts[name]
        values[label] = values.get(label, 0) + by

    def gauge(self, name: str, label: str, number: int) -> None:
        """Set a gauge of GAUGES."""
        self.gauges[name][label] = number

    def took(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram of TIMINGS."""
        timing = self.timings[name]
        timing.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        timing.seconds += seconds

    def connection_ended(self, reason: CutReason) -> None:
        """A listener refused a connection, or cut it."""
        name = "refused" if reason in REFUSALS else "cut"
        self.count(f"standpipe_connections_{name}", reason.value)

    def answered_here(self, seconds: float, count: int = 1) -> None:
        """Pull queries were answered, each after so long, and their rows were local."""
        if seconds > _FIRST_BOUND:
            self.answered("local", seconds, count)
            return
        self._quick += count
        self._quick_seconds += seconds * count

    def answered(self, route: str, seconds: float, count: int = 1) -> None:
        """Pull queries were answered, each after so long: `local`, `remote` or `mixed`."""
        counts = self._pulls
        try:
            counts[route] += count
        except KeyError:
            counts[route] = count
        bucket = 0 if seconds <= _FIRST_BOUND else bisect_left(LATENCY_BOUNDS, seconds)
        self.latency_counts[bucket] += count
        self.latency_seconds += seconds * count

    def answered_count(self) -> int:
        """Pull queries answered so far."""
        self._take_quick()
        return sum(self.counts["standpipe_pull_requests"].values())

    def save(self) -> None:
        """Write the counts for the other workers; on a full disk the older ones stay."""
        with contextlib.suppress(OSError):
            published.write(self.folder / f"metrics-{self.worker}", self._dump())

    async def exposition(self, states: Iterable[State] = ()) -> bytes:
        """All workers of the node, and the states, in Prometheus's text format.

        One metric at a time: a node with many copies has thousands of lines, and this worker
        answers lookups between them.
        """
        from prometheus_client import CollectorRegistry, generate_latest  # slow to load

        text = bytearray()
        counted = _Collector([self._dump(), *self._others()])
        for family in chain(counted.collect(), map(_family, states)):
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_One(family))
            text += generate_latest(registry)
            await asyncio.sleep(0)
        return bytes(text)

    def _take_quick(self) -> None:
        count, seconds = self._quick, self._quick_seconds
        if count:
            self._quick, self._quick_seconds = 0, 0.0
            self._pulls["local"] = self._pulls.get("local", 0) + count
            self.latency_counts[0] += count
            self.latency_seconds += seconds

    def _dump(self) -> Dump:
        self._take_quick()
        return Dump(
            worker=self.worker,
            counts=self.counts,
            latency_counts=self.latency_counts,
            latency_seconds=self.latency_seconds,
            gauges=self.gauges,
            timings=self.timings,
        )

    def _others(self) -> Iterator[Dump]:
        own = f"metrics-{self.worker}"
        for path in sorted(self.folder.glob("metrics-*")):
            if path.name != own and path.suffix != ".new":
                try:
                    yield msgspec.msgpack.decode(path.read_bytes(), type=Dump)
                except (OSError, msgspec.MsgspecError):
                    continue  # of another version; its worker writes a new one within a second


def _family(state: State) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    name, samples = state
    labels, meaning = STATES[name]
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, meaning, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


@dataclass(eq=False)  # the registry keeps it as a key
class _One:
    """A metric on its own, as prometheus_client's Collector."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.family


@dataclass
class _Collector:
    """What workers counted."""

    dumps: list[Dump]

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        of_counters = [(dump.worker, dump.counts) for dump in self.dumps]
        for name, (labels, meaning) in COUNTERS.items():
            family = CounterMetricFamily(name, meaning, labels=("worker", *labels))
            yield _with_samples(family, name, labels, of_counters)
        of_gauges = [(dump.worker, dump.gauges) for dump in self.dumps]
        for name, (labels, meaning) in GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=("worker", *labels))
            yield _with_samples(family, name, labels, of_gauges)
        timed = {LATENCY_NAME: LATENCY_MEANING, **TIMINGS}
        for name, meaning in timed.items():
            timings = HistogramMetricFamily(name, meaning, labels=("worker",))
            for dump in self.dumps:
                if dump.worker == "control":  # it answers no queries
                    continue
                of = dump.timings.get(name, Timing())
                if name == LATENCY_NAME:
                    of = Timing(dump.latency_counts, dump.latency_seconds)
                timings.add_metric((str(dump.worker),), _cumulative(of), of.seconds)
            yield timings


def _with_samples(
    family: CounterMetricFamily | GaugeMetricFamily,
    name: str,
    labels: tuple[str, ...],
    dumped: Iterable[tuple[int | str, dict[str, dict[str, int]]]],
) -> Metric:
    for worker, numbers in dumped:
        for value, number in numbers.get(name, {}).items():
            given = (value,) if labels else ()
            family.add_metric((str(worker), *given), number)
    return family


def _cumulative(of: Timing) -> list[tuple[str, float]]:
    bounds = [*map(str, LATENCY_BOUNDS), "+Inf"]
    counts = (of.counts + [0] * len(bounds))[: len(bounds)]
    return [(bound, sum(counts[: place + 1])) for place, bound in enumerate(bounds)]
