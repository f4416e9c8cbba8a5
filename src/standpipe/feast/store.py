"""Feast's `OnlineStore` over the Python client. Source: feast 0.67.

A read is one `get_many`; a write is INSERTs. What a feature view is here: `feast/views.py`.
"""

# Feast is not among the packages of `make setup`, and most of its own code has no types.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal

from feast import ValueType
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.repo_config import FeastConfigBaseModel
from feast.type_map import feast_value_type_to_python_type, python_values_to_proto_values

from standpipe.client import AsyncClient, Client, UnfitParameter, connect, connect_async
from standpipe.client.core.statements import INSERTS_MAX
from standpipe.client.core.tables import SourceShape
from standpipe.errors import StandpipeError, StatementError
from standpipe.feast.views import Found, ViewTable
from standpipe.sql.types.names import name_literal

#: rows of one call of `insert`, which makes one request of them: `timeout_s` is for each
ROWS_AT_ONCE: Final = INSERTS_MAX
#: written as the text that they are in Feast
_TEXTS: Final = ("json", "json_list", "uuid", "uuid_list", "time_uuid", "time_uuid_list")
_NESTED: Final = ("map", "map_list", "struct", "struct_list")
#: entity key, features, event timestamp, and when the row was made
Written = tuple[Any, Mapping[str, Any], datetime, datetime | None]


class StandpipeOnlineStoreConfig(FeastConfigBaseModel):
    """`online_store` of feature_store.yaml; what is not explained here: `standpipe.connect`.

    `table_name`: of a view without the tag `standpipe_table`; may have {project} and {view}.
    """

    type: Literal["standpipe.feast.StandpipeOnlineStore"] = "standpipe.feast.StandpipeOnlineStore"
    nodes: str | list[str]
    timeout_s: float = 10.0
    patience_s: float = 0.5
    lag_records_max: int | None = None
    replica_lag_ms_max: int | None = None
    source_lag_ms_max: int | None = None
    ca: str | None = None
    finds_members: bool = True
    session: bool = False
    consistency: Literal["eventual", "snapshot", "linearizable"] = "eventual"
    table_name: str = "{view}"

    def connection(self) -> dict[str, Any]:
        """The arguments of `standpipe.connect`."""
        return self.model_dump(exclude={"type", "table_name"})


