"""`standpipe check`: its lines, its JSON and its exit status."""

import json
from pathlib import Path

import pytest
from typer import testing
from typer.main import get_command
from typer.testing import CliRunner

from standpipe.local.cli.main import app

COMMAND = get_command(app)
STREAM = "CREATE STREAM S (ID STRING KEY, V INT)\n  WITH (KAFKA_TOPIC='s', VALUE_FORMAT='AVRO');\n"
TABLE = "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID;\n"
CONNECTOR = "CREATE SOURCE CONNECTOR C WITH ('connector.class'='x');\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """A runner in a directory with two files of statements."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(testing, "_get_command", lambda _: COMMAND)
    Path("streams.sql").write_text("\ufeff" + CONNECTOR + STREAM)
    Path("tables.sql").write_text("-- counts\n" + TABLE)
    return CliRunner()


def test_files_are_one_session(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "--avro-as-json", "streams.sql", "tables.sql"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("streams.sql:1 connector CREATE SOURCE CONNECTOR C")
    assert lines[2].startswith("streams.sql:2 ok        CREATE STREAM S")
    assert lines[3].startswith("tables.sql:2 ok        CREATE TABLE T")
    assert lines[-1] == "3 statements: 2 run, 1 for Kafka Connect"


def test_a_refusal_is_status_1_and_has_its_reason(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "streams.sql", "tables.sql"])
    assert result.exit_code == 1
    assert "without configuring 'ksql.schema.registry.url'" in result.output
    assert "It needs S, which a refused statement was to make." in result.output
    assert "1 refused, 1 blocked by these" in result.output


def test_json_is_one_object_for_each_statement(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "--json", "streams.sql", "tables.sql"])
    found = [json.loads(line) for line in result.output.splitlines()]
    assert [(each["file"], each["line"], each["status"]) for each in found] == [
        ("streams.sql", 1, "connector"),
        ("streams.sql", 2, "refused"),
        ("tables.sql", 2, "blocked"),
    ]
    assert found[1]["statement"] == STREAM.strip()


def test_standard_input_is_a_file_too(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "-"], input="SHOW STREAMS;")
    assert (result.exit_code, result.output.split()[:2]) == (0, ["-:1", "ok"])


def test_standard_input_is_utf_8_as_files_are(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "-"], input="\ufeffSHOW STREAMS;".encode())
    assert (result.exit_code, result.output.split()[:2]) == (0, ["-:1", "ok"])
    result = run.invoke(app, ["check", "-"], input=b"SHOW \xff")
    assert result.exit_code == 1
    assert "cannot read standard input: byte 0xff at offset 5" in result.output


def test_a_file_that_is_not_there_is_named(run: CliRunner) -> None:
    result = run.invoke(app, ["check", "none.sql"])
    assert result.exit_code == 1
    assert "cannot read none.sql" in result.output
