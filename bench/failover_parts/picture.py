"""`failover.png`: what readers felt, fault by fault: the slowest reads of every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEFORE_S, STEP_S = 2.0, 0.02  # of the traces
SHOWN_S = (-1.0, 4.0)
CALM, EDGE, BAND, GOOD, BAD = "#4c9be8", "#123a63", "#fde3b4", "#1f7a3a", "#c62828"


def draw(result: dict[str, Any], path: Path) -> None:
    """One row per fault: latency over time, and beside it the figures and goals."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    faults = result["summary"]
    figure, rows = plt.subplots(
        len(faults),
        2,
        figsize=(13, height := 1.9 + 2.1 * len(faults)),
        width_ratios=(3.2, 1),
        squeeze=False,
    )
    figure.subplots_adjust(
        left=0.06, right=0.97, top=1 - 1.1 / height, bottom=0.75 / height, wspace=0.05, hspace=0.35
    )
    for (name, found), (left, right) in zip(faults.items(), rows, strict=True):
        _draw_traces(left, found, [run for run in result["runs"] if run["fault"] == name])
        _draw_figures(right, found)
    for left in rows[:-1, 0]:
        left.set_xticklabels([])
    rows[-1, 0].set_xlabel("seconds after the fault")
    made = result["machine"]
    figure.suptitle(
        "A server is lost: how slow was the slowest read?\n"
        f"{result['rate']:g} reads/s of keys that the lost server was active for, every run drawn",
        y=1 - 0.15 / height,
        fontsize=13,
        fontweight="bold",
    )
    figure.text(
        0.06,
        0.12 / height,
        f"{made['at']} · commit {made['commit']} · {made['cores']} cores, {made['memory_gb']:g} GB "
        f"· load {made['load_average'][0]:.1f}",
        fontsize=8,
        color="grey",
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_traces(axes: Any, found: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    times = [place * STEP_S - BEFORE_S for place in range(len(runs[0]["trace_ms"]))]
    for run in runs:
        shown = [value or None for value in run["trace_ms"]]  # a gap where no read was due
        axes.plot(times, shown, color=CALM, alpha=0.35, linewidth=0.8)
    worst = [max(values) or None for values in zip(*(r["trace_ms"] for r in runs), strict=True)]
    axes.plot(times, worst, color=EDGE, linewidth=1.3)
    seen_s = found["avoided_ms"]["max"] / 1000
    axes.axvspan(0, seen_s, color=BAND, zorder=0)
    axes.axvline(0, color=BAD, linewidth=1.5)
    axes.text(
        seen_s + 0.02,
        0.9,
        f"everybody routes around it: {seen_s * 1000:.0f} ms at the latest",
        transform=axes.get_xaxis_transform(),
        fontsize=9,
        color="#8a5a00",
    )
    axes.axhline(1000, color="grey", linewidth=0.6, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(0.5, 5000)
    axes.set_yticks([1, 10, 100, 1000], ["1 ms", "10 ms", "100 ms", "1 s"])
    axes.minorticks_off()
    axes.set_xlim(*SHOWN_S)
    axes.grid(axis="y", alpha=0.25)
    times_run = f"{found['runs']} run" + "s" * (found["runs"] > 1)
    axes.set_title(f"{found['what']}   ({times_run})", loc="left", fontweight="bold")


def _draw_figures(axes: Any, found: dict[str, Any]) -> None:
    goals, holds = found["goals"], found["holds"]
    lines = [
        ("routed around", f"{found['avoided_ms']['max']:.0f} ms", goals["avoided_ms"], "avoided"),
        (
            "first good read",
            f"{found['first_good_ms']['max']:.0f} ms",
            goals["first_good_ms"],
            "first_good",
        ),
    ]
    rows = [(word, shown, f"≤ {goal:g} ms", holds[key]) for word, shown, goal, key in lines]
    share, goal = found["failed_share"], goals["failed_share"]
    rows.append(("failed reads", f"{share:.3%}", f"≤ {goal:.1%}", holds["failed"]))
    retried = f"{found['failed_retried']['max']:g}"
    rows.append(("… after one retry", retried, "0", holds["failed_retried"]))
    rows.append(("slowest read", f"{found['slowest_ms']['max']:.0f} ms", "", None))
    axes.axis("off")
    for place, (word, shown, limit, is_met) in enumerate(rows):
        height = 0.88 - place * 0.2
        colour = "black" if is_met is None else GOOD if is_met else BAD
        axes.text(0.0, height, word, fontsize=10, transform=axes.transAxes)
        axes.text(
            0.74,
            height,
            shown,
            fontsize=12,
            fontweight="bold",
            color=colour,
            ha="right",
            transform=axes.transAxes,
        )
        axes.text(0.77, height, limit, fontsize=8, color="grey", transform=axes.transAxes)
