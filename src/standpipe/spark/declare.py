"""The table of a DataFrame in the catalog: declared if it is new, or found to be the same.

Not here: which columns a DataFrame has (`schema.py`), what a node judges
(`sql/ddl/external_table.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from standpipe.control.metadata.catalog import Catalog
from standpipe.model import Source
from standpipe.spark.cluster import ClusterNodes
from standpipe.spark.errors import ServeRefused
from standpipe.spark.lease import why_gone
from standpipe.spark.schema import ServedTable


def all_declared(asked: Sequence[ServedTable], nodes: ClusterNodes) -> list[Source]:
    """The tables in the catalog, in this order. None is declared if one of those that are there
    cannot be used. Raises ServeRefused, ServeEnded."""
    catalog = nodes.catalog()
    for each in asked:
        if each.name in catalog.sources:
            _found(each, catalog)
    return [declared(each, nodes) for each in asked]


def declared(asked: ServedTable, nodes: ClusterNodes) -> Source:
    """The table in the catalog, declared if it is new. Raises ServeRefused, ServeEnded."""
    catalog = nodes.catalog()
    if asked.name not in catalog.sources:
        try:
            nodes.execute(asked.statement, catalog)
        except ServeRefused:
            # another program may have declared it meanwhile
            if asked.name not in nodes.catalog().sources:
                raise
    return _with_columns(asked, _found(asked, nodes.catalog()), nodes)


def _found(asked: ServedTable, catalog: Catalog) -> Source:
    """The table of that name. Raises ServeRefused, ServeEnded unless it can be used."""
    there = catalog.sources[asked.name]
    query = catalog.queries.get(there.query_id or "")
    if there.query_id is None or (query is not None and not query.is_external):
        raise ServeRefused(
            f"{there.name} is there, and no application writes it: {there.statement}",
            next_step="serve it under another name",
        )
    if gone := why_gone(catalog, there.query_id, there.name):
        raise gone
    asked.added_to(there)
    return there


def _with_columns(asked: ServedTable, there: Source, nodes: ClusterNodes) -> Source:
    """The table once it has the columns of the DataFrame. Raises ServeRefused."""
    while new := asked.added_to(there):
        try:
            nodes.execute(asked.additions(new), nodes.catalog())
        except ServeRefused:
            # another program may have added some of them meanwhile
            after = nodes.catalog().sources.get(there.name)
            if after is None or after.columns == there.columns:
                raise
        there = nodes.catalog().sources[there.name]
    return there
