"""Programs in Java that Standpipe is compared with: their jars are fetched, checked and kept, once,
and each program is compiled before any clock runs."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from standpipe.local.cluster import jvm

_IVY_FILE: Final = Path(__file__).with_name("ivy.xml")
#: of each jar: written by `sha256sum */*.jar` in the directory of the jars
_HASHES_FILE: Final = Path(__file__).with_name("jars.sha256")
#: it may hold what our own tests start JVMs with, which slows one that lives long
_WITHOUT_OUR_OPTIONS: Final = ("env", "-u", "JDK_JAVA_OPTIONS")


def jars(*sets: str) -> list[Path]:
    """Of these configurations of ivy.xml, in this order. Raises JarsMissing."""
    name = hashlib.sha256(_IVY_FILE.read_bytes()).hexdigest()[:12]
    home = jvm.cache_directory() / "bench-jars" / name
    home.parent.mkdir(parents=True, exist_ok=True)
    with jvm.locked(home.parent / "lock"):
        if not home.is_dir():
            _fetch(home)
    return [jar for each in sets for jar in sorted((home / each).glob("*.jar"))]


def _fetch(home: Path) -> None:
    print("Java libraries of the peers are fetched, once (103 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetch-") as draft:
        lib = Path(draft, "lib")
        jvm.retrieve(_IVY_FILE, lib, ivy_cache=home.parent / "ivy-cache")
        jvm.check_hashes(lib, _HASHES_FILE)
        lib.rename(home)


class JavaProgram:
    """A class with `main`, whose source has its name. Raises JarsMissing, JavaMissing."""

    def __init__(self, source: Path, folder: Path, sets: Sequence[str]) -> None:
        java = jvm.find_java()
        classes = folder / "classes"
        self._name = source.stem
        self._java = str(java.executable)
        self._class_path = ":".join(map(str, [classes, *jars(*sets)]))
        subprocess.run(
            [java.home / "bin" / "javac", "-cp", self._class_path, "-d", classes, source],
            check=True,
        )

    def command(self, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """How it is run."""
        java = [*_WITHOUT_OUR_OPTIONS, self._java, *options]
        return [*java, "-cp", self._class_path, self._name, *arguments]
