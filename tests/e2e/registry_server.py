"""A real schema registry for tests: Apicurio Registry, which serves Confluent's API.

It keeps its schemas in memory. Starting takes about ten seconds of processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.fetched_archive import Archive

from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.local.cluster import jvm
from standpipe.local.cluster.dependent_child import DependentChild
from standpipe.local.cluster.ports import any_port

HERE: Final = Path(__file__).parent / "schema_registry"
#: 104 MB
REGISTRY: Final = Archive(
    name="schema-registry",
    ivy=HERE / "ivy.xml",
    file="apicurio-registry-app-3.0.9.tar.gz",
    sha_256="2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    options=("-types", "bundle"),
)
PROGRAM: Final = "apicurio-registry-app-3.0.9-runner.jar"
PATH: Final = "/apis/ccompat/v7"
READY_S_MAX: Final = 120.0
STOP_S: Final = 5.0


@dataclass(frozen=True)
class RegistryServer:
    """A running registry."""

    url: str
    process: DependentChild


@contextmanager
def running(
    log: Path, settings: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[RegistryServer]:
    """A registry with an empty store, which ends with the body. `settings`: Quarkus properties."""
    port = port or any_port()
    given = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.log.level": "WARN",
        **(settings or {}),
    }
    command = [str(jvm.find_java().executable), "-Xmx256m", "-XX:+UseSerialGC"]
    command += [f"-D{name}={value}" for name, value in given.items()]
    process = DependentChild([*command, "-jar", str(REGISTRY.folder() / PROGRAM)], output=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _await(url, process, log)
        yield RegistryServer(url + PATH, process)
    finally:
        process.end(STOP_S)


def _await(url: str, process: DependentChild, log: Path) -> None:
    deadline = time.monotonic() + READY_S_MAX
    with SyncClient(timeout_s=5.0) as client:
        while time.monotonic() < deadline:
            assert process.is_alive(), log.read_text()[-2000:]
            try:
                if client.get(url, f"{PATH}/subjects").status == 200:
                    return
            except PathFailed:
                pass
            time.sleep(0.1)  # a JVM starts: nothing announces it
    raise AssertionError(log.read_text()[-2000:])
