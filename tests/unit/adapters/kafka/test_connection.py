"""Settings of Kafka clients: what they mean for both libraries, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest
from cryptography.hazmat.primitives import serialization
from trustme import CA

from standpipe.adapters.kafka.connection import KafkaConnection, connect_by, connection_of
from standpipe.config import registry
from standpipe.errors import ConfigError

CA_ = CA()
ISSUED = CA_.issue_cert("client.example")
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "ada",
}


def private(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def made(
    settings: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> KafkaConnection:
    return connect_by(registry.load(settings), "kafka:9093", environment or {})


def pem(password: bytes | None = None, *, is_pkcs8: bool = True) -> str:
    """Key and certificate of a client in one file."""
    key = serialization.load_pem_private_key(ISSUED.private_key_pem.bytes(), None)
    forms = serialization.PrivateFormat
    text = key.private_bytes(
        serialization.Encoding.PEM,
        forms.PKCS8 if is_pkcs8 else forms.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )
    return (text + ISSUED.cert_chain_pems[0].bytes()).decode()


def test_nothing_said_is_a_kafka_without_security() -> None:
    assert made({}) == connection_of("kafka:9093")
    assert made({}).librdkafka() == {"bootstrap.servers": "kafka:9093"}
    assert made({}).spark() == {"kafka.bootstrap.servers": "kafka:9093"}


def test_the_servers_may_come_from_the_key() -> None:
    config = registry.load({"ksql.streams.bootstrap.servers": "a:1,b:2"})
    assert connect_by(config, None, {}).bootstrap_servers == "a:1,b:2"
    assert connect_by(config, "c:3", {}).bootstrap_servers == "c:3"


def test_user_and_password(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(CA_.cert_pem.bytes())
    said = {
        **SASL,
        "kafka.sasl.password.file": private(tmp_path / "password", 'hunter"2\\\n'),
        "kafka.ssl.truststore.location": str(ca),
    }
    found = made(said)
    assert found.principal == "User:ada"
    assert found.librdkafka() == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": 'hunter"2\\',
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(ca),
    }
    assert found.spark() == {
        "kafka.bootstrap.servers": "kafka:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        r'required username="ada" password="hunter\"2\\";',
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": ca.read_text(),
    }
    confluent_kafka.Producer(found.librdkafka())  # it takes all of them
    assert "hunter" not in repr(found)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_and_librdkafka_log_in_as_the_same_user(mechanism: str) -> None:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    line = f'org.apache.kafka.common.security.{module}LoginModule required username="u" password=p;'
    said = {**SASL, "kafka.sasl.mechanism": mechanism}
    del said["kafka.sasl.username"]
    found = made(said, {"KSQL_SASL_JAAS_CONFIG": line})
    assert (found.username, found.password) == ("u", "p")
    assert found.java()["sasl.jaas.config"] == line.replace("=p;", '="p";')


@pytest.mark.parametrize("password", [None, b"hunter2"])
def test_a_client_certificate(password: bytes | None, tmp_path: Path) -> None:
    place = private(tmp_path / "client.pem", pem(password))
    said = {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": place}
    found = made(said, {"KAFKA_SSL_KEY_PASSWORD": "hunter2"} if password else {})
    java = found.java()
    assert java["ssl.keystore.type"] == "PEM"
    assert java["ssl.keystore.key"].endswith("PRIVATE KEY-----")
    assert java["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----")
    assert java.get("ssl.key.password") == ("hunter2" if password else None)
    confluent_kafka.Producer(found.librdkafka())  # it reads the files
    assert "PRIVATE" not in repr(found)
    assert "hunter2" not in repr(found)


def test_the_file_of_properties_that_kafkas_tools_take(tmp_path: Path) -> None:
    text = """
        # client.properties
        security.protocol=SASL_PLAINTEXT
        sasl.mechanism : SCRAM-SHA-256
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
            username="ada" password="a=b\\u0063;";
    """
    place = private(tmp_path / "client.properties", text)
    found = made({"kafka.properties.file": place})
    assert (found.username, found.password) == ("ada", "a=bc;")
    assert found.security_protocol == "SASL_PLAINTEXT"
    with pytest.raises(ConfigError, match=r"contradict each other about kafka\.sasl\.mechanism"):
        made({"kafka.properties.file": place, "sasl.mechanism": "PLAIN"})


@pytest.mark.parametrize(("said", "checks"), [("https", True), ("none", False), ("", False)])
def test_the_check_of_host_names(said: str, checks: bool) -> None:
    settings = {"kafka.security.protocol": "SSL"}
    found = made({**settings, "kafka.ssl.endpoint.identification.algorithm": said})
    assert found.checks_host_names is checks
    assert found.java()["ssl.endpoint.identification.algorithm"] == ("https" if checks else "")
    assert made(settings).checks_host_names


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'


@pytest.mark.parametrize(
    ("settings", "environment", "message", "next_step"),
    [
        ({"kafka.security.protocol": "TLS"}, {}, "protocol = TLS", "PLAINTEXT or SSL"),
        ({"kafka.sasl.mechanism": "PLAIN"}, {}, "no effect with", "to SASL_SSL"),
        ({}, {"KAFKA_SASL_PASSWORD": "hunter2"}, "kafka.sasl.password is set", "to SASL_SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, {}, "needs kafka.sasl.mechanism", "PLAIN, SC"),
        ({**SASL, "kafka.sasl.mechanism": "GSSAPI"}, {}, "GSSAPI is not supp", "PLAIN or SCRAM"),
        ({**SASL, "kafka.sasl.mechanism": "OAUTHBEARER"}, {}, "OAUTHBEARER is", "PLAIN or SCRAM"),
        (SASL, {}, "needs kafka.sasl.password", "kafka.sasl.password.file"),
        (
            {**SASL, "kafka.security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": "x"},
            {"KAFKA_SASL_PASSWORD": "p"},
            "kafka.ssl.truststore.location is set, but has no effect",
            "to SASL_SSL",
        ),
        (SASL, {"KAFKA_SASL_JAAS_CONFIG": JAAS}, "both say who", "keep one"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"},
            {"KAFKA_SASL_JAAS_CONFIG": JAAS},
            "login module of another mechanism",
            "ScramLoginModule",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            {"KAFKA_SASL_JAAS_CONFIG": JAAS.replace(";", "")},
            "is not one login module",
            "MODULE required",
        ),
        (
            {**SASL, "kafka.sasl.password.file": "/f"},
            {"KAFKA_SASL_PASSWORD": "p"},
            "both kafka.sasl.password and",
            "keep one",
        ),
        ({**SASL, "sasl.password.file": "/no"}, {}, "cannot read kafka.sasl.password.file", "name"),
        (
            {"kafka.security.protocol": "SSL", "ssl.truststore.type": "JKS"},
            {},
            "ssl.truststore.type = JKS",
            "use PEM",
        ),
        (
            {"kafka.security.protocol": "SSL", "ssl.truststore.location": "/no"},
            {},
            "cannot read kafka.ssl.truststore.location",
            "keytool",
        ),
        (
            {"kafka.security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"},
            {},
            "= ldap is not supported",
            "https",
        ),
        (
            {"kafka.security.protocol": "SSL"},
            {"KAFKA_SSL_KEY_PASSWORD": "p"},
            "without kafka.ssl.keystore.location",
            "name the key",
        ),
    ],
)
def test_refused(
    settings: Mapping[str, str], environment: Mapping[str, str], message: str, next_step: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(settings, environment)
    assert message in caught.value.message
    assert next_step in caught.value.next_step
    assert "hunter2" not in str(caught.value)


def test_a_key_that_only_one_library_could_read_is_refused(tmp_path: Path) -> None:
    place = private(tmp_path / "client.pem", pem(is_pkcs8=False))
    said = {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": place}
    with pytest.raises(ConfigError, match="is not PKCS #8") as caught:
        made(said)
    assert "openssl pkcs8" in caught.value.next_step


def test_a_password_and_an_encrypted_key_go_together(tmp_path: Path) -> None:
    said = {"kafka.security.protocol": "SSL"}
    for password, environment in ((None, {"KAFKA_SSL_KEY_PASSWORD": "p"}), (b"p", {})):
        place = private(tmp_path / "client.pem", pem(password))
        with pytest.raises(ConfigError, match="encrypted"):
            made({**said, "kafka.ssl.keystore.location": place}, environment)


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "password"
    place.write_text("hunter2")
    place.chmod(0o644)
    with pytest.raises(ConfigError, match=r"holds kafka\.sasl\.password\.file, and others"):
        made({**SASL, "kafka.sasl.password.file": str(place)})


def test_an_unknown_property_in_the_file_is_refused(tmp_path: Path) -> None:
    place = private(tmp_path / "client.properties", "ssl.protocol=TLSv1.3\n")
    with pytest.raises(ConfigError, match=r"sets ssl\.protocol"):
        made({"kafka.properties.file": place})
