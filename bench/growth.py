"""How do lookups slow down as keys, values, connections, tables, partitions and nodes grow?

Goal: from 10 k to 20 M keys at most 25 % fewer. The other curves have none.

Sketch: point lookups as SQL text, another key each time, of one worker on one core, the load on the
other (wrk). A curve grows one thing and leaves the others as they are (`bench/load/shapes.py`). All
points of a curve stand at once, and each round asks them by turns, every other round backwards, so
that a ratio compares neighbours in time. Beside each point: what a request costs the worker, and
what the worker and the stores take.

    python bench/growth.py [--rounds 5] [--seconds 2] [--curves keys nodes …]

Needs wrk. 20 M keys take some minutes to write and 3 GB of /tmp.
Not here: several nodes that answer (bench/lookups.py, "forwarded"), scans (bench/scans.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load import wrk  # noqa: E402
from bench.load.cases import judge  # noqa: E402
from bench.load.machine import LOAD_QUIET_MAX, memory_kib, port_of  # noqa: E402
from bench.load.options import parser_of  # noqa: E402
from bench.load.shapes import Shape  # noqa: E402
from bench.load.tables import worker  # noqa: E402
from bench.load.wrk import Run  # noqa: E402
from tests import report  # noqa: E402

#: what grows, in steps
CURVES: Final[dict[str, tuple[int, ...]]] = {
    "keys": (10_000, 100_000, 1_000_000, 20_000_000),
    "value_bytes": (50, 500, 5_000, 50_000),
    "connections": (1, 16, 256, 5_000),
    "tables": (1, 20, 200),
    "partitions": (1, 32, 1_000),
    "nodes": (3, 100, 1_000),
}
#: least share of the first point's rate that the last one has
GOALS: Final = {"keys": 0.75}
RESULT = report.RESULTS / "growth.json"


@dataclass(frozen=True)
class Point:
    """One node of a curve, and how it is asked."""

    shape: Shape
    process: int
    port: int
    script: Path
    size: float
    store_bytes: int

    @classmethod
    def standing(cls, stack: ExitStack, folder: Path, shape: Shape) -> Point:
        """A node that has been filled, and answers."""
        folder.mkdir()
        config, case = shape.make(folder), shape.case
        process = stack.enter_context(worker(folder, config))
        port = port_of(config.public)
        script = case.write_script(folder / "load.lua", shape.keys)
        stores = sum(path.stat().st_blocks * 512 for path in config.paths.state.rglob("data.mdb"))
        return cls(shape, process.pid, port, script, case.check(port, shape.keys), stores)

    def ask(self, seconds: int) -> Run:
        """A closed loop."""
        shape = self.shape
        asked = wrk.run(
            self.process, self.port, self.script, seconds, connections=shape.connections
        )
        return judge("point", asked, self.size)


def measure(
    folder: Path, name: str, values: Sequence[int], given: argparse.Namespace
) -> dict[str, Any]:
    """One curve."""
    with ExitStack() as stack:
        points: list[Point] = []
        for value in values:
            made = Point.standing(stack, folder / str(value), replace(Shape(), **{name: value}))
            made.ask(1)  # warm
            print(f"{name} {value:,} stands", flush=True)
            points.append(made)
        rounds: list[list[Run]] = []
        for number in range(given.rounds):
            order = range(len(points)) if number % 2 == 0 else reversed(range(len(points)))
            runs = {place: points[place].ask(given.seconds) for place in order}
            rounds.append([runs[place] for place in range(len(points))])
            rates = ", ".join(f"{run.requests_per_second:.0f}" for run in rounds[-1])
            print(f"{name} round {number + 1}: {rates} /s", flush=True)
        for point in points:
            point.shape.case.check(point.port, point.shape.keys)
        found = [
            figures(point, value, [runs[place] for runs in rounds])
            for place, (point, value) in enumerate(zip(points, values, strict=True))
        ]
    last = [runs[-1].requests_per_second / runs[0].requests_per_second for runs in rounds]
    return {"points": found, "last_to_first": round(statistics.median(last), 3)}


def figures(point: Point, value: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Of one point. `cpu_us`: of the worker, for each request."""
    rates = [round(run.requests_per_second) for run in runs]
    return {
        "value": value,
        "per_s": rates,
        "p99_us": round(statistics.median(run.p99_us for run in runs)),
        "cpu_us": round(statistics.median(run.server_us_per_request for run in runs), 2),
        "worker_kib_without_stores": memory_kib(point.process)["pss_without_stores"],
        "store_mib_per_million_rows": round(point.store_bytes / 1.048576 / point.shape.keys),
    }


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each loop")
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=[*CURVES])
    parser.add_argument("--shrink", type=int, default=1, help="divides what the curves grow to")
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    if not shutil.which("wrk"):
        print("missing: apt-get install wrk", file=sys.stderr)
        return 1
    about = report.circumstances()
    curves: dict[str, Any] = {}
    for name in given.curves:
        steps = CURVES[name]
        values = (*dict.fromkeys(max(steps[0], value // given.shrink) for value in steps),)
        with tempfile.TemporaryDirectory(prefix="standpipe-bench-") as folder:
            curves[name] = measure(Path(folder), name, values, given)
    loads = (about["machine"]["load_now"][0], os.getloadavg()[0])
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **about,
        "load_after": [round(load, 2) for load in os.getloadavg()],
        "disturbed": max(loads) > LOAD_QUIET_MAX,
        "settings": {"rounds": given.rounds, "seconds": given.seconds, "shrink": given.shrink},
        "shape": vars(Shape()),
        "goals": GOALS,
        "last_to_first": {name: curve["last_to_first"] for name, curve in curves.items()},
        "curves": {name: curve["points"] for name, curve in curves.items()},
    }
    report.write_summary(given.result, result)
    print(result["last_to_first"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
