"""The command line: errors without traceback, with the next step, and the exit status."""

import json
from pathlib import Path

import pytest
from typer import testing
from typer.main import get_command
from typer.testing import CliRunner

from standpipe.freshness import Freshness
from standpipe.local.cli.main import app
from standpipe.local.client.rest_client import NodesClient, PullAnswer

#: what typer makes of all commands, which takes longer than to run one
COMMAND = get_command(app)

COMMANDS = (
    "up demo node pipeline broker sql check status quorum config purge version".split()  # noqa: SIM905
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """A runner in an empty directory, with no setting from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STANDPIPE_DEBUG", raising=False)
    monkeypatch.setattr(testing, "_get_command", lambda _: COMMAND)
    return CliRunner()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(run: CliRunner, command: str) -> None:
    result = run.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: standpipe {command}" in " ".join(result.output.split())


def test_status_has_an_example_of_sizes_too(run: CliRunner) -> None:
    result = run.invoke(app, ["status", "--help"])
    assert "standpipe status --storage" in " ".join(result.output.split())


@pytest.mark.parametrize(
    "command",
    "describe add-voter remove-voter transfer features upgrade backup restore".split(),  # noqa: SIM905
)
def test_every_quorum_command_does_so_too(run: CliRunner, command: str) -> None:
    result = run.invoke(app, ["quorum", command, "--help"])
    assert result.exit_code == 0
    assert f"Example: standpipe quorum {command}" in " ".join(result.output.split())
    assert "--json" in result.output


@pytest.mark.parametrize(
    ("group", "command"),
    [
        ("node", "drain"),
        ("node", "remove"),
        ("query", "isolate"),
        ("assignment", "show"),
        ("assignment", "rebalance"),
        ("assignment", "rules"),
    ],
)
def test_so_do_those_on_nodes_and_copies(run: CliRunner, group: str, command: str) -> None:
    result = run.invoke(app, [group, command, "--help"])
    assert result.exit_code == 0
    assert f"Example: standpipe {group} {command}" in " ".join(result.output.split())
    assert "--json" in result.output


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["sql", "-e", "SHOW TABLES;"], 1, "E-SETUP-001 no cluster is running"),
        (["status"], 1, "Next: start one with `standpipe up`"),
        (["status", "--storage"], 1, "Next: start one with `standpipe up`"),
        (["status", "--storage", "--server", "127.0.0.1:1"], 1, "no answer from 127.0.0.1:1"),
        (["config", "ksql.servic.id"], 1, "did you mean ksql.service.id?"),
        (["config", "--set", "standpipe.http.workers=many"], 1, "is not a valid int"),
        (["config", "--set", "standpipe.http.workers"], 1, "has no ="),
        (["config", "--config", "absent.toml"], 1, "cannot read absent.toml"),
        (["sql", "-f", "absent.sql", "--server", "127.0.0.1:1"], 1, "cannot read absent.sql"),
        (["sql", "-e", "SHOW TABLES;", "--server", "127.0.0.1:1"], 1, "no node answers"),
        (["node", "--voter", "node-9"], 1, "add --other node-9=HOST:PORT"),
        (["node", "--listen", "here"], 1, "here is not HOST:PORT"),
        (["node", "--tag", "rack"], 1, "write --tag KEY=VALUE"),
        (["node", "--node-file", "absent.json"], 1, "cannot read absent.json"),
        (["node", "--secret-file", "absent"], 1, "cannot read the cluster's secret"),
        (["node", "drain", "node-2"], 1, "E-SETUP-001 no cluster is running"),
        (["node", "drain", "node-2", "--node", "127.0.0.1:1"], 1, "--node needs --secret-file"),
        (["node", "drain"], 2, "Missing argument 'NODE_ID'"),
        (["node", "remove", "node-2"], 1, "E-SETUP-001 no cluster is running"),
        (["query", "isolate", "T"], 1, "E-SETUP-001 no cluster is running"),
        (["query", "isolate"], 2, "Missing argument 'NAME'"),
        (["assignment", "show"], 1, "E-SETUP-001 no cluster is running"),
        (["assignment", "rules"], 2, "Missing option '--standbys'"),
        (["quorum", "describe"], 1, "E-SETUP-001 no cluster is running"),
        (["quorum", "describe", "--node", "127.0.0.1:1"], 1, "--node needs --secret-file"),
        (["quorum", "features"], 1, "E-SETUP-001 no cluster is running"),
        (["quorum", "upgrade", "--level", "two"], 2, "Invalid value for '--level'"),
        (["quorum", "backup", "b", "--node", "x:1", "--secret-file", "no"], 1, "cannot read the"),
        (["quorum", "restore", "b", "--data-dir", "d", "--node-id", "n"], 1, "cannot read b"),
        (["quorum", "restore", "b"], 2, "Missing option '--data-dir'"),
        (["versio"], 2, "Did you mean 'version'?"),
        (["up", "--nodes", "0"], 2, "Invalid value for '--nodes'"),
    ],
)
def test_mistakes(run: CliRunner, arguments: list[str], status: int, words: str) -> None:
    result = run.invoke(app, arguments)
    assert result.exit_code == status
    assert words in result.output
    assert "Traceback" not in result.output


def test_debug_lets_the_exception_through(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDPIPE_DEBUG", "1")
    result = run.invoke(app, ["status"])
    assert type(result.exception).__name__ == "SetupError"


def test_config_layers_command_line_over_environment_over_file(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.toml").write_text('"ksql.service.id" = "file_"\n"standpipe.http.workers" = 3\n')
    monkeypatch.setenv("KSQL_SERVICE_ID", "environment_")
    arguments = ["config", "--json", "--config", "s.toml"]
    shown = json.loads(run.invoke(app, arguments).output)
    assert shown["ksql.service.id"] == {"value": "environment_", "default": "default_"}
    assert shown["standpipe.http.workers"]["value"] == 3
    arguments += ["--set", "ksql.service.id=line_"]
    shown = json.loads(run.invoke(app, arguments).output)
    assert shown["ksql.service.id"]["value"] == "line_"


def test_values_of_keys_are_no_markup(run: CliRunner) -> None:
    value = "[/x]:on:"
    arguments = ["config", "ksql.service.id", "--set", f"ksql.service.id={value}"]
    assert run.invoke(app, arguments).output.startswith(f"ksql.service.id = {value}")


def test_version_as_json(run: CliRunner) -> None:
    assert json.loads(run.invoke(app, ["version", "--json"]).output).keys() == {
        "standpipe",
        "python",
        "java",
    }


def test_sql_prints_texts_as_they_are(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "[urgent] 10:100:5 " + "x" * 300
    fresh = Freshness(served_by="", role="", state="")
    answer = PullAnswer(("K",), ("STRING",), ((value,),), fresh)
    monkeypatch.setattr(NodesClient, "pull", lambda *_: answer)
    shown = run.invoke(app, ["sql", "-e", "SELECT * FROM T;", "--server", "n:1"])
    assert value in shown.output.splitlines()


def test_sql_reads_files_and_standard_input_alike(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(NodesClient, "execute", lambda _self, text, *_: sent.append(text) or [])
    content = "\ufeffDROP STREAM `é`;\r\n".encode()
    Path("a.sql").write_bytes(content)
    for arguments, given in ((["-f", "a.sql"], b""), ([], content)):
        assert run.invoke(app, ["sql", "--server", "n:1", *arguments], input=given).exit_code == 0
    assert sent == ["DROP STREAM `é`;"] * 2


def test_sql_names_the_byte_that_is_not_utf_8(run: CliRunner) -> None:
    content = "SHOW TABLES;\nDROP STREAM `é`;".encode("latin-1")
    Path("a.sql").write_bytes(content)
    for arguments, name in ((["-f", "a.sql"], "a.sql"), ([], "standard input")):
        result = run.invoke(app, ["sql", "--server", "n:1", *arguments], input=content)
        assert result.exit_code == 1
        assert f"cannot read {name}: byte 0xe9 at offset 26, in line 2" in result.output


def test_purge_asks_and_removes(run: CliRunner) -> None:
    assert "nothing to remove" in run.invoke(app, ["purge"]).output
    Path(".standpipe/kafka").mkdir(parents=True)
    Path(".standpipe/kafka/log").write_text("x" * 100)
    assert run.invoke(app, ["purge"], input="n\n").exit_code == 1
    assert Path(".standpipe").exists()
    assert run.invoke(app, ["purge"], input="y\n").exit_code == 0
    assert not Path(".standpipe").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("up --set kafka.sasl.password=hunter2", "kafka.sasl.password is a secret"),
        ("up --set kafka.security.protocol=SSL", "the embedded Kafka has no security"),
        ("up --set security.protocol=SASL_SSL", "SASL_SSL needs kafka.sasl.mechanism"),
        ("node --set kafka.ssl.truststore.password=hunter2", "password is not supported"),
        ("node --set kafka.sasl.mechanism=PLAIN", "kafka.sasl.mechanism is set, but has no effect"),
    ],
)
def test_settings_of_kafka_clients_are_judged_before_anything_starts(
    run: CliRunner, command: str, said: str
) -> None:
    result = run.invoke(app, command.split())
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())
    assert "hunter2" not in result.output
