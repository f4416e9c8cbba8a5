"""Does a served DataFrame equal a recompute, however often its program dies?

    make serve-kills KILLS=60       adds to serve_kills.json among the results

examples/serve_dataframe.py against two nodes without a pipeline. A portion of events, and SIGKILL
for the program that writes: at a random moment, its JVM alone, at a named step of a batch; or it is
stopped, and goes on once another has taken over. A standby takes over, or the program is started
again. After each kill every row is compared with a recompute, after every tenth the replicas with
one another.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests import report
from tests.e2e import kill_runs
from tests.e2e.cluster import TestCluster, start
from tests.e2e.driver_kills import kept_on_failure
from tests.e2e.processes import descendants
from tests.e2e.user_programs import Program, Purchases, programs, verify

VERIFY_EVERY = 10
RESULTS = report.RESULTS / "serve_kills.json"


@dataclass
class ServeKills:
    """One program writes, and at times another stands by."""

    cluster: TestCluster
    started: Callable[..., Program]
    random: random.Random
    kinds: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.cluster.topic("purchases")
        self.purchases = Purchases(self.cluster)
        self.writer = self.started()
        self.purchases.send()
        self.writer.wait_for("SCORES is served")
        self.purchases.check()

    def one_more(self) -> str:
        """A kill while a portion of events is under way, and every row compared."""
        kind = self.random.choice(KINDS)
        has_standby = self.random.random() < 0.5 or kind is ServeKills.stopped
        successor = self.started() if has_standby else None
        if successor is not None:
            successor.wait_for("standing by: SCORES is written by")
        self.purchases.send()
        before = self.writer
        kind(self)
        self.purchases.send()
        self.writer = successor or self.started()
        self.writer.wait_for("SCORES is served")
        self.purchases.check()
        if kind is ServeKills.stopped:
            before.signal(signal.SIGCONT)
            assert before.wait_for_end() == 1
            assert "FENCED" in before.said()
            self.purchases.send()
            self.purchases.check()
        name = kind.__name__ + (" with a standby" if has_standby else "")
        self.kinds[name] += 1
        return name

    def at_a_random_moment(self) -> None:
        time.sleep(self.random.uniform(0, 3))
        self.writer.signal(signal.SIGKILL)

    def python_alone(self) -> None:
        """Its JVM may write a little longer."""
        time.sleep(self.random.uniform(0, 1))
        self.writer.process.kill()

    def the_jvm_alone(self) -> None:
        time.sleep(self.random.uniform(0, 1))
        for process in descendants(self.writer.process.pid, "java"):
            process.kill()
        assert self.writer.wait_for_end() != 0

    def stopped(self) -> None:
        time.sleep(self.random.uniform(0, 1))
        self.writer.signal(signal.SIGSTOP)


KINDS: tuple[Callable[[ServeKills], None], ...] = (
    ServeKills.at_a_random_moment,
    ServeKills.at_a_random_moment,
    ServeKills.python_alone,
    ServeKills.the_jvm_alone,
    ServeKills.stopped,
)


def run(kills: int, seed: int) -> dict[str, Any]:
    with kept_on_failure("serve-kills-") as folder:
        cluster = start(folder / "cluster", nodes=2, pipelines=0)
        try:
            with programs(cluster, folder) as started:
                story = ServeKills(cluster, started, random.Random(seed))
                for number in range(1, kills + 1):
                    print(f"kill {number}: {story.one_more()}", flush=True)
                    if number % VERIFY_EVERY == 0 or number == kills:
                        verify(cluster)
        finally:
            cluster.close()
    return {
        "kills": kills,
        "seed": seed,
        "events": len(story.purchases.sent),
        "kinds": dict(story.kinds.most_common()),
    }


def on_record(before: kill_runs.Result, ran: kill_runs.Result) -> kill_runs.Result:
    """The record with one more run: sums, and one line for each run."""
    runs = [*before.get("runs", []), {name: ran[name] for name in ran if name != "kinds"}]
    kinds = Counter(before.get("kinds", {})) + Counter(ran["kinds"])
    return {
        "question": kill_runs.question(__doc__),
        **{name: sum(run[name] for run in runs) for name in ("kills", "events")},
        "kinds": dict(kinds.most_common()),
        "runs": runs,
    }


def main() -> int:
    given = kill_runs.options(__doc__, kills=60, result=RESULTS).parse_args()
    ran = kill_runs.record(given, lambda: run(given.kills, given.seed), on_record)
    print(f"{ran['kinds']}\n{given.kills} kills, 0 rows wrong")  # else an assertion ended the run
    return 0 if sum(ran["kinds"].values()) == given.kills else 1


if __name__ == "__main__":
    sys.exit(main())
