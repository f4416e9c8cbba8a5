"""`standpipe status` and `standpipe version` on a terminal or as JSON."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console, RenderableType
from rich.live import Live

from standpipe.local.client import status as status_module
from standpipe.local.client import storage as storage_module
from standpipe.local.client.status import StatusReport
from standpipe.local.client.storage import Storage

WATCH_EVERY_S = 1.0


def show(
    nodes: Sequence[tuple[str, str]],
    console: Console,
    *,
    as_json: bool,
    watch: bool,
    storage: bool = False,
) -> int:
    """Print the status, or sizes (`storage`), once or every second.

    Returns the exit status: 1 if no node answers."""
    if watch and not as_json:
        return _watch(lambda: _picture(_look(nodes, storage=storage)), console)
    while True:
        found = _look(nodes, storage=storage)
        if as_json:
            print(msgspec.json.encode(found).decode(), flush=True)
        else:
            console.print(_picture(found))
        if not watch:
            return 0 if any(node.is_up for node in found.nodes) else 1
        time.sleep(WATCH_EVERY_S)


def _look(nodes: Sequence[tuple[str, str]], *, storage: bool) -> StatusReport | Storage:
    return storage_module.gather(nodes) if storage else status_module.gather(nodes)


def _picture(found: StatusReport | Storage) -> RenderableType:
    if isinstance(found, Storage):
        return storage_module.render(found)
    return status_module.render(found)


def _watch(picture: Callable[[], RenderableType], console: Console) -> int:
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                live.update(picture(), refresh=True)
                time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        return 0


def print_version(console: Console, version: str, *, as_json: bool) -> None:
    """Print the versions of Standpipe, Python and Java, for a bug report."""
    from standpipe.errors import SetupError
    from standpipe.local.cluster import jvm

    try:
        java = str(jvm.find_java().version)
    except SetupError:
        java = "none"
    found = {"standpipe": version, "python": platform.python_version(), "java": java}
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    for name, value in found.items():
        console.print(f"{name} {value}", highlight=False)
