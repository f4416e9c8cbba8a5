"""An archive from Maven's repository that a test needs: fetched once, as the JVM jars are
(`local/cluster/jvm.py`), and checked."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standpipe.local.cluster import jvm

SETTINGS: Final = Path(__file__).parent / "schema_registry" / "ivysettings.xml"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """`name`: of its folder in the cache. `ivy`: what Ivy is asked for. `file`: its name, as Ivy
    stores it; one that ends with .tar.gz is unpacked. `options`: of Ivy, besides."""

    name: str
    ivy: Path
    file: str
    sha_256: str
    options: tuple[str, ...] = ()

    def folder(self) -> Path:
        """The folder with the file, or with what is in it; the first call on a machine fetches
        it."""
        wanted = hashlib.sha256(self.ivy.read_bytes()).hexdigest()[:12]
        home = jvm.cache_directory() / self.name / wanted
        if not home.is_dir():
            home.parent.mkdir(parents=True, exist_ok=True)
            with jvm.locked(home.parent / "lock"):
                if not home.is_dir():
                    self._fetch(home)
        return home

    def _fetch(self, home: Path) -> None:
        program = str(next(jvm.pyspark_jars().glob("ivy-*.jar")))
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetch-") as draft:
            fetched, unpacked = Path(draft) / "fetched", Path(draft) / "unpacked"
            command = [
                *(str(jvm.find_java().executable), "-jar", program),
                *("-settings", str(SETTINGS), "-ivy", str(self.ivy)),
                *("-cache", f"{draft}/cache", *self.options),
                *("-retrieve", f"{fetched}/[artifact]-[revision].[ext]"),
            ]
            subprocess.run(command, check=True, cwd=draft, stdout=subprocess.DEVNULL)
            found = fetched / self.file
            assert hashlib.sha256(found.read_bytes()).hexdigest() == self.sha_256
            if found.name.endswith(".tar.gz"):
                # its hash says whose files these are, so that Python 3.11.2 may do without
                filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                with tarfile.open(found) as packed:
                    packed.extractall(unpacked, **filtered)
                unpacked.rename(home)
            else:
                fetched.rename(home)
