"""A user's programs that write served tables, and what they must have written.

They run as a user would run them, in processes of their own, against a cluster that has no pipeline
(the fixture `nodes_alone`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cluster import TestCluster, wait_until

from standpipe.local.cli.table import UNKNOWN
from standpipe.local.cluster import jvm
from standpipe.local.demo.flights import Event
from standpipe.pipeline.commit import failpoint

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve_dataframe.py"
USERS = [f"{initial}{number}" for initial in "ab" for number in range(6)]
WEIGHTS = {"a": ("gold", 2.0), "b": ("basic", 0.5)}
#: more than any portion is split into, so that each failpoint is reached
PORTIONS_MAX = 12


@dataclass
class Purchases:
    """The events that were sent, and the rows that follow from them: a batch recompute."""

    cluster: TestCluster
    sent: list[dict[str, object]] = field(default_factory=list[dict[str, object]])

    def send(self, count: int = 40) -> None:
        events: list[Event] = []
        for _ in range(count):
            number = len(self.sent)
            event: dict[str, object] = {
                "user_id": USERS[number * 7 % len(USERS)],
                "cents": 100 + number * 37 % 900,
                "closed": number % 97 == 0,
            }
            self.sent.append(event)
            key = str(event["user_id"]).encode()
            events.append(Event(key, json.dumps(event).encode(), 1_700_000_000_000 + number))
        self.cluster.send("purchases", events)

    def rows(self) -> list[list[object]]:
        found: list[list[object]] = []
        for user in USERS:
            of_user = [each for each in self.sent if each["user_id"] == user]
            if not of_user or any(each["closed"] for each in of_user):
                continue
            cents = sum(int(str(each["cents"])) for each in of_user)
            plan, weight = WEIGHTS[user[0]]
            score = cents / 100 / len(of_user) * weight
            found.append([user, plan, len(of_user), cents, score])
        return found

    def are_shown(self) -> bool:
        """Whether they are the rows of the table now."""
        with suppress(Exception):  # a node has not read of the table yet
            found = self.cluster.pull("SELECT * FROM SCORES;").rows
            return sorted(map(list, found), key=repr) == sorted(self.rows(), key=repr)
        return False

    def check(self) -> None:
        """Every row is there, and no other."""
        self.cluster.wait_for_rows("SELECT * FROM SCORES;", self.rows())


@dataclass
class Program:
    """The user's program."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Of Python and its JVM."""
        os.killpg(self.process.pid, number)

    def wait_for(self, words: str) -> None:
        def is_said() -> bool | None:
            assert self.process.poll() is None or words in self.said(), self.said()[-4000:]
            return words in self.said() or None

        wait_until(is_said, words, lambda: self.said()[-2000:])

    def wait_for_end(self) -> int:
        wait_until(lambda: self.process.poll() is not None or None, "its end")
        return int(self.process.returncode)


@contextmanager
def programs(
    cluster: TestCluster,
    folder: Path,
    master: str = "local[2]",
    more_settings: Mapping[str, str] = {},
) -> Generator[Callable[..., Program]]:
    """Starts programs: `started(fails_at="after-progress@4")`. None of them outlives the test.
    `more_settings`: of Spark."""
    found: list[Program] = []
    java = jvm.find_java()
    options = " ".join([*jvm.archive_options("spark", java), "-XX:TieredStopAtLevel=1"])
    jars = ",".join(map(str, jvm.jars("spark")))
    settings = {
        "spark.driver.extraJavaOptions": options,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        **more_settings,
    }
    given = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master {master} --jars {jars} {given} pyspark-shell",
        "KAFKA": cluster.bootstrap_servers,
        "STANDPIPE_NODES": ",".join(address for _, address in cluster.addresses),
        "STANDPIPE_SECRET_FILE": str(cluster.local.directory.secret_file),
        "CHECKPOINT": str(folder / "checkpoint"),
    }

    def started(fails_at: str = "", example: Path = EXAMPLE, **changes: str) -> Program:
        log = folder / f"program-{len(found)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(example)],
                env={**environment, failpoint.VARIABLE: fails_at, **changes},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        found.append(Program(process, log))
        return found[-1]

    try:
        yield started
    except BaseException:
        for program in found:  # what they said last is most likely why a row is not there
            print(f"----- {program.log.name}\n{program.said()[-6000:]}")
        raise
    finally:
        for program in found:
            with suppress(ProcessLookupError):
                os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait(30)


def shown(cluster: TestCluster) -> dict[str, object]:
    """The query of SCORES, as SHOW QUERIES lists it."""
    found = [each for entity in cluster.sql("SHOW QUERIES;") for each in entity["queries"]]
    (query,) = (each for each in found if each["sinks"] == ["SCORES"])
    return dict(query)


def holder(cluster: TestCluster) -> int:
    """The process id of the program that writes, as the cluster knows it."""
    try:
        status = shown(cluster)["standpipe"]
    except ValueError:
        return 0  # the table is not declared yet
    pipeline = str(status["pipeline"]) if isinstance(status, dict) else ""
    return int(pipeline.split("-")[-2]) if pipeline else 0  # none holds the lease yet


def wait_for_holder(cluster: TestCluster, program: Program) -> None:
    """Until it says that it runs: it reports once a second, so its rows may be there before."""

    def is_running() -> bool:
        is_its = holder(cluster) == program.process.pid
        return is_its and shown(cluster)["state"] == "RUNNING"

    wait_until(is_running, f"{program.process.pid} runs", lambda: str(shown(cluster)))


def feed_until_death(purchases: Purchases, program: Program) -> None:
    """Portion after portion, until one kills the program in the middle of its batch."""
    for _ in range(PORTIONS_MAX):
        purchases.send()

        def is_over() -> bool | None:
            return program.process.poll() is not None or purchases.are_shown() or None

        wait_until(is_over, f"{len(purchases.sent)} events, or its death", program.said)
        if program.process.poll() is not None:
            return
    raise AssertionError(f"the failpoint was not reached: {program.said()[-2000:]}")


def verify(cluster: TestCluster) -> None:
    """`standpipe table verify`: all replicas have the same rows, once each has answered."""
    command = [sys.executable, "-m", "standpipe", "table", "verify", "SCORES"]
    command += ["--directory", str(cluster.local.options.directory)]
    said: list[str] = []

    def is_known() -> bool:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        said[:] = [ran.stdout + ran.stderr]
        assert ran.returncode in (0, UNKNOWN), said
        return ran.returncode == 0

    wait_until(is_known, "answers of all replicas", lambda: str(said))
