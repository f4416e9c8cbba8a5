"""Both clients under one synchronous surface, so that one test shows the same of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import standpipe
from standpipe.client import Row, RowSet


class AnyClient(Protocol):
    """What a test may ask of either client."""

    def get(self, table: str, /, **key: Any) -> Row | None: ...
    def get_many(self, table: str, keys: Iterable[object]) -> list[Row | None]: ...
    def query(self, sql: str, params: Sequence[object] = ()) -> RowSet: ...
    def insert(self, stream: str, rows: Any) -> int: ...
    def execute(self, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]: ...
    def stream(self, sql: str, params: Sequence[object] = (), **options: Any) -> Iterator[Row]: ...
    def close(self) -> None: ...


class FromAsync:
    """An asynchronous client on an event loop of its own, which turns while a call is on."""

    def __init__(self, nodes: str | Iterable[str], **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = standpipe.connect_async(nodes, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, table: str, /, **key: Any) -> Row | None:
        return self.loop.run_until_complete(self.client.get(table, **key))

    def get_many(self, table: str, keys: Iterable[object]) -> list[Row | None]:
        return self.loop.run_until_complete(self.client.get_many(table, keys))

    def query(self, sql: str, params: Sequence[object] = ()) -> RowSet:
        return self.loop.run_until_complete(self.client.query(sql, params))

    def insert(self, stream: str, rows: Mapping[str, object] | Iterable[Any]) -> int:
        return self.loop.run_until_complete(self.client.insert(stream, rows))

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
        return self.loop.run_until_complete(self.client.execute(sql, params))

    def stream(self, sql: str, params: Sequence[object] = (), **options: Any) -> Iterator[Row]:
        rows = self.client.stream(sql, params, **options)
        try:
            while True:
                try:
                    yield self.loop.run_until_complete(anext(rows))
                except StopAsyncIteration:
                    return
        finally:
            self.loop.run_until_complete(rows.aclose())

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.run_until_complete(self.client.aclose())
            self.loop.close()


def opened(kind: str, nodes: str | Iterable[str], **options: Any) -> Any:
    """A client of that kind: "blocking" or "asyncio"."""
    if kind == "blocking":
        return standpipe.connect(nodes, **options)
    return FromAsync(nodes, **options)


KINDS = ("blocking", "asyncio")
