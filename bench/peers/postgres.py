"""PostgreSQL: the same rows in a table, asked by primary key with a prepared statement (pgbench).

A server of its own: a new data directory, loopback only, a password, never as root, which
PostgreSQL refuses. Its key is a text of as many characters as ours, all of them digits: what
pgbench draws are numbers, and `'N' || …` would be the server's work.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.machine import (
    capture,
    free_port,
    on_load_core,
    processor_seconds,
    server,
    wait_for_port,
)
from bench.load.open_loop import OpenRun
from bench.load.wrk import CONNECTIONS, RequestsFailed, Run
from tests.report import quantile

#: Debian keeps the programs of each version apart
_PLACES: Final = "/usr/lib/postgresql/*/bin"
#: who runs it where we are root: the package makes the first
_USERS: Final = ("postgres", "nobody")
_KEY_START: Final = 10_000_000
#: share of the closed loop's transactions whose time is written down
_SAMPLED: Final = 0.2
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "1GB",
    "max_connections": "64",
    "max_wal_size": "4GB",
    "fsync": "off",  # the rows are written once, and only read from then on
    "autovacuum": "off",
}
_TABLE: Final = """\
CREATE TABLE flights_by_plane (
  tailnum text PRIMARY KEY, flights bigint, distance bigint, dest text);
