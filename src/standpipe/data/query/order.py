"""Rows in the order of their keys: which part of a store is read, in what order, and merged.

A store is in the order of its keys, except for shortened ones (`store_keys.store_key`): if several
begin with the same bytes, their full keys decide. Each row of an ordered answer begins with its key
as an extra cell, in hexadecimal, until the rows of all partitions are merged.

Not here: reading (`data.query.pull`), the ORDER BY clause (`sql.lookup.order`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, cast

from standpipe.data.encoding.kafka_keys import WINDOW_BYTES, bounds_of
from standpipe.data.encoding.store_keys import HASH_BYTES, KEY_BYTES_MAX, full_store_key
from standpipe.data.encoding.stored_rows import unpack_row
from standpipe.sql.plans import PullPlan, Value

#: bytes of a key that are never replaced by a hash, in any table
SURE_BYTES: Final = KEY_BYTES_MAX - 2 * WINDOW_BYTES - HASH_BYTES
#: above every key
TOP: Final = b"\xff" * (KEY_BYTES_MAX + 1)

Pair = tuple[bytes, bytes]


def bounds(plan: PullPlan) -> tuple[bytes, bytes]:
    """The part of a store that a scan has to read: low <= key < high. It may hold keys beyond the
    plan's bounds, unless `has_exact_bounds`."""
    low, high = b"", TOP
    if plan.key_low is not None:
        start = _start(plan, plan.key_low)
        low = _behind_all(start) if plan.is_low_open and _is_sure(start) else start[:SURE_BYTES]
    if plan.key_high is not None:
        start = _start(plan, plan.key_high)
        is_open = plan.is_high_open and _is_sure(start)
        high = start if is_open else start[:SURE_BYTES] + TOP
    return max(low, _after(plan)[:SURE_BYTES]), high


def has_exact_bounds(plan: PullPlan) -> bool:
    """Whether the plan wants all rows between its `bounds` (behind `after`, if that is given) that
    satisfy its `conditions`."""
    of_windows = (
        plan.window_start_low_ms,
        plan.window_start_high_ms,
        plan.window_end_low_ms,
        plan.window_end_high_ms,
    )
    if of_windows != (None,) * 4:
        return False
    if plan.where is None:
        return True
    limits = [limit for limit in (plan.key_low, plan.key_high) if limit is not None]
    return plan.conditions is not None and all(_is_sure(_start(plan, limit)) for limit in limits)


def _start(plan: PullPlan, value: Value) -> bytes:
    """What the keys with this value in their first column begin with, and no others."""
    return full_store_key((value,), [plan.source.key_columns[0].type])


def _is_sure(start: bytes) -> bool:
    return len(start) <= SURE_BYTES


def _behind_all(start: bytes) -> bytes:
    """The least key above all that begin so."""
    kept = start.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else TOP


def in_key_order(plan: PullPlan, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Ascending, and only those after `plan.after`; `pairs` in the order of a store."""
    after = _after(plan)
    for _, alike in groupby(pairs, key=lambda pair: pair[0][:SURE_BYTES]):
        keyed = sorted((full_key(*pair), pair) for pair in alike)
        yield from (pair for key, pair in keyed if key > after)


def behind(plan: PullPlan, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Those that come after `plan.after`."""
    after = _after(plan)
    if not after:
        return iter(pairs)
    return (pair for pair in pairs if full_key(*pair) > after)


def are_alike(one: bytes, other: bytes) -> bool:
    """Whether only the full keys of two store keys decide which comes first."""
    return one[:SURE_BYTES] == other[:SURE_BYTES]


def full_key(key: bytes, data: bytes) -> bytes:
    """A row's key as it would be without a length limit."""
    if len(key) <= SURE_BYTES:
        return key
    return unpack_row(data).full_key or key


def marked(key: bytes, row: bytes) -> bytes:
    """A row with its full key in front."""
    return b'["%b",%b' % (key.hex().encode(), row[1:])


def merged(plan: PullPlan, rows: Sequence[bytes], *, is_final: bool) -> list[bytes]:
    """The rows of several partitions as one answer; `is_final`: to a client, not to a peer."""
    if plan.is_count:
        return [b"[%d]" % sum(int(row[1:-1]) for row in rows)]
    if plan.is_ordered:
        # a quote sorts before every digit, so a key comes before those that it is a prefix of
        found = sorted(rows)[: plan.limit]
        return [b"[" + row[row.index(b",") + 1 :] for row in found] if is_final else found
    return list(rows) if plan.limit is None else list(rows[: plan.limit])


def _after(plan: PullPlan) -> bytes:
    """The last full key of the previous page; without a window, a key above all its windows."""
    if not plan.after:
        return b""
    types = [column.type for column in plan.source.key_columns]
    key, window_ms = plan.after[: len(types)], plan.after[len(types) :]
    found = full_store_key(key, types, *cast("tuple[int, ...]", window_ms))
    missing = bounds_of(plan.source.window) - len(window_ms)
    return found + b"\xff" * (WINDOW_BYTES * missing)
