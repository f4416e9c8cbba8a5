"""How far does a standby that runs a tenth of the time fall behind, and how fast are batches then?

    make slow-standby SECONDS=60       writes its result file in bench/results

The story of test_replication_lag.py for longer, with the bound of BOUND records, and with more
events than Spark can take, so that its throughput is what the bound leaves:

    warm-up                    not counted: Spark's JVM compiles what its batches run
    both replicas are well     as many rows a second as this machine can
    the standby is slowed      no more than it takes, and it is never further behind than the bound
    it is well again           as many as before, within seconds
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from rich.progress import Progress as Bar
from tests import report
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.driver_kills import kept_on_failure
from tests.e2e.test_replication_lag import Lag, pressed, rows_there

from standpipe.config import lags

BOUND: Final = 10_000
#: events that Spark has not read yet, at least
AHEAD: Final = 60_000
#: a rate is that of so long, as rows come batch by batch
WINDOW_S: Final = 4.0
WARM_UP_S: Final = 60.0
#: of the usual rate, from which on the batches count as back
BACK: Final = 0.8
BACK_S_MAX: Final = 10.0
RESULT: Final = report.RESULTS / "slow_standby.json"


class Feed(threading.Thread):
    """Keeps Spark busy: one new key an event."""

    def __init__(self, servers: str, lag: Lag) -> None:
        super().__init__()
        self.lag, self.is_over = lag, threading.Event()
        self.producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        self.sent = 0

    def run(self) -> None:
        while not self.is_over.wait(0.05):
            while self.sent - rows_there(self.lag.active) < AHEAD and not self.is_over.is_set():
                for _ in range(5_000):
                    self.producer.produce("pressed", b'{"V": 1}', f"k{self.sent}".encode())
                    self.sent += 1
                self.producer.flush(30)


@dataclass
class Samples:
    """(monotonic s, rows at the active replica, records that the standby is behind)."""

    lag: Lag
    taken: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])

    def take(self, seconds: float, bar: Bar, name: str) -> list[tuple[float, int, int]]:
        began, first = time.monotonic(), len(self.taken)
        task = bar.add_task(name, total=seconds)
        while (now := time.monotonic()) - began < seconds:
            self.taken.append((now, rows_there(self.lag.active), self.lag.measure()))
            bar.update(task, completed=now - began)
            time.sleep(0.01)  # the pace of the samples
        return list(islice(self.taken, first, None))


def rates(samples: Sequence[tuple[float, int, int]]) -> list[tuple[float, float]]:
    """(end of a window, rows a second in it), one for each quarter of a window."""
    found, begin = list[tuple[float, float]](), 0
    due = samples[0][0] + WINDOW_S
    for at, rows, _ in samples:
        if at < due:
            continue
        while samples[begin + 1][0] <= at - WINDOW_S:
            begin += 1
        since, before, _ = samples[begin]
        found.append((at, (rows - before) / (at - since)))
        due = at + WINDOW_S / 4
    return found


def run(folder: Path, seconds: float) -> dict[str, Any]:
    """The figures of one cluster."""
    config = {lags.REPLICATION_LAG_MAX.name: str(BOUND)}
    cluster = start(folder / "cluster", nodes=2, config=config)
    try:
        with Bar() as bar:
            return _story(cluster, seconds, bar)
    finally:
        cluster.close()


def _story(cluster: TestCluster, seconds: float, bar: Bar) -> dict[str, Any]:
    lag, slowed, standby = pressed(cluster)
    feed, samples = Feed(cluster.bootstrap_servers, lag), Samples(lag)
    slowed.said.set()  # it is stopped for the usual time from the first stop on
    feed.start()
    try:
        wait_until(lambda: rows_there(lag.active) > BOUND, "batches are large")
        samples.take(WARM_UP_S, bar, "warm-up")
        usual = samples.take(seconds, bar, "both are well")
        lag.most = 0
        with slowed.going_on():
            had = rows_there(lag.standby)
            slow = samples.take(seconds, bar, "the standby is slowed")
            took = rows_there(lag.standby) - had
            shown = str(cluster.sql("SHOW QUERIES;"))
        most, lag.most = lag.most, 0
        after = samples.take(max(3 * BACK_S_MAX, seconds / 2), bar, "it is well again")
    finally:
        feed.is_over.set()
        feed.join()
    assert slowed.stops > seconds / 3, "it was slow"
    assert feed.sent - rows_there(lag.active) > 0, "there was always something to read"
    usual_rate = statistics.median(rate for _, rate in rates(usual))
    back = [at - after[0][0] for at, rate in rates(after) if rate >= BACK * usual_rate]
    for page in (lag.active, lag.standby):
        page.close()
    return {
        "bound_records": BOUND,
        "seconds": seconds,
        "stops": slowed.stops,
        "lag_most_records": most,
        "is_said": "THROTTLED" in shown and standby in shown,
        "usual_rows_per_second": round(usual_rate),
        "slowed_rows_per_second": round(statistics.median(rate for _, rate in rates(slow))),
        "standby_rows_per_second": round(took / seconds),
        # the end of the first window that is fast again: most of it was waited for it to be full
        "back_s": round(back[0], 1) if back else None,
        "goal_back_s": BACK_S_MAX,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=60, help="of each of the first two parts")
    options.add_argument("--result", type=Path, default=RESULT)
    given = options.parse_args()
    head = {"question": (__doc__ or "").splitlines()[0], **report.circumstances()}
    with kept_on_failure("slow-standby-") as folder:
        ran = run(folder, given.seconds)
    report.write(given.result, {**head, **ran})
    print(ran)
    is_back = ran["back_s"] is not None and ran["back_s"] <= BACK_S_MAX
    return 0 if is_back and ran["lag_most_records"] <= BOUND and ran["is_said"] else 1


if __name__ == "__main__":
    sys.exit(main())
