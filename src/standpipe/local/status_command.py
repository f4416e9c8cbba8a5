"""`standpipe status` and `standpipe version` on a terminal or as JSON."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.live import Live

from standpipe.local import status as status_module

WATCH_EVERY_S = 1.0


def show(nodes: Sequence[tuple[str, str]], console: Console, *, as_json: bool, watch: bool) -> int:
    """Print the status, once or every second. Returns the exit status: 1 if no node answers."""
    if watch and not as_json:
        return _watch(nodes, console)
    while True:
        found = status_module.gather(nodes)
        if as_json:
            print(msgspec.json.encode(found).decode(), flush=True)
        else:
            console.print(status_module.render(found))
        if not watch:
            return 0 if any(node.is_up for node in found.nodes) else 1
        time.sleep(WATCH_EVERY_S)


def _watch(nodes: Sequence[tuple[str, str]], console: Console) -> int:
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                live.update(status_module.render(status_module.gather(nodes)), refresh=True)
                time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        return 0


def print_version(console: Console, version: str, *, as_json: bool) -> None:
    """Versions of what a bug report needs."""
    from standpipe.errors import SetupError
    from standpipe.local import jvm

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
