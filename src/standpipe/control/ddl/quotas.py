"""One of the limits (`limits.py`): how much statements may put into the catalog. Checks it, too.

Quotas are for counts, partitions and bytes. Every node keeps the catalog in memory and publishes it
each second, and the planner places each partition of a table. So one statement could occupy the
controllers of all nodes for minutes. Worker and
leader check a command with the same function before it is logged (`control.ddl.propose`). A command
that frees something always passes, also in a catalog that is over a limit that was lowered.

Not here: the size of one request's SQL (`sql.syntax.limits`), how long the planner may take
(`node.controller.planner`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from standpipe.config import statements as keys
from standpipe.config.registry import Config, ConfigKey
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    CreateType,
    InsertInto,
    ReplaceStreamAs,
    ReplaceTableAs,
)
from standpipe.control.metadata.transients import topics_left
from standpipe.model import Source

_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits; the defaults are those of the keys."""

    source_partitions_max: int = keys.SOURCE_PARTITIONS_MAX.default
    partitions_max: int = keys.PARTITIONS_MAX.default
    sources_max: int = keys.SOURCES_MAX.default
    queries_max: int = keys.QUERIES_MAX.default
    transients_max: int = keys.TRANSIENTS_MAX.default
    types_max: int = keys.TYPES_MAX.default
    catalog_bytes_max: int = keys.CATALOG_BYTES_MAX.default
    statement_bytes_max: int = keys.STATEMENT_BYTES_MAX.default

    @classmethod
    def of(cls, config: Config) -> Quotas:
        """The limits of a node."""
        return cls(
            source_partitions_max=config[keys.SOURCE_PARTITIONS_MAX],
            partitions_max=config[keys.PARTITIONS_MAX],
            sources_max=config[keys.SOURCES_MAX],
            queries_max=config[keys.QUERIES_MAX],
            transients_max=config[keys.TRANSIENTS_MAX],
            types_max=config[keys.TYPES_MAX],
            catalog_bytes_max=config[keys.CATALOG_BYTES_MAX],
            statement_bytes_max=config[keys.STATEMENT_BYTES_MAX],
        )

    def excess(self, command: Command, catalog: Catalog) -> str:
        """Why the catalog has no room for a command: limit, value and key. "": it has."""
        match command:
            case CreateSource() | CreateTableAs() | ReplaceTableAs():
                return (
                    self._text(command)
                    or self._partitions(command.source, catalog)
                    or self._counts(command, catalog)
                    or self._bytes(command, catalog)
                )
            case InsertInto() | ReplaceStreamAs() | CreateType():
                return (
                    self._text(command)
                    or self._counts(command, catalog)
                    or self._bytes(command, catalog)
                )
            case _:
                return ""

    def _text(self, command: Command) -> str:
        statement = command.receipt.statement if command.receipt else ""
        size = len(statement.encode())
        return _over(
            size,
            self.statement_bytes_max,
            keys.STATEMENT_BYTES_MAX,
            f"The statement has {size} bytes, and the catalog keeps its text",
            "leave out comments",
        )

    def _partitions(self, source: Source, catalog: Catalog) -> str:
        there = catalog.sources.get(source.name)
        if there is not None and there.partitions == source.partitions:
            return ""  # ALTER, or a replacement that takes no more
        others = sum(s.partitions for s in catalog.generations if s.name != source.name)
        total = others + source.partitions
        return _over(
            source.partitions,
            self.source_partitions_max,
            keys.SOURCE_PARTITIONS_MAX,
            f"{source.name} would have {source.partitions} partitions",
            "name fewer PARTITIONS",
        ) or _over(
            total,
            self.partitions_max,
            keys.PARTITIONS_MAX,
            f"All streams and tables would have {total} partitions together",
            "name fewer PARTITIONS, or drop what is not used",
        )

    def _counts(self, command: Command, catalog: Catalog) -> str:
        match command:
            case CreateSource(replace=True) | ReplaceStreamAs():
                return ""
            case CreateType():
                return _one_more(len(catalog.types), self.types_max, keys.TYPES_MAX, "types")
            case CreateSource():
                return self._sources(catalog)
            case CreateTableAs(query=query) if query.served_by:
                return self._transients(catalog)
            case CreateTableAs():
                return self._sources(catalog) or self._queries(command, catalog)
            case _:
                return self._queries(command, catalog)

    def _sources(self, catalog: Catalog) -> str:
        count, key = len(catalog.sources), keys.SOURCES_MAX
        return _one_more(count, self.sources_max, key, "streams and tables")

    def _transients(self, catalog: Catalog) -> str:
        """An ended one counts until Kafka has deleted its topic: otherwise clients that come and go
        would make topics faster than Kafka deletes them."""
        running, left = len(catalog.transients), topics_left(catalog)
        if running + left < self.transients_max:
            return ""
        ended = f", the topics of {left} that have ended are still to be deleted" if left else ""
        return (
            f"{running} push queries that need Spark run already{ended}, and"
            f" {keys.TRANSIENTS_MAX.name} allows {self.transients_max}. Wait until one is gone,"
            " or keep the result with CREATE TABLE … AS SELECT, which any number of push queries"
            " can read."
        )

    def _queries(self, command: Command, catalog: Catalog) -> str:
        """ksqlDB's text (QueryCapacityUtil)."""
        count = len(catalog.persistent_queries)
        if count < self.queries_max:
            return ""
        statement = command.receipt.statement if command.receipt else ""
        return (
            f"Not executing statement(s) '{statement[:200]}' as it would cause the number of"
            " active, persistent queries to exceed the configured limit. Use the TERMINATE command"
            f" to terminate existing queries, or increase the '{keys.QUERIES_MAX.name}' setting via"
            f" the 'ksql-server.properties' file. Current persistent query count: {count}."
            f" Configured limit: {self.queries_max}."
        )

    def _bytes(self, command: Command, catalog: Catalog) -> str:
        size = catalog_bytes(catalog) + len(_encoder.encode(command))
        if isinstance(command, CreateSource) and command.replace:
            size -= len(_encoder.encode(catalog.sources.get(command.source.name)))
        return _over(
            size,
            self.catalog_bytes_max,
            keys.CATALOG_BYTES_MAX,
            f"The catalog would have {size} bytes",
            "drop what is not used",
        )


def catalog_bytes(catalog: Catalog) -> int:
    """Bytes of what statements have put into a catalog; not of nodes, replicas or leases."""
    parts = (catalog.sources, catalog.queries, catalog.successors, catalog.types, catalog.topics)
    return sum(len(_encoder.encode(part)) for part in parts)


_RAISE: Final = "or raise the key on every node"


def _over(value: int, limit: int, key: ConfigKey[int], what: str, instead: str) -> str:
    if value <= limit:
        return ""
    return f"{what}; {key.name} allows {limit}. Next: {instead}, {_RAISE}."


def _one_more(count: int, limit: int, key: ConfigKey[int], what: str) -> str:
    would = f"There would be {count + 1} {what}"
    return _over(count + 1, limit, key, would, "drop what is not used")
