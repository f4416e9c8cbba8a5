"""Store -> answer: the rows of a key lookup, each as the bytes of one JSON array.

The full row is spliced: key columns and window bounds come from the plan and the store key, the
value columns are the stored bytes, never decoded. A projection cuts the array into raw cells.
All is read in one view of the store, so that an answer never mixes two batches of a partition
(docs/ARCHITECTURE.md, promise 4), and is labelled with what was recorded with its rows.

Not here: which replica answers, and its bound on the lag (`control/routing/route.py`); HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Final, Protocol

import msgspec

from standpipe.data.encoding import native
from standpipe.data.encoding.kafka_keys import bounds_of
from standpipe.data.encoding.store_keys import (
    encode_key,
    full_store_key,
    ordered_longs,
    partition_of,
    store_key,
    store_prefix,
    window_at_end,
)
from standpipe.data.encoding.stored_rows import StoredRow, fitted, unpack_row
from standpipe.data.query import order
from standpipe.data.query.partition_keys import NO_KEYS, PartitionKeys, keys_by_partition
from standpipe.data.query.scan import Scan, is_in_window, rows_of
from standpipe.model import Source
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan, Value

#: windows of a lookup that are shown at once, in 1 ms; and those whose rows are decoded, in 4 ms
WINDOWS_MAX: Final = 2_000
DECODED_WINDOWS_MAX: Final = 250
#: bytes of their rows
WINDOWS_BYTES_MAX: Final = 1024 * 1024
#: windows that are read before they are counted: a row may have a megabyte
CHUNK_WINDOWS: Final = 128
#: keys that are read before their rows are charged: a value may have a megabyte
CHUNK_KEYS: Final = 64
_NO_BOUND_BYTES: Final = b"\xff" * 9  # above every window start

_TEXT: Final = native.KINDS["STRING"]
_encode = msgspec.json.Encoder(decimal_format="number").encode
_cells = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TooManyWindows(Exception):
    """The keys of a lookup have more windows, or larger ones, than are shown at once (`Scan` of
    their `key_ranges`)."""


class ReadView(Protocol):
    """A store at one instant."""

    def get(self, key: bytes, /) -> bytes | None:
        """The stored value of a key."""
        ...

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        """At most `limit` pairs with low <= key < high, in order."""
        ...


def partition_of_key(source: Source, key: Sequence[Value]) -> int:
    """Partition of the table in which a key lives. Raises UnfitKey; a null key has none (-1)."""
    kind = native.kind_of(source)
    if kind is not None:
        found = native.keys_by_partition((tuple(key),), kind, source.partitions)
        if found:
            return next(iter(found))
    raw = encode_key(key, source.key_columns, source.key_format, source.key_delimiter)
    return -1 if raw is None else partition_of(raw, source.partitions)


def partitions(plan: PullPlan) -> tuple[int, ...]:
    """Partitions that hold keys of this plan, ascending; null keys are in none, scans need all."""
    if plan.is_scan:
        return tuple(range(plan.source.partitions))
    return tuple(keys_by_partition(plan))


def is_plain(plan: PullPlan) -> bool:
    """Whether one get for each key finds the rows, which are shown without being computed."""
    return not (
        plan.is_scan
        or plan.is_merged
        or plan.where is not None
        or plan.cells is not None
        or plan.source.window is not None
    )


def lookup(plan: PullPlan, view: ReadView, partition: int) -> list[bytes]:
    """Rows of the keys of `plan` that live in `partition`: JSON arrays, windows ascending.

    A plan with one key is not checked against `partition`: the router has just computed it. Raises
    DamagedRow if a stored row fails its checksum, TooManyWindows.
    """
    if plan.is_scan or plan.where is not None or plan.cells is not None or plan.is_merged:
        return _decoded(plan, view, partition)
    if len(plan.keys) == 1 and plan.source.window is None:
        return _plain(plan, view, plan.keys[0])[: plan.limit]
    if plan.source.window is None:
        return lookup_keys(plan, view, keys_by_partition(plan).get(partition, NO_KEYS))
    rows: list[bytes] = []
    for key, pairs in _windows_by_key(plan, view, partition, WINDOWS_MAX):
        rows += _shown(plan, key, pairs)
    return rows[: plan.limit]


def lookup_keys(
    plan: PullPlan,
    view: ReadView,
    asked: PartitionKeys,
    charge: Callable[[list[bytes]], None] = lambda _rows: None,
) -> list[bytes]:
    """Rows of the keys of one partition, of a plan that `is_plain`, in the order of `asked`.

    `charge` is called with some rows before more are read, and may raise. Keys are read in the
    order asked: of a million rows in memory, sorted keys were found no faster. Raises DamagedRow.
    """
    store_keys = asked.store_keys if plan.projection is None else ()
    kind, added = asked.kind, count_added(plan.source)
    rows: list[bytes] = []
    for at in range(0, len(asked.keys), CHUNK_KEYS):
        part = store_keys[at : at + CHUNK_KEYS]
        found = native.spliced(part, list(map(view.get, part)), kind, added) if part else None
        if found is None:
            keys = asked.keys[at : at + CHUNK_KEYS]
            found = [row for key in keys for row in _plain(plan, view, key)]
        if plan.limit is not None:
            found = found[: plan.limit - len(rows)]
        charge(found)
        rows += found
        if len(rows) == plan.limit:
            break
    return rows


def spliced_rows(
    store_keys: Sequence[bytes], stored: Sequence[bytes | None], added: int
) -> list[bytes] | None:
    """The whole rows of plain texts, by their keys in a store of one column; None: a row has its
    key in full, or something is to be judged elsewhere. `added`: how many columns their table got
    in place. Raises DamagedRow."""
    found = native.spliced(store_keys, stored, _TEXT, added)
    if found is not None:
        return found
    rows: list[bytes] = []
    for key, data in zip(store_keys, stored, strict=True):
        if data is None:
            continue
        row = unpack_row(data)
        if row.full_key:
            return None
        cells = row.value_json if row.added == added else fitted(row, added)
        if cells == b"[]":
            rows.append(b'["%b"]' % key[:-2])
        else:
            rows.append(b'["%b",%b' % (key[:-2], cells[1:]))
    return rows


def _decoded(plan: PullPlan, view: ReadView, partition: int) -> list[bytes]:
    """Lookups that splicing cannot answer.

    A scan runs to its end here, for callers with nothing else to do; a worker runs it in steps
    (`node.worker.pull.scans`).
    """
    if plan.is_scan:
        scan = Scan(plan)
        while not scan.is_over:
            scan.step(view)
        return scan.rows()
    return computed(plan, stored_pairs(plan, view, partition))


def stored_pairs(plan: PullPlan, view: ReadView, partition: int) -> Iterator[order.Pair]:
    """What the store has for the keys of `plan` that live in `partition`, for `computed`. Raises
    TooManyWindows on the way."""
    if plan.source.window is None:
        for key in _keys_in(plan, partition):
            yield from _pair(plan, view, key)
        return
    for _, pairs in _windows_by_key(plan, view, partition, DECODED_WINDOWS_MAX):
        yield from pairs


def key_ranges(plan: PullPlan, partition: int) -> list[tuple[bytes, bytes]]:
    """The parts of the store that have the windows of the keys of `plan` that live in `partition`,
    each low <= key < high."""
    types = _key_types(plan.source)
    return [_key_range(plan, key, types) for key in _keys_in(plan, partition) if None not in key]


def computed(plan: PullPlan, pairs: Iterable[order.Pair]) -> list[bytes]:
    """The rows of `stored_pairs`, filtered and laid out. Reads no store."""
    if plan.is_ordered:
        pairs = order.in_key_order(plan, sorted(pairs))
    rows = rows_of(plan, pairs)
    if plan.is_count:
        return [b"[%d]" % sum(1 for _ in rows)]
    return list(islice(rows, plan.limit))


def _pair(plan: PullPlan, view: ReadView, key: tuple[Value, ...]) -> Iterator[order.Pair]:
    """Store key and value of a key of the table, if it has a row."""
    if None in key:
        return
    low = store_key(key, _key_types(plan.source))
    data = view.get(low)
    if data is not None:
        yield low, data


def _keys_in(plan: PullPlan, partition: int) -> Sequence[tuple[Value, ...]]:
    return (
        plan.keys if len(plan.keys) == 1 else keys_by_partition(plan).get(partition, NO_KEYS).keys
    )


def _plain(plan: PullPlan, view: ReadView, key: tuple[Value, ...]) -> list[bytes]:
    if None in key:
        return []
    types = _key_types(plan.source)
    data = view.get(store_key(key, types))
    if data is None:
        return []
    row = unpack_row(data)
    if row.full_key and row.full_key != full_store_key(key, types):
        return []
    return [_render(plan, [cell_json(value) for value in key], row)]


def _windows_by_key(
    plan: PullPlan, view: ReadView, partition: int, count_max: int
) -> Iterator[tuple[tuple[Value, ...], list[order.Pair]]]:
    """The keys of `plan` that live in `partition`, and the windows of each. Raises TooManyWindows
    if there are more than `count_max` in all, or too many bytes."""
    types, bytes_ = _key_types(plan.source), 0
    for key in _keys_in(plan, partition):
        if None in key:
            continue
        pairs = _few(view, _key_range(plan, key, types), count_max)
        count_max -= len(pairs)
        bytes_ += _bytes_of(pairs)
        if bytes_ > WINDOWS_BYTES_MAX:
            raise TooManyWindows
        yield key, pairs


def windows_of(
    plan: PullPlan, view: ReadView, key: tuple[Value, ...], prefix: bytes
) -> list[bytes]:
    """Rows of the windows of a key, of a plan that shows columns as they are stored. `prefix`: of
    their keys in the store. Raises DamagedRow, TooManyWindows."""
    return _shown(plan, key, _few(view, _range_of(plan, prefix), WINDOWS_MAX))


def _shown(plan: PullPlan, key: tuple[Value, ...], pairs: Sequence[order.Pair]) -> list[bytes]:
    head = [cell_json(value) for value in key]
    found = _whole_windows(plan, head, pairs)
    return _windows_by_one(plan, key, head, pairs) if found is None else found


def _whole_windows(
    plan: PullPlan, head: list[bytes], pairs: Sequence[order.Pair]
) -> list[bytes] | None:
    """The rows of some windows of a key; None: they are to be judged one by one."""
    source, window = plan.source, plan.source.window
    assert window is not None
    is_session = window.kind == "SESSION"
    has_end = plan.window_end_low_ms is not None or plan.window_end_high_ms is not None
    if plan.projection is not None or (is_session and has_end):
        return None
    begin, size_ms = b"[" + b",".join(head), 0 if is_session else window.size_ms
    added = count_added(source) if source.columns_first else 0  # to count them takes long
    return native.windows(begin, pairs, size_ms, added)


def _windows_by_one(
    plan: PullPlan, key: tuple[Value, ...], head: list[bytes], pairs: Iterable[order.Pair]
) -> list[bytes]:
    window = plan.source.window
    assert window is not None
    types, bounds = _key_types(plan.source), bounds_of(window)
    is_whole = plan.projection is None and not plan.source.columns_first
    begin = b"[" + b",".join(head)
    rows: list[bytes] = []
    for found_key, data in pairs:
        window_ms = window_at_end(found_key, bounds)
        # a session ends with its last event, so the range of starts does not determine its end
        if bounds == 2 and not is_in_window(plan, window_ms):
            continue
        row = unpack_row(data)
        if row.full_key and row.full_key != full_store_key(key, types, *window_ms):
            continue
        start_ms = window_ms[0]
        end_ms = window_ms[1] if bounds == 2 else start_ms + window.size_ms
        if is_whole and not row.added and len(row.value_json) > len(b"[]"):  # most are
            rows.append(b"%b,%d,%d,%b" % (begin, start_ms, end_ms, row.value_json[1:]))
            continue
        rows.append(_render(plan, [*head, b"%d" % start_ms, b"%d" % end_ms], row))
    return rows


def _key_range(plan: PullPlan, key: tuple[Value, ...], types: Sequence[str]) -> tuple[bytes, bytes]:
    return _range_of(plan, store_prefix(key, types, bounds_of(plan.source.window)))


def _range_of(plan: PullPlan, prefix: bytes) -> tuple[bytes, bytes]:
    """The keys in the store that begin with `prefix` and are of windows that the plan wants."""
    low_ms, high_ms = window_bounds(plan)
    return (
        prefix if low_ms is None else prefix + ordered_longs((low_ms,)),
        prefix + (_NO_BOUND_BYTES if high_ms is None else ordered_longs((high_ms + 1,))),
    )


def _few(view: ReadView, between: tuple[bytes, bytes], count_max: int) -> list[order.Pair]:
    """All pairs between two keys. Raises TooManyWindows."""
    low, high = between
    chunk = view.scan(low, high, CHUNK_WINDOWS) if low < high else []
    count = len(chunk)
    if count < CHUNK_WINDOWS and count <= count_max:  # most keys have so few
        return chunk
    pairs, bytes_ = list(chunk), _bytes_of(chunk)
    while len(pairs) <= count_max and bytes_ <= WINDOWS_BYTES_MAX:
        if len(chunk) < CHUNK_WINDOWS:
            return pairs
        chunk = view.scan(chunk[-1][0] + b"\0", high, CHUNK_WINDOWS)
        pairs += chunk
        bytes_ += _bytes_of(chunk)
    raise TooManyWindows


def _bytes_of(pairs: Iterable[order.Pair]) -> int:
    return sum(len(value) for _, value in pairs)


def window_bounds(plan: PullPlan) -> tuple[int | None, int | None]:
    """Lowest and highest window start, inclusive, that satisfy the bounds on start and end; for
    sessions, whose length varies, only the bounds on the start."""
    window = plan.source.window
    assert window is not None
    if window.kind == "SESSION":
        return plan.window_start_low_ms, plan.window_start_high_ms
    low_ms, high_ms = plan.window_start_low_ms, plan.window_start_high_ms
    if plan.window_end_low_ms is not None:
        low_by_end_ms = plan.window_end_low_ms - window.size_ms
        low_ms = low_by_end_ms if low_ms is None else max(low_ms, low_by_end_ms)
    if plan.window_end_high_ms is not None:
        high_by_end_ms = plan.window_end_high_ms - window.size_ms
        high_ms = high_by_end_ms if high_ms is None else min(high_ms, high_by_end_ms)
    return low_ms, high_ms


def _key_types(source: Source) -> list[str]:
    return [column.type for column in source.columns if column.is_key]


def _render(plan: PullPlan, head: list[bytes], row: StoredRow) -> bytes:
    """`head`: the cells before the value columns."""
    value_json = row.value_json
    if row.added or plan.source.columns_first:
        value_json = fitted(row, count_added(plan.source))
    if plan.projection is not None:
        cells = [*head, *_cells(value_json), b"%d" % row.rowtime_ms]
        return b"[%b]" % b",".join([cells[index] for index in plan.projection])
    if value_json == b"[]":
        return b"[%b]" % b",".join(head)
    return b"[%b,%b" % (b",".join(head), value_json[1:])


def cell_json(value: Value) -> bytes:
    """A key column's value as a row shows it: DECIMAL a number with its scale, bytes base64."""
    if isinstance(value, Decimal):
        return f"{value:f}".encode()
    return _encode(value)
