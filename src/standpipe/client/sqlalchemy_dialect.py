"""A read-only SQLAlchemy dialect: `create_engine("standpipe://node1:8088?nodes=node2:8088")`.

For `pandas.read_sql`, Superset and notebooks. It compiles SELECTs on one table (a pull query knows
no other), and reflects tables and streams. DDL and changes are refused when they are compiled: use
`Connection.exec_driver_sql`, or the client, for statements of Standpipe's own.

SQLAlchemy is not among the client's dependencies; SQLAlchemy finds this module by its entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from sqlalchemy import exc, types
from sqlalchemy.engine import default, reflection
from sqlalchemy.sql import compiler, elements, quoted_name
from sqlalchemy.sql.compiler import IdentifierPreparer, SQLCompiler

from standpipe.client import dbapi
from standpipe.client.core.attempts import AnswerLost
from standpipe.client.core.tables import SourceShape
from standpipe.errors import ServerError
from standpipe.sql.types.names import RESERVED, is_plain_name, name_literal
from standpipe.sql.types.types import SqlType


class Nested(types.UserDefinedType[Any]):
    """A MAP or STRUCT: a dict."""

    cache_ok = True

    def __init__(self, spelling: str = "STRUCT<>") -> None:
        self.spelling = spelling

    def get_col_spec(self, **_: Any) -> str:
        """Its spelling in SQL."""
        return self.spelling


_TYPES: Final[dict[str, Any]] = {
    "BOOLEAN": types.Boolean,
    "INTEGER": types.Integer,
    "BIGINT": types.BigInteger,
    "DOUBLE": types.Double,
    "STRING": types.String,
    "BYTES": types.LargeBinary,
    "DATE": types.Date,
    "TIME": types.Time,
}


def _yes_or_no(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
        text.lower()
    ]


#: options of `standpipe.connect` that a URL may have -> what reads their text
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "timeout_s": float,
    "patience_s": float,
    "lag_records_max": int,
    "replica_lag_ms_max": int,
    "source_lag_ms_max": int,
    "ca": str,
    "finds_members": _yes_or_no,
    "session": _yes_or_no,
    "consistency": str,
}


def type_of(of: SqlType) -> Any:
    """SQLAlchemy's type for one of ours."""
    if of.base == "DECIMAL":
        return types.Numeric(of.precision, of.scale)
    if of.base == "TIMESTAMP":
        return types.TIMESTAMP(timezone=True)
    if of.base == "ARRAY" and of.arguments[0].base != "ARRAY":
        return types.ARRAY(type_of(of.arguments[0]))
    made = _TYPES.get(of.base)
    return Nested(str(of)) if made is None else made()


def _is_truth(side: Any) -> bool:
    return isinstance(side, elements.True_ | elements.False_)


class PullCompiler(SQLCompiler):
    """SELECTs in Standpipe's dialect."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT; there is no OFFSET."""
        if select._offset_clause is not None:
            raise exc.CompileError("Standpipe has no OFFSET: page by key, `ORDER BY … AFTER …`")
        if select._limit_clause is None:
            return ""
        return f"\n LIMIT {self.process(select._limit_clause, **kw)}"

    def visit_true(self, expr: Any, **kw: Any) -> str:
        """TRUE."""
        return "TRUE"

    def visit_false(self, expr: Any, **kw: Any) -> str:
        """FALSE."""
        return "FALSE"

    def visit_is__binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """IS NULL; the grammar has `IS TRUE` by another name only."""
        word = " IS NOT DISTINCT FROM " if _is_truth(binary.right) else " IS "
        return self._generate_generic_binary(binary, word, **kw)

    def visit_is_not_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """IS NOT NULL; `IS NOT TRUE` as above."""
        word = " IS DISTINCT FROM " if _is_truth(binary.right) else " IS NOT "
        return self._generate_generic_binary(binary, word, **kw)

    def visit_join(self, join: Any, *args: Any, **kw: Any) -> str:
        """Refused."""
        raise exc.CompileError("a pull query reads one table: declare the join as a table")

    def visit_insert(self, insert_stmt: Any, *args: Any, **kw: Any) -> str:
        """Refused, as are UPDATE and DELETE."""
        raise exc.CompileError("this dialect is read-only: use standpipe.connect(…).insert")

    def visit_update(self, update_stmt: Any, *args: Any, **kw: Any) -> str:
        """Refused."""
        raise exc.CompileError("this dialect is read-only")

    def visit_delete(self, delete_stmt: Any, *args: Any, **kw: Any) -> str:
        """Refused."""
        raise exc.CompileError("this dialect is read-only")


class RefusingDdlCompiler(compiler.DDLCompiler):
    """No DDL: a stream or table is declared in Standpipe's own SQL."""

    def process(self, *args: Any, **kwargs: Any) -> str:
        """Raises CompileError."""
        raise exc.CompileError("this dialect is read-only: declare tables with client.execute")


class NamePreparer(IdentifierPreparer):
    """Names in back-quotes; upper-case and lower-case ones need none, as they fold to upper."""

    reserved_words: ClassVar[set[str]] = {word.lower() for word in RESERVED}

    def __init__(self, dialect: Any, **kw: Any) -> None:
        super().__init__(dialect, initial_quote="`", escape_quote="`", **kw)

    def _requires_quotes(self, value: str) -> bool:
        if value.lower() in self.reserved_words:
            return True
        return not (is_plain_name(value) or (is_plain_name(value.upper()) and value.islower()))


