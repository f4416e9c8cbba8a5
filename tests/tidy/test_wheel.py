"""What `pip install standpipe` brings: a wheel is built as pip builds it, unpacked into an empty
virtual environment with the client's two packages alone, and used there. No network: the two are
copied. pip itself installs the package in `make setup`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.tidy.source import ROOT

#: what the wheel and its dependencies may take on the disk, without Python's caches of byte code
BYTES_MAX = 10_000_000
#: the call by which pip has a package built (PEP 517)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
PROGRAM = """
import standpipe
from standpipe.client import NodesUnreachable, dbapi
client = standpipe.connect("127.0.0.1:1", timeout_s=0.2)
try:
    client.get("T", id=1)
except NodesUnreachable as error:
    print(error)
"""


@dataclass(frozen=True)
class Installed:
    """An empty virtual environment with the wheel in it."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(self.folder / "bin" / arguments[0]), *arguments[1:]]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=120
        )


def copy_package(name: str, to: Path) -> None:
    """An installed package into another environment, file by file."""
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(str(file.locate())).read_bytes())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    # a copy: a build leaves files beside the sources
    source = folder / "source"
    source.mkdir()
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "src", "pyproject.toml", "setup.py", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, tracked.split("\0")):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            target.write_bytes((ROOT / name).read_bytes())
    venv.create(folder / "venv", with_pip=False)
    environment = Installed(folder / "venv")
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        # without a compiler, as on many a host
        env={**os.environ, "CC": "false", "PYTHONPATH": ""},
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(environment.site_packages)
    for name in ("msgspec", "httptools"):
        copy_package(name, environment.site_packages)
    return environment


def test_the_client_works_with_its_two_packages(installed: Installed) -> None:
    ran = installed.run("python", "-c", PROGRAM)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "127.0.0.1:1: Connection refused" in ran.stdout


def test_it_needs_what_it_declares(installed: Installed) -> None:
    (metadata,) = installed.site_packages.glob("standpipe-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist") and "extra" not in line]
    names = {line.removeprefix("Requires-Dist: ").partition(">")[0] for line in needed}
    assert names == {"msgspec", "httptools"}
    extras = {line.rpartition(" ")[2] for line in lines if line.startswith("Provides-Extra")}
    assert {"server", "spark", "pandas", "sqlalchemy", "feast"} <= extras


def test_it_is_small(installed: Installed) -> None:
    files = [path for path in installed.site_packages.rglob("*") if path.is_file()]
    files = [path for path in files if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= BYTES_MAX


def test_the_commands_say_what_they_need(installed: Installed) -> None:
    ran = installed.run("python", "-m", "standpipe", "status")
    assert ran.returncode == 1
    assert "pip install 'standpipe[server]'" in ran.stderr


def test_frames_say_what_they_need(installed: Installed) -> None:
    program = "from standpipe.client.core.frames import to_pandas; to_pandas([], [], [])"
    ran = installed.run("python", "-c", program)
    assert "pip install standpipe[pandas]" in ran.stderr


def test_sqlalchemy_finds_the_dialect(installed: Installed) -> None:
    (points,) = installed.site_packages.glob("standpipe-*.dist-info/entry_points.txt")
    text = points.read_text()
    assert "[sqlalchemy.dialects]" in text
    assert "standpipe = standpipe.client.sqlalchemy_dialect:StandpipeDialect" in text


def test_pyspark_finds_the_format(installed: Installed) -> None:
    """PySpark looks for modules of such names."""
    module = installed.site_packages / "pyspark_standpipe" / "__init__.py"
    assert "DefaultSource" in module.read_text()
