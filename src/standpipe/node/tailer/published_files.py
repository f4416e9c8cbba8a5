"""Files of a tailer that others read: restores, digests, metrics.

Not here: status pages (`adapters/store/status_page.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import json

from standpipe.adapters.files import published
from standpipe.model import ReplicaId
from standpipe.node.configuration import NodePaths
from standpipe.node.store_transfer.receiver import Restores
from standpipe.node.tailer.progress import ProgressFollower
from standpipe.node.tailer.replica import TailedReplica


def write_restores(
    paths: NodePaths, restores: Restores, replicas: Mapping[ReplicaId, TailedReplica], now_ms: int
) -> None:
    """The restores, by copy or from the changelog, each with its estimated end."""
    views = restores.views()
    for replica_id, replica in replicas.items():
        if (view := replica.restore_view(now_ms)) is not None:
            views[str(replica_id)] = view
    published.replace(paths.restores, json.encode(views))


def of_progress(progress: ProgressFollower) -> dict[str, object]:
    """What the metrics say of the progress topic."""
    return {
        "progress_position": progress.position,
        "knows_all_progress": progress.knows_all,
        "progress_ignored": progress.ignored(),
    }


def write_metrics(
    paths: NodePaths, row: Mapping[str, object], replicas: Iterable[TailedReplica]
) -> None:
    """`run/tailer.json`: `row`, and a line for each replica."""
    lines = [replica.describe() for replica in replicas]
    published.replace(paths.run / "tailer.json", json.encode({**row, "replicas": lines}))


def write_digests(paths: NodePaths, replicas: Iterable[TailedReplica]) -> None:
    """What other replicas of each partition are compared with."""
    kept = [replica.kept_digests() for replica in replicas]
    published.replace(paths.digests, json.encode(kept))
