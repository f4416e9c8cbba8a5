"""What the prompt sends of its session, what it keeps of the answers, and its history."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from standpipe.freshness import Freshness
from standpipe.local.cli import prompt as prompt_module
from standpipe.local.cli.prompt import PromptHistory, SqlSession, history_file, prompt
from standpipe.local.client.rest_client import PullAnswer
from standpipe.session_token import (
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
    written_token,
)

SEEN = SessionToken({TableKey("c", "T_1"): SeenBatch(1, 7, 1)})
WRITTEN = SEEN.merged(written_token("clicks", {0: 41}))
INSERT, QUERY = "INSERT INTO CLICKS VALUES ('a');", "SELECT * FROM T WHERE ID = 'a';"


class Nodes:
    """A node that knows sessions. `sent`: (statement, properties)."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, str]]] = []

    def execute(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        self.sent.append((text, properties))
        if TOKEN_PROPERTY not in properties:
            return []
        token = {"consistencyToken": WRITTEN.text()}
        return [{"@type": "consistencyToken", "consistencyToken": token}]

    def pull(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> PullAnswer:
        self.sent.append((text, properties))
        fresh = Freshness(served_by="n", role="active", state="RUNNING")
        token = SEEN.text() if TOKEN_PROPERTY in properties else None
        return PullAnswer(("ID",), ("STRING",), (("a",),), fresh, token)

    def get(self, path: str) -> object:
        return True


def test_an_insert_in_a_session_is_read_back_with_its_token() -> None:
    nodes, out = Nodes(), StringIO()
    prompt = SqlSession(nodes, Console(file=out), as_json=True)  # type: ignore[arg-type]
    prompt.run(f"{INSERT} {QUERY}")
    assert [given for _, given in nodes.sent] == [{}, {}], "no session"
    prompt.run(f"SET '{LEVEL_PROPERTY}' = 'session'; {QUERY} {INSERT} SHOW TABLES; {QUERY}")
    session = {LEVEL_PROPERTY: "session"}
    assert [given for _, given in nodes.sent[3:]] == [
        {**session, TOKEN_PROPERTY: ""},
        {**session, TOKEN_PROPERTY: SEEN.text()},
        {},
        {**session, TOKEN_PROPERTY: WRITTEN.text()},
    ]
    assert "consistencyToken" not in out.getvalue(), "nobody wants to see it"


def test_another_level_goes_with_pull_queries_only() -> None:
    nodes = Nodes()
    prompt = SqlSession(nodes, Console(file=StringIO()), as_json=True)  # type: ignore[arg-type]
    for level in ("snapshot", "linearizable"):
        nodes.sent.clear()
        prompt.run(f"SET '{LEVEL_PROPERTY}' = '{level}'; {QUERY} {INSERT} SHOW TABLES;")
        assert [given for _, given in nodes.sent[1:]] == [{LEVEL_PROPERTY: level}, {}, {}]


PUSHED = SEEN.merged(SessionToken(streamed={TopicKey("s"): {0: 3}}))


class LiveNodes(Nodes):
    """One whose push queries have a row, and a token after it if they are asked for one."""

    def follow(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> Generator[str]:
        self.sent.append((text, properties))
        yield '[{"header":{"queryId":"q","schema":"`ID` STRING"}},'
        yield '{"row":{"columns":["a"]}},'
        if TOKEN_PROPERTY in properties:
            token = {"consistencyToken": {"consistencyToken": PUSHED.text()}}
            yield f"{json.dumps(token)},"
        yield '{"finalMessage":"Limit Reached"}]'


def test_a_push_query_goes_on_where_the_session_is() -> None:
    nodes, out = LiveNodes(), StringIO()
    prompt = SqlSession(nodes, Console(file=out), as_json=True)  # type: ignore[arg-type]
    push = "SELECT * FROM ${T} EMIT CHANGES LIMIT 1;"
    prompt.run(f"DEFINE T = 'S'; SET '{LEVEL_PROPERTY}' = 'session'; {QUERY} {push} {QUERY}")
    session = {LEVEL_PROPERTY: "session"}
    assert [given for _, given in nodes.sent[2:]] == [
        {**session, TOKEN_PROPERTY: ""},
        {**session, TOKEN_PROPERTY: SEEN.text()},
        {**session, TOKEN_PROPERTY: PUSHED.text()},
    ]
    assert "consistencyToken" not in out.getvalue(), "nobody wants to see it"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ID, COUNT(*) FROM S GROUP BY ID EMIT CHANGES;",
        "SELECT COUNT(*) FROM S EMIT CHANGES;",
        "PRINT s;",
        "SELECT * FROM S WHERE EMIT CHANGES;",
    ],
)
def test_what_cannot_go_on_is_sent_without_a_session(text: str) -> None:
    nodes = LiveNodes()
    prompt = SqlSession(nodes, Console(file=StringIO()), as_json=True)  # type: ignore[arg-type]
    prompt.run(f"SET '{LEVEL_PROPERTY}' = 'session'; {text}")
    assert nodes.sent[1:] == [(text, {})]


def entered(
    monkeypatch: pytest.MonkeyPatch, history: Path | None, *steps: str | Callable[[], None]
) -> str:
    """What a prompt prints at which these texts are entered, and these things happen."""
    left = list(steps)

    class Typed:
        def __init__(self, *_: object, history: PromptHistory, **__: object) -> None:
            self.history = history
            list(history.load_history_strings())

        def prompt(self) -> str:
            while left:
                step = left.pop(0)
                if isinstance(step, str):
                    self.history.append_string(step)
                    return step
                step()
            raise EOFError

    monkeypatch.setattr(prompt_module, "PromptSession", Typed)
    out = StringIO()
    prompt(Nodes(), Console(file=out, width=300), history, as_json=True)  # type: ignore[arg-type]
    return out.getvalue()


def test_what_was_entered_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    assert "not kept" not in entered(monkeypatch, file, INSERT, QUERY)
    assert list(PromptHistory(file).load_history_strings()) == [QUERY, INSERT]


def test_a_history_that_cannot_be_written_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    said = entered(monkeypatch, tmp_path / "file" / "state" / "history", INSERT, INSERT)
    assert said.count("not kept for the next prompt: ") == 1
    assert said.index("not kept") < said.index("Not a directory")
    assert entered(monkeypatch, None, INSERT).count("there is no home directory") == 1


def test_a_history_may_fail_at_the_first_enter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "history"

    def break_it() -> None:
        file.unlink()
        file.mkdir()

    said = entered(monkeypatch, file, break_it, INSERT, INSERT)
    assert said.count("not kept for the next prompt: ") == 1
    assert str(file) in said


def test_a_user_may_have_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(none))
    assert history_file() is None
