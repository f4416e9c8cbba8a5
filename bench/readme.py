"""bench/README.md from the result files: question, ours, peer, limit, date, machine.

    python -m bench.readme > bench/README.md        (or `make docs`)

A tidy test compares the page with what this prints. Not here: the pictures (bench/picture.py).
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
WIDTH = 100
HEAD = """\
# Benchmarks

Each program here answers one question. `make bench-NAME` runs the program of that name; `make
bench` runs all of them. A program writes the summary of its runs to a JSON file in
`bench/results`, with date, commit and machine, and the runs themselves to `out/bench/`, which git
ignores. `make pictures` draws a picture from each summary. This page is written by `make docs`.

The simulations and the tests that count their runs are here as well: `make sim`, `make sim-data`,
`make assignor-clusters`, `make chaos`, `make exhaustion`, `make driver-kills`, `make spark-kills`,
`make quorum-kills`, `make fuzz`, `make store-kills`, `make abuse`, `make repositories`, `make
read-levels`, `make read-your-writes`, `make idle-lag`, `make slow-standby`.
"""


@dataclass(frozen=True)
class Row:
    """One line of the table. Texts are formats of the result: `{rate}`, `{runs[count]}`."""

    name: str
    what: str
    ours: str
    peer: str
    limit: str


#: of all questions; the answers to some take an hour, and may not be there yet
ALL_ROWS = (
    Row(
        "pull",
        "lookups by key, one worker",
        "{requests_per_second_median[standpipe]:,}/s",
        "Redis {requests_per_second_median[redis]:,}/s",
        "≥ 0.25 × Redis",
    ),
    Row(
        "many_keys",
        "rows of IN with 100 keys, one worker",
        "{rows_per_s_median[keys_100]:,.0f}/s",
        "Redis MGET {redis_rows_per_s_median[keys_100]:,.0f}/s",
        "≥ {goal_rows_per_s:,}/s",
    ),
    Row(
        "lookups",
        "lookups by key, beside peers on the same core",
        "{medians[point_to_redis]} × Redis GET",
        "{medians[point_to_streams]} × Streams, {medians[point_to_postgres]} × PostgreSQL",
        "≥ {goals[point_to_redis]:g}; {goals[point_to_streams]:g}, {goals[point_to_postgres]:g} ×",
    ),
    Row(
        "scans",
        "rows of a full scan, of the largest table",
        "{rows_per_s_median[full]:,.0f}/s",
        "PostgreSQL COPY {rows_per_s_median[full_postgres]:,.0f}/s",
        "≥ {goals_rows_per_s[full]:,}/s",
    ),
    Row(
        "growth",
        "lookups among 20 M keys",
        "{last_to_first[keys]} × those among 10 k",
        "",
        "≥ {goals[keys]:g} ×",
    ),
    Row(
        "client",
        "lookups by one Python client",
        "{lookups_per_second_median[uvloop]:,}/s; sync {lookups_per_second_median[sync]:,}/s",
        "",
        "≥ {goals[async]:,}; {goals[sync]:,}/s",
    ),
    Row(
        "lanes",
        "lookups beside 50 scans, p99",
        "{ratio_to_idle[filter][p99_ms]} × idle",
        "",
        "≤ {limit:g} × idle",
    ),
    Row(
        "linearizable",
        "linearizable reads, one follower",
        "{medians[linearizable][per_s]:,.0f}/s",
        "",
        "≥ {goal_per_s:,}/s",
    ),
    Row(
        "levels",
        "lookups at level session, snapshot",
        "{ratio_median[session][throughput]}, {ratio_median[snapshot][throughput]} × eventual",
        "",
        "≥ {goals[session]}, {goals[snapshot]} ×",
    ),
    Row(
        "freshness",
        "event to answer, 1, 3, 10 tables, p50",
        "{cases[one][p50_ms_median]}, {cases[three_nodes][p50_ms_median]},"
        " {cases[ten][p50_ms_median]} ms",
        "each alone, 3: {cases[three_alone][p50_ms_median]} ms",
        "≤ 300, 700, 1,200 ms",
    ),
    Row(
        "pipeline",
        "events of one aggregation",
        "{events_per_second_median[standpipe]:,}/s",
        "bare sink {events_per_second_median[bare]:,}/s",
        "≥ 60,000/s",
    ),
    Row(
        "commit",
        "… with the commit protocol",
        "{ratio_to_bare_sink[events_per_second]:.2f} × bare sink",
        "",
        "≥ 0.9 ×",
    ),
    Row(
        "restore",
        "records restored, one core",
        "{from_a_broker[records_per_second_median]:,}/s",
        "Streams {turns[kafka_streams][median]:,}/s",
        "≥ 300,000/s",
    ),
    Row(
        "start",
        "Spark, Kafka by class archive, core",
        "{spark[processor_s][share]:g}, {broker[processor_s][share]:g} × without",
        "",
        "",
    ),
    Row(
        "node", "restart to first answer", "{killed_first_answer_ms_median:,} ms", "", "≤ 2,000 ms"
    ),
    Row(
        "failover",
        "active killed: next good read",
        "≤ {summary[kill][first_good_ms][max]:g} ms",
        "",
        "≤ {summary[kill][goals][first_good_ms]} ms",
    ),
    Row(
        "availability_hour",
        "a node killed each minute",
        "{succeeded_share:.3%} of reads",
        "",
        "≥ {goal:.2%}",
    ),
    Row("driver_failover", "Spark driver killed, p50", "{resumed_s[p50]} s", "", "≤ 20 s"),
    Row(
        "quorum_kills",
        "leader killed: writes, p99",
        "{writes_resumed[p99_ms]:.0f} ms",
        "",
        "≤ {goal_p99_ms:,} ms",
    ),
    Row(
        "beats",
        "beats and lag reports, 3 nodes",
        "{real[0][beats_and_lags_percent]} % of a core",
        "",
        "≤ 3 %",
    ),
    Row(
        "assignor",
        "plan 1,000 nodes × 10,000",
        "{results[8][median_core_s]:.2f} s",
        "",
        "≤ {results[8][budget_s]:.0f} s",
    ),
    Row("assignor_clusters", "random clusters that pass", "{passed:,} of {seeds:,}", "", "all"),
    Row("sim", "quorum simulation, seeds", "{passed:,} of {seeds:,}", "", "all"),
    Row("sim_planted", "planted bugs of the quorum", "{passed} found, {failed} missed", "", "all"),
    Row("sim_data", "data path simulation, seeds", "{passed:,} of {seeds:,}", "", "all"),
    Row(
        "sim_data_planted",
        "planted bugs of the data path",
        "{passed} found, {failed} missed",
        "",
        "all",
    ),
    Row(
        "read_levels",
        "violations in {levels[session][answers]:,} reads of each level",
        "{violations}",
        "",
        "0",
    ),
    Row(
        "read_your_writes",
        "misses of {read_back:,} reads of {inserts:,} own inserts",
        "{misses}",
        "",
        "0",
    ),
    Row(
        "idle_lag",
        "source lag, {minutes:.0f} minutes without a write",
        "≤ {idle[lag_ms_max]:,} ms",
        "",
        "≤ {goal_lag_ms_max:,} ms",
    ),
    Row(
        "slow_standby",
        "records that a standby at a tenth of its speed is behind",
        "≤ {lag_most_records:,}",
        "",
        "≤ {bound_records:,}",
    ),
    Row("chaos", "wrong of {checked_reads:,} reads", "{wrong}", "", "0"),
    Row("exhaustion", "wrong of {checked_reads:,} reads, no room", "{wrong}", "", "0"),
    Row("driver_kills", "tables after {kills} driver kills", "all equal", "", "all"),
    Row(
        "spark_kills",
        "tables after {kills} kills in a Spark cluster",
        "all equal; {tasks_lost} tasks died",
        "",
        "all",
    ),
    Row("store_kills", "wrong rows, {kills:,} writer kills", "{wrong_rows}", "", "0"),
    Row("fuzz", "crashes, {statements:,} statements", "{failed}", "", "0"),
    Row(
        "abuse",
        "lookups beside {requests} costly requests, p99",
        "{p99_ratio} × idle, {loaded[failed]} failed",
        "",
        "≤ 3 × idle, 0",
    ),
    Row("conformance", "ksqlDB's table cases", "{tables[passed]:,} of {tables[cases]:,}", "", "–"),
    Row(
        "repositories",
        "statements of {repositories} public repositories",
        "{runs:,} of {judged:,}",
        "",
        "≥ 90 %",
    ),
)
ROWS = tuple(row for row in ALL_ROWS if (RESULTS / f"{row.name}.json").exists())


def load(name: str) -> dict[str, Any]:
    """One result, with `date`, `commit` and `machine` also where single runs have them."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    newest = (
        (result.get("pieces") or result.get("runs") or [{}])[-1] if "date" not in result else {}
    )
    return {**{key: newest.get(key, "") for key in ("date", "commit", "machine")}, **result}


