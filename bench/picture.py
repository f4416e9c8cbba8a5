"""bench/results/*.png: one bar chart for each question, drawn from its summary alone.

    python -m bench.picture [name …]        (or `make pictures`)

A bar is a median or a total; the thin line on it goes from the least to the greatest run; a dashed
line is the limit. Not here: the page of all results (bench/readme.py).
"""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.readme import RESULTS, ROWS, load, machine_of

Result = dict[str, Any]
OURS, PEER, BAD, GREY = "#1f6fb2", "#9aa5b1", "#c62828", "#666666"


@dataclass(frozen=True)
class Bar:
    """`figure`: a number, or a spread with `median` or `p50`, `min` and `max`."""

    label: str
    figure: Any
    is_ours: bool = True
    limit: float | None = None

    @property
    def middle(self) -> float:
        if isinstance(self.figure, Mapping):
            return float(self.figure["median" if "median" in self.figure else "p50"])
        return float(self.figure)

    @property
    def ends(self) -> tuple[float, float] | None:
        """Least and greatest, where the runs differ."""
        if not isinstance(self.figure, Mapping):
            return None
        return float(self.figure.get("min", self.middle)), float(self.figure["max"])


@dataclass(frozen=True)
class Picture:
    """What is drawn of one result: `unit` stands under the axis."""

    unit: str
    bars: Callable[[Result], list[Bar]]
    is_log: bool = False


def _named(figures: Mapping[str, Any], *peers: str, limit: float | None = None) -> list[Bar]:
    return [
        Bar(name.replace("_", " "), figure, name not in peers, limit)
        for name, figure in figures.items()
        if name != "count"
    ]


def _greatest(figures: Mapping[str, float], count: int = 16) -> list[Bar]:
    ranked = sorted(figures.items(), key=lambda item: -item[1])
    return [Bar(name, value) for name, value in ranked[:count]]


def _runs(result: Result, figure: str) -> dict[str, Any]:
    return {name: runs[figure] for name, runs in result["runs"].items()}


def _pull(result: Result) -> list[Bar]:
    rates = {name: result["runs"][name]["requests_per_second"] for name in ("standpipe", "redis")}
    limit = 0.25 * result["requests_per_second_median"]["redis"]
    return [
        Bar("Standpipe", rates["standpipe"], True, limit),
        Bar("Redis GET", rates["redis"], False),
    ]


def _many_keys(result: Result) -> list[Bar]:
    ours, theirs = result["rows_per_s_median"], result["redis_rows_per_s_median"]
    goals = {"keys_100": result["goal_rows_per_s"]}
    bars: list[Bar] = []
    for name, rate in ours.items():
        count = name.removeprefix("keys_")
        bars.append(Bar(f"Standpipe, {count} keys", rate, True, goals.get(name)))
        bars.append(Bar(f"Redis, {count} keys", theirs[name], False))
    return bars


def _lookups(result: Result) -> list[Bar]:
    peers = ("redis", "streams", "postgres", "nginx")
    return [
        Bar(name.replace("_", " "), figures["per_s"], name not in peers)
        for name, figures in result["runs"].items()
        if name != "count"
    ]


def _scans(result: Result) -> list[Bar]:
    return [
        Bar(
            f"{name.removesuffix('_postgres')}, {int(rows):,} rows",
            figures["rows_per_s"],
            not name.endswith("_postgres"),
            result["goals_rows_per_s"].get(name),
        )
        for rows, asked in result["tables"].items()
        for name, figures in asked.items()
    ]


def _growth(result: Result) -> list[Bar]:
    return [
        Bar(f"{name.replace('_', ' ')} {point['value']:,}", point["per_s"])
        for name, points in result["curves"].items()
        for point in points
    ]


def _client(result: Result) -> list[Bar]:
    rates, goals = _runs(result, "per_s"), result["goals"]
    return [
        Bar("asynchronous, uvloop", rates["uvloop"], True, goals["async"]),
        Bar("asynchronous, asyncio", rates["asyncio"], True, goals["async"]),
        Bar("synchronous", rates["sync"], True, goals["sync"]),
    ]


