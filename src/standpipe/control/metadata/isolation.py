"""Which queries have a driver of their own, and which pipelines may run a query.

    a pipeline started with   may run
    --isolate NAME            the queries that are isolated under NAME, and no others
    nothing                   all other queries; it is *shared*

A query is isolated under its own id, or under the name of the stream or table that it writes. Names
are kept in the log until an operator takes them back (`Catalog.isolated`), whether or not such a
query, or a pipeline for it, exists. So an isolated query never returns to a shared pipeline because
its own driver is dead: it waits. A name can be isolated before its first query is created.

An *external* query is run by an application of a user (`standpipe.spark`), never by a pipeline of
Standpipe. It is isolated under its id for as long as it exists, and its applications register for
that name: the one that holds the lease writes, the others stand by.

Leases do the rest (`leases.py`). A change of the names takes the leases of the queries concerned
away, and the next grant has a newer lease epoch, which fences the last holder.

Pure. Not here: what fences a writer (`data.commit.progress`), who starts drivers
(`local.cluster.isolated_drivers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from standpipe.control.metadata import leases
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommandRejected
from standpipe.errors import BadRequest
from standpipe.model import PersistentQuery
from standpipe.sql.declarations.names import NAME_CHARS_MAX

#: stands for the name of queries that are not isolated, and of pipelines that are shared
SHARED = ""


def isolation_of(query: PersistentQuery, names: Collection[str]) -> str:
    """The name under which a query is isolated, one of `names`; SHARED: it is not."""
    if query.query_id in names:
        return query.query_id
    return query.sink if query.sink in names else SHARED


def grants_due(catalog: Catalog) -> tuple[leases.Grant, ...]:
    """The grants that are due: those of shared pipelines, and those under each isolated name."""
    queries: dict[str, list[str]] = {}
    for query in catalog.queries.values():
        if query.state == "RUNNING":
            name = isolation_of(query, catalog.isolated)
            queries.setdefault(name, []).append(query.query_id)
    pipelines = {**catalog.isolated, SHARED: shared(catalog.pipelines, catalog.isolated)}
    return tuple(
        grant
        for name, those in queries.items()
        for grant in leases.due(those, pipelines[name], catalog.leases)
    )


def shared(pipelines: Iterable[str], isolated: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Those of all registered pipelines that run every query that is not isolated."""
    own = {pipeline for those in isolated.values() for pipeline in those}
    return [pipeline for pipeline in pipelines if pipeline not in own]


def without_driver(catalog: Catalog) -> Mapping[str, str]:
    """{id of a query that should run, and that nobody runs: what to do}. No pipeline is registered
    for the name under which it is isolated."""
    found = {
        query.query_id: isolation_of(query, catalog.isolated)
        for query in catalog.queries.values()
        if query.state == "RUNNING"
    }
    return {
        query: _external_missing(catalog.queries[query])
        if catalog.queries[query].is_external
        else _driver_missing(name)
        for query, name in found.items()
        if name and not catalog.isolated[name]
    }


def _driver_missing(name: str) -> str:
    return (
        f"It is isolated under {name}, and no pipeline is registered for that name: start "
        f"`standpipe pipeline --isolate {name}`, or let the shared pipelines run it: "
        f"`standpipe query isolate {name} --undo`"
    )


def _external_missing(query: PersistentQuery) -> str:
    return (
        f"A Spark application writes {query.sink} (standpipe.spark), and none is registered for it:"
        " start that application"
    )


def names_in_use(queries: Collection[PersistentQuery], names: Collection[str]) -> list[str]:
    """The isolated names that some query has, in any state: each needs a driver. Not those of
    external queries, whose users start their applications."""
    return sorted({isolation_of(q, names) for q in queries if not q.is_external} - {SHARED})


# ------------------------------------------------------------------- changes, called by `apply`


def change(catalog: Catalog, name: str, *, is_isolated: bool) -> Catalog:
    """The catalog after a name was isolated, or was taken back.

    Queries that change hands lose their lease. Pipelines of a name that was taken back are ended:
    they would otherwise count as shared.
    """
    if is_isolated == (name in catalog.isolated):
        return catalog
    isolated = {each: them for each, them in catalog.isolated.items() if each != name}
    if is_isolated:
        isolated[name] = ()
    left = without_pipelines(catalog, catalog.isolated.get(name, ()))
    moved = {
        query.query_id
        for query in catalog.queries.values()
        if isolation_of(query, catalog.isolated) != isolation_of(query, isolated)
    }
    return replace(
        left,
        isolated=isolated,
        leases={query: lease for query, lease in catalog.leases.items() if query not in moved},
    )


