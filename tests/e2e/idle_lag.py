"""How large a source lag is shown for MINUTES without a write, and once Spark is killed?

    make idle-lag MINUTES=60       writes its result file in bench/results

A chain of two queries on a real cluster, and every second one read at each of three nodes:

    nothing is written       the lag stays small: an idle source is proved idle by its end offset
    Spark is killed          it stays small, as there is nothing that Spark could read
    one record is written    it is at least the time since the record was acknowledged
    Spark is started again   it becomes small

Not here: a pipeline that stands still, bounds and SHOW LAG (test_source_lag.py).
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress as Bar
from tests import report
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.driver_kills import kept_on_failure
from tests.e2e.test_source_lag import ONE, STATEMENTS

from standpipe.errors import StandpipeError
from standpipe.local.client.rest_client import NodesClient

LAG_MS_MAX: Final = 2_000
WITHOUT_SPARK_S: Final = 60
EVERY_S: Final = 1.0
RESULT: Final = report.RESULTS / "idle_lag.json"


@dataclass(frozen=True)
class Shown:
    """One answer. Times are monotonic, in seconds; `lag_ms` is None: the node does not know."""

    begin_s: float
    lag_ms: int | None


@dataclass
class Phase:
    """What was shown while one thing was true."""

    name: str
    shown: list[Shown] = field(default_factory=list[Shown])
    refused: int = 0

    def figures(self) -> dict[str, Any]:
        lags = [float(one.lag_ms) for one in self.shown if one.lag_ms is not None]
        assert lags, f"no lag was shown while {self.name}"
        return {
            "answers": len(self.shown),
            "refused": self.refused,
            "unknown": len(self.shown) - len(lags),
            "lag_ms_p50": round(report.quantile(lags, 0.5)),
            "lag_ms_p99": round(report.quantile(lags, 0.99)),
            "lag_ms_max": round(max(lags)),
            "above_the_goal": sum(lag > LAG_MS_MAX for lag in lags),
        }


class Watch(threading.Thread):
    """Reads at each node every second; each answer belongs to the phase in which it was asked."""

    def __init__(self, cluster: TestCluster) -> None:
        super().__init__()
        self.addresses = [address for _, address in cluster.addresses]
        self.is_over = threading.Event()
        self.phase = Phase("starting")

    def run(self) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(NodesClient([one])) for one in self.addresses]
            while not self.is_over.wait(EVERY_S):
                for client in clients:
                    phase, begin_s = self.phase, time.monotonic()
                    try:
                        fresh = client.pull(ONE).fresh
                    except StandpipeError:
                        phase.refused += 1
                        continue
                    if phase is self.phase:  # else it may show what the next one began with
                        phase.shown.append(Shown(begin_s, fresh.source_lag_ms))

    def enter(self, name: str) -> Phase:
        self.phase = Phase(name)
        return self.phase


def run(folder: Path, minutes: float) -> dict[str, Any]:
    """The figures of one cluster."""
    cluster = start(folder / "cluster")
    watch = Watch(cluster)
    try:
        cluster.sql(STATEMENTS)
        cluster.sql("INSERT INTO IDLE_EVENTS (K, V) VALUES ('a', 1);")
        cluster.wait_for_rows(ONE, [["a", 1]])
        watch.start()
        with Bar() as bar:
            return _story(cluster, watch, minutes, bar)
    finally:
        watch.is_over.set()
        if watch.ident is not None:
            watch.join()
        cluster.close()


def _story(cluster: TestCluster, watch: Watch, minutes: float, bar: Bar) -> dict[str, Any]:
    pipeline = cluster.local.pipeline
    assert pipeline is not None
    wait_until(lambda: _is_small(watch), "a small lag at first")
    idle = _stay(watch, bar, "nothing is written", 60 * minutes)
    driver = pipeline.pid
    pipeline.wanted = False  # else the supervisor starts it at once
    pipeline.signal_group(signal.SIGKILL)
    assert pipeline.wait(10), "the driver is still there"
    caught_up = _stay(watch, bar, "Spark is killed, nothing unread", WITHOUT_SPARK_S)
    cluster.sql("INSERT INTO IDLE_EVENTS (K, V) VALUES ('a', 2);")
    written_s = time.monotonic()
    behind = _stay(watch, bar, "Spark is killed, a record unread", WITHOUT_SPARK_S)
    back = watch.enter("Spark is started again")
    pipeline.wanted = True
    started_s = time.monotonic()
    cluster.wait_for_rows(ONE, [["a", 3]])
    wait_until(lambda: _is_small(watch), "a small lag again")
    assert pipeline.pid not in (None, driver), "another driver"
    # less than a record has waited would be a promise that is broken
    too_small = [
        one
        for one in behind.shown
        if one.lag_ms is not None and one.lag_ms < 1000 * (one.begin_s - written_s)
    ]
    return {
        "minutes": minutes,
        "goal_lag_ms_max": LAG_MS_MAX,
        "idle": idle.figures(),
        "spark_killed_nothing_unread": caught_up.figures(),
        "spark_killed_a_record_unread": {**behind.figures(), "too_small": len(too_small)},
        "small_again_s": round(back.shown[-1].begin_s - started_s, 1),
    }


def _is_small(watch: Watch) -> bool:
    """Whether the newest answers are, one of each node."""
    newest = watch.phase.shown[-len(watch.addresses) :]
    is_small = [one.lag_ms is not None and one.lag_ms <= LAG_MS_MAX for one in newest]
    return len(newest) == len(watch.addresses) and all(is_small)


def _stay(watch: Watch, bar: Bar, name: str, seconds: float) -> Phase:
    phase = watch.enter(name)
    for _ in bar.track(range(round(seconds)), description=name):
        time.sleep(1)  # nothing happens, which is what is measured
    return phase


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--minutes", type=float, default=60, help="without a write")
    options.add_argument("--result", type=Path, default=RESULT)
    given = options.parse_args()
    head = {"question": (__doc__ or "").splitlines()[0], **report.circumstances()}
    with kept_on_failure("idle-lag-") as folder:
        ran = run(folder, given.minutes)
    report.write(given.result, {**head, **ran})
    print(ran)
    phases = (ran["idle"], ran["spark_killed_nothing_unread"])
    is_good = not any(one["above_the_goal"] for one in phases)
    return 0 if is_good and not ran["spark_killed_a_record_unread"]["too_small"] else 1


if __name__ == "__main__":
    sys.exit(main())
