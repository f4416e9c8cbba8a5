"""Does a data directory of an earlier commit open and serve after an upgrade?

    make upgrade FROM=d57ac952
    make upgrade FROM=c9c0fee TO=7937e770~1

The earlier commit runs from its own `src/` (git archive), with the packages of its own lock file:
those that today's environment lacks are put beside it. It fills a keyed and a windowed table, is
stopped in order or killed (`--end SIGKILL`), and today's code, or that of `--to`, opens the same
directory: every row must be there at once, from the same stores; new events must reach the running
queries; statements must work.

Today's code opens what d57ac952 or a later commit wrote. Before it progress records had no MAC, and
since 7937e770 no such record is believed (src/standpipe/data/commit/DESIGN.md): nothing was
released meanwhile.

Not here: nodes of two releases side by side (test_features.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.directory import running_cluster

ROOT = Path(__file__).resolve().parents[2]
LOCK = "requirements.lock"
WAIT_S_MAX = 300.0  # generous: a busy machine is no failure
USERS = [f"user-{number}" for number in range(40)]
T = TypeVar("T")

STATEMENTS = """
CREATE STREAM CLICKS (USER_ID STRING KEY, PAGE STRING, PRICE DECIMAL(8, 2))
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE VISITS AS SELECT USER_ID, COUNT(*) AS N, LATEST_BY_OFFSET(PAGE) AS LAST,
  SUM(PRICE) AS PAID FROM CLICKS GROUP BY USER_ID EMIT CHANGES;
CREATE TABLE BY_DAY AS SELECT USER_ID, COUNT(*) AS N FROM CLICKS
  WINDOW TUMBLING (SIZE 1 DAY) GROUP BY USER_ID EMIT CHANGES;
"""


@contextlib.contextmanager
def path_of(commit: str) -> Iterator[str]:
    """PYTHONPATH of a commit: its `src`, and what its lock file has and today's environment lacks.

    Raises subprocess.CalledProcessError (the commit or a package is not to be had).
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "src", LOCK],
            capture_output=True,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        now = locked((ROOT / LOCK).read_text())
        then = locked((folder / LOCK).read_text())
        lacking = [text for package, text in then.items() if now.get(package) != text]
        if lacking:
            (folder / "lacking.txt").write_text("".join(lacking))
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command += ["--require-hashes", "--target", "packages", "-r", "lacking.txt"]
            subprocess.run(command, cwd=folder, check=True)
        yield f"{folder / 'src'}:{folder / 'packages'}"


