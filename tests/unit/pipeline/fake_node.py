"""Stands for a node's internal listener: the log, leases and reports of docs/INTERFACES.md."""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
from tests.sealed_http import accepted

from standpipe.adapters.http.sealed_socket import SealedSocket
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import (
    Command,
    EndPipelines,
    FoundCluster,
    LogEntry,
    LogPage,
    encode,
)
from standpipe.errors import BadRequest
from standpipe.model import LogIndex, NodeId, QueryStatus
from standpipe.model_liveness import OwnLags
from standpipe.node.controller.leases import (
    Leasing,
    PipelineStart,
    grants_due,
    is_registered,
)

SECRET = "s3cret"
LEASE_TIMEOUT_MS = 3000


class _Writer:
    """What a handler writes to."""

    def __init__(self, sealed: SealedSocket) -> None:
        self.write = sealed.sendall

    def flush(self) -> None:
        pass


class FakeNode:
    """A node that holds a log in memory and remembers what pipelines reported."""

    def __init__(self, feature_level: int = feature_levels.NEWEST) -> None:
        founding = FoundCluster(cluster_id="c", feature_level=feature_level)
        self.commands: list[Command] = [feature_levels.at_level(founding, feature_level)]
        self._leasing = Leasing(LEASE_TIMEOUT_MS)
        self.reports: list[QueryStatus] = []
        #: answer of `GET /replica-lags`; None: as of a release without it
        self.lags: OwnLags | None = None
        #: answer of `GET /log` is an error from now on
        self.is_mute = False
        #: as a node that has lost the quorum: it takes no write, and answers from its copy
        self.is_read_only = False
        self.leader = NodeId("node-1")
        #: how long each `GET /log` was to wait, ms
        self.polls: list[int] = []
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def log(self, command: Command) -> int:
        """Append a command with the leases that it asks for; returns its index."""
        with self._changed:
            self.commands.append(feature_levels.at_level(command, self.catalog().feature_level))
            index = len(self.commands)
            if grants := grants_due(self.catalog()):
                self.commands.append(grants)
            self._changed.notify_all()
            return index

    def catalog(self) -> Catalog:
        catalog = EMPTY
        for index, command in enumerate(self.commands, 1):
            catalog = apply(catalog, LogIndex(index), command)
        return catalog

    def status(self, query_id: str) -> QueryStatus | None:
        """The newest report of a query."""
        return next((one for one in reversed(self.reports) if one.query_id == query_id), None)

    # ------------------------------------------------------------------------------- routes

    def page(self, start: int, wait_ms: int) -> bytes:
        deadline = time.monotonic() + wait_ms / 1000
        self.polls.append(wait_ms)
        with self._changed:
            while len(self.commands) < start and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            entries = [
                LogEntry(index=LogIndex(index), command=msgspec.Raw(encode(command)))
                for index, command in enumerate(self.commands, 1)
                if index >= start
            ]
            page = LogPage(
                entries=tuple(entries),
                last_index=LogIndex(len(self.commands)),
                leader=self.leader,
                cluster_id="c",
            )
        return msgspec.msgpack.encode(page)

    def start_pipeline(self, body: bytes) -> bytes:
        command = msgspec.json.decode(body, type=PipelineStart).command(self.catalog())
        index = self.log(command)
        catalog = self.catalog()
        if refusal := catalog.applied_requests[command.request_id].refusal:
            raise BadRequest(refusal)
        epoch = catalog.pipeline_epoch
        return msgspec.json.encode({"lease_epoch": epoch, "log_index": index})

    def renew(self, body: bytes) -> bytes:
        pipeline_id = msgspec.json.decode(body)["pipeline_id"]
        known = is_registered(self.catalog(), pipeline_id)
        self._leasing.heard(pipeline_id)
        if due := self._leasing.due(self.catalog()):
            self.log(due)
        return msgspec.json.encode({"log_index": len(self.commands), "is_registered": known})

    def leave(self, body: bytes) -> bytes:
        pipeline_id = msgspec.json.decode(body)["pipeline_id"]
        index = self.log(EndPipelines(pipeline_ids=(pipeline_id,)))
        return msgspec.json.encode({"log_index": index})

    def take(self, body: bytes) -> bytes:
        self.reports += msgspec.msgpack.decode(body, type=list[QueryStatus])
        return b'{"ok": true}'

    def own_lags(self) -> bytes:
        if self.lags is None:
            raise BadRequest("no such path")
        return msgspec.msgpack.encode(self.lags)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                self.sealed = accepted(self.request, PeerIdentity(SECRET, NodeId("fake")))
                self.rfile = self.sealed.makefile("rb")
                self.wfile = _Writer(self.sealed)
                self.raw_requestline = b""

            def finish(self) -> None:
                self.rfile.close()

            def do_GET(self) -> None:
                if self.path == "/replica-lags":
                    self._answer(node.own_lags)
                    return
                query = parse_qs(urlsplit(self.path).query)
                wanted = (int(query["from"][0]), int(query["wait_ms"][0]))
                self._answer(lambda: node.page(*wanted))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                take = {
                    "/pipeline/start": node.start_pipeline,
                    "/pipeline/renew": node.renew,
                    "/pipeline/leave": node.leave,
                    "/query-status": node.take,
                }
                self._answer(lambda: take[self.path](body), is_refused=node.is_read_only)

            def _answer(self, make: Any, *, is_refused: bool = False) -> None:
                status, body = 401, b'{"error_code": 40100}'
                if not node.is_mute and not is_refused:
                    try:
                        status, body = 200, make()
                    except BadRequest as refused:
                        status, body = 400, msgspec.json.encode({"message": refused.message})
                with contextlib.suppress(ConnectionError):  # a client need not wait for us
                    self.send_response(status)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
