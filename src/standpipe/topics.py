"""Names of the cluster's own topics in Kafka, and how long table topics keep tombstones."""

from __future__ import annotations

from typing import Final

#: tombstones stay 7 days (`control/metadata/topic_reconciler.py` configures that); one hour less,
#: to allow for clock differences
TOMBSTONES_MS: Final = (7 * 24 - 1) * 3_600_000


def progress_topic(service_id: str) -> str:
    """Name of the topic that commits batches."""
    return f"{service_id}_progress"


def processing_log_topic(service_id: str) -> str:
    """Name of the topic for samples of bad records."""
    return f"{service_id}ksql_processing_log"
