from collections.abc import Collection, Mapping, Sequence
from typing import Any

from standpipe.data.encoding.store_keys import Headers

FORM: int

def pack_rows(
    values: list[bytes | None],
    headers: list[Headers | None],
    names: tuple[str, str],
    wanted: bytes,
    heads: tuple[bytes, ...],
    /,
) -> list[bytes] | None: ...
def digest(rows: Collection[tuple[bytes, bytes]], /) -> int | None: ...
def in_order(pairs: Sequence[tuple[bytes, bytes]], /) -> list[tuple[bytes, bytes]] | None: ...
def keys_by_partition(
    keys: tuple[tuple[object, ...], ...], kind: int, partitions: int, /
) -> dict[int, tuple[list[tuple[object, ...]], list[bytes]]] | None: ...
def spliced(
    keys: list[bytes], stored: list[bytes | None], is_text: bool, /
) -> list[bytes] | None: ...
def cut(mark: bytes, body: bytes, /) -> bytes | None: ...
def known_literal(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, /
) -> tuple[Any, int, bytes] | None: ...
def response(
    around: tuple[bytes, bytes, bytes, int, bool], key: bytes, stored: bytes, /
) -> bytes | None: ...
def cut_all(mark: bytes, body: bytes, /) -> bytes | None: ...
def known_statement(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, /
) -> tuple[Any, int, bytes, tuple[bytes, ...]] | None: ...
def shown(
    key: bytes, stored: bytes, is_text: bool, program: bytes, literals: tuple[bytes, ...], /
) -> bytes | bool | None: ...
