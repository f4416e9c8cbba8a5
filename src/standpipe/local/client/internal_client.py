"""Asks a node's internal listener, for commands that an operator gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2

from standpipe.adapters.http.peer_client import SECRET_HEADER
from standpipe.errors import ConfigError, SetupError
from standpipe.local.cluster.directory import running_cluster

ANSWER_S_MAX = 30.0
ACCEPTED = 202


class QuorumRefused(SetupError):
    """The quorum did not do what was asked; the message is its own."""

    name = "E-QUORUM-001"


@dataclass(frozen=True)
class InternalClient:
    """Asks the first of `nodes` (internal addresses) that answers."""

    nodes: Sequence[str]
    secret: str

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Body of the answer. Raises QuorumRefused."""
        silent: list[str] = []
        with httpx2.Client(headers={SECRET_HEADER: self.secret}, timeout=ANSWER_S_MAX) as client:
            for node in self.nodes:
                try:
                    answer = client.request(method, f"http://{node}{path}", content=body)
                    while (
                        answer.status_code == ACCEPTED
                    ):  # there is work: `node/controller/long_poll.py`
                        answer = client.request(method, f"http://{node}{path}", content=body)
                except httpx2.TransportError as error:
                    silent.append(f"{node} ({error or type(error).__name__})")
                    continue
                if answer.is_success:
                    return answer.content
                raise _refused(answer)
        raise QuorumRefused(
            f"no node answers on its internal address: {', '.join(silent)}",
            next_step="check that a node runs; name one with --node HOST:PORT (public port + 1)",
        )


def _refused(answer: httpx2.Response) -> QuorumRefused:
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {answer.status_code} {answer.text[:200]}"
    steps = {
        401: "give --secret-file the file that all nodes of the cluster share",
        503: "`standpipe quorum describe` shows who is missing; start those nodes",
    }
    step = steps.get(answer.status_code, "`standpipe quorum describe` shows who votes")
    return QuorumRefused(message, next_step=step)


Client = TypeVar("Client", bound=InternalClient)


def client_of(
    kind: type[Client], nodes: Sequence[str] | None, secret_file: Path | None, directory: Path
) -> Client:
    """To the nodes that were named, else to those of the local cluster. Raises ConfigError."""
    if nodes and secret_file is None:
        raise ConfigError(
            "--node needs --secret-file", next_step="give the file that all nodes share"
        )
    if nodes and secret_file is not None:
        return kind(nodes, _secret(secret_file))
    cluster = running_cluster(directory)
    addresses = [entry.internal for entry in cluster.nodes if entry.pid]
    return kind(addresses, _secret(secret_file or Path(cluster.secret_file)))


def _secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read the cluster's secret: {error}",
            next_step="give --secret-file the file that all nodes of the cluster share",
        ) from error
