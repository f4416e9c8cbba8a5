"""Statements and pull queries over HTTP, for the commands of this package.

The nodes are tried in order: if one refuses the connection or hangs, the next one is tried. A
statement that changes something goes on to the next node only while none can have read it. An error
answer is raised as the exception that it names, so that the prompt can point at the position.

Not here: connections (`adapters/http/sync_client.py`); rendering (`local/cli/sql_output.py`);
the open-loop reader of the demo (`local/demo/reader.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from standpipe.adapters.http.peer_client import ConnectFailed, PathFailed, Response
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.client.core.answers import ServerRefused, error_of
from standpipe.client.core.attempts import AnswerLost
from standpipe.client.core.session import token_in
from standpipe.client.core.statements import is_repeatable
from standpipe.errors import SetupError, StandpipeError
from standpipe.freshness import Freshness, parse_headers
from standpipe.local.client.exact_cells import ExactCells

LINES = "application/vnd.ksqlapi.delimited.v1"
ARRAY = "application/vnd.ksql.v1+json"
CONNECT_S_MAX = 2.0
Entity = dict[str, Any]


@dataclass(frozen=True)
class PullAnswer:
    """Rows of a pull query, which node served them, and how fresh they are. The cells are JSON
    values, a DECIMAL is a Decimal."""

    column_names: tuple[str, ...]
    column_types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    fresh: Freshness
    #: of a read at level `session`; None: it was at another level
    token: str | None = None


class _Header(msgspec.Struct):
    columnNames: list[str]  # noqa: N815 ksqlDB's name
    columnTypes: list[str]  # noqa: N815 ksqlDB's name


class NodesClient:
    """Talks to the first node that answers.

    `addresses`: public `host:port`, or `https://host:port` of a listener with TLS, best first.
    `ca`: PEM file with the certificates to trust, instead of those of the system. Raises SetupError
    when it cannot be read.
    """

    def __init__(
        self, addresses: Sequence[str], *, timeout_s: float = 30.0, ca: Path | None = None
    ) -> None:
        self.addresses = list(addresses)
        tls = None if ca is None else _trusting(ca)
        self._http = SyncClient(timeout_s=timeout_s, connect_s_max=CONNECT_S_MAX, tls=tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def execute(
        self,
        text: str,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> list[Entity]:
        """Run statements through POST /ksql: one entity per statement that has an answer.
        `variables`: what `${name}` stands for in them. Raises AnswerLost if they change something,
        and were sent, and no answer came."""
        body = {"ksql": text, "streamsProperties": dict(properties or {}), **_defined(variables)}
        response = self._post("/ksql", body, is_repeatable=is_repeatable(text))
        return cast(list[Entity], msgspec.json.decode(response.body))

    def pull(
        self,
        text: str,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PullAnswer:
        """Run one pull query. Raises StatementError or ServerRefused, also for errors in a 200."""
        body = {"sql": text, "properties": dict(properties or {}), **_defined(variables)}
        response = self._post("/query-stream", body, accept=LINES)
        first, *lines = response.body.splitlines()
        token = token_in(lines[-1]) if lines else None
        if token is not None:
            lines.pop()
        header = msgspec.json.decode(first, type=_Header)
        cells = ExactCells(header.columnTypes)
        rows: list[tuple[Any, ...]] = []
        for line in lines:
            item = cells.decode(line)
            if isinstance(item, dict):
                raise error_of(cast(dict[str, Any], item), text)
            rows.append(cells.row(cast(list[Any], item)))
        return PullAnswer(
            tuple(header.columnNames),
            tuple(header.columnTypes),
            tuple(rows),
            parse_headers(response.headers),
            token,
        )

    def follow(
        self,
        text: str,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Generator[str]:
        """The lines of a push query (one item of /query each) or of PRINT, as they arrive.

        Closing the iterator ends the query. Raises StatementError or ServerRefused before the first
        line, and SetupError when the node closes the connection early.
        """
        body = {"ksql": text, "streamsProperties": dict(properties or {}), **_defined(variables)}
        accept = f"{ARRAY}, {LINES};q=0.9"  # PRINT is text only
        headers = {"accept": accept, "content-type": "application/json"}
        content = msgspec.json.encode(body)
        for address in list(self.addresses):
            begun = False
            try:
                with self._http.stream(_origin(address), "/query", content, headers) as opened:
                    response, lines = opened
                    if response.status != 200:
                        raise _error_of_response(response)
                    begun = True
                    yield from lines
                return
            except PathFailed as error:
                self._prefer_others(address)
                if begun:
                    raise SetupError(
                        f"{address} closed the connection: {error}",
                        next_step="ask again: another node will answer",
                    ) from error
        raise SetupError("no node answers", next_step="see `standpipe status`")

    def get(self, path: str) -> Any:
        """JSON of a GET on the first node that answers."""
        return msgspec.json.decode(self._request("GET", path).body)

    def _post(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        accept: str = "application/json",
        is_repeatable: bool = True,
    ) -> Response:
        content = msgspec.json.encode(body)
        return self._request(
            "POST", path, content=content, accept=accept, is_repeatable=is_repeatable
        )

    def _request(
        self,
        method: str,
        path: str,
        *,
        content: bytes = b"",
        accept: str = "*/*",
        is_repeatable: bool = True,
    ) -> Response:
        headers = {"accept": accept, "content-type": "application/json"}
        tried: list[str] = []
        for address in list(self.addresses):
            try:
                response = self._http.request(
                    method, _origin(address), path, body=content, headers=headers
                )
            except PathFailed as error:
                tried.append(f"{address}: {error}")
                self._prefer_others(address)
                if not is_repeatable and not isinstance(error, ConnectFailed):
                    raise AnswerLost(
                        f"{address} took the statement and gave no answer ({error}): it may have "
                        "been carried out. Look with SHOW or SELECT before you send it again"
                    ) from error
                continue
            if response.status != 200:
                raise _error_of_response(response)
            return response
        is_distrusted = any("CERTIFICATE_VERIFY_FAILED" in why for why in tried)
        raise SetupError(
            f"no node answers ({'; '.join(tried)})",
            next_step="give --ca the PEM file of the authority that signed the node's certificate"
            if is_distrusted
            else "see `standpipe status`; start a cluster with `standpipe up`",
        )

    def _prefer_others(self, address: str) -> None:
        self.addresses.remove(address)
        self.addresses.append(address)


def _defined(variables: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
    return {"sessionVariables": dict(variables)} if variables else {}


def _origin(address: str) -> str:
    return address.rstrip("/") if "://" in address else f"http://{address}"


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(
            f"{ca} holds no certificates: {error}", next_step="give --ca a PEM file"
        ) from error


def _error_of_response(response: Response) -> StandpipeError:
    try:
        body = msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        text = response.body.decode(errors="replace")
        return ServerRefused(f"HTTP {response.status}: {text[:500]}")
    return error_of(body, "")
