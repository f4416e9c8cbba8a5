"""The answers to statements that change the catalog, in ksqlDB's shapes.

Source: ksqlDB's REST API, POST /ksql (CommandStatusEntity, WarningEntity).

Not here: SHOW, DESCRIBE and EXPLAIN (`node.worker.statements.show`), which a worker answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import Receipt
from standpipe.control.metadata.requests import AppliedRequest
from standpipe.errors import StatementError
from standpipe.model import LogIndex

TOPIC_WILL_FOLLOW: Final = (
    "The statement is logged. Kafka is not answering; the topic will be created later."
)

Entity = dict[str, object]  # one item of the array that POST /ksql answers


@dataclass(frozen=True)
class StatementReply:
    """The reply to a statement that logs nothing: its entities for the client."""

    entities: tuple[Entity, ...]


def entities(applied: AppliedRequest, warnings: tuple[str, ...] = ()) -> list[Entity]:
    """Answer to a statement that was applied. Raises StatementError if it was rejected."""
    receipt = applied.receipt or Receipt(statement="", command_id="", message="")
    if applied.refusal:
        raise StatementError(applied.refusal, statement=receipt.statement)
    return [_status(receipt, applied.index, warnings)]


def _status(receipt: Receipt, index: LogIndex, warnings: tuple[str, ...] = ()) -> Entity:
    return {
        "@type": "currentStatus",
        "statementText": receipt.statement,
        "commandId": receipt.command_id,
        "commandStatus": {
            "status": "SUCCESS",
            "message": receipt.message,
            "queryId": receipt.query_id,
        },
        "commandSequenceNumber": index,
        "warnings": [{"message": text} for text in warnings],
    }


def warning(statement: str, message: str) -> StatementReply:
    """The reply to a statement with nothing to do; `message` is the reason."""
    entity: Entity = {
        "@type": "warning_entity",
        "statementText": statement,
        "message": message,
        "warnings": [],
    }
    return StatementReply((entity,))


def topics_touched(before: Catalog, after: Catalog) -> frozenset[str]:
    """Topics that a statement wants created or deleted, by the catalogs before and after it."""
    wanted = {name for name, spec in after.topics.items() if before.topics.get(name) != spec}
    return frozenset(wanted | (set(after.doomed_topics) - set(before.doomed_topics)))


def topic_warnings(failures: Mapping[str, str]) -> tuple[str, ...]:
    """For the answer to a statement that is logged: topics that Kafka does not have as it says.

    `failures`: topic -> why; "" stands for Kafka as a whole.
    """
    return tuple(
        f"Topic {name}: {why}" if name else f"{TOPIC_WILL_FOLLOW} ({why})"
        for name, why in failures.items()
    )
