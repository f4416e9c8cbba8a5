"""The second judge of histories: porcupine, built from `tools/porcupine` where there is Go.

said = verdict("counter", lines, folder)      of `tests.e2e.histories`
said = verdict("registers", lines, folder)    of `tests.sim.linear_histories`
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

SOURCE: Final = Path(__file__).parents[1] / "tools" / "porcupine"
JUDGE_S_MAX: Final = 400

Verdict = Literal["linearizable", "not linearizable", "unknown"]
_VERDICTS: Final[dict[int, Verdict]] = {0: "linearizable", 1: "not linearizable", 2: "unknown"}


@functools.cache
def judge() -> Path | None:
    """The program, built once; None where there is no Go."""
    if shutil.which("go") is None:
        return None
    built = Path(tempfile.mkdtemp(prefix="porcupine-")) / "judge"
    subprocess.run(["go", "build", "-o", built, "."], cwd=SOURCE, check=True)
    return built


def verdict(model: str, lines: Sequence[bytes], folder: Path) -> tuple[Verdict, str]:
    """What it says of a history, and in its own words. `lines`: one JSON object for each operation.
    There must be a `judge`."""
    program = judge()
    assert program is not None
    path = folder / "history.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    ran = subprocess.run(
        [program, model, path], capture_output=True, text=True, check=False, timeout=JUDGE_S_MAX
    )
    assert ran.returncode in _VERDICTS, ran.stdout + ran.stderr
    return _VERDICTS[ran.returncode], ran.stdout.strip()
