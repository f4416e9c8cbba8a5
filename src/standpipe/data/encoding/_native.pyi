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
    first: int,
    /,
) -> list[bytes] | None: ...
def digest(rows: Collection[tuple[bytes, bytes]], /) -> int | None: ...
def in_order(pairs: Sequence[tuple[bytes, bytes]], /) -> list[tuple[bytes, bytes]] | None: ...
def keys_by_partition(
    keys: tuple[object, ...], kind: int, partitions: int, are_values: bool = ..., /
) -> dict[int, tuple[list[tuple[object, ...]], list[bytes]]] | None: ...
def spliced(
    keys: list[bytes], stored: list[bytes | None], kind: int, added: int, /
) -> list[bytes] | None: ...
def placed(
    found: dict[Any, bytes],
    keys: tuple[tuple[object, ...], ...],
    rows: tuple[bytes, ...],
    kind: int,
    /,
) -> bool | None: ...
def windows(
    begin: bytes, pairs: tuple[tuple[bytes, bytes], ...], size_ms: int, added: int, /
) -> list[bytes] | None: ...
def arrow_columns(
    rows: tuple[bytes, ...], kinds: bytes, /
) -> list[tuple[int, bytes | None, bytes | None, bytes]] | None: ...
def cut(mark: bytes, body: bytes, /) -> bytes | None: ...
def known_literal(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, /
) -> tuple[Any, int, bytes] | None: ...
def known_part(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, now_s: float, /, *causes: object
) -> tuple[Any, int, bytes, Any, Any] | None: ...
def response(
    around: tuple[bytes, bytes, bytes, int, bool], key: bytes, stored: bytes, added: int = 0, /
) -> bytes | None: ...
def cut_all(mark: bytes, body: bytes, /) -> bytes | None: ...
def known_statement(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, /
) -> tuple[Any, int, bytes, tuple[bytes, ...]] | None: ...
def shown(
    key: bytes, stored: bytes, is_text: bool, program: bytes, literals: tuple[bytes, ...], /
) -> bytes | bool | None: ...
def cut_list(mark: bytes, body: bytes, /) -> bytes | None: ...
def known_list(
    known: Mapping[bytes, Any], mark: bytes, body: bytes, /
) -> tuple[Any, dict[int, list[bytes]]] | None: ...