def registered(catalog: Catalog, pipeline: str, name: str) -> Mapping[str, tuple[str, ...]]:
    """`Catalog.isolated` after a pipeline has started for that name. Raises CommandRejected if the
    name is not isolated: a driver that was paused must not bring back what was taken back."""
    if name not in catalog.isolated:
        raise CommandRejected(f"{name} is not isolated. Isolated are: {_listed(catalog)}")
    others = tuple(each for each in catalog.isolated[name] if each != pipeline)
    return {**catalog.isolated, name: (*others, pipeline)}


def with_external(catalog: Catalog, query: PersistentQuery) -> Mapping[str, tuple[str, ...]]:
    """`Catalog.isolated` once that query is created."""
    return {**catalog.isolated, query.query_id: ()} if query.is_external else catalog.isolated


def without_external(catalog: Catalog, ended: Collection[str]) -> Catalog:
    """The catalog once these queries have ended: nobody is registered for the external ones."""
    names = {q.query_id for q in catalog.queries.values() if q.is_external and q.query_id in ended}
    writers = [pipeline for name in names for pipeline in catalog.isolated.get(name, ())]
    isolated = {each: them for each, them in catalog.isolated.items() if each not in names}
    return replace(without_pipelines(catalog, writers), isolated=isolated) if names else catalog


def without_pipelines(catalog: Catalog, ended: Collection[str]) -> Catalog:
    """The catalog after these pipelines have ended. Isolated names stay."""
    return replace(
        catalog,
        pipelines={each: epoch for each, epoch in catalog.pipelines.items() if each not in ended},
        isolated={
            name: tuple(each for each in pipelines if each not in ended)
            for name, pipelines in catalog.isolated.items()
        },
    )


# ---------------------------------------------------------------------- what an operator names


def resolved(text: str, catalog: Catalog) -> str:
    """The name to isolate for what an operator wrote: a stream, a table or the id of a query.

    As in SQL, letters become capitals, except in backticks or if there is such a name. For the
    query of a CREATE … AS it is the name of its stream or table: CREATE OR REPLACE gives a table
    another query, which must not run elsewhere. Raises BadRequest if no name can look like that.
    """
    is_quoted = len(text) > 1 and text[0] == text[-1] == "`"
    known = text in catalog.sources or text in catalog.queries or text in catalog.isolated
    name = text[1:-1] if is_quoted else text if known else text.upper()
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise BadRequest(
            f"{text[:NAME_CHARS_MAX]!a} is no name of a stream, table or query: SHOW QUERIES "
            "lists queries and what they write"
        )
    creators = {source.query_id for source in catalog.generations}
    query = catalog.queries.get(name)
    return query.sink if query is not None and name in creators else name


def check_isolated(name: str, catalog: Catalog) -> None:
    """Raises BadRequest that lists the isolated names, if that is none of them."""
    if name not in catalog.isolated:
        raise BadRequest(f"{name} is not isolated. Isolated are: {_listed(catalog)}")


def check_internal(name: str, catalog: Catalog) -> None:
    """Raises BadRequest if the name is that of an external query, or of the table that it writes:
    no pipeline of Standpipe can run it. Also for a transient query, whose name would stay."""
    if name in catalog.transients:
        raise BadRequest(f"{name} runs for one push query and ends with it: it is not isolated")
    for query in catalog.queries.values():
        if query.is_external and name in (query.query_id, query.sink):
            raise BadRequest(
                f"{query.query_id} is run by a Spark application (standpipe.spark), which is the"
                f" only one that can write {query.sink}: it is not isolated by hand"
            )


def check_external(name: str, catalog: Catalog) -> None:
    """Raises BadRequest unless that is the id of an external query."""
    query = catalog.queries.get(name)
    if query is None or not query.is_external:
        raise BadRequest(f"no Spark application may write {name}: it is no external query")


def described(name: str, catalog: Catalog) -> dict[str, object]:
    """The answer to an operator: the queries that the name stands for, its registered pipelines."""
    queries = [each.query_id for each in catalog.queries.values() if isolation_of(each, (name,))]
    pipelines = catalog.isolated.get(name, ())
    return {
        "log_index": catalog.index,
        "name": name,
        "queries": queries,
        "pipelines": list(pipelines),
    }


def _listed(catalog: Catalog) -> str:
    external = {query.query_id for query in catalog.queries.values() if query.is_external}
    return ", ".join(sorted(catalog.isolated.keys() - external)) or "none"
