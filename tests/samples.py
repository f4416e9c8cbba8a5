"""The stream and the table of most tests: one STRING key, one BIGINT column, one partition."""

from __future__ import annotations

from typing import Any

import msgspec

from standpipe.model import Column, Source

COLUMNS = (Column(name="K", type="STRING", is_key=True), Column(name="N", type="BIGINT"))

_STREAM = Source(
    name="S",
    kind="STREAM",
    columns=COLUMNS,
    topic="s",
    partitions=1,
    key_format="KAFKA",
    value_format="JSON",
    statement="",
)
_TABLE = msgspec.structs.replace(_STREAM, name="T", kind="TABLE", topic="T")


def sample_stream(**changes: Any) -> Source:
    """The stream S over the topic `s`, with other fields where the test needs them."""
    return msgspec.structs.replace(_STREAM, **changes)


def sample_table(**changes: Any) -> Source:
    """The table T over the topic `T`, with other fields where the test needs them."""
    return msgspec.structs.replace(_TABLE, **changes)


#: a type of which `[{},{},…]` makes fifty fields for each item
WIDE_ITEMS = f"ARRAY<STRUCT<{', '.join(f'`FIELD_{n:03d}` INTEGER' for n in range(50))}>>"


def json_items(item: str, count: int) -> bytes:
    """A JSON array with the same item so many times."""
    return f"[{','.join([item] * count)}]".encode()
