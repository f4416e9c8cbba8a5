"""Redis: the same values by key, asked with GET (redis-benchmark), nothing on disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load.machine import (
    capture,
    free_port,
    on_load_core,
    processor_seconds,
    server,
    wait_for_port,
)
from bench.load.tables import value_of
from bench.load.wrk import CONNECTIONS, RequestsFailed, Run


class Redis(NamedTuple):
    """A server with the rows."""

    pid: int
    port: int


@contextmanager
def redis(folder: Path, keys: int) -> Iterator[Redis]:
    """A server with all rows."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command = ["redis-server", *options, "--dir", str(folder)]
    with server(command, folder / "redis.log") as child:
        wait_for_port(port)
        _load(port, keys)
        yield Redis(child.pid, port)


def redis_key(number: int) -> str:
    """As redis-benchmark draws them."""
    return f"key:{number:012d}"


def get_request(number: int) -> bytes:
    """GET of one row, as a client sends it."""
    key = redis_key(number).encode()
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)


def _load(port: int, keys: int) -> None:
    """Checked, because a Redis that holds nothing answers faster."""
    text = b"".join(
        b"*3\r\n$3\r\nSET\r\n$16\r\n%b\r\n$%d\r\n%b\r\n"
        % (redis_key(number).encode(), len(value), value)
        for number in range(keys)
        for value in (value_of(number),)
    )
    pipe = ["redis-cli", "-p", str(port), "--pipe"]
    subprocess.run(pipe, input=text, check=True, stdout=subprocess.DEVNULL)
    size = capture(["redis-cli", "-p", str(port), "dbsize"])
    assert int(size) == keys, size


def check(port: int, keys: int) -> None:
    """Values are as they were written."""
    for number in range(0, keys, max(1, keys // 50)):
        found = capture(["redis-cli", "-p", str(port), "--raw", "get", redis_key(number)]).strip()
        assert found == value_of(number).decode(), found


def _misses(port: int) -> str:
    """Keys that were asked for and not there, until now."""
    lines = capture(["redis-cli", "-p", str(port), "info", "stats"]).splitlines()
    return next(line for line in lines if line.startswith("keyspace_misses:"))


def closed_loop(of: Redis, keys: int, seconds: float, per_second: int, count: int = 1) -> Run:
    """GET of one key, MGET of more; each `__rand_int__` becomes another number.

    redis-benchmark is told how many requests to send, not for how long: `per_second` is a guess.
    Raises RequestsFailed.
    """
    requests = max(CONNECTIONS, round(per_second * seconds))
    command = ["redis-benchmark", "-p", str(of.port), "--csv", "-c", str(CONNECTIONS)]
    command += ["-r", str(keys), "-n", str(requests)]
    asked = ["get" if count == 1 else "mget", *(["key:__rand_int__"] * count)]
    before, missed = processor_seconds(of.pid), _misses(of.port)
    output = on_load_core([*command, *asked])
    spent = processor_seconds(of.pid) - before
    if _misses(of.port) != missed:
        raise RequestsFailed("Redis lacks keys that it was asked for")
    fields = [field.strip('"') for field in output.strip().splitlines()[-1].split(",")]
    rate, p50_ms, p99_ms = float(fields[1]), float(fields[4]), float(fields[6])
    return Run(rate, 0, p50_ms * 1000, p99_ms * 1000, spent / requests * 1e6)
