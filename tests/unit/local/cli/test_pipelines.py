"""What the commands on drivers send to a node, and hand on to the driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from standpipe.adapters.files.private import write_secret
from standpipe.local.cli import pipelines
from standpipe.local.cli.main import app
from standpipe.local.client.internal_client import InternalClient
from standpipe.pipeline.run import driver


class World:
    """A cluster in which nothing runs: what was asked of it, and how drivers were started."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.started: list[Sequence[str]] = []

    def ask(self, client: InternalClient, method: str, path: str, body: bytes = b"") -> bytes:
        self.asked.append((list(client.nodes), method, path, json.loads(body)))
        return b'{"log_index": 7, "name": "RISKY", "queries": [], "pipelines": []}'

    def start(self, arguments: Sequence[str]) -> int:
        self.started.append(arguments)
        return 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.chdir(tmp_path)
    write_secret(tmp_path / "secret", "swordfish")
    found = World()
    monkeypatch.setattr(InternalClient, "ask", lambda *arguments: found.ask(*arguments))
    monkeypatch.setattr(driver, "main", found.start)
    return found


PIPELINE = (
    "pipeline --nodes a:1,b:1 --bootstrap-servers k:9092 --checkpoints ck --secret-file secret"
)


def test_a_driver_of_its_own_isolates_its_query_first(world: World) -> None:
    result = CliRunner().invoke(app, [*PIPELINE.split(), "--isolate", "risky"])
    assert result.exit_code == 0, result.output
    body = {"name": "risky", "undo": False}
    assert world.asked == [(["a:1", "b:1"], "POST", "/queries/isolate", body)]
    (arguments,) = world.started
    assert arguments[arguments.index("--isolate") + 1] == "RISKY", "as it is in the log"


def test_a_shared_driver_asks_for_nothing(world: World) -> None:
    assert CliRunner().invoke(app, PIPELINE.split()).exit_code == 0
    assert world.asked == []
    assert "--isolate" not in world.started[0]


def test_checkpoints_may_be_on_hdfs(world: World) -> None:
    """A URI stays as it is: as a path it would lose a slash."""
    command = PIPELINE.replace(" ck ", " hdfs://namenode:8020/ck ")
    assert CliRunner().invoke(app, [*command.split(), "--notes", "notes"]).exit_code == 0
    (arguments,) = world.started
    assert arguments[arguments.index("--checkpoints") + 1] == "hdfs://namenode:8020/ck"
    assert arguments[arguments.index("--notes") + 1] == "notes"


def test_isolating_and_giving_back(world: World) -> None:
    command = ["query", "isolate", "RISKY", "--node", "a:1", "--secret-file", "secret"]
    assert "none yet: `standpipe up` starts one" in CliRunner().invoke(app, command).output
    said = CliRunner().invoke(app, [*command, "--undo", "--json"]).output
    assert json.loads(said)["name"] == "RISKY"
    assert [asked[3]["undo"] for asked in world.asked] == [False, True]  # type: ignore[index]


@pytest.mark.parametrize(
    ("queries", "drivers", "undo", "words"),
    [
        ([], [], False, "RISKY is isolated: no query yet; what will write it never runs beside"),
        (["Q_1", "Q_2"], ["p"], False, "RISKY is isolated: Q_1, Q_2\nits drivers: p"),
        (["Q_1"], [], False, "elsewhere `standpipe pipeline --isolate RISKY`"),
        (["Q_1"], [], True, "RISKY is isolated no longer: shared pipelines run Q_1"),
        ([], [], True, "shared pipelines run what writes it"),
    ],
)
def test_what_an_operator_is_told(
    queries: list[str], drivers: list[str], undo: bool, words: str
) -> None:
    answer = {"name": "RISKY", "queries": queries, "pipelines": drivers}
    assert words in pipelines._said(answer, undo=undo)


def test_where_kafka_is_may_come_from_a_key(world: World) -> None:
    without = PIPELINE.replace("--bootstrap-servers k:9092 ", "")
    refused = CliRunner().invoke(app, without.split())
    assert refused.exit_code == 1
    assert "give --bootstrap-servers" in refused.output
    assert world.started == []
    CliRunner().invoke(app, [*without.split(), "--set", "ksql.streams.bootstrap.servers=k:1,k:2"])
    (arguments,) = world.started
    assert "--bootstrap-servers k:1,k:2" in " ".join(arguments)