class StandpipeDialect(default.DefaultDialect):
    """SQLAlchemy's view of a cluster."""

    name = "standpipe"
    driver = "http"
    default_paramstyle = "qmark"
    statement_compiler = PullCompiler
    ddl_compiler = RefusingDdlCompiler
    preparer = NamePreparer
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_default_values = False
    supports_empty_insert = False
    postfetch_lastrowid = False
    max_identifier_length = 249

    @classmethod
    def import_dbapi(cls) -> Any:
        """The module of PEP 249."""
        return dbapi

    def create_connect_args(self, url: Any) -> tuple[list[Any], dict[str, Any]]:
        """`standpipe://host:port?nodes=host:port,…&timeout_s=5`, with options of `connect`.

        With `ca`, all nodes are asked over TLS. Raises ArgumentError.
        """
        query = dict(url.query)
        query.pop("nodes", None)
        listed = ",".join(url.normalized_query.get("nodes", ()))  # it may be there several times
        first = [f"{url.host}:{url.port or 8088}"] if url.host else []
        nodes = [*first, *(each for each in listed.split(",") if each)]
        if "ca" in query:
            nodes = [each if "://" in each else f"https://{each}" for each in nodes]
        options: dict[str, Any] = {}
        for name, text in query.items():
            if name not in _OPTIONS:
                known = ", ".join(("nodes", *_OPTIONS))
                raise exc.ArgumentError(
                    f"the URL has an unknown option {name}; it may have {known}"
                )
            try:
                options[name] = _OPTIONS[name](cast("str", text))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise exc.ArgumentError(f"{name}={text} in the URL cannot be read") from error
        return [nodes], options

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Nothing: SQLAlchemy rolls back each connection that it takes back."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Whether a node answers. Raises the errors of `dbapi`."""
        dbapi_connection.cursor().execute("SHOW VARIABLES;")
        return True

    def initialize(self, connection: Any) -> None:
        """Asks for nothing: there is no isolation level and no server version that matters."""

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Whether a ping met a node that died: a new connection then asks another one.

        If no node answers, a new one asks the same nodes, so the ping's error is raised at once.
        Outside of a ping (`cursor`) the client goes on by itself: it connects for each request.
        """
        return cursor is None and isinstance(e.__cause__, AnswerLost)

    # ------------------------------------------------------------------------- reflection

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Names of tables."""
        return _listed(connection, "TABLES")

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Names of streams: a pull query reads them from their beginning."""
        return _listed(connection, "STREAMS")

    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        """There are no schemas."""
        return []

    def has_table(self, connection: Any, table_name: str, schema: Any = None, **kw: Any) -> bool:
        """Whether there is a table or stream of that name."""
        known = [*_listed(connection, "TABLES"), *_listed(connection, "STREAMS")]
        return schema is None and _in_catalog(table_name) in known

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """The columns. Raises NoSuchTableError."""
        shape = _shape(connection, table_name)
        return [
            {
                "name": _shown(name),
                "type": type_of(of),
                "nullable": name not in shape.row_key,
                "default": None,
            }
            for name, of in shape.columns.items()
        ]

    @reflection.cache
    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """The key columns, and in a windowed table the bounds that tell windows of a key apart: the
        ORM takes rows of one primary key for one. A stream has none, as its rows share keys."""
        names = [_shown(name) for name in _shape(connection, table_name).row_key]
        return {"constrained_columns": names, "name": None}

    def get_foreign_keys(self, *args: Any, **kw: Any) -> list[Any]:
        """None."""
        return []

    def get_indexes(self, *args: Any, **kw: Any) -> list[Any]:
        """None."""
        return []

    def get_unique_constraints(self, *args: Any, **kw: Any) -> list[Any]:
        """None."""
        return []

    def get_check_constraints(self, *args: Any, **kw: Any) -> list[Any]:
        """None."""
        return []


def _entity(connection: Any, statement: str) -> Any:
    """The only one of a statement's answer. Raises SQLAlchemy's errors, as a query does."""
    ((_, entity),) = connection.exec_driver_sql(statement)
    return entity


def _listed(connection: Any, what: str) -> list[str]:
    entity = _entity(connection, f"SHOW {what};")
    return sorted(_shown(each["name"]) for each in entity[what.lower()])


def _shape(connection: Any, name: str) -> SourceShape:
    found = _in_catalog(name)
    if found not in [*_listed(connection, "TABLES"), *_listed(connection, "STREAMS")]:
        raise exc.NoSuchTableError(name)
    entity = _entity(connection, f"DESCRIBE {name_literal(found)};")
    try:
        return SourceShape.read(entity["sourceDescription"])
    except ServerError as error:
        raise exc.UnreflectableTableError(str(error)) from error


def _in_catalog(name: str) -> str:
    """The name that SQL written with this one would mean."""
    is_quoted = isinstance(name, quoted_name) and name.quote
    return str(name) if is_quoted or not name.islower() else name.upper()


def _shown(name: str) -> str:
    """A name of the catalog that the preparer will write so that it means itself."""
    return name if is_plain_name(name) else quoted_name(name, quote=True)
