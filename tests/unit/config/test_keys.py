"""Keys, layers, bounds and relations."""

from pathlib import Path

import pytest

from standpipe.config import keys, registry
from standpipe.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.standby.replicas", "2", 2),
        ("num.standby.replicas", 2, 2),
        ("ksql.query.pull.enable.standby.reads", "FALSE", False),
        ("ksql.query.pull.enable.standby.reads", True, True),
        ("ksql.service.id", "x_", "x_"),
    ],
)
def test_value(name: str, text: object, value: object) -> None:
    assert registry.load({name: text}).values[name] == value


@pytest.mark.parametrize(
    ("layer", "message", "next_step"),
    [
        ({"num.standby.replica": 1}, "unknown key", "did you mean num.standby.replicas?"),
        ({"x": 1}, "unknown key x", "see docs/config.md"),
        ({"num.standby.replicas": 9}, "out of bounds", "from 0 to 8"),
        ({"num.standby.replicas": -1}, "out of bounds", "from 0 to 8"),
        ({"num.standby.replicas": "two"}, "is not a valid int", "give a int"),
        ({"ksql.query.pull.enable.standby.reads": "yes"}, "is not a valid bool", "give a bool"),
    ],
)
def test_refused(layer: dict[str, object], message: str, next_step: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        registry.load(layer)
    assert next_step in caught.value.next_step


def test_later_layers_win() -> None:
    loaded = registry.load({keys.STANDBYS.name: 0}, {keys.STANDBYS.name: "3"})
    assert loaded[keys.STANDBYS] == 3
    assert registry.load()[keys.STANDBYS] == keys.STANDBYS.default


def test_foreign_keys_are_accepted_with_the_reason() -> None:
    loaded = registry.load({"ksql.streams.num.stream.threads": 4})
    assert loaded.warnings == (
        "ksql.streams.num.stream.threads is ignored: Spark runs the queries, not Kafka Streams",
    )


def test_both_spellings_of_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('"ksql.service.id" = "a_"\n[num.standby]\nreplicas = 2\n')
    assert registry.file_layer(path) == {"ksql.service.id": "a_", "num.standby.replicas": 2}
    path.write_text("= 1")
    with pytest.raises(ConfigError, match="cannot read"):
        registry.file_layer(path)


def test_environment_names() -> None:
    assert registry.environment_layer({"KSQL_SERVICE_ID": "e_", "PATH": "x"}) == {
        "ksql.service.id": "e_"
    }


def test_relations_are_checked_on_every_load() -> None:
    """Any relation that is declared holds for the defaults, and breaks loudly."""
    registry.load()
    broken = registry.KeyConstraint(lambda _: False, "one excludes the other")
    registry.RELATIONS.append(broken)
    try:
        with pytest.raises(ConfigError, match="one excludes the other"):
            registry.load()
    finally:
        registry.RELATIONS.remove(broken)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ({"ksql.heartbeat.window.ms": 300}, "cannot contain the misses"),
        ({"standpipe.heartbeat.received.threshold": 20}, "ever counts as alive"),
        ({"standpipe.query.pull.routing.policy": "random"}, "one of active-first"),
    ],
)
def test_relations(layer: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match="contradict each other") as caught:
        registry.load(layer)
    assert why in caught.value.message
    registry.load({"ksql.heartbeat.window.ms": 301})


def test_klip_12_spells_the_whole_time_of_a_read_in_upper_case() -> None:
    assert keys.ROUTING_TIMEOUT.environment_name == "KSQL_QUERY_PULL_ROUTING_TIMEOUT_MS"