class StandpipeOnlineStore(OnlineStore):
    """Feature views as tables of Standpipe. Threads may share it."""

    def __init__(self) -> None:
        super().__init__()
        #: arguments of `connect` -> the client. No lock: another thread could hold it at a fork
        self._clients: dict[str, Client] = {}
        self._async: AsyncClient | None = None
        #: the event loop and the arguments of `_async`
        self._async_for: object = None

    @property
    def async_supported(self) -> Any:
        """What has a form for asyncio."""
        return SupportedAsyncMethods(read=True, write=True)

    def online_read(
        self, config: Any, table: Any, entity_keys: Any, requested_features: Any = None
    ) -> list[Found]:
        """Event timestamp and features of each key, in their order."""
        view = _table_of(config, table)
        with _naming(view):
            rows = self._blocking(config).get_many(name_literal(view.name), _keys(entity_keys))
        return view.found(rows, requested_features, _to_feast)

    async def online_read_async(
        self, config: Any, table: Any, entity_keys: Any, requested_features: Any = None
    ) -> list[Found]:
        """As `online_read`."""
        view = _table_of(config, table)
        with _naming(view):
            client = self._of_this_loop(config)
            rows = await client.get_many(name_literal(view.name), _keys(entity_keys))
        return view.found(rows, requested_features, _to_feast)

    def online_write_batch(
        self, config: Any, table: Any, data: Any, progress: Callable[[int], Any] | None
    ) -> None:
        """Insert rows into what the view's tag names."""
        view = _table_of(config, table)
        target = view.target()
        for rows in _batches(view, data):
            with _naming(view):
                self._blocking(config).insert(target, rows)
            if progress is not None:
                progress(len(rows))

    async def online_write_batch_async(
        self, config: Any, table: Any, data: Any, progress: Callable[[int], Any] | None
    ) -> None:
        """As `online_write_batch`."""
        view = _table_of(config, table)
        target = view.target()
        for rows in _batches(view, data):
            with _naming(view):
                await self._of_this_loop(config).insert(target, rows)
            if progress is not None:
                progress(len(rows))

    def update(
        self,
        config: Any,
        tables_to_delete: Sequence[Any],
        tables_to_keep: Sequence[Any],
        *_: Any,
        **__: Any,
    ) -> None:
        """Check that the tables are there and fit; the entities change nothing. Raises
        FeatureViewRefused."""
        client = self._blocking(config)
        for view in (_table_of(config, each) for each in tables_to_keep):
            with _naming(view):
                (entity,) = client.execute(f"DESCRIBE {name_literal(view.name)};")
            view.check(SourceShape.read(entity["sourceDescription"]))

    def teardown(self, config: Any, tables: Sequence[Any], entities: Sequence[Any]) -> None:
        """Nothing: the tables are not Feast's."""

    async def close(self) -> None:
        """Close the connections. No call may be in flight."""
        if self._async is not None:
            await self._async.aclose()
        for client in self._clients.values():
            client.close()
        self._clients, self._async = {}, None

    def _blocking(self, config: Any) -> Client:
        arguments = config.online_store.connection()
        wanted = repr(arguments)
        found = self._clients.get(wanted)
        # of two threads at once, both get the one that is first
        return found or self._clients.setdefault(wanted, connect(**arguments))

    def _of_this_loop(self, config: Any) -> AsyncClient:
        wanted = (asyncio.get_running_loop(), config.online_store.connection())
        if self._async is None or self._async_for != wanted:
            self._async, self._async_for = connect_async(**wanted[1]), wanted
        return self._async


def _table_of(config: Any, view: Any) -> ViewTable:
    return ViewTable.of(view, config.project, config.online_store.table_name)


@contextmanager
def _naming(view: ViewTable) -> Generator[None]:
    """An error of the client says which view it is about. Raises FeatureViewRefused for a statement
    or a value that does not fit, as of a table that is not there."""
    try:
        yield
    except (StatementError, UnfitParameter) as error:
        raise view.refused(
            f"{error}. If it is missing, create it with CREATE TABLE … AS or serve a DataFrame;"
            " else correct the view, or its tags standpipe_table and standpipe_input"
        ) from error
    except StandpipeError as error:
        error.add_note(f"feature view {view.view}, table {view.name}")
        raise


def _keys(entity_keys: Sequence[Any]) -> list[dict[str, object]]:
    return [
        {name: _plain(value) for name, value in zip(key.join_keys, key.entity_values, strict=True)}
        for key in entity_keys
    ]


def _batches(view: ViewTable, data: Sequence[Written]) -> Iterator[list[Any]]:
    for start in range(0, len(data), ROWS_AT_ONCE):
        part = data[start : start + ROWS_AT_ONCE]
        keys = _keys([each[0] for each in part])
        yield [
            view.record(key, {name: _plain(value) for name, value in features.items()}, at)
            for key, (_, features, at, _) in zip(keys, part, strict=True)
        ]


def _plain(value: Any) -> Any:
    """One of Feast's values for an INSERT or a key."""
    kind = (value.WhichOneof("val") or "null_val").removesuffix("_val")
    if kind == "null":
        return None
    if kind in _TEXTS or kind.startswith("decimal"):
        found = getattr(value, f"{kind}_val")
        return found if isinstance(found, str) else list(found.val)
    python = feast_value_type_to_python_type(value)
    if kind in _NESTED:
        return json.dumps(python)
    return list(python) if isinstance(python, set) else python


def _to_feast(feast_type: str, values: Sequence[Any]) -> Sequence[Any]:
    """Values of a column as Feast's. Raises TypeError, ValueError, AssertionError."""
    if feast_type in ("FLOAT", "DOUBLE"):
        values = [None if each is None else float(each) for each in values]
    return python_values_to_proto_values(list(values), ValueType[feast_type])