def _lanes(result: Result) -> list[Bar]:
    return [
        Bar(f"scans: {kind}, {name[:-3]}", ratio, True, result["limit"])
        for kind, ratios in result["ratio_to_idle"].items()
        for name, ratio in ratios.items()
    ]


def _linearizable(result: Result) -> list[Bar]:
    per_s = result["rounds"]["linearizable"]["per_s"]
    return [Bar("one follower", per_s, True, result["goal_per_s"])]


def _levels(result: Result) -> list[Bar]:
    return [
        Bar(case.replace("_", " "), found["throughput"], True, result["goals"][case])
        for case, found in result["ratio_median"].items()
    ]


def _idle_lag(result: Result) -> list[Bar]:
    phases = {"idle": "nothing written", "spark_killed_nothing_unread": "Spark killed"}
    return [
        Bar(f"{said}: {name}", result[phase][f"lag_ms_{name}"], True, result["goal_lag_ms_max"])
        for phase, said in phases.items()
        for name in ("p50", "p99", "max")
    ]


def _slow_standby(result: Result) -> list[Bar]:
    return [
        Bar("both replicas are well", result["usual_rows_per_second"], True),
        Bar("the standby is slowed", result["slowed_rows_per_second"], True),
    ]


def _freshness(result: Result) -> list[Bar]:
    return [
        Bar(
            f"{case.replace('_', ' ')}: {name[:-3]}",
            found["windows"][name],
            case != "three_alone",
            found.get(f"{name}_max"),
        )
        for case, found in result["cases"].items()
        for name in ("p50_ms", "p99_ms")
    ]


def _node(result: Result) -> list[Bar]:
    return [
        Bar(f"{how}: first answer{which}", result[how][f"first_{name}_ms"], True, 2000)
        for how in ("killed", "stopped")
        for which, name in (("", "answer"), (" of its own", "own_answer"))
    ]


def _failover(result: Result) -> list[Bar]:
    figures = {"avoided_ms": "routed around", "first_good_ms": "first good read"}
    return [
        Bar(f"{found['what']}: {word}", found[name], True, found["goals"][name])
        for found in result["summary"].values()
        for name, word in figures.items()
    ]


def _quorum_kills(result: Result) -> list[Bar]:
    names = {"writes_resumed": "writes", "follower_reads_resumed": "reads of a follower"}
    return [
        Bar(f"{word}, {rank}", result[name][f"{rank}_ms"], True, limit)
        for name, word in names.items()
        for rank, limit in (("p50", None), ("p99", result["goal_p99_ms"]), ("max", None))
    ]


def _beats(result: Result) -> list[Bar]:
    return [
        Bar(f"{row['nodes']} nodes, {word}", row[f"{name}_percent"], name == "with", limit)
        for row in result["real"]
        for name, word, limit in (("with", "with beats", None), ("without", "without", None))
    ]


def _start(result: Result) -> list[Bar]:
    return [
        Bar(f"{what}, {which} archive", result[what]["processor_s"][which], which == "with")
        for what in ("spark", "broker")
        for which in ("with", "without")
    ]


def _assignor(result: Result) -> list[Bar]:
    return [
        Bar(
            f"{row['shape']}, {row['nodes']:,} × {row['partitions']:,}, {row['case']}",
            row["core_s"],
            row["shape"] == "even",
            row["budget_s"],
        )
        for row in result["results"]
    ]


def _planted(result: Result) -> list[Bar]:
    return [Bar(bug["bug"].replace("_", " "), bug["tried"]) for bug in result["bugs"]]


def _conformance(result: Result) -> list[Bar]:
    return [
        Bar(f"{suite} cases: {kind}", result[suite][kind], kind == "passed")
        for suite in ("pull", "tables")
        for kind in ("passed", "failed")
    ]


