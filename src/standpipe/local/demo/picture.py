"""`report.png`: reads, latency and freshness over the live phase; kill and restart are marked."""

# matplotlib's type hints are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from standpipe.local.demo.questions import ReadSample
from standpipe.local.demo.report import RunLog, percentile

GOOD, BAD, MEDIAN, TAIL = "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e"


def draw(log: RunLog, path: Path) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (reads, latency, freshness) = plt.subplots(
        3, 1, figsize=(10, 9), sharex=True, height_ratios=(3, 3, 2), layout="constrained"
    )
    _draw_reads(reads, log)
    _draw_latency(latency, log)
    _draw_freshness(freshness, log)
    for axes in (reads, latency, freshness):
        _mark(axes, log)
        axes.grid(visible=True, alpha=0.25)
    seconds = log.live_done - log.live_started
    freshness.set_xlim(0, max(1.0, seconds))
    freshness.set_xlabel("seconds into the live phase")
    figure.suptitle(
        f"Standpipe demo: {log.nodes} nodes, {log.live_events_per_second:,.0f} events/s in; "
        f"{log.killed_node or 'no node'} killed with SIGKILL and started again",
        fontsize=12,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_reads(axes: Any, log: RunLog) -> None:
    good = _per_second([r for r in log.reads if r.outcome == "ok"], log)
    bad = _per_second([r for r in log.reads if r.outcome != "ok"], log)
    retried = _per_second([r for r in log.reads if r.outcome == "ok" and r.is_retried], log)
    last = max([*good, *bad], default=0)
    seconds = range(last)  # the last second is incomplete
    axes.plot(
        [s + 0.5 for s in seconds], [len(good.get(s, ())) for s in seconds], color=GOOD, label="ok"
    )
    axes.plot(
        [s + 0.5 for s in seconds],
        [len(retried.get(s, ())) for s in seconds],
        color=TAIL,
        label="ok after a retry",
    )
    count = sum(map(len, bad.values()))
    axes.bar(
        [s + 0.5 for s in bad] or [0],  # an empty bar would have no colour in the legend
        [len(found) for found in bad.values()] or [0],
        color=BAD,
        label=f"failed or wrong: {count}",
    )
    axes.set_ylabel("reads per second")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", ncols=3, framealpha=0.9)


def _draw_latency(axes: Any, log: RunLog) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    good = _per_second([r for r in log.reads if r.outcome == "ok"], log)
    seconds = sorted(good)[:-1]  # the last one is incomplete
    for share, colour, label in ((0.5, MEDIAN, "p50"), (0.99, TAIL, "p99")):
        values = [percentile([(r.done - r.due) * 1000 for r in good[s]], share) for s in seconds]
        axes.plot([s + 0.5 for s in seconds], values, color=colour, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("read latency, ms\n(from the due instant)")
    axes.legend(loc="upper left", ncols=2, framealpha=0.9)


def _draw_freshness(axes: Any, log: RunLog) -> None:
    seen = [probe for probe in log.probes if probe.seen]
    axes.scatter(
        [probe.acked - log.live_started for probe in seen],
        [(probe.seen - probe.acked) * 1000 for probe in seen],
        s=10,
        color=GOOD,
        label="one event each",
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("freshness, ms\n(acknowledged → readable)")
    axes.legend(loc="upper left", framealpha=0.9)


def _mark(axes: Any, log: RunLog) -> None:
    """Vertical lines at the kill and the restart; labels on the first panel only."""
    marks = ((log.killed_at, BAD, "killed"), (log.restarted_at, MEDIAN, "started again"))
    for instant, colour, word in marks:
        if instant is None:
            continue
        at = instant - log.live_started
        axes.axvline(at, color=colour, linestyle="--", linewidth=1.2)
        if axes.get_subplotspec().is_first_row():
            axes.annotate(
                f"{log.killed_node} {word}",
                (at, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 4),
                textcoords="offset points",
                color=colour,
                fontsize=9,
            )


def _per_second(reads: Sequence[ReadSample], log: RunLog) -> dict[int, list[ReadSample]]:
    """Reads by the second of the live phase in which they were due."""
    found: dict[int, list[ReadSample]] = defaultdict(list)
    for read in reads:
        if read.due >= log.live_started:
            found[int(read.due - log.live_started)].append(read)
    return found