def take_sigint() -> None:
    """A job in the background inherits that SIGINT is ignored; `standpipe up` is to end by it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def locked(text: str) -> dict[str, str]:
    """Each pinned package of a lock file, as `name==version`, with its lines."""
    found: dict[str, str] = {}
    for line in text.splitlines(keepends=True):
        if "==" in line and not line.startswith(("#", " ")):
            found[line.split()[0]] = line
        elif found and line.startswith(" "):
            found[next(reversed(found))] += line
    return found


@contextlib.contextmanager
def up(python_path: str, directory: Path, end: signal.Signals) -> Iterator[NodesClient]:
    """`standpipe up` of this source; `end` is the signal that it gets afterwards.

    Raises AssertionError (it ended at its start).
    """
    command = [sys.executable, "-m", "standpipe", "up", "--directory", str(directory)]
    command += ["--port", "18088", "--broker-port", "19092"]
    environment = {**os.environ, "PYTHONPATH": python_path}
    log_path = directory.parent / "up.log"
    with log_path.open("a") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, preexec_fn=take_sigint
        )

    def addresses() -> list[str]:
        assert process.poll() is None, f"it ended at its start:\n{log_path.read_text()[-2000:]}"
        return [node.public for node in running_cluster(directory).nodes]

    try:
        with NodesClient(wait_for(addresses, "nodes"), timeout_s=20.0) as client:
            yield client
    finally:
        process.send_signal(end)
        process.wait(60)
        if end == signal.SIGKILL:
            (directory / "run" / "cluster.json").unlink(missing_ok=True)


def wait_for(ask: Callable[[], T], what: str, is_right: Callable[[T], bool] = bool) -> T:
    """What `ask` returns once it is right. Raises TimeoutError with what was seen last."""
    end_s = time.monotonic() + WAIT_S_MAX
    seen: Any = None
    while time.monotonic() < end_s:
        try:
            seen = ask()
            if is_right(seen):
                return seen
        except AssertionError:
            raise
        except Exception as error:  # asked again until the time is over
            seen = repr(error)
        time.sleep(0.2)
    raise TimeoutError(f"{what}: {seen}")


def insert(client: NodesClient, page: str) -> None:
    """One event of each user, in one request."""
    client.execute(
        "".join(
            f"INSERT INTO CLICKS (USER_ID, PAGE, PRICE) VALUES ('{user}', '{page}', 1.25);"
            for user in USERS
        )
    )


def rows(client: NodesClient) -> dict[str, list[Any]]:
    """Rows of both tables by user."""
    found: dict[str, list[Any]] = {}
    for user in USERS:
        for table in ("VISITS", "BY_DAY"):
            answer = client.pull(f"SELECT * FROM {table} WHERE USER_ID = '{user}';")
            found.setdefault(user, []).append([list(row) for row in answer.rows])
    return found


def counts(found: dict[str, list[Any]]) -> set[int]:
    """N of every user in VISITS; empty where a row is missing."""
    return {row[0][0][1] for row in found.values()} if all(v[0] for v in found.values()) else set()


def stores(directory: Path) -> dict[str, int]:
    """Inode of each store's file: another one is a store that was built again."""
    found = directory.glob("node-*/state/*/*/data.mdb")
    return {str(path.relative_to(directory)): path.stat().st_ino for path in found}


def upgrade(before: str, after: str, end: signal.Signals) -> None:
    """One story. Raises AssertionError or TimeoutError where the promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "cluster"
        directory.mkdir()
        with up(before, directory, end) as client:
            wait_for(lambda: client.execute(STATEMENTS), "statements")
            for page in ("/home", "/cart", "/paid"):
                insert(client, page)
            wait_for(lambda: rows(client), "rows before", lambda found: counts(found) == {3})
            then, files = rows(client), stores(directory)
        assert files, "stores were found"
        with up(after, directory, signal.SIGINT) as client:
            now = wait_for(lambda: rows(client), "rows after", lambda found: counts(found) == {3})
            assert now == then
            insert(client, "/again")
            wait_for(lambda: rows(client), "new events", lambda found: counts(found) == {4})
            now_files = stores(directory)
            rebuilt = [name for name, inode in now_files.items() if files.get(name) != inode]
            assert end == signal.SIGKILL or not rebuilt, f"built again: {rebuilt}"
            client.execute(
                "CREATE TABLE PAGES AS SELECT PAGE, COUNT(*) AS N FROM CLICKS GROUP BY PAGE;"
            )
            ask = "SELECT N FROM PAGES WHERE PAGE = '/home';"
            wait_for(lambda: client.pull(ask).rows, "a new table")
            client.execute("DROP TABLE BY_DAY;")
        print(f"ended by {end.name}: {len(then)} keys, {len(files)} stores, rebuilt: {rebuilt}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--from", dest="commit", required=True, help="commit that wrote the data")
    parser.add_argument("--to", help="commit that opens it; default: this working tree")
    ends = [signal.SIGINT.name, signal.SIGKILL.name]
    parser.add_argument("--end", choices=ends, default=ends[0], help="how the earlier one ends")
    given = parser.parse_args()
    with contextlib.ExitStack() as paths:
        before = paths.enter_context(path_of(given.commit))
        after = paths.enter_context(path_of(given.to)) if given.to else str(ROOT / "src")
        upgrade(before, after, signal.Signals[given.end])


if __name__ == "__main__":
    main()
