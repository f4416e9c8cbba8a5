"""Settings of the schema registry, and its client against a server that misbehaves.

What a real registry answers: `tests/e2e/test_schema_registry.py`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from standpipe.adapters import schema_registry
from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry, registry_by
from standpipe.config import registry
from standpipe.errors import ConfigError
from standpipe.sql.schemas.registry import (
    SchemaRefused,
    SchemaRegistryUnavailable,
    UnknownSchema,
)

PREFIX = "ksql.schema.registry."


def connected(environment: dict[str, str] | None = None, **settings: str) -> RegistryConnection:
    layer = {PREFIX + name.replace("_", "."): value for name, value in settings.items()}
    found = registry_by(registry.load(layer), environment or {})
    assert found is not None
    return found


def test_no_registry() -> None:
    assert registry_by(registry.load({}), {}) is None


def test_several_nodes() -> None:
    found = connected(url="http://one:8081/, https://two/apis/ccompat/v7")
    assert found.urls == ("http://one:8081", "https://two/apis/ccompat/v7")


def test_the_login_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    name = "KSQL_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
    found = connected({name: "ada:hunter2"}, url="http://r")
    assert found.user_info == "ada:hunter2"
    assert "hunter2" not in repr(found)
    file = tmp_path / "login"
    file.write_text("ada:secret\n")
    file.chmod(0o600)
    assert connected(url="http://r", basic_auth_user_info_file=str(file)).user_info == "ada:secret"
    assert name in registry.secret_variables()


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/operations/registry.md").read_text()
    (example,) = re.findall(r"\(example\):\n\n```toml\n(.*?)```", text, re.DOTALL)
    login, settings = tmp_path / "login", tmp_path / "settings.toml"
    login.write_text("ada:hunter2")
    login.chmod(0o600)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    settings.write_text(example.replace("FOLDER", str(tmp_path)))
    found = registry_by(registry.load(registry.file_layer(settings)), {})
    assert found is not None
    assert found.urls == ("https://registry-1:8081", "https://registry-2:8081")
    assert (found.user_info, found.tls is not None) == ("ada:hunter2", True)


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        ({"url": "registry:8081"}, {}, "no URL of a registry"),
        ({"url": "http://"}, {}, "no URL of a registry"),
        ({"url": "http://r:x"}, {}, "no URL of a registry"),
        ({"url": "http://r?a=b"}, {}, "no URL of a registry"),
        ({"url": "http://ada:hunter2@r"}, {}, "contains a login"),
        ({"url": "http://r", "basic.auth.credentials.source": "URL"}, {}, "not supported"),
        ({"url": "http://r", "ssl.truststore.type": "JKS"}, {}, "not supported"),
        ({"url": "http://r", "ssl.truststore.location": "/ca.pem"}, {}, "names no https"),
        ({"url": "https://r", "ssl.truststore.location": "/none.pem"}, {}, "cannot read"),
        ({"ssl.truststore.location": "/ca.pem"}, {}, "no effect without"),
        ({}, {"KSQL_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "a:hunter2"}, "no effect without"),
        (
            {"url": "http://r"},
            {"KSQL_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "hunter2"},
            "has no colon",
        ),
        ({"url": "http://r", "basic.auth.user.info": "a:hunter2"}, {}, "is a secret"),
        ({"url": "http://r", "ssl.keystore.location": "/k"}, {}, "not supported"),
        ({"url": "http://r", "bearer.auth.token": "hunter2"}, {}, "not supported"),
    ],
)
def test_refused_settings(
    settings: dict[str, str], environment: dict[str, str], message: str
) -> None:
    layer = {PREFIX + name: value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=message) as refused:
        registry_by(registry.load(layer), environment)
    assert refused.value.next_step
    assert "hunter2" not in str(refused.value)


class Scripted:
    """Answers each request with the next one of a script, the last one for ever."""

    def __init__(self, *script: tuple[int, Any]) -> None:
        self.script = list(script)
        self.requests: list[tuple[str, str, str]] = []  # method, path, body
        self.headers: list[dict[str, str]] = []

    def answer(self) -> tuple[int, bytes]:
        status, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


@contextmanager
def served(scripted: Scripted) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            scripted.requests.append((self.command, self.path, body))
            scripted.headers.append(dict(self.headers))
            status, content = scripted.answer()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_id_is_asked_for_once_and_a_subject_each_time() -> None:
    scripted = Scripted((200, {"schema": '"int"', "id": 7}))
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(f"{url}/base",), user_info="ada:x"))
        for _ in range(2):
            assert client.latest("a/b-value").schema_id == 7
            assert client.by_id(7).text == '"int"'
            assert client.by_id(8).kind == "AVRO"
    paths = [path for _, path, _ in scripted.requests]
    latest = "/base/subjects/a%2Fb-value/versions/latest"
    assert paths == [latest, "/base/schemas/ids/8", latest]
    assert scripted.headers[0]["Authorization"] == "Basic YWRhOng="


def test_a_schema_is_registered_once() -> None:
    scripted = Scripted((200, {"id": 3}))
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        assert [client.register("t-value", "AVRO", '"int"') for _ in range(2)] == [3, 3]
        assert client.register("t-value", "JSON", "{}") == 3
    bodies = [json.loads(body) for _, _, body in scripted.requests]
    assert bodies == [{"schema": '"int"'}, {"schema": "{}", "schemaType": "JSON"}]


def test_a_schema_is_registered_again_where_an_earlier_answer_does_not_count() -> None:
    """The subject was deleted in between, and has the schema under another id."""
    scripted = Scripted((200, {"id": 3}), (200, {"id": 4}))
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        found = [client.register("t", "AVRO", '"int"', asks=asks) for asks in (False, True, False)]
    assert found == [3, 4, 4]


def test_an_unknown_id_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = Scripted(
        (404, {"error_code": 40403, "message": "Schema 5 not found"}), (200, {"schema": '"int"'})
    )
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        for _ in range(3):
            with pytest.raises(UnknownSchema):
                client.by_id(5)
        assert len(scripted.requests) == 1
        with pytest.raises(UnknownSchema, match="no schema 0"):
            client.by_id(0)
        assert len(scripted.requests) == 1
        now_s = schema_registry.time.monotonic()
        monkeypatch.setattr(schema_registry.time, "monotonic", lambda: now_s + 60)
        assert client.by_id(5).text == '"int"'


def test_an_unknown_id_is_asked_for_again_at_once() -> None:
    """Of a pipeline: in its next batch a good record may be under that schema."""
    scripted = Scripted(
        (404, {"error_code": 40403, "message": "Schema 5 not found"}), (200, {"schema": '"int"'})
    )
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)), unknown_s=0.0)
        with pytest.raises(UnknownSchema):
            client.by_id(5)
        assert client.by_id(5).text == '"int"'


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (200, b"<html>", SchemaRegistryUnavailable, "not as a schema registry would"),
        (200, [], SchemaRegistryUnavailable, "not as a schema registry would"),
        (200, {"id": 1}, SchemaRegistryUnavailable, "without a schema"),
        (200, {"schema": 3}, SchemaRegistryUnavailable, "without a schema"),
        (302, b"", SchemaRegistryUnavailable, "answers 302"),
        (404, b"no such page", SchemaRegistryUnavailable, "also its path"),
        (404, {"error_code": 40403, "message": "gone"}, UnknownSchema, "gone"),
        (401, {"error_code": 401, "message": "who?"}, SchemaRegistryUnavailable, "user.info"),
        (403, b"", SchemaRegistryUnavailable, "what that user may do"),
        (500, {"error_code": 50001, "message": "store"}, SchemaRegistryUnavailable, "500: store"),
        (200, b"x" * 4_000_001, SchemaRegistryUnavailable, "more than 4000000 bytes"),
    ],
)
def test_answers_that_have_no_schema(
    status: int, body: Any, error: type[Exception], message: str
) -> None:
    """A refusal of our login is no unknown schema: its records would be left out as broken."""
    with served(Scripted((status, body))) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        with pytest.raises(error, match=message):
            client.by_id(1)


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_is_rejected(status: int) -> None:
    answer = {"error_code": status, "message": "Schema being registered is incompatible"}
    with served(Scripted((status, answer))) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        with pytest.raises(SchemaRefused, match="is incompatible"):
            client.register("t-value", "AVRO", '"int"')


@pytest.mark.parametrize("found", [{}, {"id": "7"}, {"id": True}, {"id": -1}, {"id": 2**31}])
def test_an_answer_without_an_id(found: dict[str, Any]) -> None:
    with served(Scripted((200, {"schema": '"int"', **found}))) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        with pytest.raises(SchemaRegistryUnavailable, match="without id"):
            client.latest("t-value")


def test_the_next_node_is_asked_and_stays_the_first() -> None:
    broken, good = Scripted((503, b"starting")), Scripted((200, {"schema": '"int"'}))
    with served(broken) as one, served(good) as two:
        client = SchemaRegistry(RegistryConnection(urls=("http://127.0.0.1:1", one, two)))
        assert [client.by_id(number).schema_id for number in (1, 2)] == [1, 2]
    assert (len(broken.requests), len(good.requests)) == (1, 2)


def test_after_a_failure_nothing_is_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = Scripted((503, b"starting"), (200, {"schema": '"int"'}))
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        for _ in range(3):
            with pytest.raises(SchemaRegistryUnavailable, match="503: starting"):
                client.by_id(1)
        assert len(scripted.requests) == 1
        now_s = schema_registry.time.monotonic()
        monkeypatch.setattr(schema_registry.time, "monotonic", lambda: now_s + 2)
        assert client.by_id(1).text == '"int"'


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "KEPT_CHARS_MAX", 10)
    scripted = Scripted((200, {"schema": '"bytes"'}))
    with served(scripted) as url:
        client = SchemaRegistry(RegistryConnection(urls=(url,)))
        for number in (1, 2, 1):
            client.by_id(number)
    assert len(scripted.requests) == 3
