"""Whether the JVM has ended: what a driver's death is held against depends on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from standpipe.adapters.kafka.client_files import KeyStore
from standpipe.adapters.kafka.connection import KafkaConnection
from standpipe.pipeline.run import session


@pytest.mark.parametrize(
    ("code", "ends", "why"),
    [
        ("raise SystemExit(3)", True, "it ran out of memory"),
        ("import time; time.sleep(60)", False, "it lives: something else has failed"),
    ],
)
def test_a_jvm_that_ends(monkeypatch: pytest.MonkeyPatch, code: str, ends: bool, why: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        gateway = SimpleNamespace(proc=process)
        monkeypatch.setattr(session.SparkContext, "_gateway", gateway)
        assert session.jvm_ends_within(30.0 if ends else 0.05) is ends, why
        assert session.jvm_is_alive() is not ends
        session.kill_jvm()


def test_a_jvm_that_was_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    assert not session.jvm_ends_within(0.0)


def test_spark_hides_every_option_with_a_secret() -> None:
    """Its connector logs the options of each producer and consumer at DEBUG."""
    connection = KafkaConnection(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        username="ada",
        password="hunter2",
        keystore=KeyStore(Path("/f"), "certificates", "key hunter2", "hunter2"),
    )
    with_secret = {name for name, value in connection.spark().items() if "hunter2" in value}
    assert len(with_secret) == 3, "they are found"
    for setting in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        hides = re.compile(session._SETTINGS[setting])
        assert {name for name in with_secret if not hides.search(name)} == set(), setting
