"""The bytes of a changelog and of a store: partitions, headers, keys.

Every format is specified once, in docs/INTERFACES.md ("Bytes"); this file and
`data/encoding/kafka_keys.py` (keys as they are in Kafka) implement it. `murmur2` and `partition_of`
are Kafka's: golden values from its own class are in tests/unit/data/encoding/golden_murmur2.json.

Not here: rows (`data/encoding/stored_rows.py`) and the values in them
(`data/encoding/row_values.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Final

from standpipe.data.encoding.kafka_keys import (
    WINDOW_BYTES,
    UnfitKey,
    decimal_scale,
    decode_key,
    encode_columns,
    encode_key,
    json_text,
    key_kind,
    session_key,
    split_session_key,
    split_windowed_key,
    to_double,
    value_of_json,
    windowed_key,
)
from standpipe.model import BatchId, Column, Commit, LeaseEpoch
from standpipe.sql.plans import Value

__all__ = [
    "HEADER_COMMIT",
    "HEADER_REPAIR",
    "HEADER_ROWTIME",
    "KEY_BYTES_MAX",
    "OWN_HEADERS",
    "PREFIX_BYTES_MAX",
    "Headers",
    "UnfitKey",
    "commit_header",
    "decode_key",
    "encode_columns",
    "encode_key",
    "full_store_key",
    "murmur2",
    "ordered_longs",
    "parse_commit_header",
    "parse_rowtime_header",
    "parse_store_key",
    "partition_of",
    "rowtime_header",
    "session_key",
    "split_windowed_key",
    "store_key",
    "store_key_from_raw",
    "store_keys_from_raw",
    "store_prefix",
    "window_at_end",
    "windowed_key",
]

#: headers of a record, in the order in which they were written
Headers = Sequence[tuple[str, bytes | None]]
HEADER_COMMIT: Final = "sp-commit"
HEADER_ROWTIME: Final = "sp-rowtime"
#: only of what a repair has appended
HEADER_REPAIR: Final = "sp-repair"
#: no header column shows them
OWN_HEADERS: Final = (HEADER_COMMIT, HEADER_ROWTIME, HEADER_REPAIR)

#: LMDB's own limit for a key
KEY_BYTES_MAX: Final = 511
#: what the key columns may take, so that a window's start still fits after them; a session's
#: end needs another WINDOW_BYTES
PREFIX_BYTES_MAX: Final = KEY_BYTES_MAX - WINDOW_BYTES
HASH_BYTES: Final = 32
DECIMAL_DIGITS_MAX: Final = 38

_COMMIT: Final = struct.Struct(">qqQ")
_LONG: Final = struct.Struct(">q")
_ULONG: Final = struct.Struct(">Q")
_DOUBLE: Final = struct.Struct(">d")
_SIGN: Final = 1 << 63
_MASK: Final = (1 << 64) - 1
_SIGN_DECIMAL: Final = 1 << 127


# ------------------------------------------------------------------------------ partitions


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer. Source: Kafka, Utils.murmur2."""
    length = len(data)
    whole = length & ~3
    h = 0x9747B28C ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        mixed = (k * 0x5BD1E995) & 0xFFFFFFFF
        h = ((h * 0x5BD1E995) ^ ((mixed ^ (mixed >> 24)) * 0x5BD1E995)) & 0xFFFFFFFF
    if whole != length:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0x5BD1E995) & 0xFFFFFFFF
    h ^= h >> 15
    return h - 0x100000000 if h & 0x80000000 else h


def partition_of(raw_key: bytes, partitions: int) -> int:
    """Partition of a key without its window. Source: Kafka's DefaultPartitioner, toPositive."""
    return (murmur2(raw_key) & 0x7FFFFFFF) % partitions


# --------------------------------------------------------------------------------- headers


def commit_header(commit: Commit) -> bytes:
    """Value of the `sp-commit` header, 24 bytes; equal bytes mean the same commit."""
    return _COMMIT.pack(commit.lease_epoch, commit.batch, commit.attempt)


def parse_commit_header(data: bytes) -> Commit:
    """Raises ValueError if `data` is not 24 bytes long."""
    if len(data) != _COMMIT.size:
        raise ValueError(f"{HEADER_COMMIT} has {len(data)} bytes, not {_COMMIT.size}")
    lease_epoch, batch, attempt = _COMMIT.unpack(data)
    return Commit(lease_epoch=LeaseEpoch(lease_epoch), batch=BatchId(batch), attempt=attempt)


def rowtime_header(rowtime_ms: int) -> bytes:
    """Value of the `sp-rowtime` header: Unix ms, 8 bytes."""
    return _LONG.pack(rowtime_ms)


def parse_rowtime_header(data: bytes) -> int:
    """Raises ValueError if `data` is not 8 bytes long."""
    if len(data) != _LONG.size:
        raise ValueError(f"{HEADER_ROWTIME} has {len(data)} bytes, not {_LONG.size}")
    return int.from_bytes(data, "big", signed=True)


# ------------------------------------------------------------------------- keys of a store


