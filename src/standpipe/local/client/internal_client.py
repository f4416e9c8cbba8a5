"""Calls to a node's internal listener, for the operator's commands.

Not here: connections (`adapters/http/sync_client.py`); what a command asks for
(`cli/quorum_client.py`, `cli/assignment.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from standpipe.adapters.files.private import read_secret
from standpipe.adapters.http.peer_client import PathFailed, Response, Unproved
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.sealed.handshake import PeerIdentity, SecretDiffers
from standpipe.errors import ConfigError, SetupError
from standpipe.local.cluster.directory import running_cluster

ANSWER_S_MAX = 30.0
ACCEPTED = 202

#: status of an answer -> what the operator should do next
_STEPS: Final = {
    401: "give --secret-file the file that all nodes of the cluster share",
    503: "`standpipe quorum describe` shows who is missing; start those nodes",
}


class QuorumRefused(SetupError):
    """The quorum refused a request; the message is its own."""

    name = "E-QUORUM-001"


@dataclass(frozen=True)
class InternalClient:
    """Asks the first of `nodes` (internal `host:port`) that answers."""

    nodes: Sequence[str]
    secret: str

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of the answer. Raises QuorumRefused."""
        silent: list[str] = []
        with SyncClient(identity=PeerIdentity(self.secret), timeout_s=ANSWER_S_MAX) as client:
            for node in self.nodes:
                try:
                    answer = client.request(method, node, path, body=body)
                    while answer.status == ACCEPTED:  # still in progress (`long_poll.py`)
                        answer = client.request(method, node, path, body=body)
                except Unproved as error:
                    raise _unproved(node, error) from error
                except PathFailed as error:
                    silent.append(f"{node} ({error})")
                    continue
                if 200 <= answer.status < 300:
                    return answer.body
                raise _refused(answer)
        raise QuorumRefused(
            f"no node answers on its internal address: {', '.join(silent)}",
            next_step="check that a node runs; name one with --node HOST:PORT (public port + 1)",
        )


def _unproved(node: str, error: Unproved) -> QuorumRefused:
    step = "name the internal address of a node of this release (public port + 1)"
    if isinstance(error.__cause__, SecretDiffers):
        step = _STEPS[401]
    return QuorumRefused(f"{node}: {error}", next_step=step)


def _refused(answer: Response) -> QuorumRefused:
    try:
        message = str(msgspec.json.decode(answer.body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {answer.status} {answer.body[:200].decode(errors='replace')}"
    step = _STEPS.get(answer.status, "`standpipe quorum describe` shows who votes")
    return QuorumRefused(message, next_step=step)


Client = TypeVar("Client", bound=InternalClient)


def client_of(
    kind: type[Client], nodes: Sequence[str] | None, secret_file: Path | None, directory: Path
) -> Client:
    """A client for the named nodes, or for the local cluster if none. Raises ConfigError."""
    if nodes and secret_file is None:
        raise ConfigError(
            "--node needs --secret-file",
            next_step="give the file of the secret that all nodes share",
        )
    if nodes and secret_file is not None:
        return kind(nodes, read_secret(secret_file))
    cluster = running_cluster(directory)
    addresses = [entry.internal for entry in cluster.nodes if entry.pid]
    return kind(addresses, read_secret(secret_file or Path(cluster.secret_file)))
