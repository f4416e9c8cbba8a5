"""Who is measured: a server, how it is loaded, and how its answers are judged.

Each has a closed loop, whose answers are compared with a sample taken before it; those that have an
open loop as well are asked at a share of what their closed loop reached in the same round.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import cases, http, tables, wrk
from bench.load.cases import Case, WrongAnswer, judge
from bench.load.machine import free_port, port_of
from bench.load.open_loop import OpenLoop, OpenRun
from bench.load.wrk import RequestsFailed, Run
from bench.peers import redis as redis_peer
from bench.peers.nginx import nginx
from bench.peers.postgres import postgres
from bench.peers.redis import redis
from bench.peers.streams import route_of, streams
from tests import tls

from standpipe.node.configuration import NodeConfig

#: peers; all others are cases of ours
PEERS = ("redis", "streams", "postgres", "nginx")
#: a text of each good answer
_WANTED = "abcdefghij"
#: what redis-benchmark is told to send in a second, before it is known
_REDIS_PER_S = 70_000


@dataclass(frozen=True)
class Contender:
    """One server with one kind of request. `check` and both loops raise WrongAnswer, the
    loops also RequestsFailed."""

    name: str
    processes: tuple[int, ...]
    closed: Callable[[int], Run]
    check: Callable[[], object]
    open: Callable[[float, int], OpenRun] | None = None
    rows_each: int = 1
    #: processes that stand beside these, and are not asked
    beside: tuple[int, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Of a run."""

    folder: Path
    keys: int
    generator: OpenLoop


@contextmanager
def everybody(settings: Settings) -> Iterator[list[Contender]]:
    """All servers, filled."""
    with ExitStack() as stack:
        ours = stack.enter_context(standpipe(settings))
        print("standpipe is ready", flush=True)
        body = http.ask(port_of(ours.holder.public), cases.POINT.request([0])).body.decode()
        found = ours.contenders
        for one in (
            redis_contender(settings),
            streams_contender(settings),
            postgres_contender(settings),
            nginx_contender(settings, body.replace("\n", " ")),
        ):
            found.append(stack.enter_context(one))
            print(f"{found[-1].name} is ready", flush=True)
        yield found


# --------------------------------------------------------------------------------- Standpipe


@dataclass(frozen=True)
class Ours:
    """Our nodes. `holder` has all rows."""

    holder: NodeConfig
    contenders: list[Contender]


@contextmanager
def standpipe(settings: Settings) -> Iterator[Ours]:
    """One node with both tables and a TLS port; another, without rows, that forwards to it; and
    one with the rows by key that runs without its C."""
    secure_port = free_port()
    pair = tls.copied(tls.FIRST, settings.folder / "tls")
    pair.key.chmod(0o600)
    holder_folder, asked_folder = settings.folder / "holder", settings.folder / "asked"
    plain_folder = settings.folder / "plain"
    holder = tables.new_config(
        holder_folder,
        config={
            "standpipe.tls.listener": f"127.0.0.1:{secure_port}",
            "standpipe.tls.certificate": str(pair.certificate),
            "standpipe.tls.key": str(pair.key),
        },
    )
    asked = tables.new_config(asked_folder, "node-2")
    tables.fill(holder, settings.keys, with_hours=True)
    tables.publish(holder, asked, sources=(tables.TABLE, tables.HOURLY))
    plain = tables.make_node(plain_folder, settings.keys)
    with (
        tables.worker(holder_folder, holder) as first,
        tables.worker(asked_folder, asked) as hop,
        tables.worker(plain_folder, plain, without_c=True) as without_c,
    ):
        port = port_of(holder.public)
        one, both = (first.pid,), (first.pid, hop.pid)
        found = [_case(settings, case, case.name, one, port) for case in cases.CASES]
        found.append(_case(settings, cases.POINT, "forwarded", both, port_of(asked.public)))
        found.append(_case(settings, cases.POINT, "tls", one, secure_port))
        plain_port = port_of(plain.public)
        found.append(_case(settings, cases.POINT, "without_c", (without_c.pid,), plain_port))
        yield Ours(holder, found)


