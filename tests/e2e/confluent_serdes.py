"""Confluent's own serializers and deserializers for AVRO and JSON_SR, in a virtual environment of
its own.

They need over a dozen packages that nothing else here does, which are installed once, with checked
hashes, as the registry is fetched (`registry_server.py`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from standpipe.local.cluster import jvm

HERE: Final = Path(__file__).parent / "schema_registry"
REQUIREMENTS: Final = HERE / "requirements.txt"
CHILD_S_MAX: Final = 300.0


def deserialized(
    url: str, values: Iterable[tuple[str, str, bytes]], kind: str = "AVRO"
) -> list[Any]:
    """What values are, each a topic, "key" or "value", and bytes. `url`: the registry's. Of AVRO,
    days, times and DECIMALs are texts. Fails for a value that is none, and in JSON for one that is
    not valid under its schema. `kind`: AVRO, JSON."""
    lines = [
        json.dumps({"topic": topic, "field": field, "data": base64.b64encode(data).decode()})
        for topic, field, data in values
    ]
    return [json.loads(line) for line in _said("deserialize.py", url, kind, lines)]


def serialized(
    url: str, values: Iterable[tuple[str, str, str, Any]], kind: str = "AVRO"
) -> list[bytes]:
    """The bytes of values, each a topic, "key" or "value", the text of a schema, and what JSON can
    say. The schemas are registered. Fails for a value that its schema does not allow."""
    lines = [
        json.dumps({"topic": topic, "field": field, "schema": schema, "data": data})
        for topic, field, schema, data in values
    ]
    return [base64.b64decode(line) for line in _said("serialize.py", url, kind, lines)]


def _said(program: str, url: str, kind: str, lines: Iterable[str]) -> list[str]:
    done = subprocess.run(
        [str(_python()), str(HERE / program), url, kind],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_S_MAX,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def _python() -> Path:
    """The environment's Python; the first call on a machine installs it."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    home = jvm.cache_directory() / "confluent-serdes" / wanted
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with jvm.locked(home.parent / "lock"):
            if not home.is_dir():
                _install(home)
    return home / "bin" / "python"


def _install(home: Path) -> None:
    """In its place: an environment cannot be moved. One that is not complete is removed."""
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="failed-") as failed:
        try:
            venv.create(home, with_pip=True)
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run(
                [*pip, "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS)], check=True
            )
        except BaseException:
            if home.exists():
                home.rename(Path(failed) / "home")
            raise
