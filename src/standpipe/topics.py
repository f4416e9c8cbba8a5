"""Names of the cluster's own topics in Kafka."""

from __future__ import annotations


def progress_topic(service_id: str) -> str:
    """Name of the topic that commits batches."""
    return f"{service_id}_progress"


def processing_log_topic(service_id: str) -> str:
    """Name of the topic for samples of bad records."""
    return f"{service_id}ksql_processing_log"
