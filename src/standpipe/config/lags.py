"""The keys of how far behind an answer may be (docs/consistency.md).

Not here: which bound is in force (`control.routing.bounds`); all other keys
(`standpipe.config.keys`).
"""

from __future__ import annotations

from typing import Final

from standpipe.config.registry import key

LAG_MAX = key(
    "ksql.query.pull.max.allowed.offset.lag",
    int,
    2**63 - 1,
    unit="records",
    low=0,
    source="ksqlDB",
    doc="A replica whose lag behind the committed end is larger is not read.",
)
REPLICA_LAG_MAX = key(
    "standpipe.query.pull.max.allowed.replica.lag.ms",
    int,
    2**63 - 1,
    unit="ms",
    low=0,
    doc="A replica that last had everything that was committed longer ago is not read.",
)
SOURCE_LAG_MAX = key(
    "standpipe.query.pull.max.allowed.source.lag.ms",
    int,
    2**63 - 1,
    unit="ms",
    low=0,
    doc="A replica whose rows lack source records that are older is not read.",
)
LAG_LIMIT = key(
    "standpipe.query.pull.max.allowed.offset.lag.limit",
    int,
    2**63 - 1,
    unit="records",
    low=0,
    doc="Upper limit of the lag that a request, a table or this node may allow.",
)
LAG_END_AGE = key(
    "standpipe.query.pull.lag.age.ms.max",
    int,
    60_000,
    unit="ms",
    low=1000,
    doc="A read with a bound on its lag is refused by a replica whose committed end Kafka has not "
    "confirmed for so long: its lag is not known any longer. Reads without a bound go on.",
)

REPLICATION_LAG_MAX = key(
    "standpipe.replication.max.lag.records",
    int,
    0,
    unit="records",
    low=0,
    doc="A pipeline lets a table's replicas catch up before they are so far behind in a partition: "
    "its batches are smaller, or wait. 0: no bound. Set it for the pipelines.",
)
REPLICATION_LAG_MS_MAX = key(
    "standpipe.replication.max.lag.ms",
    int,
    0,
    unit="ms",
    low=0,
    doc="Likewise, by how long ago a replica had all that was committed. 0: no bound.",
)
REPLICATION_WAIT_MAX = key(
    "standpipe.replication.batch.wait.ms.max",
    int,
    5_000,
    unit="ms",
    low=0,
    high=15_000,
    doc="How long one batch waits for replicas at most. All waits of a query take three quarters "
    "of each minute at most.",
)

#: the properties of a request that bound a lag in time
TIME_BOUNDS: Final = (REPLICA_LAG_MAX.name, SOURCE_LAG_MAX.name)
