"""Which tables a program finds in the catalog, and which it declares; with a catalog in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest
from pyspark.sql import types as t
from tests.unit.control.ddl.test_propose import asked

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import CreateTableAs
from standpipe.model import LogIndex
from standpipe.spark.cluster import ClusterNodes
from standpipe.spark.declare import all_declared
from standpipe.spark.errors import ServeRefused
from standpipe.spark.schema import ServedTable, served_table

SCHEMA = t.StructType([t.StructField("id", t.StringType()), t.StructField("shop", t.StringType())])


@dataclass
class Nodes:
    """What they have logged."""

    known: Catalog = EMPTY
    statements: list[str] = field(default_factory=list[str])

    def catalog(self) -> Catalog:
        return self.known

    def execute(self, statement: str, _known: Catalog) -> None:
        self.statements.append(statement)
        command = judge(asked(statement), self.known, {})
        assert isinstance(command, CreateTableAs)
        command = msgspec.structs.replace(command, request_id="")
        self.known = apply(self.known, LogIndex(self.known.index + 1), command)


def table(name: str, key: str) -> ServedTable:
    return served_table(SCHEMA, table=name, key=[key], left_out=[], partitions=None)


def declare(nodes: Nodes, *tables: ServedTable) -> list[str]:
    return [each.name for each in all_declared(tables, cast(ClusterNodes, nodes))]


def test_those_that_are_new_are_declared() -> None:
    nodes = Nodes()
    assert declare(nodes, table("b", "id")) == ["B"]
    assert declare(nodes, table("c", "id"), table("b", "id"), table("a", "id")) == ["C", "B", "A"]
    assert len(nodes.statements) == 3


def test_none_is_declared_if_another_one_is_refused() -> None:
    nodes = Nodes()
    declare(nodes, table("b", "id"))
    with pytest.raises(ServeRefused, match="B has other columns than the DataFrame"):
        declare(nodes, table("a", "id"), table("b", "shop"))
    assert nodes.known.sources.keys() == {"B"}, "nothing was written"
