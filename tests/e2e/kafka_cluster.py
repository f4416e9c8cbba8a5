"""A Kafka of three real brokers with SASL_SSL, SCRAM and ACLs, on loopback; see `KafkaCluster`.

    with KafkaCluster(directory) as kafka:
        kafka.add_user("ada", "her password")
        kafka.allow("User:ada", "WRITE", "TOPIC", "orders")
        kafka.kill(2), kafka.start_again(2)         # SIGKILL; stop(2) and go_on(2): SIGSTOP

Each broker is a controller, too (KRaft). Clients use the listeners with security; the brokers among
themselves, and this fixture as an operator, one without, whose anonymous user is a super user.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka import admin as _admin
from cryptography.hazmat.primitives import serialization
from trustme import CA, LeafCert

from standpipe.local.cluster import jvm
from standpipe.local.cluster.broker import LOG_CONFIG, broker_class_path
from standpipe.local.cluster.dependent_child import DependentChild
from standpipe.local.cluster.ports import any_port

admin: Any = _admin
BROKERS = (1, 2, 3)
HOST = "127.0.0.1"
READY_S_MAX = 120.0
_HEAP = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

_PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=SASL://{host}:{sasl},MTLS://{host}:{mtls},INTERNAL://{host}:{internal},CONTROLLER://{host}:{controller}
listener.security.protocol.map=SASL:SASL_SSL,MTLS:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config={plain}
listener.name.sasl.scram-sha-256.sasl.jaas.config={scram}
listener.name.sasl.scram-sha-512.sasl.jaas.config={scram}
listener.name.mtls.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=([^,]+),.*$/$1/,DEFAULT
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
log.dirs={logs}
auto.create.topics.enable=false
# so that a topic without min.insync.replicas of its own would lose what one broker alone has
min.insync.replicas=1
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
"""


@dataclass(frozen=True)
class Ports:
    """Ports of one broker's listeners."""

    sasl: int = field(default_factory=any_port)
    mtls: int = field(default_factory=any_port)
    internal: int = field(default_factory=any_port)
    controller: int = field(default_factory=any_port)


