"""The keys of connections to Kafka, as Java's names behind `kafka.`, and of topics made there.

ksqlDB's names are accepted: without a prefix, and behind `ksql.streams.`. A
configuration never contains secrets: the code that creates a client reads them from files or from
the environment.

Not here: what the settings together mean (`adapters/kafka/connection.py`), which also reads
Kafka's own file of client properties.
"""

from __future__ import annotations

from typing import Any

from standpipe.config.registry import REFUSED_PREFIXES, ConfigKey, key, relation

DAY_MS = 24 * 3_600_000


def _client_key(
    name: str, doc: str, *, secret: bool = False, place: bool = False
) -> ConfigKey[str]:
    """A setting of Kafka's clients. `place`: it names a file of this machine."""
    return key(
        f"kafka.{name}",
        str,
        "",
        source="Kafka",
        doc=doc,
        aliases=(name, f"ksql.streams.{name}"),
        is_private=place or secret,
        is_secret=secret,
    )


BOOTSTRAP_SERVERS = _client_key(
    "bootstrap.servers",
    "host:port of some brokers, separated by commas. `--bootstrap-servers` wins over it.",
)
PROPERTIES_FILE = key(
    "kafka.properties.file",
    str,
    "",
    source="Kafka",
    doc="A file of client properties as Kafka's own tools take it (`--command-config`), with the "
    "settings below under Java's names, secrets included. Only its owner may read it.",
    is_private=True,
)
SECURITY_PROTOCOL = _client_key(
    "security.protocol",
    "PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL.",
)
SASL_MECHANISM = _client_key(
    "sasl.mechanism",
    "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Needed where the protocol has SASL.",
)
SASL_USERNAME = _client_key(
    "sasl.username",
    "Name of the user; or in `kafka.sasl.jaas.config`, as Java has it.",
)
SASL_PASSWORD = _client_key(
    "sasl.password",
    "Password of the user. Only from the environment, or from `kafka.properties.file`.",
    secret=True,
)
SASL_PASSWORD_FILE = _client_key(
    "sasl.password.file",
    "File with the password of the user. Only its owner may read it.",
    place=True,
)
SASL_JAAS_CONFIG = _client_key(
    "sasl.jaas.config",
    "User and password as Java has them: `org.apache.kafka.common.security.scram.ScramLoginModule "
    'required username="…" password="…";`. Only from the environment, or from '
    "`kafka.properties.file`.",
    secret=True,
)
SASL_JAAS_CONFIG_FILE = _client_key(
    "sasl.jaas.config.file",
    "File with what `kafka.sasl.jaas.config` would say. Only its owner may read it.",
    place=True,
)
TRUSTSTORE = _client_key(
    "ssl.truststore.location",
    "PEM file with the certificates of the authorities to trust; empty: those of the system.",
    place=True,
)
TRUSTSTORE_TYPE = _client_key("ssl.truststore.type", "PEM, the only type that is supported.")
KEYSTORE = _client_key(
    "ssl.keystore.location",
    "PEM file with the key of this client (PKCS #8) and its certificates, for brokers that ask for "
    "one. Only its owner may read it.",
    place=True,
)
KEYSTORE_TYPE = _client_key("ssl.keystore.type", "PEM, the only type that is supported.")
KEY_PASSWORD = _client_key(
    "ssl.key.password",
    "Password of the key in `kafka.ssl.keystore.location`, if it is encrypted. Only from the "
    "environment, or from `kafka.properties.file`.",
    secret=True,
)
KEY_PASSWORD_FILE = _client_key(
    "ssl.key.password.file",
    "File with that password. Only its owner may read it.",
    place=True,
)
HOST_NAME_CHECK = _client_key(
    "ssl.endpoint.identification.algorithm",
    "`https` (the default): a broker's certificate must name the host that was dialled. "
    "`none`: any certificate of a trusted authority will do.",
)

#: what Kafka's own file of properties may set, without `kafka.`
CLIENT_KEYS: dict[str, ConfigKey[str]] = {
    each.name.removeprefix("kafka."): each
    for each in (
        *(BOOTSTRAP_SERVERS, SECURITY_PROTOCOL, SASL_MECHANISM, SASL_USERNAME, SASL_PASSWORD),
        *(SASL_PASSWORD_FILE, SASL_JAAS_CONFIG, SASL_JAAS_CONFIG_FILE, TRUSTSTORE),
        *(TRUSTSTORE_TYPE, KEYSTORE, KEYSTORE_TYPE, KEY_PASSWORD, KEY_PASSWORD_FILE),
        HOST_NAME_CHECK,
    )
}

_PEM = (
    "keep certificates and keys as PEM, which has no such password: `keytool -exportcert -rfc` for "
    "a truststore, `openssl pkcs12 -nodes` for a keystore; see docs/operations/kafka.md"
)
_OTHER = "see docs/operations/kafka.md for the settings that reach every client"


def _refusals() -> dict[str, str]:
    refused: dict[str, str] = {}
    parts = ("", "producer.", "consumer.", "admin.", "main.consumer.", "restore.consumer.")
    for prefix in ("kafka.", "", *(f"ksql.streams.{part}" for part in parts)):
        for store in ("truststore", "keystore"):
            refused[f"{prefix}ssl.{store}.password"] = _PEM
        for name in ("ssl.", "sasl.", "security."):
            refused[prefix + name] = _OTHER
    return refused


REFUSED_PREFIXES.update(_refusals())

REPLICATION_FACTOR = key(
    "ksql.internal.topic.replicas",
    int,
    0,
    unit="count",
    low=0,
    high=15,
    source="ksqlDB",
    doc="Replicas in Kafka of each topic that the cluster makes. 0: 3, or as many as there are "
    "brokers where there are fewer, which the controller's log says.",
    aliases=("ksql.streams.replication.factor",),
)
MIN_INSYNC_REPLICAS = key(
    "ksql.internal.topic.min.insync.replicas",
    int,
    0,
    unit="count",
    low=0,
    high=15,
    source="ksqlDB",
    doc="min.insync.replicas of each topic that the cluster makes. A write is acknowledged once so "
    "many replicas have it; with fewer, Kafka refuses writes. 0: one less than its replicas, so "
    "that one broker may be lost without losing a row or a write.",
)
PROCESSING_LOG_RETENTION = key(
    "standpipe.processing.log.retention.ms",
    int,
    7 * DAY_MS,
    unit="ms",
    low=3_600_000,
    doc="retention.ms of the processing log. A topic with a longer one is left as it is. The "
    "retention of all other internal topics follows from what replicas need.",
)
relation(
    lambda config: not _exceeds(config[MIN_INSYNC_REPLICAS], config[REPLICATION_FACTOR]),
    why="ksql.internal.topic.min.insync.replicas is at most ksql.internal.topic.replicas",
)


def _exceeds(min_insync: Any, replicas: Any) -> bool:
    return bool(min_insync and replicas and min_insync > replicas)
