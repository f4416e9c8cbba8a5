"""An open loop at a given rate, by the program in open_loop.c, which a C compiler makes first."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.load.machine import capture, on_load_core
from bench.load.wrk import CONNECTIONS

_SOURCE = Path(__file__).with_name("open_loop.c")


@dataclass(frozen=True)
class OpenRun:
    """One server at one rate. Times are from when a request was due."""

    asked_per_second: float
    achieved_per_second: float  # requests due, over the time until the last of them was answered
    errors: int
    p50_us: float
    p99_us: float
    p999_us: float

    @property
    def kept(self) -> float:
        """Share of the rate that was achieved."""
        return self.achieved_per_second / self.asked_per_second


class OpenLoop:
    """Requests, and the compiled program that sends them."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "open_loop"
        capture(["cc", "-O2", "-o", str(self._program), str(_SOURCE), "-lm"])

    def write(self, path: Path, requests: Iterable[bytes]) -> Path:
        """A file of whole requests."""
        path.write_bytes(b"".join(struct.pack("<I", len(one)) + one for one in requests))
        return path

    def run(self, port: int, requests: Path, wanted: str, rate: float, seconds: float) -> OpenRun:
        """`wanted`: a text that each good answer holds."""
        numbers = (port, CONNECTIONS, rate, seconds, 1)
        output = on_load_core([str(self._program), *map(str, numbers), str(requests), wanted])
        due, _good, bad, lost, until, p50, p99, p999, _most = map(float, output.split())
        return OpenRun(due / seconds, due / until, round(bad + lost), p50, p99, p999)
