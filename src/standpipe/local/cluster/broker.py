"""The embedded Kafka broker: one real KRaft node as a supervised child, on loopback by default.

    with Broker(data_dir) as broker:        # start() and stop()
        broker.bootstrap_servers            # "127.0.0.1:9092"

Its data directory contains `log/` (Kafka's own), `server.properties`, `broker.log`, `broker.out`
(the JVM's output), `broker.pid`. The child dies with its parent (PDEATHSIG). Not here: restarts.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from standpipe.errors import BrokerDied, DataDirectoryRefused, PortInUse, SetupError
from standpipe.local.cluster import jvm, ports
from standpipe.local.cluster.dependent_child import DependentChild

HOST = "127.0.0.1"
PORT_DEFAULT = 9092
PORTS_TRIED_MAX = 100
START_S_MAX = 60.0
STOP_S_MAX = 10.0
LOG_CONFIG = Path(__file__).with_name("log4j2-broker.xml")

#: A small heap for a laptop, to limit what the demo costs; not tuned for load.
_JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")

_PROPERTIES = """\
# Written by Standpipe at each start (local/cluster/broker.py); changes here are lost.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{controller_port}
log.dirs={log_directory}
# a misspelt topic must be an error, not a new topic
auto.create.topics.enable=false
# one node: Kafka's own topics cannot have three replicas, and need few partitions
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# no other member will join: do not wait 3 s for one
group.initial.rebalance.delay.ms=0
# after a kill, the controller must forget the old incarnation before it takes the new one:
# at Kafka's 9 s and 2 s a start after SIGKILL takes 12 s, like this 5 s
broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
log.retention.hours=168
# the default of 128 MB would take a quarter of the heap
log.cleaner.dedupe.buffer.size=33554432
"""


class Broker:
    """One embedded broker. `start` blocks until it answers; safe to call from any thread.

    `port` None: 9092, or the next free one, with a message; a number: that one or PortInUse.
    `host`: the address of this machine to listen on and to advertise. Anyone who can reach it may
    write, so use an address other than loopback only for tests in an isolated network.
    `java_options` None: use the class archive, if there is one.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        host: str = HOST,
        start_s_max: float = START_S_MAX,
        say: jvm.Say = jvm.say_on_stderr,
        session_ms: int = 3000,
        java_options: Sequence[str] | None = None,
        stop_s_max: float = STOP_S_MAX,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.host = host
        self._start_s_max = start_s_max
        self._session_ms = session_ms
        self._java_options = java_options
        self._stop_s_max = stop_s_max
        self._port_asked = port
        self._say = say
        self._port = 0
        self._child: DependentChild | None = None
        self._lock_file: IO[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, `host:port`; valid after `start`."""
        return f"{self.host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None: not started."""
        child = self._child  # another thread may stop it meanwhile
        return child.pid if child else None

    def is_alive(self) -> bool:
        """Whether the JVM is running."""
        child = self._child
        return child is not None and child.is_alive()

    def tail_of_log(self, lines: int = 20) -> str:
        """The last lines of the broker's log, after what the JVM itself printed, if anything."""
        out = _tail(self.data_dir / "broker.out", lines)
        log = _tail(self.data_dir / "broker.log", lines)
        return "\n".join(part for part in (out, log) if part)

    def raise_if_dead(self) -> None:
        """For supervisors: raises BrokerDied with the tail of the log if the child has ended."""
        child = self._child
        if child is not None and not child.is_alive():
            raise self._died()

    def start(self) -> None:
        """Format the data directory if it is new, start the JVM, wait until it answers.

        Raises PortInUse, BrokerDied, DataDirectoryRefused (another broker uses this directory),
        JavaMissing or JarsMissing.
        """
        class_path = broker_class_path(self._say)
        java = jvm.find_java()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            while not self._try_port(java, class_path):
                self._say(f"Port {self._port} is in use by now.")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the child: SIGTERM, and SIGKILL after 10 s. Does nothing if it is not running."""
        self._end_child()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end(self._stop_s_max)
            self._child = None
            (self.data_dir / "broker.pid").unlink(missing_ok=True)

    # ---------------------------------------------------------------------- steps of `start`

    def _try_port(self, java: jvm.Java, class_path: str) -> bool:
        """False: another process took the port between the check and the broker's bind."""
        self._port = self._choose_port()
        properties = self._write_properties()
        if not self._meta.exists():
            self._format(java, class_path, properties)
        self._spawn(java, class_path, properties)
        if self._is_ready():
            return True
        self._end_child()
        return False

    def _take_lock(self) -> None:
        """One supervisor per data directory. Waits for the JVM of a supervisor that has died."""
        file = (self.data_dir / "lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise self._refused() from error
        self._lock_file = file
        deadline = time.monotonic() + 5  # PDEATHSIG has been sent; the JVM is about to end
        while self._leftover_process() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._leftover_process():
            self.stop()
            raise self._refused()

    def _leftover_process(self) -> bool:
        """Whether `broker.pid` names a live broker process that uses this directory."""
        try:
            pid = int((self.data_dir / "broker.pid").read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return False
        return str(self.data_dir / "server.properties").encode() in arguments

    def _refused(self) -> DataDirectoryRefused:
        return DataDirectoryRefused(
            f"another Kafka broker runs on {self.data_dir}",
            next_step="stop it, or use another data directory",
        )

    def _choose_port(self) -> int:
        if self._port_asked is not None:
            if not _is_free(self.host, self._port_asked):
                raise PortInUse(
                    f"port {self._port_asked} for Kafka is in use",
                    next_step="give another port, or omit it to use the next free one",
                )
            return self._port_asked
        tried = range(PORT_DEFAULT, PORT_DEFAULT + PORTS_TRIED_MAX)
        port = next(port for port in tried if _is_free(self.host, port))
        if port != PORT_DEFAULT:
            self._say(f"Port {PORT_DEFAULT} is in use; Kafka listens on {port}.")
        return port

    def _write_properties(self) -> Path:
        path = self.data_dir / "server.properties"
        path.write_text(
            _PROPERTIES.format(
                host=self.host,
                port=self._port,
                controller_port=ports.any_port(),
                log_directory=self.data_dir / "log",
                session_ms=self._session_ms,
            )
        )
        return path

    def _format(self, java: jvm.Java, class_path: str, properties: Path) -> None:
        """Format the directory, as Kafka requires. Once per data directory, about 1 s."""
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # with `=`, because one id in 64 begins with a dash
        tool = ("kafka.tools.StorageTool", "format", "--standalone", f"--cluster-id={cluster_id}")
        options = jvm.archive_options("broker", java)
        command = [str(java.executable), *options, "-cp", class_path, *tool, "-c", str(properties)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise BrokerDied(
                f"Kafka could not format {self.data_dir}:\n{(ran.stdout + ran.stderr).strip()}",
                next_step="remove the data directory if it holds nothing of value",
            )

    def _spawn(self, java: jvm.Java, class_path: str, properties: Path) -> None:
        options = self._java_options
        if options is None:
            options = jvm.archive_options("broker", java)
        self._child = DependentChild(
            [
                str(java.executable),
                *_JVM_OPTIONS,
                *options,
                f"-Dlog4j2.configurationFile={LOG_CONFIG}",
                f"-Dstandpipe.broker.log={self.data_dir / 'broker.log'}",
                *("-cp", class_path, "kafka.Kafka", str(properties)),
            ],
            output=self.data_dir / "broker.out",
        )
        (self.data_dir / "broker.pid").write_text(str(self._child.pid))

    def _is_ready(self) -> bool:
        """Waits until the broker answers a metadata request: its port opens before it can answer.

        False: another cluster's broker answers there. Two that start at once both find 9092 free;
        the one that fails to bind must not mistake the other for itself.
        """
        deadline = time.monotonic() + self._start_s_max
        while time.monotonic() < deadline:
            if _accepts(self.host, self._port):
                with contextlib.suppress(KafkaException):
                    admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
                    answering = str(admin.list_topics(timeout=5).cluster_id)
                    return answering == self._cluster_id()
            if not self.is_alive() and not _is_free(self.host, self._port):
                return False  # the process on the port does not answer yet, or is not Kafka
            self.raise_if_dead()
            time.sleep(0.05)
        raise self._died(f"did not answer within {self._start_s_max:.0f} s")

    @property
    def _meta(self) -> Path:
        return self.data_dir / "log" / "meta.properties"

    def _cluster_id(self) -> str:
        lines = self._meta.read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))

    def _died(self, how: str | None = None) -> BrokerDied:
        code = self._child.exit_status if self._child else None
        what = how or f"ended unexpectedly (exit status {code})"
        return BrokerDied(
            f"the Kafka broker on {self.bootstrap_servers} {what}; its log ends with\n"
            f"{self.tail_of_log()}",
            next_step=f"read {self.data_dir / 'broker.log'}",
        )


def broker_class_path(say: jvm.Say) -> str:
    """Kafka's jars lack a binding from slf4j to log4j2; PySpark ships one, with slf4j 2."""
    spark = jvm.pyspark_jars()
    binding = [*spark.glob("slf4j-api-*.jar"), *spark.glob("log4j-slf4j2-impl-*.jar")]
    return ":".join(str(path) for path in (*binding, *jvm.jars("broker", say=say)))


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return True
    return False


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _tail(path: Path, lines: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


# -------------------------------------------------------- python -m standpipe.local.cluster.broker


def _stop_on_signals() -> threading.Event:
    """Set by SIGINT and SIGTERM. Call it first: an early signal must not be lost."""
    asked_to_stop = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        asked_to_stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return asked_to_stop


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until SIGINT or SIGTERM; exit status 1 if it dies."""
    parser = argparse.ArgumentParser(
        prog="python -m standpipe.local.cluster.broker", description=__doc__
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=None, help="default: 9092 or the next free")
    options = parser.parse_args(arguments)
    began, asked_to_stop = time.monotonic(), _stop_on_signals()
    try:
        with Broker(options.data_dir, options.port) as broker:
            took = f"{time.monotonic() - began:.1f} s"
            print(f"Kafka is ready at {broker.bootstrap_servers} ({took})", flush=True)
            while not asked_to_stop.wait(0.2):
                broker.raise_if_dead()
    except SetupError as error:
        jvm.say_on_stderr(str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
