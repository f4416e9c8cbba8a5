"""Scripts at the prompt: which statements are sent, in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from standpipe.client.core.attempts import AnswerLost
from standpipe.errors import SetupError
from standpipe.local.cli.prompt import SCRIPTS_MAX, run_text
from standpipe.local.client.rest_client import NodesClient


class Sent:
    """A client that keeps what it is to send. Its nodes answer nothing; the answer to the statement
    `lost` does not come."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.lost = ""
        self.properties: list[dict[str, str]] = []

    def execute(self, text: str, properties: dict[str, str], _variables: object) -> list[Any]:
        self.statements.append(text)
        self.properties.append(dict(properties))
        if text == self.lost:
            raise AnswerLost("n:1 took the statement")
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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("DROP TABLE T;", ""),
        ("SHOW TABLES; DROP TABLE T; SHOW TABLES", "\n  statement 2 of 3: DROP TABLE T;"),
        ("RUN SCRIPT 'a.sql';", "\n  statement 1 of 1 in a.sql: DROP TABLE T;"),
    ],
)
def test_a_lost_answer_says_to_which_statement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sql").write_text("DROP TABLE T;")
    client = Sent()
    client.lost = "DROP TABLE T;"
    with pytest.raises(AnswerLost) as caught:
        run_text(cast(NodesClient, client), Console(quiet=True), text, as_json=False)
    assert caught.value.message == f"n:1 took the statement{place}"
    assert client.statements[-1] == client.lost