def _abuse(result: Result) -> list[Bar]:
    heavy = result["heavy_workers"]
    shares = {
        "lookups' p99, of 3 × idle": result["p99_ratio"] / 3,
        "a loop of lookups stands still, of 50 ms": result["standstill_ms_max"] / 50,
        "a loop of a heavy worker, of 50 ms": heavy["standstill_ms_max"] / 50,
        "a lookup worker grows, of 200 MB": result["memory_growth_bytes_max"] / 2e8,
        "a heavy worker grows, of 200 MB": heavy["memory_growth_bytes_max"] / 2e8,
    }
    return [Bar(text, round(share, 2), True, 1) for text, share in shares.items()]


def _repositories(result: Result) -> list[Bar]:
    left = {"for Kafka Connect": result["for_kafka_connect"], **result["not_judged"]}
    return [
        Bar("they run", result["runs"]),
        Bar("they are refused", sum(result["refused"].values())),
        *(Bar(text, count, False) for text, count in left.items()),
    ]


PICTURES: dict[str, Picture] = {
    "pull": Picture("lookups per second; limit: 0.25 × Redis", _pull),
    "many_keys": Picture("rows per second; limit: the goal", _many_keys),
    "lookups": Picture("requests per second of one core; grey: peers", _lookups, is_log=True),
    "scans": Picture("rows per second; grey: PostgreSQL", _scans, is_log=True),
    "growth": Picture("lookups per second of one worker", _growth),
    "client": Picture("lookups per second of one process", _client),
    "lanes": Picture("time of a lookup beside 50 scans, × idle", _lanes),
    "linearizable": Picture("reads per second", _linearizable),
    "levels": Picture("throughput, × that of eventual", _levels),
    "freshness": Picture("ms from an event to an answer that holds it", _freshness),
    "pipeline": Picture(
        "events per second",
        lambda r: _named(_runs(r, "events_per_second"), "bare", limit=60_000),
    ),
    "commit": Picture(
        "processor time per event, µs", lambda r: _named(_runs(r, "cpu_us_per_event"), "bare")
    ),
    "restore": Picture(
        "records per second, one core",
        lambda r: [
            Bar(b.label, b.figure, b.is_ours, 300_000 if b.is_ours else None)
            for b in _named(r["turns"], "kafka_streams", "kafka_streams_tuned", "bare_loop")
        ],
    ),
    "start": Picture("s of processor time to the first result", _start),
    "node": Picture("ms after the start of a node", _node),
    "failover": Picture("ms after the fault", _failover, is_log=True),
    "availability_hour": Picture(
        "ms after a kill",
        lambda r: [
            Bar(
                "first good read of the victim's keys",
                r["windows"]["kills"]["first_good_ms"],
                True,
                2000,
            )
        ],
        is_log=True,
    ),
    "driver_failover": Picture(
        "s after the kill of the driver",
        lambda r: [
            Bar("lease moved", r["runs"]["lease_moved_s"]),
            Bar("tables fresh again", r["runs"]["resumed_s"], True, 20),
        ],
    ),
    "quorum_kills": Picture("ms after the leader's death", _quorum_kills),
    "beats": Picture("% of a core, for each node's control process", _beats),
    "assignor": Picture("s of one core", _assignor, is_log=True),
    "assignor_clusters": Picture(
        "count, in all clusters", lambda r: _greatest(r["counts"]), is_log=True
    ),
    "sim": Picture("count, in all seeds", lambda r: _greatest(r["counts"], 24), is_log=True),
    "sim_planted": Picture("seeds until it was found", _planted, is_log=True),
    "sim_data": Picture("count, in all seeds", lambda r: _greatest(r["counts"], 24), is_log=True),
    "sim_data_planted": Picture("seeds until it was found", _planted, is_log=True),
    "read_levels": Picture(
        "answers, all checked",
        lambda r: [Bar(level, found["answers"]) for level, found in r["levels"].items()],
    ),
    "read_your_writes": Picture(
        "ms from the commit of the batch to the answer, p50",
        lambda r: [
            Bar(table, found["beyond_the_batch_p50_ms"], True, r["goal_beyond_p50_ms"])
            for table, found in r["tables"].items()
        ],
    ),
    "idle_lag": Picture("ms of source lag", _idle_lag),
    "slow_standby": Picture("rows/s under a bound on replication lag", _slow_standby),
    "chaos": Picture(
        "slowest read of any run, ms",
        lambda r: [Bar(name, fault["worst_ms_max"]) for name, fault in r["faults"].items()],
        is_log=True,
    ),
    "exhaustion": Picture(
        "s until all is as before, once there is room again",
        lambda r: [Bar(name, fault["settled_ms_max"] / 1e3) for name, fault in r["faults"].items()],
    ),
    "driver_kills": Picture("kills, by moment", lambda r: _named(r["kinds"])),
    "spark_kills": Picture("kills, by what died", lambda r: _named(r["kinds"])),
    "store_kills": Picture(
        "count",
        lambda r: [
            Bar("writers killed", r["kills"]),
            Bar("stores damaged", r["damages"]),
            Bar("wrong rows", r["wrong_rows"], False),
        ],
    ),
    "fuzz": Picture(
        "statements",
        lambda r: [
            Bar("tried", r["statements"], False),
            Bar("planned", r["plans"]),
            Bar("crashed", r["failed"]),
        ],
    ),
    "abuse": Picture("share of what is allowed", _abuse),
    "conformance": Picture("cases", _conformance),
    "repositories": Picture("statements", _repositories),
}