def store_key(values: Sequence[Value], types: Sequence[str], *window_ms: int) -> bytes:
    """Key of a row in a store: bytes that sort as the columns do, then as the window.

    `window_ms`: its start, or a session's start and end. Key columns that take more room than there
    is are cut and end with a hash: such keys are still found, but are no longer in order, and their
    row carries the full key. Raises UnfitKey.
    """
    return store_prefix(values, types, len(window_ms)) + ordered_longs(window_ms)


def store_prefix(values: Sequence[Value], types: Sequence[str], bounds: int = 1) -> bytes:
    """The common prefix of the keys of all windows of one key."""
    return _shortened(_components(values, types), bounds)


def full_store_key(values: Sequence[Value], types: Sequence[str], *window_ms: int) -> bytes:
    """What `store_key` would return without its limit; a row keeps it if the two differ."""
    return _components(values, types) + ordered_longs(window_ms)


def parse_store_key(
    data: bytes, types: Sequence[str], bounds: int
) -> tuple[tuple[Value, ...], tuple[int, ...]]:
    """(values of the key columns, `window_ms`). Raises UnfitKey for a shortened key."""
    at = 0
    values: list[Value] = []
    try:
        for type_ in types:
            value, at = _component(data, at, type_)
            values.append(value)
        window_ms = tuple(_long_at(data, at + WINDOW_BYTES * n) for n in range(bounds))
    except (ValueError, struct.error) as error:
        raise UnfitKey(f"{data[:80]!r} is not a key of {', '.join(types)}: {error}") from error
    if len(data) != at + WINDOW_BYTES * bounds:
        raise UnfitKey(f"{data[:80]!r} is longer than a key of {', '.join(types)}")
    return tuple(values), window_ms


def store_key_from_raw(
    columns: Sequence[Column], key_format: str, *, bounds: int, delimiter: str = ","
) -> Callable[[bytes], tuple[bytes, bytes]]:
    """A function from a record's key in Kafka to (store key, full key or b"").

    Single STRING, INT and BIGINT keys of the KAFKA format are converted directly, bytes to bytes:
    this runs once for each record of a restore. The function raises UnfitKey.
    """
    components_of = _raw_components(columns, key_format, delimiter)
    if components_of is _raw_string and not bounds:
        return _string_store_key

    def convert(raw: bytes) -> tuple[bytes, bytes]:
        components = components_of(raw)
        prefix = _shortened(components, bounds)
        return prefix, b"" if prefix is components else components

    def convert_windowed(raw: bytes) -> tuple[bytes, bytes]:
        raw_key, *window_ms = split_windowed_key(raw) if bounds == 1 else split_session_key(raw)
        prefix, full_prefix = convert(raw_key)
        window = ordered_longs(window_ms)
        return prefix + window, full_prefix + window if full_prefix else b""

    return convert_windowed if bounds else convert


def store_keys_from_raw(
    columns: Sequence[Column], key_format: str, *, bounds: int, delimiter: str = ","
) -> Callable[[Sequence[bytes]], list[bytes] | None]:
    """`store_key_from_raw` for many keys; None if one had to be shortened. Raises UnfitKey."""
    components_of = _raw_components(columns, key_format, delimiter)
    if components_of is _raw_string and not bounds:
        return _plain_string_keys
    to_store_key = store_key_from_raw(columns, key_format, bounds=bounds, delimiter=delimiter)

    def convert(raws: Sequence[bytes]) -> list[bytes] | None:
        keys, full_keys = zip(*map(to_store_key, raws), strict=True)
        return None if any(full_keys) else list(keys)

    return convert


def window_at_end(key: bytes, bounds: int) -> tuple[int, ...]:
    """`window_ms` of a key in a store, shortened or not."""
    if bounds == 1:
        return (_long_at(key, len(key) - WINDOW_BYTES),)
    return tuple(_long_at(key, len(key) - WINDOW_BYTES * n) for n in range(bounds, 0, -1))


def _raw_components(
    columns: Sequence[Column], key_format: str, delimiter: str
) -> Callable[[bytes], bytes]:
    types = tuple(column.type for column in columns)
    quick = {"STRING": _raw_string, "BIGINT": _raw_bigint, "INT": _raw_int}
    if key_format == "KAFKA" and len(columns) == 1 and key_kind(types[0]) in quick:
        return quick[key_kind(types[0])]

    def components(raw: bytes) -> bytes:
        return _components(decode_key(raw, columns, key_format, delimiter), types)

    return components


def _raw_string(raw: bytes) -> bytes:
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise UnfitKey(f"{raw[:80]!r} is not valid UTF-8") from error
    return raw.replace(b"\0", b"\0\xff") + b"\0\1"


def _string_store_key(raw: bytes) -> tuple[bytes, bytes]:
    """For a single STRING key, the most frequent kind: no further call for the usual bytes."""
    is_plain = raw.isascii() and 0 not in raw
    components = raw + b"\0\1" if is_plain else _raw_string(raw)
    if len(components) <= PREFIX_BYTES_MAX:
        return components, b""
    return _shortened(components, 0), components


