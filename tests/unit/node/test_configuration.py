"""`node.json` and the identity of a data directory."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from standpipe.errors import ConfigError, DataDirectoryRefused
from standpipe.model import NodeId
from standpipe.node import configuration
from standpipe.node.configuration import FORMAT_VERSION, NodeConfig


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    secret = tmp_path / "secret"
    secret.write_text("swordfish\n")
    return NodeConfig(
        node_id=NodeId("node-1"),
        data_dir=str(tmp_path / "data"),
        bootstrap_servers="",
        public="0.0.0.0:8088",
        internal="0.0.0.0:8089",
        peer="0.0.0.0:8091",
        peer_advertised="one:8091",
        secret_file=str(secret),
        tags={"rack": "r1"},
    )


def test_a_node_file_is_read_as_it_was_written(config: NodeConfig, tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.json"
    configuration.save(path, config)
    assert configuration.load(path) == config


@pytest.mark.parametrize("text", [None, "", "{", '{"node_id": 3}', "[]"])
def test_a_node_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "node.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        configuration.load(path)


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_secret_that_cannot_be_read_is_named(config: NodeConfig, text: str | None) -> None:
    assert config.secret() == "swordfish"
    path = Path(config.secret_file)
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        config.secret()


def test_a_directory_keeps_its_identity(config: NodeConfig) -> None:
    first = configuration.claim(config)
    assert first.node_id == "node-1"
    assert len(first.incarnation) == 32
    assert configuration.claim(config) == first
    for path in (config.paths.log, config.paths.status, config.paths.state, config.paths.logs):
        assert path.is_dir()


def test_two_directories_are_two_incarnations(config: NodeConfig, tmp_path: Path) -> None:
    other = msgspec.structs.replace(config, data_dir=str(tmp_path / "other"))
    assert configuration.claim(config).incarnation != configuration.claim(other).incarnation


@pytest.mark.parametrize(
    ("meta", "refusal"),
    [
        ({"node_id": "node-2", "incarnation": "x"}, "belongs to node node-2, not to node-1"),
        (
            {"node_id": "node-1", "incarnation": "x", "format_version": FORMAT_VERSION + 1},
            "has format version 2",
        ),
        ({"node_id": "node-1"}, "cannot read"),
        (None, "holds a log but no meta.json"),
    ],
)
def test_a_directory_of_somebody_else_is_refused(
    config: NodeConfig, meta: dict[str, object] | None, refusal: str
) -> None:
    config.paths.log.mkdir(parents=True)
    (config.paths.log / "quorum.log").touch()
    if meta is not None:
        config.paths.meta.write_bytes(msgspec.json.encode(meta))
    with pytest.raises(DataDirectoryRefused, match=refusal):
        configuration.claim(config)


def test_a_directory_joins_one_cluster_for_ever(config: NodeConfig) -> None:
    identity = configuration.join(config, configuration.claim(config), "c1")
    assert configuration.claim(config) == identity
    assert configuration.join(config, identity, "c1") == identity
    with pytest.raises(DataDirectoryRefused, match="belongs to cluster c1"):
        configuration.join(config, identity, "c2")


def test_a_log_that_begins_anew_is_another_replicas(config: NodeConfig) -> None:
    identity = configuration.note_vote(config, configuration.claim(config))
    assert configuration.claim(config).has_voted
    renewed = configuration.renew(config, identity)
    assert configuration.claim(config) == renewed
    assert renewed.incarnation != identity.incarnation
    assert not renewed.has_voted, "the new one may join once"


@pytest.mark.parametrize(
    ("voters", "founders", "why"),
    [
        ((), ("node-1",), "alone"),
        (("b", "node-1"), ("b", "node-1"), "as it says"),
    ],
)
def test_who_votes_first(
    config: NodeConfig, voters: tuple[str, ...], founders: tuple[str, ...], why: str
) -> None:
    written = msgspec.structs.replace(config, voters=voters)
    assert written.founders == founders, why


def test_others_dial_what_is_advertised(config: NodeConfig) -> None:
    identity = configuration.claim(config)
    info = configuration.member(config, identity)
    assert (info.public, info.peer) == ("0.0.0.0:8088", "one:8091")
    assert (info.incarnation, info.tags) == (identity.incarnation, {"rack": "r1"})


def test_a_secret_is_read_once_and_never_written(config: NodeConfig, tmp_path: Path) -> None:
    """A child that starts again must not fail because the file has moved since."""
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text("hunter2")
    config = msgspec.structs.replace(
        config,
        config={
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "ada",
            "kafka.sasl.password.file": str(secret),
        },
    )
    configuration.save(tmp_path / "node.json", config)
    assert config.kafka().password == "hunter2"
    secret.unlink()
    assert configuration.load(tmp_path / "node.json").kafka().password == "hunter2"
    assert "hunter2" not in (tmp_path / "node.json").read_text()
