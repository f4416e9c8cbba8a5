"""Python's database API, version 2.0 (PEP 249), over the synchronous client.

    from standpipe.client import dbapi

    with dbapi.connect("node1:8088,node2:8088") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM SCORES WHERE USER_ID = ?", ("ada",))
        cursor.fetchall()

A SELECT is a pull query. Any other statement goes to /ksql; its answer is one row per entity: its
type, and the entity itself as a dict. There are no transactions: `commit` does nothing, and
`rollback` is refused, as what a statement did stays done.

docs/client.md says point by point what of PEP 249 there is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from standpipe.client import connect as connect_client
from standpipe.client.blocking import Client
from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.attempts import AnswerLost, NodesUnreachable
from standpipe.client.core.literals import without_texts
from standpipe.client.core.rows import Columns
from standpipe.errors import (
    BadRequest,
    SetupError,
    StandpipeError,
    StatementError,
    TokenRefused,
)

apilevel: Final = "2.0"
threadsafety: Final = 2  # threads may share the module and connections
paramstyle: Final = "qmark"

_BUSY: Final = (429, 503)


class Warning(Exception):  # noqa: A001 PEP 249's name
    """PEP 249's Warning; this module raises none."""


class Error(Exception):
    """Base of this module's errors. Its cause is the client's own error."""


class InterfaceError(Error):
    """The module is used wrongly: a cursor is closed, an address is none."""


class DatabaseError(Error):
    """A node refused the statement."""


class DataError(DatabaseError):
    """PEP 249's DataError; a value without a literal is a ProgrammingError."""


class OperationalError(DatabaseError):
    """No node answered in time, or all are busy or not ready: it may work later."""


class IntegrityError(DatabaseError):
    """PEP 249's IntegrityError; Standpipe has no constraints."""


class InternalError(DatabaseError):
    """A node failed, or gave an answer that cannot be read."""


class ProgrammingError(DatabaseError):
    """The statement, or a parameter, is wrong."""


class NotSupportedError(DatabaseError):
    """Standpipe has no transactions."""


class TypeGroup:
    """A type object of PEP 249: equal to the SQL types that it stands for."""

    def __init__(self, *bases: str) -> None:
        self.bases = frozenset(bases)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition("(")[0].partition("<")[0] in self.bases
        return isinstance(other, TypeGroup) and self.bases == other.bases

    def __hash__(self) -> int:
        return hash(self.bases)


STRING: Final = TypeGroup("STRING")
BINARY: Final = TypeGroup("BYTES")
NUMBER: Final = TypeGroup("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL")
DATETIME: Final = TypeGroup("DATE", "TIME", "TIMESTAMP")
ROWID: Final = TypeGroup()

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 PEP 249's name
    """The day, in UTC, of seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks, dt.UTC).date()


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 PEP 249's name
    """The time of the day, in UTC, of seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks, dt.UTC).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802 PEP 249's name
    """The instant, in UTC, of seconds since 1970."""
    return dt.datetime.fromtimestamp(ticks, dt.UTC)


Description = tuple[str, str, None, None, int | None, int | None, bool | None]


def connect(nodes: str | Iterable[str], **options: Any) -> Connection:
    """A connection; the arguments are those of `standpipe.connect`. Raises InterfaceError."""
    try:
        return Connection(connect_client(nodes, **options))
    except (ValueError, SetupError, TokenRefused) as error:
        raise InterfaceError(str(error)) from error


