"""How every client reaches Kafka: parsed once from the settings, translated once for each library.

    settings, environment, files ─► KafkaConnection ─► librdkafka's options
                                                    └► options of a Java client, Spark's connector

It refuses settings that contradict each other, or that one of the two libraries does not support,
before any client is created. Secrets are only in this object, whose `repr` omits them, and in the
options that it returns for a client. Files are read when the process starts.

Not here: the keys (`config/kafka.py`), the form of the files (`client_files.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from standpipe.adapters.files.private import read_private
from standpipe.adapters.kafka.client_files import Jaas, KeyStore, parse_jaas, parse_properties
from standpipe.config import kafka as keys
from standpipe.config import registry
from standpipe.config.registry import ConfigKey
from standpipe.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: mechanism -> the login module of Java's clients
MECHANISMS: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SASL_KEYS: Final = (
    *(keys.SASL_MECHANISM, keys.SASL_USERNAME, keys.SASL_PASSWORD, keys.SASL_PASSWORD_FILE),
    *(keys.SASL_JAAS_CONFIG, keys.SASL_JAAS_CONFIG_FILE),
)
_SSL_KEYS: Final = (
    *(keys.TRUSTSTORE, keys.TRUSTSTORE_TYPE, keys.KEYSTORE, keys.KEYSTORE_TYPE),
    *(keys.KEY_PASSWORD, keys.KEY_PASSWORD_FILE, keys.HOST_NAME_CHECK),
)


@dataclass(frozen=True, kw_only=True)
class KafkaConnection:
    """Where Kafka is and how to connect to it. `bootstrap_servers` empty: there is no Kafka."""

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    #: PEM file of the authorities to trust; None: those of the system
    truststore: Path | None = None
    truststore_pem: str = field(default="", repr=False)
    keystore: KeyStore | None = None
    checks_host_names: bool = True

    @property
    def uses_sasl(self) -> bool:
        """Whether a user name and a password are sent."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_ssl(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def principal(self) -> str:
        """Who we are to Kafka, as its ACLs name it."""
        if self.uses_sasl:
            return f"User:{self.username}"
        if self.keystore is not None:
            return f"the client of the certificate in {self.keystore.location}"
        return "User:ANONYMOUS"

    def librdkafka(self) -> dict[str, object]:
        """Options of a client of librdkafka."""
        options: dict[str, object] = {"bootstrap.servers": self.bootstrap_servers}
        if self.security_protocol != "PLAINTEXT":
            options["security.protocol"] = self.security_protocol
        if self.uses_sasl:
            options["sasl.mechanism"] = self.sasl_mechanism
            options["sasl.username"] = self.username
            options["sasl.password"] = self.password
        if self.uses_ssl:
            checks = "https" if self.checks_host_names else "none"
            options["ssl.endpoint.identification.algorithm"] = checks
            if self.truststore is not None:
                options["ssl.ca.location"] = str(self.truststore)
            if self.keystore is not None:  # one file may hold both
                options["ssl.certificate.location"] = str(self.keystore.location)
                options["ssl.key.location"] = str(self.keystore.location)
                if self.keystore.password:
                    options["ssl.key.password"] = self.keystore.password
        return options

    def java(self) -> dict[str, str]:
        """Options of a Java client. Certificates and keys are texts, not files: Spark's executors
        may run on machines that have no such files."""
        options = {"bootstrap.servers": self.bootstrap_servers}
        if self.security_protocol != "PLAINTEXT":
            options["security.protocol"] = self.security_protocol
        if self.uses_sasl:
            options["sasl.mechanism"] = self.sasl_mechanism
            module = MECHANISMS[self.sasl_mechanism]
            options["sasl.jaas.config"] = Jaas(module, self.username, self.password).text()
        if self.uses_ssl:
            checks = "https" if self.checks_host_names else ""
            options["ssl.endpoint.identification.algorithm"] = checks
            if self.truststore is not None:
                options["ssl.truststore.type"] = "PEM"
                options["ssl.truststore.certificates"] = self.truststore_pem
            if self.keystore is not None:
                options["ssl.keystore.type"] = "PEM"
                options["ssl.keystore.certificate.chain"] = self.keystore.certificates
                options["ssl.keystore.key"] = self.keystore.key
                if self.keystore.password:
                    options["ssl.key.password"] = self.keystore.password
        return options

    def spark(self) -> dict[str, str]:
        """Options of Spark's connector."""
        return {f"kafka.{name}": value for name, value in self.java().items()}


