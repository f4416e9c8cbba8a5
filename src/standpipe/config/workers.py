"""The keys of a node's HTTP workers: when their parent ends one.

Not here: what they control (`node.supervisor.worker_watch`); all other keys
(`standpipe.config.keys`).
"""

from __future__ import annotations

from standpipe.config.registry import key

TURN_TIMEOUT = key(
    "standpipe.worker.turn.timeout.ms",
    int,
    2_000,
    unit="ms",
    low=0,
    doc="A worker whose event loop makes no turn for this long is killed and started again. Of a "
    "worker that runs, only its own processor time counts, so a busy machine kills none. 0: never.",
)
REFUSED_TEXT_MS = key(
    "standpipe.worker.refused.text.ms",
    int,
    60_000,
    unit="ms",
    low=0,
    doc="For this long a node refuses a text that one of its workers was executing when it was "
    "killed because its event loop made no turn.",
)
HEAVY_WORKERS = key(
    "standpipe.heavy.workers",
    int,
    0,
    low=0,
    doc="Heavy workers of a node: they answer scans, pull queries on streams, functions of long "
    "texts and large statements, with a lower priority than the workers of lookups. 0: half as "
    "many as those, at least one.",
)
MEMORY_MAX = key(
    "standpipe.worker.memory.bytes.max",
    int,
    1024**3,
    unit="bytes",
    low=128 * 1024**2,
    doc="A worker that has more memory of its own (RssAnon: without mapped stores) is killed and "
    "started again. From three quarters on it refuses scans, streams and reads that "
    "would wait.",
)
