"""Who may read what a node writes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from standpipe.adapters.files.fsync import replace_durably
from standpipe.adapters.files.private import private_directory, read_secret, write_secret
from standpipe.errors import ConfigError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("bits", "is_fit", "why"),
    [
        (0o600, True, "what write_secret makes"),
        (0o400, True, "read-only"),
        (0o700, True, "what its owner may do is his affair"),
        (0o640, False, "the group may read it"),
        (0o604, False, "anybody may read it"),
        (0o644, False, "what a text editor makes"),
        (0o660, False, "the group may replace it"),
        (0o602, False, "anybody may replace it"),
    ],
)
def test_a_secret_that_others_may_use_is_refused(
    tmp_path: Path, bits: int, is_fit: bool, why: str
) -> None:
    path = tmp_path / "secret"
    write_secret(path, "swordfish\n")
    path.chmod(bits)
    if is_fit:
        assert read_secret(path) == "swordfish", why
        return
    with pytest.raises(ConfigError, match="others may use it") as refused:
        read_secret(path)
    assert f"chmod 0600 {path}" in refused.value.next_step, why
    assert "swordfish" not in str(refused.value)


def test_a_missing_or_empty_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the cluster's secret"):
        read_secret(tmp_path / "none")
    write_secret(tmp_path / "empty", " \n")
    with pytest.raises(ConfigError, match="is empty"):
        read_secret(tmp_path / "empty")


def test_a_secret_is_never_replaced(tmp_path: Path) -> None:
    write_secret(tmp_path / "secret", "first")
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "secret", "second")


def test_directories_of_an_earlier_version_become_private(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    old.chmod(0o755)
    private_directory(old)
    private_directory(tmp_path / "new")
    assert (mode(old), mode(tmp_path / "new")) == (0o700, 0o700)


def test_nothing_that_a_process_writes_is_for_others(tmp_path: Path) -> None:
    """Whatever writes it: open(), mkdir, a child."""
    code = (
        "import os, subprocess, sys; from pathlib import Path;"
        "from standpipe.adapters.files.private import keep_private; os.umask(0); keep_private();"
        "Path('file').write_text('x'); Path('a/b').mkdir(parents=True);"
        "subprocess.run(['sh', '-c', 'echo x > child'], check=True)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    made = {path.name: mode(path) for path in tmp_path.rglob("*")}
    assert made == {"file": 0o600, "a": 0o700, "b": 0o700, "child": 0o600}


def test_a_durable_file_is_private_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        replace_durably(tmp_path / "meta.json", b"{}")
    finally:
        os.umask(before)
    assert mode(tmp_path / "meta.json") == 0o600
