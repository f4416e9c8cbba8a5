"""How much sooner do Spark and Kafka start from a class archive?

Each run is a new process: the embedded broker until it answers, or a Spark session until its first
aggregate is computed; once with the archive of `make setup`, once without, in turns. Processor time
is that of the JVM alone.

    python bench/start.py [--rounds 5] [--output …]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
from pyspark import SparkContext  # noqa: E402
from tests import report  # noqa: E402

from standpipe.config import registry  # noqa: E402
from standpipe.local.cluster import jvm, ports  # noqa: E402
from standpipe.local.cluster.broker import Broker  # noqa: E402
from standpipe.pipeline.run import session  # noqa: E402

Figures = dict[str, float]


def processor_s(pid: int) -> float:
    """User and system time that a process has used."""
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


def start_broker(java_options: list[str]) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        with Broker(Path(folder), ports.any_port(), java_options=java_options) as broker:
            assert broker.pid is not None
            return {"wall_s": time.monotonic() - began_s, "processor_s": processor_s(broker.pid)}


def start_spark(java_options: list[str]) -> Figures:
    java = jvm.find_java()
    began_s = time.monotonic()
    spark = session.open_session(
        registry.Config(),
        master="local[2]",
        jars=jvm.jars("spark"),
        java_home=java.home,
        java_options=java_options,
    )
    rows: Any = cast(Any, spark).sql(
        "SELECT id % 7 AS k, count(*), avg(id) FROM range(1000) GROUP BY 1"
    )
    assert len(rows.collect()) == 7
    gateway: Any = cast(Any, SparkContext)._gateway
    found = {"wall_s": time.monotonic() - began_s, "processor_s": processor_s(gateway.proc.pid)}
    session.kill_jvm()
    return found


STARTS: Mapping[jvm.JarSet, Callable[[list[str]], Figures]] = {
    "broker": start_broker,
    "spark": start_spark,
}


def once(what: jvm.JarSet, *, archive: bool) -> Figures:
    """One start, in a process of its own."""
    command = [sys.executable, __file__, "--once", what, *(["--archive"] if archive else [])]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found: Figures = json.loads(ran.stdout.splitlines()[-1])
    print(what, "with" if archive else "without", found, flush=True)
    return found


def measure(what: jvm.JarSet, rounds: int) -> dict[str, Any]:
    runs = [(once(what, archive=False), once(what, archive=True)) for _ in range(rounds)]
    found: dict[str, Any] = {}
    for name in ("wall_s", "processor_s"):
        pairs = [(without[name], with_[name]) for without, with_ in runs]
        found[name] = {
            "without": _spread([without for without, _ in pairs]),
            "with": _spread([with_ for _, with_ in pairs]),
            "share": round(statistics.median(with_ / without for without, with_ in pairs), 2),
        }
    return found


def _spread(values: list[float]) -> dict[str, float]:
    middle = statistics.median(values)
    return {
        "median": round(middle, 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--once", choices=[*STARTS])
    options.add_argument("--archive", action="store_true")
    options.add_argument("--output", type=Path, default=ROOT / "bench/results/start.json")
    given = options.parse_args()
    if given.once:
        what: jvm.JarSet = given.once
        java_options = jvm.archive_options(what, jvm.find_java()) if given.archive else []
        print(json.dumps(STARTS[what](java_options)))
        return
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **report.circumstances(),
        "rounds_count": given.rounds,
        **{what: measure(what, given.rounds) for what in STARTS},
    }
    report.write_summary(given.output, result)


if __name__ == "__main__":
    main()
