"""The npm package `ksqldb-client`, unchanged: it speaks HTTP/2 with prior knowledge, and only that.

stream ─► rows by INSERT and by /inserts-stream ─► table ─► pull, push ─► dropped
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import TestCluster, wait_until

PACKAGE = Path(__file__).parent / "ksqldb_client"

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs node and npm")

Story = Callable[..., Any]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as its lock has it, by checksum."""
    folder = tmp_path_factory.mktemp("npm") / "client"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        install, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def story(package: Path, cluster: TestCluster) -> Story:
    """One call of the client: the step of story.js and its arguments."""
    port = cluster.addresses[0][1].rpartition(":")[2]

    def call(step: str, *given: str) -> Any:
        done = subprocess.run(
            ["node", "story.js", port, step, *given],
            cwd=package,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_a_table_from_the_first_statement_to_the_last(story: Story) -> None:
    variables = json.dumps({"sessionVariables": {"S": "npm_words", "T": "npm_words_topic"}})
    made = story(
        "execute",
        "CREATE STREAM IF NOT EXISTS ${S} (id INTEGER KEY, word VARCHAR) "
        "WITH (KAFKA_TOPIC='${T}', PARTITIONS=2, VALUE_FORMAT='JSON');",
        variables,
    )
    assert (made["status"], made["data"]["rows"][0]["@type"]) == (200, "currentStatus")
    assert "NPM_WORDS" in [stream["name"] for stream in story("listStreams")]
    assert "npm_words_topic" in [topic["name"] for topic in story("listTopics")]

    made = story(
        "execute",
        "CREATE TABLE npm_counts AS SELECT word, COUNT(*) AS n FROM npm_words "
        "GROUP BY word EMIT CHANGES;",
    )
    assert made["status"] == 200, made
    assert "NPM_COUNTS" in [table["name"] for table in story("listTables")]
    (query,) = [each for each in story("listQueries") if each["sinks"] == ["NPM_COUNTS"]]

    words = ["tree", "wind", "tree", "sea", "tree"]
    rows = [{"id": i, "word": word} for i, word in enumerate(words)]
    answers = story("insert", "npm_words", json.dumps(rows))
    assert [(a["status"], a["data"]) for a in answers] == [
        (200, {"rows": [{"seq": 0, "status": "ok"}]})
    ] * len(words)

    def counted() -> dict[str, int] | None:
        answer = story("query", "SELECT * FROM npm_counts WHERE word IN ('tree', 'wind', 'sea');")
        if answer["status"] != 200:
            return None
        assert answer["data"]["metadata"]["columnNames"] == ["WORD", "N"]
        found = {row["WORD"]: row["N"] for row in answer["data"]["rows"]}
        return found if sum(found.values()) == len(words) else None

    assert wait_until(counted, "all words counted") == {"tree": 3, "wind": 1, "sea": 1}
    described = json.dumps(story("describe", "npm_counts"))
    assert query["id"] in described

    assert story("execute", f"TERMINATE {query['id']};")["status"] == 200
    for statement in ("DROP TABLE npm_counts;", "DROP STREAM npm_words;"):
        assert story("execute", statement)["status"] == 200, statement
    assert "NPM_WORDS" not in [stream["name"] for stream in story("listStreams")]


def test_errors_reach_the_client_in_its_shape(story: Story) -> None:
    answer = story("query", "SELECT * FROM;")
    assert (answer["status"], answer["error"]["error_code"]) == (400, 40001)
    story(
        "execute",
        "CREATE STREAM npm_errors (id INTEGER KEY, n INTEGER) "
        "WITH (KAFKA_TOPIC='npm_errors', PARTITIONS=1, VALUE_FORMAT='JSON');",
    )
    (answer,) = story("insert", "npm_errors", json.dumps([{"id": 1, "n": "one"}]))
    assert answer["status"] == 200
    assert (answer["error"]["status"], answer["error"]["error_code"]) == ("error", 40000)
    assert story("execute", "DROP STREAM npm_errors;")["status"] == 200


def test_a_push_query_until_it_is_terminated(story: Story) -> None:
    story(
        "execute",
        "CREATE STREAM npm_pushed (id INTEGER KEY, word VARCHAR) "
        "WITH (KAFKA_TOPIC='npm_pushed', PARTITIONS=1, VALUE_FORMAT='JSON');",
    )
    rows = [{"id": i, "word": f"word {i}"} for i in range(5)]
    story("insert", "npm_pushed", json.dumps(rows))
    pushed = story("push", "SELECT * FROM npm_pushed EMIT CHANGES;", "5")
    assert sorted(row["ID"] for row in pushed["rows"]) == list(range(5))
    assert pushed["answer"]["status"] == 200
    assert pushed["closed"]["status"] == 200
    assert story("execute", "DROP STREAM npm_pushed;")["status"] == 200
