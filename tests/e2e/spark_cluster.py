"""Spark's own cluster: a master and workers, each a process with a folder of its own.

    with SparkCluster(directory) as spark:
        start(folder, master=spark.url, config=spark.settings())
        spark.kill_worker()

The Python of the executors has the packages of this one without standpipe, and no process of the
cluster has its path. A process that is killed is started again. The master keeps what it knows in
files (`spark.deploy.recoveryMode`), as one in operation should.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import psutil
from tests.e2e.cluster import wait_until
from tests.e2e.processes import command_line, is_dead

from standpipe.adapters.process import signal_at_parent_death
from standpipe.local.cluster import jvm
from standpipe.local.cluster.ports import any_port

HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "CoarseGrainedExecutorBackend"
#: of each JVM; they live for a minute
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
WORKERS = 2
_PYTHON = """\
#!/bin/sh
# The Python of executors: the packages of the tests' one, without standpipe.
export PYTHONPATH="$PYTHONPATH:{packages}"
exec {python} -s "$@"
"""


class SparkCluster:
    """A master and workers of one core each. `kill_…` returns once the process is dead."""

    def __init__(self, directory: Path, workers: int = WORKERS) -> None:
        self.directory = directory
        self.count = workers
        self.port, self.web_port = any_port(), any_port()
        self.python = self._make_python()
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start_master()
            self._workers = [self._start_worker(number) for number in range(self.count)]
            wait_until(lambda: len(self._alive_workers()) == self.count, "the workers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, self._master):
            if process is not None:
                _kill_group(process)

    @property
    def url(self) -> str:
        """What `--master` names."""
        return f"spark://{HOST}:{self.port}"

    def settings(self) -> dict[str, str]:
        """Settings of Spark for a pipeline. The default file system is one that nobody serves:
        checkpoints are in a local one, also where YARN's files name another."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.cores.max": str(self.count),
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(_QUICK),
            "spark.pyspark.python": str(self.python),
            "spark.hadoop.fs.defaultFS": f"hdfs://{HOST}:1",
        }

    # ---------------------------------------------------------------------------- faults

    def kill_executor(self, number: int = 0) -> None:
        """SIGKILL; its worker starts another one."""
        executors = wait_until(lambda: self.executors(), "an executor") or []
        killed = executors[number % len(executors)]
        killed.kill()
        _await_death(killed)
        alive = {each.pid for each in executors} - {killed.pid}
        wait_until(lambda: {e.pid for e in self.executors()} - alive or None, "another executor")

    def kill_worker(self, number: int = 0) -> None:
        """SIGKILL to it and its executors. It is started again, with nothing that it had."""
        before = self._alive_workers()
        _kill_group(self._workers[number])
        self._workers[number] = self._start_worker(number)

        def is_replaced() -> bool:
            now = self._alive_workers()
            return len(now) == self.count and now != before

        wait_until(is_replaced, "the workers")

    def kill_master(self) -> None:
        """SIGKILL. It is started again, and finds what runs in its files."""
        assert self._master is not None
        _kill_group(self._master)
        self._start_master()
        wait_until(lambda: len(self._alive_workers()) == self.count, "the workers")

    def remove_application(self) -> None:
        """As an operator does in the master's UI: Spark ends in a driver that lives on."""
        (application,) = self._state()["activeapps"]
        form = urllib.parse.urlencode({"id": application["id"], "terminate": "true"})
        address = f"http://{HOST}:{self.web_port}/app/kill/"
        with urllib.request.urlopen(address, form.encode(), timeout=30):
            pass

    def executors(self) -> list[psutil.Process]:
        """Those that run now."""
        found: list[psutil.Process] = []
        for worker in self._workers:
            try:
                children = psutil.Process(worker.pid).children()
                found += [each for each in children if _is_executor(each)]
            except psutil.Error:
                continue
        return found

    # ------------------------------------------------------------------------------ parts

    def _start_master(self) -> None:
        kept = self.directory / "recovery"
        kept.mkdir(exist_ok=True)
        options = (
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={kept}",
            "-Dspark.master.rest.enabled=false",  # it would listen at a port of its own
        )
        command = ["master.Master", "--host", HOST, "--port", str(self.port)]
        command += ["--webui-port", str(self.web_port)]
        self._master = self._start("master", options, command)
        wait_until(self._is_master_alive, "the master", self._log_of_master)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        name = f"worker-{number}"
        command = ["worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1g"]
        command += [
            "--webui-port",
            "0",
            "--work-dir",
            str(self.directory / name / "work"),
            self.url,
        ]
        return self._start(name, (), command)

    def _start(
        self, name: str, options: tuple[str, ...], command: list[str]
    ) -> subprocess.Popen[bytes]:
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        java = jvm.find_java()
        spark = jvm.pyspark_jars().parent
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",  # as Spark's own scripts set it
            "SPARK_LOCAL_IP": HOST,
        }
        line = [str(java.executable), *_QUICK, "-Xmx256m", *options, "-cp", f"{spark}/jars/*"]
        line += [f"{_DEPLOY}.{command[0]}", *command[1:]]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                line,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(signal_at_parent_death, signal.SIGKILL),
            )

    def _make_python(self) -> Path:
        packages = self.directory / "packages"
        packages.mkdir(parents=True)
        for folder in map(Path, sys.path):
            if folder.name == "site-packages":
                for path in folder.iterdir():
                    if "standpipe" not in path.name and path.suffix != ".pth":
                        (packages / path.name).symlink_to(path)
        script = self.directory / "python"
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        script.write_text(_PYTHON.format(packages=packages, python=base))
        script.chmod(0o700)
        return script

    def _state(self) -> dict[str, Any]:
        address = f"http://{HOST}:{self.web_port}/json/"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)

    def _is_master_alive(self) -> bool:
        try:
            return self._state()["status"] == "ALIVE"
        except (OSError, ValueError):  # at its start it answers before it has this page
            return False

    def _alive_workers(self) -> set[str]:
        return {each["id"] for each in self._state()["workers"] if each["state"] == "ALIVE"}

    def _log_of_master(self) -> str:
        return (self.directory / "master" / "log").read_text()[-2000:]


def event_log(directory: Path) -> dict[str, str]:
    """Settings with which Spark logs what `tasks_lost` counts. Makes the directory."""
    directory.mkdir(parents=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def tasks_lost(directory: Path) -> int:
    """How many tasks died with their executors, as Spark counts them."""
    lost = 0
    for log in directory.iterdir():
        for line in log.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line and line.endswith("}"):
                reason = json.loads(line)["Task End Reason"]["Reason"]
                lost += reason == "ExecutorLostFailure"
    return lost


def _is_executor(process: psutil.Process) -> bool:
    return any(word.endswith(_EXECUTOR) for word in command_line(process).split())


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await_death(process: psutil.Process) -> None:
    wait_until(lambda: is_dead(process), f"{process.pid} to be gone")