class Connection:
    """A client as PEP 249 has it. Threads may share it."""

    Warning, Error, InterfaceError = Warning, Error, InterfaceError
    DatabaseError, DataError, OperationalError = DatabaseError, DataError, OperationalError
    IntegrityError, InternalError = IntegrityError, InternalError
    ProgrammingError, NotSupportedError = ProgrammingError, NotSupportedError

    def __init__(self, client: Client) -> None:
        self._client: Client | None = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client(self) -> Client:
        """The client below. Raises InterfaceError if the connection is closed."""
        if self._client is None:
            raise InterfaceError("the connection is closed")
        return self._client

    def cursor(self) -> Cursor:
        """A new cursor. Raises InterfaceError if the connection is closed."""
        _ = self.client
        return Cursor(self)

    def commit(self) -> None:
        """Nothing: each statement has taken effect already."""
        _ = self.client

    def rollback(self) -> None:
        """Raises NotSupportedError."""
        _ = self.client
        raise NotSupportedError("there are no transactions: what was executed stays")

    def close(self) -> None:
        """Close it; once it is closed, nothing."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class Cursor:
    """Executes statements one after the other, and holds the rows of the newest."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: rows of a `fetchmany` without a size
        self.arraysize = 1
        #: of a SELECT the columns; None before one, or after a statement without rows
        self.description: tuple[Description, ...] | None = None
        #: rows of the newest answer; -1: not known
        self.rowcount = -1
        self._rows: list[tuple[Any, ...]] = []
        self._at = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def execute(self, operation: str, parameters: Sequence[object] | None = ()) -> Self:
        """Execute a statement, with `parameters` for its `?`; None: it has none. Raises
        DatabaseError's kinds."""
        client = self._client()
        parameters = () if parameters is None else parameters
        self._take(Columns((), ()), None)
        with _errors():
            if without_texts(operation).lstrip(" \t\r\n(").upper().startswith("SELECT"):
                found = client.query(operation, parameters)
                self._take(found.columns, found.tuples)
            else:
                entities = client.execute(operation, parameters)
                shown = [(str(each.get("@type", "")), each) for each in entities]
                self._take(Columns(("TYPE", "ENTITY"), ("STRING", "STRUCT<>")), shown or None)
        return self

    def executemany(self, operation: str, parameters: Iterable[Sequence[object]]) -> Self:
        """Execute a statement once for each sequence of parameters. It must give no rows."""
        for each in parameters:
            self.execute(operation, each)
            if self.description is not None and self.description[0][0] != "TYPE":
                self._take(Columns((), ()), None)
                raise ProgrammingError("executemany is not for queries")
        self._take(Columns((), ()), None)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None: there is no more. Raises ProgrammingError before a query."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, `size` or `arraysize` at most."""
        self._client()
        if self.description is None:
            raise ProgrammingError("there are no rows to fetch: execute a query")
        end = self._at + (self.arraysize if size is None else size)
        found = self._rows[self._at : end]
        self._at += len(found)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self.fetchmany(max(len(self._rows) - self._at, 0))

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Nothing: a parameter's size does not matter."""
        del sizes

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing: values are never cut."""
        del size, column

    def close(self) -> None:
        """Drop the rows. A closed cursor executes and fetches nothing."""
        self._is_closed = True
        self._rows = []

    def _client(self) -> Client:
        if self._is_closed:
            raise InterfaceError("the cursor is closed")
        return self.connection.client

    def _take(self, columns: Columns, rows: list[tuple[Any, ...]] | None) -> None:
        self._rows, self._at = rows or [], 0
        if rows is None:
            self.description, self.rowcount = None, -1
            return
        pairs = zip(columns.names, columns.types, strict=True)
        self.description = tuple(_described(name, of) for name, of in pairs)
        self.rowcount = len(rows)


def _described(name: str, of: str) -> Description:
    precision = scale = None
    if of.startswith("DECIMAL("):
        digits, _, rest = of.removeprefix("DECIMAL(").rstrip(")").partition(",")
        precision, scale = int(digits), int(rest)
    return name, of, None, None, precision, scale, None


@contextmanager
def _errors() -> Generator[None]:
    """The client's errors as PEP 249's."""
    try:
        yield
    except StandpipeError as error:
        raise _kind_of(error)(str(error)) from error


def _kind_of(error: StandpipeError) -> type[DatabaseError]:
    if isinstance(error, StatementError | BadRequest):
        return ProgrammingError
    if isinstance(error, NodesUnreachable | AnswerLost):
        return OperationalError
    if isinstance(error, ServerRefused):
        return OperationalError if error.http_status in _BUSY else DatabaseError
    return InternalError
