"""The prompt: which statements of a script are sent, in which order; and what it completes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from standpipe.client.core.attempts import AnswerLost
from standpipe.errors import SetupError, StatementError
from standpipe.local.cli.prompt import SCRIPTS_MAX, CatalogNames, run_text
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


class Catalog:
    """A node with one table of each name. It cannot describe those in `failures`."""

    def __init__(self, *names: str, failures: dict[str, Exception] | None = None) -> None:
        self.names = names
        self.failures = failures or {}
        self.described: list[str] = []

    def execute(self, text: str) -> list[Any]:
        if text.startswith("SHOW"):
            return [{"streams": []}, {"tables": [{"name": name} for name in self.names]}]
        name = text.removeprefix("DESCRIBE ").removesuffix(";")
        self.described.append(name)
        if name in self.failures:
            raise self.failures[name]
        return [{"sourceDescription": {"fields": [{"name": "ID"}, {"name": "of " + name[0]}]}}]

    def completed(self) -> list[str]:
        return CatalogNames(cast(NodesClient, self))()


def test_a_name_with_quotes_is_completed_with_them() -> None:
    catalog = Catalog("ORDERS", "scores")
    assert catalog.completed() == ["ORDERS", "`scores`", "ID", "`of O`", "`of ```"]
    assert catalog.described == ["ORDERS", "`scores`"]


def test_a_source_that_cannot_be_described_costs_only_its_own_columns() -> None:
    catalog = Catalog("A", "B", "C", failures={"A": StatementError("A does not exist")})
    assert catalog.completed() == ["A", "B", "C", "ID", "`of B`", "`of C`"]


def test_columns_are_not_asked_for_once_no_node_answers() -> None:
    catalog = Catalog("A", "B", "C", failures={"B": SetupError("no node answers", next_step="")})
    assert catalog.completed() == ["A", "B", "C", "ID", "`of A`"]
    assert catalog.described == ["A", "B"]


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
