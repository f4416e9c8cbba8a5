"""What an application asks of a cluster before it writes: where it is, and to declare a table.

Public addresses are enough to begin: the nodes name their internal ones, where the application
proves that it knows the secret. Not here: what it does while it writes
(`pipeline/run/control_client.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from standpipe.adapters.http.peer_client import PathFailed, Response, Unproved
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.client.core.nodes import normalised
from standpipe.control.ddl.propose import Request
from standpipe.control.metadata.catalog import Catalog, from_bytes
from standpipe.spark.errors import ServeRefused

ANSWER_S_MAX: Final = 30.0
CONNECT_S_MAX: Final = 3.0


def addresses(nodes: str | Iterable[str]) -> tuple[str, ...]:
    """What `Standpipe` was given, as a list. Raises ServeRefused."""
    try:
        return normalised(nodes)
    except ValueError as error:
        raise ServeRefused(
            f"`nodes` cannot be read: {error}",
            next_step="give public addresses of nodes: nodes='node1:8088,node2:8088'",
        ) from error


class ClusterDescription(msgspec.Struct, kw_only=True):
    """Answer of `GET /describe`, as far as it matters here."""

    service_id: str = ""
    bootstrap_servers: str = ""


@dataclass
class ClusterNodes:
    """`public`: some of the nodes' public addresses."""

    public: Sequence[str]
    secret: str = field(repr=False)
    #: as they were when they were asked for; they are asked for again if none answers
    _internal: tuple[str, ...] = ()

    def internal(self) -> tuple[str, ...]:
        """The internal addresses of all nodes, as one of them knows them. Raises ServeRefused."""
        if not self._internal:
            with SyncClient(timeout_s=ANSWER_S_MAX, connect_s_max=CONNECT_S_MAX) as client:
                found = _first(client, self.public, "GET", "/clusterStatus")
            answer = _answered(found, "/clusterStatus")
            status = cast("dict[str, Any]", msgspec.json.decode(answer.body))
            places = [each.get("standpipe", {}) for each in status["clusterStatus"].values()]
            self._internal = tuple(place["internal"] for place in places if place)
        return self._internal

    def describe(self) -> ClusterDescription:
        """Where the cluster's Kafka is, and its service id. Raises ServeRefused."""
        body = self._ask("GET", "/describe")
        return msgspec.json.decode(body, type=ClusterDescription)

    def catalog(self) -> Catalog:
        """The catalog with all that was acknowledged before. Raises ServeRefused."""
        return from_bytes(self._ask("GET", "/catalog?consistency=linearizable"))

    def execute(self, statement: str, known: Catalog) -> None:
        """Have a statement executed, once; `known`: a catalog from before. Raises ServeRefused with
        the cluster's reason."""
        request = Request(ksql=statement, request_id=uuid.uuid4().hex, known_index=known.index)
        self._ask("POST", "/execute", msgspec.json.encode(request))

    def _ask(self, method: str, target: str, body: bytes = b"") -> bytes:
        is_known = bool(self._internal)
        identity = PeerIdentity(self.secret)
        with SyncClient(
            timeout_s=ANSWER_S_MAX, connect_s_max=CONNECT_S_MAX, identity=identity
        ) as client:
            found = _first(client, self.internal(), method, target, body)
            if isinstance(found, _NoAnswer) and is_known:
                self._internal = ()  # all that were there may have been replaced since
                found = _first(client, self.internal(), method, target, body)
        return _answered(found, target).body


@dataclass(frozen=True)
class _NoAnswer:
    """What became of each try."""

    why: Sequence[str]


def _answered(found: Response | _NoAnswer, target: str) -> Response:
    """Raises ServeRefused."""
    if isinstance(found, Response):
        return found
    raise ServeRefused(
        f"no node answers {target.partition('?')[0]}: {'; '.join(found.why)}",
        next_step="check that `nodes` has public addresses of running nodes",
    )


def _first(
    client: SyncClient, nodes: Sequence[str], method: str, target: str, body: bytes = b""
) -> Response | _NoAnswer:
    """The first good answer. Another node is asked if one does not answer, or cannot now. Raises
    ServeRefused with what a node refuses."""
    why: list[str] = []
    for node in nodes:
        try:
            answer = client.request(method, node, target, body=body)
        except Unproved as error:
            raise ServeRefused(
                f"{node}: {error}", next_step="give the secret_file that all nodes share"
            ) from error
        except PathFailed as error:
            why.append(f"{node}: {error}")
            continue
        if answer.status == 200:
            return answer
        if answer.status < 500:
            raise ServeRefused(_said(answer), next_step="see the message; docs/spark.md")
        why.append(f"{node}: {_said(answer)}")
    return _NoAnswer(why)


def _said(answer: Response) -> str:
    try:
        return str(msgspec.json.decode(answer.body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status} {answer.body[:200].decode(errors='replace')}"