def machine_of(result: dict[str, Any]) -> str:
    """`AMD EPYC, 2 cores`: as much of it as the result has."""
    machine = result["machine"] or {"cores": result.get("cores")}
    if isinstance(machine, str):
        return machine.partition(" (")[0].replace(", x86_64, Linux", "")
    cpu = str(machine.get("cpu", "")).removesuffix(" Processor").replace("(R)", "")
    return ", ".join(part for part in (cpu, f"{machine['cores']} cores") if part)


def page() -> str:
    """All of bench/README.md."""
    results = {row.name: load(row.name) for row in ROWS}
    machines = list(dict.fromkeys(map(machine_of, results.values())))
    letters = {machine: "ABCDEFGH"[place] for place, machine in enumerate(machines)}
    table = ["| result | what | ours | peer | limit | date | on |", "|---|---|---|---|---|---|---|"]
    questions: list[str] = []
    for row in ROWS:
        result = results[row.name]
        texts = (row.what, row.ours, row.peer or "–", row.limit)
        cells = [text.format_map(result) for text in texts]
        day = result["date"][5:10]
        letter = letters[machine_of(result)]
        table.append(f"| {row.name} | " + " | ".join(cells) + f" | {day} | {letter} |")
        questions += _question(row.name, result)
    legend = ", ".join(f"{letter}: {machine}" for machine, letter in letters.items())
    year = max(result["date"][:4] for result in results.values())
    lines = [HEAD, *table, "", *textwrap.wrap(f"Dates are of {year}. Machines: {legend}.", WIDTH)]
    return "\n".join([*lines, "", "## The questions", "", *questions]) + "\n"


def _question(name: str, result: dict[str, Any]) -> list[str]:
    commit = result["commit"][:7] or ", ".join(result["tables"]["commits"])
    text = " ".join(str(result["question"]).split())
    text = text[:1].upper() + text[1:] + ("" if text.rstrip().endswith((".", "?")) else "?")
    item = f"- **{name}** ([figures](results/{name}.json), [picture](results/{name}.png)): {text}"
    item += f" Commit {commit}."
    return textwrap.wrap(item, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


if __name__ == "__main__":
    print(page(), end="")
