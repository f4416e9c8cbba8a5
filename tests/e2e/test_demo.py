"""A small demo, as a stranger would start it: its report, its exit status, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.cluster import free_port_range

from standpipe.local.demo.report import FIELDS

EVENTS = 10_000
#: a quarter of the demo's reads and a tenth of its events, so that two slow cores keep up: a
#: saturated machine loses reads by their deadline. What a usual machine does is shown in bench/
READS_EACH_S, EVENTS_EACH_S, SECONDS = 50, 100, 20
REPORT_BYTES_MIN = 10_000


def demo_command(folder: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "standpipe", "demo"),
        *("--directory", str(folder / "cluster"), "--out", str(folder / "out")),
        *("--port", str(free_port_range()), "--broker-port", str(free_port_range())),
        *more,
    ]


def left_behind(folder: Path) -> list[str]:
    """Command lines that still name the folder."""
    found: list[str] = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        command = " ".join(process.info["cmdline"] or ())
        if str(folder) in command and process.info["pid"] != os.getpid():
            found.append(command)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo")
    more = ["--events", str(EVENTS), "--seconds", str(SECONDS)]
    more += ["--reads-per-second", str(READS_EACH_S), "--events-per-second", str(EVENTS_EACH_S)]
    command = demo_command(folder, *more)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
        umask=0o022,
    )
    return folder, done


@pytest.mark.timeout(1100)
def test_it_ends_well_and_says_so(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = run
    assert done.returncode == 0, done.stdout + done.stderr
    assert "got SIGKILL" in done.stdout
    assert "0 failed, 0 wrong" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert left_behind(folder) == []


@pytest.mark.timeout(1100)
def test_the_report(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    report: dict[str, Any] = json.loads((run[0] / "out/report.json").read_text())
    assert report["fields"] == FIELDS
    assert report["events_in"] == report["events_in_tables"] == EVENTS
    assert (report["reads_failed"], report["reads_wrong"]) == (0, 0)
    assert len(report["tables"]) >= 3
    assert report["reads_ok"] > SECONDS * READS_EACH_S * 3 / 4
    assert report["rows_compared"] > 4_000
    assert report["killed_node"].startswith("node-")
    assert report["first_good_read_after_kill_ms"] > 0
    assert report["freshness_ms"]["p50"] > 0
    assert report["pipeline_events_per_second"] > 0
    assert report["seconds"] > report["setup_seconds"] > 0
    assert (run[0] / "out/report.png").stat().st_size > REPORT_BYTES_MIN


@pytest.mark.timeout(1100)
def test_nothing_that_the_cluster_wrote_is_for_others(
    run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Data, logs, secret, checkpoints, and what Kafka and Spark write, with a usual umask."""
    root = run[0] / "cluster"
    written = [root, *root.rglob("*")]
    assert {path.name for path in written} >= {"secret", "node.json", "snapshot", "data.mdb"}
    open_to_others = [
        f"{path.relative_to(root)} {path.stat().st_mode & 0o777:o}"
        for path in written
        if path.exists() and not path.is_symlink() and path.stat().st_mode & 0o077
    ]
    assert open_to_others == []


@pytest.mark.timeout(600)
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """Whatever it is doing: here it is loading."""
    # a shell's background job ignores SIGINT, and so would our children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        demo_command(tmp_path, "--events", "5000"),
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "Loading" in line:
                break
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        assert demo.wait(120) != 0
    assert left_behind(tmp_path) == []
