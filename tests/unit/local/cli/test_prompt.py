"""Scripts at the prompt: which statements are sent, in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from standpipe.errors import SetupError
from standpipe.local.cli.prompt import SCRIPTS_MAX, run_text
from standpipe.local.client.rest_client import NodesClient


class Sent:
    """A client that keeps what it is to send. Its nodes answer nothing."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.properties: list[dict[str, str]] = []

    def execute(self, text: str, properties: dict[str, str], _variables: object) -> list[Any]:
        self.statements.append(text)
        self.properties.append(dict(properties))
        return []

    def get(self, _path: str) -> None:
        """Every property is valid."""


def sent(text: str) -> Sent:
    client = Sent()
    run_text(cast(NodesClient, client), Console(quiet=True), text, as_json=False)
    return client


def test_a_script_runs_in_the_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sql").write_text("SET 'auto.offset.reset'='earliest'; RUN SCRIPT 'b.sql'; SHOW TABLES;")
    Path("b.sql").write_text("\ufeffSHOW TYPES")
    client = sent("RUN SCRIPT 'a.sql'; SHOW STREAMS;")
    assert client.statements[1:] == ["SHOW TYPES;", "SHOW TABLES;", "SHOW STREAMS;"]
    assert client.properties[-1] == {"auto.offset.reset": "earliest"}


def test_a_script_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match=r"RUN SCRIPT cannot read none\.sql"):
        sent("RUN SCRIPT 'none.sql';")


def test_a_script_that_runs_itself_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sql").write_text("SHOW TABLES; RUN SCRIPT 'a.sql';")
    with pytest.raises(SetupError, match=f"more than {SCRIPTS_MAX} scripts"):
        sent("RUN SCRIPT 'a.sql';")
