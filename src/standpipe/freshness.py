"""How fresh an answer is: the record, and the headers that carry it.

A node writes them (`node/worker/request/answer.py`), peers and clients read them. An unknown number
is left out, never 0. Definitions: docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.model import Record

#: The two that change from one ms to the next.
REPLICA_LAG_HEADER: Final = "standpipe-replica-lag-ms"
SOURCE_LAG_HEADER: Final = "standpipe-source-lag-ms"
#: With a forward where a lag is bounded: the furthest committed end that its sender knows. With its
#: answer: the one that `standpipe-offset-lag` counts against.
END_HEADER: Final = "standpipe-committed-end"
#: With the answer to a forward that carries a session token: the lease epoch that the batch of the
#: rows was committed under. A target that does not say it does not know sessions.
LEASE_EPOCH_HEADER: Final = "standpipe-lease-epoch"


class Freshness(Record, frozen=True, kw_only=True):
    """Which node answered and what it had seen. Lags: records, ms; None: unknown."""

    served_by: str
    role: str  # active, standby; mixed when an answer was gathered
    state: str
    offset_lag: int | None = None
    replica_lag_ms: int | None = None
    source_lag_ms: int | None = None
    batch: int | None = None
    #: what the lag in records counts against; between nodes only
    committed_end: int | None = None
    #: that the batch was committed under; between nodes only
    lease_epoch: int | None = None


def parse_headers(found: Mapping[str, str]) -> Freshness:
    """Freshness as a node wrote it into its answer. Malformed numbers count as unknown."""
    get = found.get
    return Freshness(
        served_by=get("standpipe-served-by", ""),
        role=get("standpipe-role", ""),
        state=get("standpipe-state", ""),
        offset_lag=_number(get("standpipe-offset-lag")),
        replica_lag_ms=_number(get(REPLICA_LAG_HEADER)),
        source_lag_ms=_number(get(SOURCE_LAG_HEADER)),
        batch=_number(get("standpipe-batch")),
        committed_end=_number(get(END_HEADER)),
        lease_epoch=_number(get(LEASE_EPOCH_HEADER)),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
