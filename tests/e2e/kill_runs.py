"""What programs that kill parts of a cluster share: their options, and the result they leave."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests import report

Result = Mapping[str, Any]


def options(about: str | None, *, kills: int, result: Path) -> argparse.ArgumentParser:
    """`--kills`, `--seed` and `--result`, with what they are by default. `about`: the docstring of
    the program."""
    parser = argparse.ArgumentParser(description=question(about))
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--result", type=Path, default=result)
    return parser


def question(about: str | None) -> str:
    """The first line of a docstring: what the program asks."""
    return (about or "").splitlines()[0]


def newest(_before: Result, ran: Result) -> Result:
    """The record that has the newest run only."""
    return ran


def record(
    given: argparse.Namespace,
    run: Callable[[], Result],
    on_record: Callable[[Result, Result], Result] = newest,
) -> Result:
    """Run, and write the result to `--result`; what the run has found.

    `on_record`: what is written, from the record there was before ({}: none) and the run with its
    circumstances.
    """
    print(f"seed {given.seed}", flush=True)
    head = report.circumstances()  # before the run, whose load it would show
    ran = run()
    before = json.loads(given.result.read_text()) if given.result.exists() else {}
    report.write(given.result, on_record(before, {**head, **ran}))
    return ran
