from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from standpipe.pipeline.run.scratch import scratch_folder

HOLDS = """
import sys, time
from pathlib import Path
from standpipe.pipeline.run.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "librocksdbjni.so").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_driver_left_is_removed_and_what_a_living_one_holds_is_not(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with scratch_folder(tmp_path) as mine:
            assert {left, mine} == set(tmp_path.iterdir()), "it lives"
        assert set(tmp_path.iterdir()) == {left}
        other.kill()
        other.wait()
        assert (left / "librocksdbjni.so").exists()
        with scratch_folder(tmp_path) as mine:
            assert set(tmp_path.iterdir()) == {mine}
    assert set(tmp_path.iterdir()) == set()


def test_a_folder_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "standpipe-pipeline-new").mkdir()
    with scratch_folder(tmp_path):
        assert (tmp_path / "standpipe-pipeline-new").exists()
