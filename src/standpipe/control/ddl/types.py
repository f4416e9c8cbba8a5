"""CREATE TYPE and DROP TYPE: plan to command, as `control.ddl.propose` does for sources.

Not here: how a type's name is resolved in a statement (`sql.ddl.named_types`).
"""

from __future__ import annotations

from standpipe.control.ddl.responses import StatementReply, warning
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CreateType, DropType, Receipt
from standpipe.errors import StatementError
from standpipe.sql.plans import CreateTypePlan, DropTypePlan


def create(
    plan: CreateTypePlan, catalog: Catalog, statement: str, request_id: str
) -> CreateType | StatementReply:
    """The command. Raises StatementError if the name is taken, unless IF NOT EXISTS."""
    there = catalog.types.get(plan.name)
    if there is not None:
        message = f"is already registered with type: {there}"
        if plan.if_not_exists:
            return warning(statement, f"{plan.name} {message}")
        raise StatementError(
            f"Cannot register custom type '{plan.name}' since it {message}", statement=statement
        )
    return CreateType(
        name=plan.name,
        definition=plan.definition,
        request_id=request_id,
        receipt=Receipt(
            statement=statement,
            command_id=f"type/{plan.name}/create",
            message=f"Registered custom type with name '{plan.name}' and SQL type"
            f" {plan.definition}",
        ),
    )


def drop(
    plan: DropTypePlan, catalog: Catalog, statement: str, request_id: str
) -> DropType | StatementReply:
    """The command. Raises StatementError if there is no such type, unless IF EXISTS."""
    if plan.name not in catalog.types:
        message = f"Type {plan.name} does not exist."
        if not plan.if_exists:
            raise StatementError(message, statement=statement)
        return warning(statement, message)
    return DropType(
        name=plan.name,
        request_id=request_id,
        receipt=Receipt(
            statement=statement,
            command_id=f"type/{plan.name}/drop",
            message=f"Dropped type '{plan.name}'",
        ),
    )