def _plain_string_keys(raws: Sequence[bytes]) -> list[bytes] | None:
    """`_string_store_key` for many plain and short keys; None if one of them is not."""
    together = b"".join(raws)
    if not together.isascii() or 0 in together or max(map(len, raws)) > PREFIX_BYTES_MAX - 2:
        return None
    return [raw + b"\0\1" for raw in raws]


def _raw_bigint(raw: bytes) -> bytes:
    if len(raw) != 8:
        raise UnfitKey(f"a BIGINT key has 8 bytes, not {len(raw)}")
    return bytes((raw[0] ^ 0x80,)) + raw[1:]


def _raw_int(raw: bytes) -> bytes:
    if len(raw) != 4:
        raise UnfitKey(f"an INTEGER key has 4 bytes, not {len(raw)}")
    return _ordered_long(int.from_bytes(raw, "big", signed=True))


def _shortened(components: bytes, bounds: int) -> bytes:
    """`components` itself if it leaves room for a window of this many longs."""
    room = PREFIX_BYTES_MAX if bounds < 2 else KEY_BYTES_MAX - bounds * WINDOW_BYTES
    if len(components) <= room:
        return components
    return components[: room - HASH_BYTES] + blake2b(components, digest_size=HASH_BYTES).digest()


def ordered_longs(values: Sequence[int]) -> bytes:
    """Bytes that sort as the numbers do."""
    return b"".join(map(_ordered_long, values))


def _ordered_long(value: int) -> bytes:
    try:
        return _ULONG.pack(value + _SIGN)
    except struct.error as error:
        raise UnfitKey(f"{value} does not fit into 64 bits") from error


def _long_at(data: bytes, at: int) -> int:
    return _ULONG.unpack_from(data, at)[0] - _SIGN


def _components(values: Sequence[Value], types: Sequence[str]) -> bytes:
    return b"".join([_encoded(value, type_) for value, type_ in zip(values, types, strict=True)])


def _encoded(value: Value, type_: str) -> bytes:
    kind = key_kind(type_)
    if kind == "NESTED":  # looked up by its text, which has no meaningful order
        value, kind = _nested_text(value, type_), "STRING"
    if kind == "STRING" and isinstance(value, str):
        return value.encode().replace(b"\0", b"\0\xff") + b"\0\1"
    if kind == "BYTES" and isinstance(value, bytes):
        return value.replace(b"\0", b"\0\xff") + b"\0\1"
    if kind == "BOOLEAN" and isinstance(value, bool):
        return b"\1" if value else b"\0"
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if kind in {"INT", "BIGINT"} and isinstance(value, int):
            return _ordered_long(value)
        if kind == "DOUBLE":
            return _ordered_double(to_double(value))
        if kind == "DECIMAL":
            return _ordered_decimal(Decimal(value), decimal_scale(type_))
    raise UnfitKey(f"{value!r} is not a valid key of type {type_}")


def _nested_text(value: Value, type_: str) -> str:
    try:
        return json_text(value, type_)
    except (ValueError, RecursionError) as error:  # a producer decides what is in a key
        raise UnfitKey(f"not a valid key of type {type_}: {error}") from error


def _ordered_double(value: float) -> bytes:
    """IEEE order: the sign bit flipped for positive numbers, all bits for negative ones."""
    bits = int.from_bytes(_DOUBLE.pack(value + 0.0), "big")  # + 0.0: there is no -0.0 in SQL
    return _ULONG.pack(bits ^ (_MASK if bits & _SIGN else _SIGN))


def _ordered_decimal(value: Decimal, scale: int) -> bytes:
    """The unscaled integer, 16 bytes: DECIMAL has at most 38 digits."""
    try:
        if value.adjusted() > DECIMAL_DIGITS_MAX:  # before its zeros are written
            raise ValueError
        unscaled = int(f"{value:.{scale}f}".replace(".", ""))
        return (unscaled + _SIGN_DECIMAL).to_bytes(16, "big")
    except (ValueError, OverflowError) as error:
        raise UnfitKey(f"{value} does not fit into 38 digits") from error


def _component(data: bytes, at: int, type_: str) -> tuple[Value, int]:
    """Value of the component at `at`, and where the next one begins."""
    kind = key_kind(type_)
    if kind in {"STRING", "BYTES", "NESTED"}:
        end = data.index(b"\0\1", at)
        raw = data[at:end].replace(b"\0\xff", b"\0")
        if kind == "NESTED":
            return value_of_json(raw, type_), end + 2
        return raw.decode() if kind == "STRING" else raw, end + 2
    if kind == "BOOLEAN":
        return data[at : at + 1] == b"\1", at + 1
    if kind == "DOUBLE":
        (bits,) = _ULONG.unpack_from(data, at)
        plain = bits ^ (_SIGN if bits & _SIGN else _MASK)
        return _DOUBLE.unpack(_ULONG.pack(plain))[0], at + 8
    if kind == "DECIMAL":
        unscaled = int.from_bytes(data[at : at + 16], "big") - _SIGN_DECIMAL
        scale = decimal_scale(type_)
        return Decimal((int(unscaled < 0), _digits(abs(unscaled)), -scale)), at + 16
    return _long_at(data, at), at + 8


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(number)))
