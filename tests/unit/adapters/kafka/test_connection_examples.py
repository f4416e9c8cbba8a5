"""The examples of docs/operations/kafka.md are settings that work."""

from __future__ import annotations

import re
from pathlib import Path

import confluent_kafka
import pytest
from tests.unit.adapters.kafka.test_connection import CA_, pem, private

from standpipe.adapters.kafka.connection import KafkaConnection, connect_by
from standpipe.config import registry

PAGE = Path(__file__).parents[4] / "docs/operations/kafka.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"\(example\):\n\n```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def connected(example: str, folder: Path) -> KafkaConnection:
    (folder / "ca.pem").write_bytes(CA_.cert_pem.bytes())
    private(folder / "password", "its password")
    private(folder / "client.pem", pem())
    private(folder / "client.properties", blocks("properties")[0])
    settings = folder / "settings.toml"
    settings.write_text(example.replace("FOLDER", str(folder)))
    return connect_by(registry.load(registry.file_layer(settings)), None, {})


@pytest.mark.parametrize("example", blocks("toml"))
def test_each_example_is_taken_by_both_libraries(example: str, tmp_path: Path) -> None:
    found = connected(example, tmp_path)
    assert found.bootstrap_servers.startswith("kafka-1:909")
    confluent_kafka.Producer({**found.librdkafka(), "log_level": 0})
    assert found.java()["security.protocol"] == found.security_protocol


def test_a_login_means_the_same_in_both_forms(tmp_path: Path) -> None:
    separate, _, together = (connected(example, tmp_path) for example in blocks("toml"))
    assert (separate.username, separate.password) == (together.username, together.password)
    assert separate.principal == "User:standpipe-node"