#: What a client is made from. A text: the bootstrap servers of a Kafka without security.
Kafka = KafkaConnection | str


def connection_of(kafka: Kafka) -> KafkaConnection:
    """The connection, also of a text."""
    return KafkaConnection(bootstrap_servers=kafka) if isinstance(kafka, str) else kafka


def connect_by(
    config: registry.Config, bootstrap_servers: str | None, environment: Mapping[str, str]
) -> KafkaConnection:
    """What the settings say together. `bootstrap_servers` None: the key says it.

    Raises ConfigError for what is missing, contradicts something else, or is not supported.
    """
    said = _Given.of(config, environment)
    protocol = said.one_of(keys.SECURITY_PROTOCOL, PROTOCOLS) or "PLAINTEXT"
    is_sasl, is_ssl = protocol.startswith("SASL_"), protocol.endswith("SSL")
    said.refuse_unless(is_sasl, _SASL_KEYS, protocol, "SASL_SSL")
    said.refuse_unless(is_ssl, _SSL_KEYS, protocol, "SASL_SSL" if is_sasl else "SSL")
    mechanism, username, password = _login(said, protocol) if is_sasl else ("", "", "")
    truststore = said.text(keys.TRUSTSTORE)
    for type_key in (keys.TRUSTSTORE_TYPE, keys.KEYSTORE_TYPE):
        said.one_of(type_key, ("PEM",))
    asked = bootstrap_servers
    return KafkaConnection(
        bootstrap_servers=said.text(keys.BOOTSTRAP_SERVERS) if asked is None else asked,
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        username=username,
        password=password,
        truststore=Path(truststore) if truststore else None,
        truststore_pem=_certificates(Path(truststore)) if truststore else "",
        keystore=_keystore(said),
        checks_host_names=_checks_host_names(said),
    )


@dataclass(frozen=True)
class _Given:
    """What is said of the connection, wherever it is said: name of the key -> value."""

    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, config: registry.Config, environment: Mapping[str, str]) -> _Given:
        of_client = {key.name for key in keys.CLIENT_KEYS.values()}
        given = {name: str(v) for name, v in config.values.items() if name in of_client}
        given |= registry.secrets_of(environment)
        if place := config[keys.PROPERTIES_FILE]:
            for name, value in _of_file(Path(place)).items():
                if given.setdefault(name, value) != value:
                    raise ConfigError(
                        f"{place} and another setting contradict each other about {name}",
                        next_step=f"set {name} in one place only",
                    )
        return cls(given)

    def has(self, key: ConfigKey[str]) -> bool:
        return key.name in self.values

    def text(self, key: ConfigKey[str]) -> str:
        return self.values.get(key.name, "")

    def one_of(self, key: ConfigKey[str], allowed: tuple[str, ...]) -> str:
        value = self.text(key).upper()
        if value and value not in allowed:
            raise ConfigError(
                f"{key.name} = {self.text(key)} is not supported",
                next_step=f"use {' or '.join(allowed)}",
            )
        return value

    def secret(self, key: ConfigKey[str], file_key: ConfigKey[str]) -> str:
        """A secret: its value, or the content of its file."""
        place, value = self.text(file_key), self.text(key)
        if place and value:
            raise ConfigError(
                f"both {key.name} and {file_key.name} are set", next_step="keep one of them"
            )
        return read_private(Path(place), file_key.name) if place else value

    def refuse_unless(
        self, applies: bool, of: tuple[ConfigKey[str], ...], protocol: str, better: str
    ) -> None:
        """Refuse settings without effect, which an operator would rely on."""
        set_ = [key.name for key in of if self.has(key)]
        if set_ and not applies:
            raise ConfigError(
                f"{set_[0]} is set, but has no effect with {keys.SECURITY_PROTOCOL.name} = "
                f"{protocol}",
                next_step=f"set {keys.SECURITY_PROTOCOL.name} to {better}, or remove {set_[0]}",
            )


