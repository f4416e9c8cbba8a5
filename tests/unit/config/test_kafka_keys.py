"""The keys of Kafka's clients: their other names, and what is refused before a client is made."""

import pytest

from standpipe.config import kafka, registry
from standpipe.errors import ConfigError


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.protocol",
        "security.protocol",
        "ksql.streams.security.protocol",
    ],
)
def test_all_names_of_a_key_mean_the_same(name: str) -> None:
    assert registry.load({name: "SSL"})[kafka.SECURITY_PROTOCOL] == "SSL"


def test_two_names_of_a_key_must_agree() -> None:
    same = {"kafka.sasl.mechanism": "PLAIN", "ksql.streams.sasl.mechanism": "PLAIN"}
    assert registry.load(same)[kafka.SASL_MECHANISM] == "PLAIN"
    with pytest.raises(ConfigError, match=r"ksql\.streams\.sasl\.mechanism are one key") as caught:
        registry.load(same | {"ksql.streams.sasl.mechanism": "SCRAM-SHA-256"})
    assert caught.value.next_step == "set only kafka.sasl.mechanism"


def test_a_stronger_layer_wins_under_another_name() -> None:
    loaded = registry.load({"security.protocol": "SSL"}, {"kafka.security.protocol": "PLAINTEXT"})
    assert loaded[kafka.SECURITY_PROTOCOL] == "PLAINTEXT"


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("kafka.sasl.password", "kafka.sasl.password.file"),
        ("sasl.jaas.config", "kafka.sasl.jaas.config.file"),
        ("ksql.streams.ssl.key.password", "KAFKA_SSL_KEY_PASSWORD"),
    ],
)
def test_a_secret_is_no_value_of_a_configuration(name: str, next_step: str) -> None:
    with pytest.raises(ConfigError, match="is a secret") as caught:
        registry.load({name: "hunter2"})
    assert next_step in caught.value.next_step
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("kafka.ssl.truststore.password", "keytool"),
        ("ssl.keystore.password", "openssl pkcs12"),
        ("ksql.streams.producer.sasl.kerberos.service.name", "docs/operations/kafka.md"),
        ("ksql.streams.security.providers", "docs/operations/kafka.md"),
    ],
)
def test_a_setting_that_no_client_would_follow_is_refused(name: str, next_step: str) -> None:
    with pytest.raises(ConfigError, match="is not supported") as caught:
        registry.load({name: "x"})
    assert name in caught.value.message
    assert next_step in caught.value.next_step


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown key kafka\.sasl_mechanism") as caught:
        registry.load({"kafka.sasl_mechanism": "PLAIN"})
    assert caught.value.next_step == "did you mean kafka.sasl.mechanism?"


def test_the_environment() -> None:
    environment = {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KSQL_SASL_MECHANISM": "PLAIN",
        "KSQL_STREAMS_SASL_USERNAME": "ada",
        "KAFKA_SASL_PASSWORD": "hunter2",
        "SSL_TRUSTSTORE_LOCATION": "/of/another/program",
    }
    assert registry.environment_layer(environment) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "ada",
    }
    assert registry.secrets_of(environment) == {"kafka.sasl.password": "hunter2"}
    assert {"KAFKA_SASL_PASSWORD", "KSQL_SASL_JAAS_CONFIG"} <= {*registry.secret_variables()}


@pytest.mark.parametrize(
    ("replicas", "min_insync", "fits", "why"),
    [
        (3, 3, True, "no broker may be lost, which some want"),
        (2, 3, False, "no write could ever be acknowledged"),
        (0, 3, True, "as many replicas as there are brokers: known later"),
    ],
)
def test_no_more_replicas_in_sync_than_there_are(
    replicas: int, min_insync: int, fits: bool, why: str
) -> None:
    layer = {
        kafka.REPLICATION_FACTOR.name: replicas,
        kafka.MIN_INSYNC_REPLICAS.name: min_insync,
    }
    if fits:
        registry.load(layer)
        return
    with pytest.raises(ConfigError, match="at most"):
        registry.load(layer)
    assert why
