"""What a client is told of a statement, in ksqlDB's shapes: `entities` of one that was applied.

Not here: SHOW, DESCRIBE and EXPLAIN (`node.worker.statements.show`: a worker answers them from its
snapshot).
"""

from __future__ import annotations

from dataclasses import dataclass

from standpipe.control.metadata.catalog import AppliedRequest
from standpipe.control.metadata.commands import Receipt
from standpipe.errors import StatementError
from standpipe.model import LogIndex

Entity = dict[str, object]  # one item of the array that POST /ksql answers


@dataclass(frozen=True)
class StatementReply:
    """Nothing is to be logged; these are the entities for the client."""

    entities: tuple[Entity, ...]


def entities(applied: AppliedRequest, warnings: tuple[str, ...] = ()) -> list[Entity]:
    """Answer to a statement that was applied. Raises StatementError if it did not fit."""
    receipt = applied.receipt or Receipt(statement="", command_id="", message="")
    if applied.refusal:
        raise StatementError(applied.refusal, statement=receipt.statement)
    return [_status(receipt, applied.index, warnings)]


def _status(receipt: Receipt, index: LogIndex, warnings: tuple[str, ...] = ()) -> Entity:
    """Source: ksqlDB's REST API, POST /ksql."""
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
    """Nothing was to be done, and why."""
    entity: Entity = {
        "@type": "warning_entity",
        "statementText": statement,
        "message": message,
        "warnings": [],
    }
    return StatementReply((entity,))