class KafkaCluster:
    """Three brokers. `plain_users`: name -> password of users that log in with PLAIN."""

    def __init__(self, directory: Path, plain_users: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.ports = {number: Ports() for number in BROKERS}
        self.ca = CA()
        self.truststore = directory / "ca.pem"
        self._plain_users = plain_users or {}
        self._children: dict[int, DependentChild] = {}
        self._stopped = set[int]()
        self._java = jvm.find_java()
        self._operator: Any = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.truststore.write_bytes(self.ca.cert_pem.bytes())
        for number in BROKERS:
            self._write(number)
        formats = [threading.Thread(target=self._format, args=(number,)) for number in BROKERS]
        for each in formats:
            each.start()
        for each in formats:
            each.join()
        for number in BROKERS:
            self.start_again(number, wait=False)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in [*self._stopped]:
            self.go_on(number)
        for child in self._children.values():
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
        for child in self._children.values():
            child.end(10)

    # ------------------------------------------------------------------------ for clients

    @property
    def sasl_servers(self) -> str:
        return self._servers("sasl")

    @property
    def mtls_servers(self) -> str:
        return self._servers("mtls")

    @property
    def internal_servers(self) -> str:
        """Without security, as a super user: for what an operator does, and for judges."""
        return self._servers("internal")

    def _servers(self, listener: str) -> str:
        return ",".join(f"{HOST}:{getattr(ports, listener)}" for ports in self.ports.values())

    def settings(self, user: str, password_file: Path, mechanism: str) -> dict[str, str]:
        """The settings of Standpipe for a user."""
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.username": user,
            "kafka.sasl.password.file": str(password_file),
            "kafka.ssl.truststore.location": str(self.truststore),
        }

    def client_pem(self, name: str) -> Path:
        """A PEM file with a key and a certificate whose common name is `name`."""
        place = self.directory / f"{name}.pem"
        _write_pem(place, self.ca.issue_cert(f"{name}.example", common_name=name))
        return place

    # ------------------------------------------------------------------------ as an operator

    def operator(self) -> Any:
        if self._operator is None:
            servers = self.internal_servers
            options = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
            self._operator = admin.AdminClient(options)
        return self._operator

    def add_user(self, name: str, password: str) -> None:
        """A user that may log in with either SCRAM mechanism."""
        changes = [
            admin.UserScramCredentialUpsertion(
                name, admin.ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for mechanism in (
                admin.ScramMechanism.SCRAM_SHA_256,
                admin.ScramMechanism.SCRAM_SHA_512,
            )
        ]
        for change in changes:
            for answer in self.operator().alter_user_scram_credentials([change]).values():
                answer.result(30)

    def allow(
        self, principal: str, operation: str, resource: str, name: str, pattern: str = "LITERAL"
    ) -> None:
        for answer in (
            self.operator()
            .create_acls([_acl(principal, operation, resource, name, pattern)])
            .values()
        ):
            answer.result(30)

    @contextmanager
    def limited(self, principal: str, operation: str, topic: str) -> Iterator[None]:
        """Within: a rule that denies it, which wins over every other."""
        deny = _acl(principal, operation, "TOPIC", topic, "LITERAL", "DENY")
        for answer in self.operator().create_acls([deny]).values():
            answer.result(30)
        try:
            yield
        finally:
            self._take_back(deny, principal, topic)

    def _take_back(self, deny: Any, principal: str, topic: str) -> None:
        of = (deny.restype, topic, deny.resource_pattern_type, principal, "*", deny.operation)
        filter_ = admin.AclBindingFilter(*of, deny.permission_type)
        for answer in self.operator().delete_acls([filter_]).values():
            assert answer.result(30), "the rule was there"

    def topic_config(self, name: str) -> dict[str, str]:
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name)
        found = self.operator().describe_configs([resource])[resource].result(30)
        return {key: str(entry.value) for key, entry in found.items()}

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in sync."""
        try:
            topics = self.operator().list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        partitions = [p for topic in topics for p in topic.partitions.values()]
        return all(len(p.isrs) == len(p.replicas) for p in partitions)

    def wait_until_ready(self) -> None:
        """Until three brokers answer, and all replicas are in sync."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            with suppress(KafkaException):
                found = self.operator().list_topics(timeout=5)
                if len(found.brokers) == len(BROKERS) and self.in_sync():
                    return
            for number, child in self._children.items():
                assert child.is_alive(), (self.directory / f"broker-{number}.out").read_text()[
                    -4000:
                ]
            time.sleep(0.1)
        raise AssertionError(f"Kafka is not whole after {READY_S_MAX:g} s")

    def described_by_java(self, topic: str, options: Mapping[str, str], folder: Path) -> str:
        """What Kafka's own tool, a Java client with these options, says of a topic."""
        place = folder / "client.properties"
        escaped = {k: v.replace("\\", "\\\\").replace("\n", "\\n") for k, v in options.items()}
        place.write_text("".join(f"{k}={v}\n" for k, v in escaped.items()))
        tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", options["bootstrap.servers"])
        what = ("--entity-type", "topics", "--entity-name", topic, "--describe")
        command = [*self._command(()), *tool, *what, "--command-config", str(place)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr

    # ------------------------------------------------------------------------ faults

    def kill(self, number: int) -> None:
        """SIGKILL."""
        child = self._children.pop(number)
        os.kill(child.pid, signal.SIGKILL)
        child.end(10)

    def shut_down(self, number: int) -> None:
        """SIGTERM, which moves its leaderships first."""
        self._children.pop(number).end(60)

    def stop(self, number: int) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        os.kill(self._children[number].pid, signal.SIGSTOP)
        self._stopped.add(number)

    def go_on(self, number: int) -> None:
        """SIGCONT."""
        os.kill(self._children[number].pid, signal.SIGCONT)
        self._stopped.discard(number)

    def start_again(self, number: int, *, wait: bool = True) -> None:
        self._children[number] = DependentChild(
            [
                *self._command((*_HEAP, *self._log_options(number))),
                "kafka.Kafka",
                str(self._properties(number)),
            ],
            output=self.directory / f"broker-{number}.out",
        )
        if wait:
            self._wait_for_listener(number)
            self.wait_until_ready()

    def _wait_for_listener(self, number: int) -> None:
        """A broker listens once the controller has let it in. Until then the others may still take
        the one that was killed for alive."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((HOST, self.ports[number].sasl), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"broker {number} does not listen: see {self._log(number)}")

    def _log(self, number: int) -> Path:
        return self.directory / f"broker-{number}.log"

    def _log_options(self, number: int) -> tuple[str, str]:
        log = f"-Dstandpipe.broker.log={self._log(number)}"
        return f"-Dlog4j2.configurationFile={LOG_CONFIG}", log

    def controller(self) -> int:
        """The number of the active controller."""
        return int(self.operator().describe_cluster().result(30).controller.id)

    # ------------------------------------------------------------------------ files

    def _properties(self, number: int) -> Path:
        return self.directory / f"broker-{number}.properties"

    def _write(self, number: int) -> None:
        ports = self.ports[number]
        keystore = self.directory / f"broker-{number}.pem"
        _write_pem(keystore, self.ca.issue_cert(HOST, "localhost"))
        users = "".join(f' user_{name}="{word}"' for name, word in self._plain_users.items())
        voters = ",".join(f"{n}@{HOST}:{p.controller}" for n, p in self.ports.items())
        text = _PROPERTIES.format(
            number=number,
            voters=voters,
            host=HOST,
            sasl=ports.sasl,
            mtls=ports.mtls,
            internal=ports.internal,
            controller=ports.controller,
            plain=f"{_PLAIN}{users};",
            scram=_SCRAM,
            keystore=keystore,
            truststore=self.truststore,
            logs=self.directory / f"broker-{number}",
        )
        place = self._properties(number)
        place.touch(0o600)
        place.write_text(text)

    def _format(self, number: int) -> None:
        tool = ("kafka.tools.StorageTool", "format", "--cluster-id=AAAAAAAAAAAAAAAAAAAAAA")
        command = [*self._command(()), *tool, "-c", str(self._properties(number))]
        subprocess.run(command, check=True, capture_output=True)

    def _command(self, options: Sequence[str]) -> list[str]:
        archive = jvm.archive_options("broker", self._java)
        path = broker_class_path(jvm.say_on_stderr)
        return [str(self._java.executable), *options, *archive, "-cp", path]


def _acl(
    principal: str,
    operation: str,
    resource: str,
    name: str,
    pattern: str,
    permission: str = "ALLOW",
) -> Any:
    return admin.AclBinding(
        admin.ResourceType[resource],
        name,
        admin.ResourcePatternType[pattern],
        principal,
        "*",
        admin.AclOperation[operation],
        admin.AclPermissionType[permission],
    )


def _write_pem(place: Path, leaf: LeafCert) -> None:
    """Key (PKCS #8, as Java wants it) and certificates."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    place.touch(0o600)
    place.write_bytes(text + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