def draw(name: str, question: str) -> None:
    """Write bench/results/<name>.png."""
    import matplotlib as mpl
    from PIL import Image

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    result, picture = load(name), PICTURES[name]
    bars = picture.bars(result)
    height = 1.5 + 0.3 * len(bars)
    figure, axes = plt.subplots(figsize=(8, height))
    label_share = min(0.45, 0.05 + 0.0095 * max(len(bar.label) for bar in bars))
    figure.subplots_adjust(left=label_share, right=0.93, top=1 - 0.5 / height, bottom=0.72 / height)
    _draw_bars(axes, bars, is_log=picture.is_log)
    dashes = "   (dashed: the limit)" if any(bar.limit is not None for bar in bars) else ""
    axes.set_xlabel(picture.unit + dashes, fontsize=9)
    title = textwrap.fill(question[:1].upper() + question[1:], 88)
    figure.text(0.02, 1 - 0.12 / height, title, fontsize=9.5, fontweight="bold", va="top")
    commit = f" · commit {result['commit'][:7]}" if result["commit"] else ""
    note = f"{result['date'][:10]}{commit} · {machine_of(result)}"
    figure.text(0.02, 0.08 / height, note, fontsize=7, color=GREY)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90)
    Image.open(drawn).quantize(48).save(RESULTS / f"{name}.png", optimize=True)  # a third in size
    plt.close(figure)


def _draw_bars(axes: Any, bars: list[Bar], *, is_log: bool) -> None:
    reach = max(max(bar.middle, (bar.ends or (0, 0))[1], bar.limit or 0) for bar in bars)
    if is_log:
        axes.set_xscale("log")
        least = min((bar.ends or (bar.middle, 0))[0] or 1 for bar in bars)
        axes.set_xlim(least / 2, reach * 8)
    else:
        axes.set_xlim(0, reach * 1.18)
    for place, bar in enumerate(bars):
        axes.barh(place, bar.middle, 0.62, color=OURS if bar.is_ours else PEER)
        end = bar.middle
        if bar.ends and bar.ends[0] < bar.ends[1]:
            axes.hlines(place, *bar.ends, color="black", linewidth=1.2)
            end = max(end, bar.ends[1])
        if bar.limit is not None:
            axes.vlines(bar.limit, place - 0.42, place + 0.42, color=BAD, linestyle="--")
        text = f"{bar.middle:,.0f}" if bar.middle >= 100 else f"{bar.middle:,.4g}"
        axes.annotate(
            text,
            (end, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            backgroundcolor="white" if bar.limit and end < bar.limit < end * 1.1 else "none",
        )
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars], fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not is_log:
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.4g}" if x < 10_000 else f"{x:,.0f}")


def main() -> None:
    chosen = sys.argv[1:]
    for row in ROWS:
        if not chosen or row.name in chosen:
            draw(row.name, str(load(row.name)["question"]).split("?")[0].strip() + "?")


if __name__ == "__main__":
    main()