def _case(
    settings: Settings, case: Case, name: str, processes: tuple[int, ...], port: int
) -> Contender:
    is_tls = name == "tls"
    script = case.write_script(settings.folder / f"{name}.lua", settings.keys)
    requests = (case.request(numbers) for numbers in case.draws(settings.keys, seed=2))
    # the generator of the open loop has no TLS
    has_open = case is cases.POINT and not is_tls
    file = settings.generator.write(settings.folder / f"{name}.requests", requests)

    def check() -> float:
        return case.check(port, settings.keys, tls=is_tls)

    def closed(seconds: int) -> Run:
        size = check()
        return judge(name, wrk.run(processes, port, script, seconds, tls=is_tls), size)

    def open_(rate: float, seconds: int) -> OpenRun:
        return _sound(name, settings.generator.run(port, file, _WANTED, rate, seconds))

    return Contender(name, processes, closed, check, open_ if has_open else None, case.rows_each)


def _sound(name: str, run: OpenRun) -> OpenRun:
    if run.errors:
        raise RequestsFailed(f"{name}: {run.errors} failed at {run.asked_per_second:.0f}/s")
    return run


# -------------------------------------------------------------------------------------- peers


@contextmanager
def redis_contender(settings: Settings) -> Iterator[Contender]:
    """GET, by redis-benchmark; the open loop is ours."""
    numbers = _numbers(settings)
    requests = (redis_peer.get_request(number) for number in numbers)
    file = settings.generator.write(settings.folder / "redis.requests", requests)
    with redis(settings.folder, settings.keys) as of:
        newest = [float(_REDIS_PER_S)]

        def closed(seconds: int) -> Run:
            run = redis_peer.closed_loop(of, settings.keys, seconds, round(newest[0]))
            newest[0] = run.requests_per_second
            return run

        def open_(rate: float, seconds: int) -> OpenRun:
            return _sound("redis", settings.generator.run(of.port, file, _WANTED, rate, seconds))

        yield Contender(
            "redis", (of.pid,), closed, lambda: redis_peer.check(of.port, settings.keys), open_
        )


@contextmanager
def streams_contender(settings: Settings) -> Iterator[Contender]:
    """GET of a row at one of two instances."""
    keys = [tables.key_of(number) for number in _numbers(settings)]
    script = wrk.write_get_script(settings.folder / "streams.lua", map(route_of, keys))
    requests = (http.get(route_of(key)) for key in keys)
    file = settings.generator.write(settings.folder / "streams.requests", requests)
    with streams(settings.folder / "streams", settings.keys) as of:

        def check() -> float:
            sizes: list[int] = []
            for number in range(0, settings.keys, max(1, settings.keys // 50)):
                key = tables.key_of(number)
                answer = http.ask(of.port, http.get(route_of(key)))
                wanted = {"key": key, "row": json.loads(tables.value_of(number))}
                if answer.status != 200 or json.loads(answer.body) != wanted:
                    raise WrongAnswer(f"streams: {answer.status} {answer.body!r}")
                sizes.append(answer.size)
            return sum(sizes) / len(sizes)

        def closed(seconds: int) -> Run:
            size = check()
            return judge("streams", wrk.run(of.pid, of.port, script, seconds), size)

        def open_(rate: float, seconds: int) -> OpenRun:
            return _sound("streams", settings.generator.run(of.port, file, _WANTED, rate, seconds))

        yield Contender("streams", (of.pid,), closed, check, open_, beside=of.beside)


@contextmanager
def postgres_contender(settings: Settings) -> Iterator[Contender]:
    """SELECT by primary key, prepared, by pgbench, which has an open loop as well."""
    with postgres(settings.folder / "postgres", settings.keys) as of:
        yield Contender("postgres", (of.pid,), of.closed_loop, of.check, of.open_loop)


@contextmanager
def nginx_contender(settings: Settings, answer: str) -> Iterator[Contender]:
    """The requests of a point lookup, and the same answer to each of them."""
    script = cases.POINT.write_script(settings.folder / "nginx.lua", settings.keys)
    requests = [cases.POINT.request([number]) for number in _numbers(settings)]
    file = settings.generator.write(settings.folder / "nginx.requests", requests)
    with nginx(settings.folder / "nginx", answer) as of:

        def check() -> float:
            found = http.ask(of.port, requests[0])
            if found.status != 200 or found.body.decode() != answer:
                raise WrongAnswer(f"nginx: {found.status} {found.body!r}")
            return found.size

        def closed(seconds: int) -> Run:
            return judge("nginx", wrk.run(of.pid, of.port, script, seconds), check())

        def open_(rate: float, seconds: int) -> OpenRun:
            return _sound("nginx", settings.generator.run(of.port, file, _WANTED, rate, seconds))

        yield Contender("nginx", (of.pid,), closed, check, open_)


def _numbers(settings: Settings) -> list[int]:
    draw = random.Random(1)
    return [draw.randrange(settings.keys) for _ in range(cases.REQUESTS_MAX)]
