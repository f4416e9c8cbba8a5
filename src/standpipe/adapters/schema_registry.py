"""A schema registry with Confluent's REST API: schemas by id, the newest of a subject, new ones.

    settings, environment, files ─► RegistryConnection ─► SchemaRegistry ─► its nodes, in turn

A schema never changes under its id, so each is asked for once in a process. What the registry does
not know is asked for again after UNKNOWN_S: producers register new schemas all the time. After a
failure no call is made for PAUSE_S: a reader of a topic would otherwise wait for each record.

It blocks. Any number of threads may use it. Not here: the keys (`config/schema_registry.py`), what
a schema means (`sql/schemas/avro.py`).
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import msgspec

from standpipe.adapters.files.private import read_private
from standpipe.adapters.http.sync_client import open_connection
from standpipe.config import registry
from standpipe.config import schema_registry as keys
from standpipe.errors import ConfigError
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaKind,
    SchemaRefused,
    SchemaRegistryUnavailable,
    UnknownSchema,
)

CONNECT_S: Final = 2.0
#: of silence before an answer, and within it
SILENCE_S: Final = 5.0
#: until an answer is complete
ANSWER_S: Final = 10.0
#: how long nothing is asked after no node of the registry has answered
PAUSE_S: Final = 1.0
#: how long an id counts as unknown
UNKNOWN_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 4_000_000
KEPT_MAX: Final = 1000
KEPT_CHARS_MAX: Final = 32_000_000
_MEDIA: Final = "application/vnd.schemaregistry.v1+json"
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, kw_only=True)
class RegistryConnection:
    """Where the registry is and how to reach it. `repr` omits the password."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def registry_by(
    config: registry.Config, environment: Mapping[str, str]
) -> RegistryConnection | None:
    """What the settings say; None: there is no registry. Raises ConfigError for what is missing,
    has no effect, or is not supported."""
    user_info = _user_info(config, environment)
    place = config[keys.TRUSTSTORE]
    if not config[keys.URL]:
        for set_, key in ((user_info, keys.USER_INFO), (place, keys.TRUSTSTORE)):
            if set_:
                raise ConfigError(
                    f"{key.name} is set, but has no effect without {keys.URL.name}",
                    next_step=f"set {keys.URL.name}, or remove {key.name}",
                )
        return None
    for key, only in ((keys.CREDENTIALS_SOURCE, "USER_INFO"), (keys.TRUSTSTORE_TYPE, "PEM")):
        if config[key].upper() not in ("", only):
            raise ConfigError(
                f"{key.name} = {config[key]} is not supported", next_step=f"use {only}"
            )
    urls = tuple(_url(each.strip()) for each in config[keys.URL].split(","))
    if place and not any(each.startswith("https:") for each in urls):
        raise ConfigError(
            f"{keys.TRUSTSTORE.name} is set, but {keys.URL.name} names no https",
            next_step=f"name https:// in {keys.URL.name}, or remove {keys.TRUSTSTORE.name}",
        )
    return RegistryConnection(urls=urls, user_info=user_info, tls=_tls(place) if place else None)


def _user_info(config: registry.Config, environment: Mapping[str, str]) -> str:
    place = config[keys.USER_INFO_FILE]
    said = registry.secrets_of(environment).get(keys.USER_INFO.name, "")
    if place and said:
        raise ConfigError(
            f"both {keys.USER_INFO.name} and {keys.USER_INFO_FILE.name} are set",
            next_step="keep one of them",
        )
    text = read_private(Path(place), keys.USER_INFO_FILE.name) if place else said
    if text and ":" not in text:
        raise ConfigError(
            f"{keys.USER_INFO.name} has no colon", next_step="write it as user:password"
        )
    return text


