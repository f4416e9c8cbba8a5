"""Standpipe's client: rows of served tables in a Python program.

    import standpipe

    with standpipe.connect("node1:8088,node2:8088") as client:
        row = client.get("SCORES", user_id="ada")
        print(row["SCORE"], row.freshness.served_by)

    async with standpipe.connect_async("node1:8088,node2:8088") as client:
        row = await client.get("SCORES", user_id="ada")

It needs neither Spark nor Kafka, and imports no code of the server that does. Guide:
docs/client.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from standpipe.client.aio import AsyncClient
from standpipe.client.blocking import Client
from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.attempts import AnswerLost, NodesUnreachable
from standpipe.client.core.literals import UnfitParameter
from standpipe.client.core.rows import Columns, Row, RowSet
from standpipe.client.core.session import token_of_writes
from standpipe.client.core.settings import Settings
from standpipe.client.prepared import prepared
from standpipe.errors import StandpipeError, StatementError, TokenRefused
from standpipe.freshness import Freshness
from standpipe.session_token import EVENTUAL, LEVELS

__all__ = [
    "AnswerLost",
    "AsyncClient",
    "Client",
    "Columns",
    "Freshness",
    "NodesUnreachable",
    "Row",
    "RowSet",
    "ServerRefused",
    "StandpipeError",
    "StatementError",
    "TokenRefused",
    "UnfitParameter",
    "connect",
    "connect_async",
    "token_of_writes",
]


def connect(
    nodes: str | Iterable[str],
    *,
    timeout_s: float = 10.0,
    patience_s: float = 0.5,
    lag_records_max: int | None = None,
    replica_lag_ms_max: int | None = None,
    source_lag_ms_max: int | None = None,
    ca: str | Path | None = None,
    finds_members: bool = True,
    session: bool | str = False,
    consistency: Literal["eventual", "snapshot", "linearizable"] = "eventual",
) -> Client:
    """A client for `nodes`: public `host:port`s, comma-separated or listed. Nothing is sent yet.

    `timeout_s`: for each call, retries included. `patience_s`: how long one node may take for a
    lookup while another one could answer. `lag_records_max`: how many records an answer may be
    behind what is committed; `replica_lag_ms_max`: for how long its replica may have lacked
    something that was; `source_lag_ms_max`: how old the newest source record may be that it lacks.
    None: as the nodes are set. `ca`: PEM file of the authority to trust, for `https://`
    addresses; None: the system's. `finds_members`: learn the cluster's other nodes, and ask the
    owner of a key; False: use only the addresses given, as behind a load balancer. A client with
    `https://` addresses uses only these: a node does not know those of other nodes. `session`: no
    answer is older than one that this client got before, or lacks what it inserted
    (docs/consistency.md); a text is another client's `session_token`, to go on from. `consistency`:
    at "snapshot", all rows of an answer are of one batch; at "linearizable", each read has all that
    was committed when a node got it.

    Raises ValueError for an invalid address or level, SetupError for a `ca` that cannot be read,
    and TokenRefused for a `session` that is no token.
    """
    addresses, settings, tls = prepared(
        nodes,
        Settings(
            timeout_s=timeout_s,
            patience_s=patience_s,
            lag_records_max=lag_records_max,
            replica_lag_ms_max=replica_lag_ms_max,
            source_lag_ms_max=source_lag_ms_max,
            finds_members=finds_members,
            session=_session(session),
            consistency=_level(consistency, session),
        ),
        ca,
    )
    return Client(addresses, settings, tls)


def connect_async(
    nodes: str | Iterable[str],
    *,
    timeout_s: float = 10.0,
    patience_s: float = 0.5,
    lag_records_max: int | None = None,
    replica_lag_ms_max: int | None = None,
    source_lag_ms_max: int | None = None,
    ca: str | Path | None = None,
    finds_members: bool = True,
    session: bool | str = False,
    consistency: Literal["eventual", "snapshot", "linearizable"] = "eventual",
) -> AsyncClient:
    """An asynchronous client; the arguments, and what it raises, as of `connect`."""
    addresses, settings, tls = prepared(
        nodes,
        Settings(
            timeout_s=timeout_s,
            patience_s=patience_s,
            lag_records_max=lag_records_max,
            replica_lag_ms_max=replica_lag_ms_max,
            source_lag_ms_max=source_lag_ms_max,
            finds_members=finds_members,
            session=_session(session),
            consistency=_level(consistency, session),
        ),
        ca,
    )
    return AsyncClient(addresses, settings, tls)


def _session(given: bool | str) -> str | None:
    if isinstance(given, str):
        return given
    return "" if given else None


def _level(consistency: str, session: bool | str) -> str:
    others = tuple(level for level in LEVELS if level != "session")
    if consistency not in others:
        hint = ": connect(…, session=True)" if consistency == "session" else ""
        raise ValueError(f"consistency is one of {', '.join(others)}, not {consistency!r}{hint}")
    if consistency != EVENTUAL and session is not False:
        raise ValueError(f"a client keeps a session, or reads at level {consistency}, not both")
    return consistency
