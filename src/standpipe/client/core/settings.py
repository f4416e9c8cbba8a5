"""What holds for all calls of a client, and what a read says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.session_token import EVENTUAL, LEVEL_PROPERTY, LINEARIZABLE

#: of `Settings`: the property of a request
BOUND_PROPERTIES: Final = {
    "lag_records_max": "ksql.query.pull.max.allowed.offset.lag",
    "replica_lag_ms_max": "standpipe.query.pull.max.allowed.replica.lag.ms",
    "source_lag_ms_max": "standpipe.query.pull.max.allowed.source.lag.ms",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all calls of a client.

    `timeout_s`: for a call, retries included. `patience_s`: how long one node may take for a
    lookup while another one could answer. `lag_records_max`, `replica_lag_ms_max`,
    `source_lag_ms_max`: how old an answer may be (docs/consistency.md); None: what the nodes have
    set. `finds_members`: ask for the cluster's members; else only
    the given addresses are used. `session`: the token to go on from, "" for none; None: the client
    keeps no session. `consistency`: the level of each read, one of `session_token.LEVELS` but
    `session`.
    """

    timeout_s: float = 10.0
    patience_s: float = 0.5
    lag_records_max: int | None = None
    replica_lag_ms_max: int | None = None
    source_lag_ms_max: int | None = None
    finds_members: bool = True
    session: str | None = None
    consistency: str = EVENTUAL

    @property
    def may_wait(self) -> bool:
        """Whether a node may wait for its replica before it answers."""
        return self.consistency == LINEARIZABLE or self.session is not None

    def read_body(self, text: str, properties: Mapping[str, object] | None = None) -> bytes:
        """The body of a read: its statement, these bounds, and more properties."""
        bounds = {
            name: maximum
            for setting, name in BOUND_PROPERTIES.items()
            if (maximum := getattr(self, setting)) is not None
        }
        level = {} if self.consistency == EVENTUAL else {LEVEL_PROPERTY: self.consistency}
        every = {**bounds, **level, **(properties or {})}
        return msgspec.json.encode({"sql": text, "properties": every} if every else {"sql": text})