"""
_FETCHED: Final = "SELECT sum(idx_tup_fetch) FROM pg_stat_user_tables;"
_OTHERS: Final = """\
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();
"""
_END_S_MAX: Final = 10.0
_START_S_MAX: Final = 30.0


def programs() -> Path | None:
    """The folder of the newest version's programs; None: it is not installed."""
    places = sorted(Path("/").glob(_PLACES.lstrip("/")), key=lambda path: float(path.parent.name))
    found = [path for path in places if (path / "initdb").exists()]
    if found:
        return found[-1]
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def _as_somebody() -> tuple[list[str], str]:
    """What a command starts with so that it does not run as root, and whose its folder must be."""
    if os.geteuid() != 0:
        return [], pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = next(name for name in _USERS if name in known)
    entry = pwd.getpwnam(user)
    ids = [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    # a change of the user forgets that it is to end with its parent
    return ["setpriv", *ids, "--pdeathsig=INT"], user


@dataclass(frozen=True)
class Postgres:
    """A server with the rows."""

    pid: int
    port: int
    keys: int
    folder: Path
    password: str

    def closed_loop(self, seconds: int) -> Run:
        """As many transactions as are answered, of CONNECTIONS clients."""
        before, fetched = processor_seconds(self.pid), self.fetched()
        ran = self._bench(seconds, [f"--sampling-rate={_SAMPLED}"])
        spent = processor_seconds(self.pid) - before
        self._check(ran.transactions, fetched)
        p50, p99 = (quantile(ran.took_us, share) for share in (0.5, 0.99))
        each_us = spent / ran.transactions * 1e6
        return Run(ran.transactions / seconds, 0, p50, p99, each_us)

    def open_loop(self, rate: float, seconds: int) -> OpenRun:
        """Transactions at a rate; their time runs from when they were due."""
        fetched = self.fetched()
        ran = self._bench(seconds, [f"--rate={rate}"])
        self._check(ran.transactions, fetched)
        quantiles = (quantile(ran.took_us, share) for share in (0.5, 0.99, 0.999))
        return OpenRun(rate, ran.transactions / max(seconds, ran.until_s), 0, *quantiles)

    def _bench(self, seconds: int, options: list[str]) -> _Ran:
        """pgbench with its log of transactions. It ends with an error if a client does."""
        with tempfile.TemporaryDirectory(prefix="standpipe-bench-pgbench-") as name:
            script = Path(name, "lookup.sql")
            script.write_text(
                f"\\set number random({_KEY_START}, {_KEY_START + self.keys - 1})\n"
                "SELECT * FROM flights_by_plane WHERE tailnum = :number;\n"
            )
            command = [str(self.folder / "pgbench"), "-n", "-M", "prepared", "-f", str(script)]
            command += ["-c", str(CONNECTIONS), "-j", "1", "-T", str(seconds), *options]
            command += ["-l", "--log-prefix", f"{name}/log", *self._where(), "postgres"]
            text = on_load_core(command, env=self.environment())
            (log,) = Path(name).glob("log.*")
            return _Ran.of(text, log)

    def _check(self, transactions: int, fetched: int) -> None:
        """Each transaction has read its row, by PostgreSQL's own count. At the end of the time each
        client may have one more, which pgbench does not count."""
        rows = self.fetched() - fetched
        if not transactions <= rows <= transactions + CONNECTIONS:
            raise RequestsFailed(f"PostgreSQL read {rows} rows in {transactions} lookups")

    def fetched(self) -> int:
        """Rows read by index until now. The processes of its clients report at their ends."""
        until = time.monotonic() + _END_S_MAX
        while int(self.ask(_OTHERS)):
            if time.monotonic() > until:
                raise RuntimeError("PostgreSQL still has clients")
            time.sleep(0.05)
        return int(self.ask(_FETCHED))

    def check(self, samples: int = 50) -> None:
        """Rows are as they were written."""
        step = max(1, self.keys // samples)
        for number in range(0, self.keys, step):
            key = self.key_of(number)
            found = self.ask(f"SELECT * FROM flights_by_plane WHERE tailnum = '{key}';")
            assert found == f"{key}|{number % 1000}|{12_345_678 + number}|abcdefghij", found

    def ask(self, sql: str, rows: str | None = None) -> str:
        """What psql prints, or does with `rows` on its standard input."""
        return capture([*self.psql(), "-c", sql], input=rows, env=self.environment()).strip()

    def psql(self) -> list[str]:
        """The command of one that prints rows and nothing else; `environment` is its."""
        command = [str(self.folder / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return [*command, *self._where(), "-d", "postgres"]

    def key_of(self, number: int) -> int:
        """The key of a row."""
        return _KEY_START + number

    def wait_until_ready(self) -> None:
        """It listens before it takes connections. Raises RuntimeError."""
        until = time.monotonic() + _START_S_MAX
        command = [str(self.folder / "pg_isready"), "-q", *self._where()]
        while subprocess.run(command, check=False).returncode:
            if time.monotonic() > until:
                raise RuntimeError("PostgreSQL takes no connections")
            time.sleep(0.05)

    def fill(self) -> None:
        """Write all rows, as COPY reads them."""
        self.ask(_TABLE)
        rows = "".join(
            f"{_KEY_START + number}\t{number % 1000}\t{12_345_678 + number}\tabcdefghij\n"
            for number in range(self.keys)
        )
        self.ask("COPY flights_by_plane FROM STDIN;", rows)
        self.ask("VACUUM (ANALYZE) flights_by_plane;")
        count = self.ask("SELECT count(*) FROM flights_by_plane;")
        assert int(count) == self.keys, count

    def _where(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "bench"]

    def environment(self) -> dict[str, str]:
        """Of psql and pgbench."""
        return {**os.environ, "PGPASSWORD": self.password, "LC_ALL": "C"}


@dataclass(frozen=True)
class _Ran:
    """What pgbench did."""

    transactions: int
    took_us: list[float]
    until_s: float  # from the first transaction's end to the last one's

    @classmethod
    def of(cls, text: str, log: Path) -> _Ran:
        """`client transaction time script epoch_s epoch_us [lag]` is a line of its log; the time
        includes the lag."""
        lines = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in text.splitlines())
        }
        transactions = int(lines["number of transactions actually processed"])
        if int(lines.get("number of failed transactions", "0").partition(" ")[0]):
            raise RequestsFailed(f"transactions failed:\n{text}")
        fields = [line.split() for line in log.read_text().splitlines()]
        ends = [int(each[4]) + int(each[5]) / 1e6 for each in fields]
        return cls(transactions, [float(each[2]) for each in fields], max(ends) - min(ends))


@contextmanager
def postgres(folder: Path, keys: int) -> Iterator[Postgres]:
    """A server with all rows."""
    found = programs()
    assert found is not None
    folder.mkdir()
    as_somebody, user = _as_somebody()
    password = secrets.token_urlsafe(16)
    # beside `folder`, which only its owner may enter
    data = Path(tempfile.mkdtemp(prefix="standpipe-bench-postgres-"))
    try:
        secret = data / "password"
        secret.write_text(password + "\n")
        for each in (data, secret):
            shutil.chown(each, user)
        made = [str(found / "initdb"), "-D", str(data / "data"), "-U", "bench", "--no-sync"]
        made += ["-A", "scram-sha-256", "--pwfile", str(secret), "--locale=C", "-E", "UTF8"]
        subprocess.run([*as_somebody, *made], check=True, stdout=subprocess.DEVNULL, cwd=data)
        port = free_port()
        settings = {**_SETTINGS, "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*as_somebody, str(found / "postgres"), "-D", str(data / "data"), *options]
        with server(command, folder / "postgres.log") as child:
            wait_for_port(port)
            running = Postgres(child.pid, port, keys, found, password)
            running.wait_until_ready()
            running.fill()
            yield running
    finally:
        shutil.rmtree(data, ignore_errors=True)