def _url(text: str) -> str:
    """Without a slash at its end. No message quotes a URL with a password."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_url = None, False
    if parts is not None and "@" in parts.netloc:
        raise ConfigError(
            f"{keys.URL.name} contains a login, which every client could read",
            next_step=f"move it to {keys.USER_INFO_FILE.name}",
        )
    if not is_url or (parts is not None and (parts.query or parts.fragment)):
        raise ConfigError(
            f"{keys.URL.name} = {text} is no URL of a registry",
            next_step="write http://host:port or https://host:port",
        )
    return text.rstrip("/")


def _tls(place: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=place)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot read {keys.TRUSTSTORE.name}: {error}",
            next_step="name a PEM file; `keytool -exportcert -rfc` makes one from a JKS truststore",
        ) from error


class SchemaRegistry:
    """`sql.schemas.registry.Schemas`, as a registry answers."""

    def __init__(
        self,
        connection: RegistryConnection,
        *,
        silence_s: float = SILENCE_S,
        unknown_s: float = UNKNOWN_S,
    ) -> None:
        """`silence_s`: how long a node of the registry may say nothing. `unknown_s`: how long an id
        counts as unknown."""
        self._silence_s, self._unknown_s = silence_s, unknown_s
        self._urls = connection.urls
        self._tls = connection.tls
        self._headers = {"Accept": f"{_MEDIA}, application/json"}
        if connection.user_info:
            token = base64.b64encode(connection.user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._first = 0  # the node that answered last
        self._paused_until_s = 0.0
        self._paused_why = ""
        self._known: dict[int, RegisteredSchema] = {}
        self._known_chars = 0
        self._unknown: dict[int, float] = {}  # id -> until when, monotonic
        self._ids: dict[tuple[str, str], int] = {}  # subject, text -> id

    def knows(self, schema_id: int) -> bool:
        """Whether `by_id` would answer at once, be it that there is no such schema."""
        is_absent = time.monotonic() < self._unknown.get(schema_id, 0.0)
        return schema_id <= 0 or schema_id in self._known or is_absent

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with that id. Raises UnknownSchema, SchemaRegistryUnavailable."""
        if found := self._known.get(schema_id):
            return found
        if self.knows(schema_id):
            raise UnknownSchema(f"the schema registry has no schema {schema_id}")
        try:
            answer = self._asked("GET", f"/schemas/ids/{schema_id}")
        except UnknownSchema:
            _make_room(self._unknown)
            self._unknown[schema_id] = time.monotonic() + self._unknown_s
            raise
        return self._kept(_schema_of(answer, schema_id))

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject. Raises UnknownSchema, SchemaRegistryUnavailable."""
        answer = self._asked("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return self._kept(_schema_of(answer, _whole(answer, "id")))

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        """The id of the schema in that subject, which has it from now on. `asks`: in any case; else
        an earlier answer counts. Raises SchemaRefused, SchemaRegistryUnavailable."""
        if not asks and (subject, text) in self._ids:
            return self._ids[subject, text]
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        path = f"/subjects/{quote(subject, safe='')}/versions"
        try:
            found = _whole(self._asked("POST", path, msgspec.json.encode(body)), "id")
        except UnknownSchema as error:
            raise SchemaRegistryUnavailable(str(error)) from error
        _make_room(self._ids)
        self._ids[subject, text] = found
        return found

    def _kept(self, schema: RegisteredSchema) -> RegisteredSchema:
        size = len(schema.text)
        if len(self._known) >= KEPT_MAX or self._known_chars + size > KEPT_CHARS_MAX:
            self._known, self._known_chars = {}, 0
        if self._known.setdefault(schema.schema_id, schema) is schema:
            self._known_chars += size
        return schema

    def _asked(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """The answer's JSON object, of the first node that gives one."""
        if time.monotonic() < self._paused_until_s:
            raise SchemaRegistryUnavailable(self._paused_why)
        why = ""
        for turn in range(len(self._urls)):
            number = (self._first + turn) % len(self._urls)
            try:
                status, content = self._call(self._urls[number], method, path, body)
            except (OSError, HTTPException) as error:
                why = f"{self._urls[number]} does not answer: {error or type(error).__name__}"
                continue
            if status >= 500:
                why = f"{self._urls[number]} answers {status}: {_message(content)}"
                continue
            self._first = number
            return _judged(self._urls[number], status, content)
        self._paused_why = f"Schema registry: {why}"
        self._paused_until_s = time.monotonic() + PAUSE_S
        raise SchemaRegistryUnavailable(self._paused_why)

    def _call(self, url: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body. Raises OSError or HTTPException if it does not arrive whole, in time."""
        parts = urlsplit(url)
        connection = open_connection(
            f"{parts.scheme}://{parts.netloc}",
            connect_s_max=CONNECT_S,
            answer_s_max=self._silence_s,
            tls=self._tls,
        )
        until_s = time.monotonic() + ANSWER_S
        try:
            sent = {**self._headers, **({"Content-Type": _MEDIA} if body else {})}
            connection.request(method, parts.path + path, body or None, sent)
            answer = connection.getresponse()
            content = bytearray()
            while data := answer.read1(65536):
                content += data
                if len(content) > ANSWER_BYTES_MAX:
                    raise HTTPException(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
                if time.monotonic() > until_s:
                    raise TimeoutError(f"an answer that takes more than {ANSWER_S:.0f} s")
            return answer.status, bytes(content)
        finally:
            connection.close()


def _judged(url: str, status: int, content: bytes) -> dict[str, Any]:
    """What an answer means. Raises UnknownSchema, SchemaRefused, SchemaRegistryUnavailable."""
    found = _object(content)
    if status == 200 and found is not None:
        return found
    said = _message(content)
    if status == 404 and found is not None and "error_code" in found:
        raise UnknownSchema(f"the schema registry answers: {said}")
    if status in (409, 422):
        raise SchemaRefused(said)
    if status in (401, 403):
        raise SchemaRegistryUnavailable(
            f"Schema registry: {url} refuses us ({status}): {said}. Check {keys.USER_INFO.name} "
            "and what that user may do."
        )
    raise SchemaRegistryUnavailable(
        f"Schema registry: {url} answers {status}, not as a schema registry would: {said}. Check "
        f"{keys.URL.name}, also its path."
    )


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = _decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _message(content: bytes) -> str:
    """What an error says: its message, or its beginning."""
    found = _object(content)
    text = (
        str(found["message"]) if found and "message" in found else content.decode(errors="replace")
    )
    return " ".join(text.split())[:300]


def _schema_of(answer: Mapping[str, Any], schema_id: int) -> RegisteredSchema:
    text, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
    if not isinstance(text, str) or not isinstance(kind, str):
        raise SchemaRegistryUnavailable("Schema registry: an answer without a schema")
    return RegisteredSchema(schema_id, kind, text, bool(answer.get("references")))


def _whole(answer: Mapping[str, Any], name: str) -> int:
    found = answer.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 2**31:
        raise SchemaRegistryUnavailable(f"Schema registry: an answer without {name}")
    return found


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= KEPT_MAX:
        kept.clear()