def _of_file(path: Path) -> dict[str, str]:
    """Kafka's own file of client properties, under the names of our keys."""
    found: dict[str, str] = {}
    for name, value in parse_properties(read_private(path, keys.PROPERTIES_FILE.name)).items():
        known = keys.CLIENT_KEYS.get(name)
        if known is None:
            raise ConfigError(
                f"{path} sets {name}, which would not reach every client",
                next_step="remove it; docs/operations/kafka.md lists what is supported",
            )
        found[known.name] = value
    return found


def _login(said: _Given, protocol: str) -> tuple[str, str, str]:
    """Mechanism, user and password."""
    mechanism = said.one_of(keys.SASL_MECHANISM, tuple(MECHANISMS))
    if not mechanism:
        raise ConfigError(
            f"{keys.SECURITY_PROTOCOL.name} = {protocol} needs {keys.SASL_MECHANISM.name}",
            next_step=f"set it to {', '.join(MECHANISMS)}, whichever the brokers offer",
        )
    text = said.secret(keys.SASL_JAAS_CONFIG, keys.SASL_JAAS_CONFIG_FILE)
    password = said.secret(keys.SASL_PASSWORD, keys.SASL_PASSWORD_FILE)
    username = said.text(keys.SASL_USERNAME)
    if text:
        if username or password:
            raise ConfigError(
                f"{keys.SASL_JAAS_CONFIG.name} and {keys.SASL_USERNAME.name} with its password "
                "both say who to log in as",
                next_step="keep one of them",
            )
        jaas = parse_jaas(text)
        if jaas.module != MECHANISMS[mechanism]:
            raise ConfigError(
                f"{keys.SASL_JAAS_CONFIG.name} has the login module of another mechanism than "
                f"{keys.SASL_MECHANISM.name} = {mechanism}",
                next_step=f"use {MECHANISMS[mechanism]}, or the mechanism of that module",
            )
        return mechanism, jaas.username, jaas.password
    for key, value in ((keys.SASL_USERNAME, username), (keys.SASL_PASSWORD, password)):
        if not value:
            raise ConfigError(
                f"{keys.SASL_MECHANISM.name} = {mechanism} needs {key.name}",
                next_step=f"set {keys.SASL_USERNAME.name} and {keys.SASL_PASSWORD_FILE.name}, "
                f"or {keys.PROPERTIES_FILE.name}",
            )
    return mechanism, username, password


def _keystore(said: _Given) -> KeyStore | None:
    place = said.text(keys.KEYSTORE)
    password = said.secret(keys.KEY_PASSWORD, keys.KEY_PASSWORD_FILE)
    if not place:
        if password:
            raise ConfigError(
                f"{keys.KEY_PASSWORD.name} is set without {keys.KEYSTORE.name}",
                next_step=f"name the key's file with {keys.KEYSTORE.name}",
            )
        return None
    path = Path(place)
    return KeyStore.of(path, read_private(path, keys.KEYSTORE.name), password)


def _checks_host_names(said: _Given) -> bool:
    if not said.has(keys.HOST_NAME_CHECK):
        return True
    value = said.text(keys.HOST_NAME_CHECK).lower()  # Java's word for `none` is an empty text
    if value not in ("https", "none", ""):
        raise ConfigError(
            f"{keys.HOST_NAME_CHECK.name} = {value} is not supported",
            next_step="use https, or none to trust any host with a certificate",
        )
    return value == "https"


def _certificates(path: Path) -> str:
    """The text of a PEM file of certificates. Raises ConfigError."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {keys.TRUSTSTORE.name}: {error}",
            next_step="name a PEM file; `keytool -exportcert -rfc` makes one from a JKS truststore",
        ) from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(
            f"{path} ({keys.TRUSTSTORE.name}) has no certificate in PEM",
            next_step="`keytool -exportcert -rfc` makes a PEM file from a JKS truststore",
        )
    return text
