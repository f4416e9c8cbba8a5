"""Persistent queries as control would log them, from SQL."""

from __future__ import annotations

from standpipe.control.metadata.commands import Command, CreateSource, CreateTableAs
from standpipe.model import LeaseEpoch, Source, TopicSpec
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan
from standpipe.sql.syntax.parser import parse


def commands_of(text: str) -> list[Command]:
    """CREATE STREAM and CREATE TABLE … AS statements as commands of the log."""
    sources: dict[str, Source] = {}
    commands: list[Command] = []
    for index, statement in enumerate(parse(text), 1):
        plan = analyze(statement, sources, Context(next_index=index))
        if isinstance(plan, CreateSourcePlan):
            commands.append(CreateSource(source=plan.source))
        elif isinstance(plan, CreateTableAsPlan):
            commands.append(
                CreateTableAs(
                    source=plan.source,
                    query=plan.query,
                    topic=TopicSpec(
                        name=plan.source.topic, partitions=plan.source.partitions, kind="TABLE"
                    ),
                )
            )
        else:
            raise AssertionError(f"not for a pipeline: {plan}")
        sources[plan.source.name] = plan.source
    return commands


def wanted_of(text: str) -> list[WantedQuery]:
    """The queries of these statements."""
    return [
        WantedQuery(query=command.query, table=command.source, lease_epoch=LeaseEpoch(2))
        for command in commands_of(text)
        if isinstance(command, CreateTableAs)
    ]
