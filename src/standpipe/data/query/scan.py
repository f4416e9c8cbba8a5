"""Store -> answer if rows must be decoded: scans, filters, computed cells.

The rows come from a scan of the whole partition, or from the keys of the plan; each is decoded,
filtered and laid out. A scan reads at most SCAN_ROWS_MAX rows of a partition and is refused beyond
that: it shares the worker with lookups. For the same reason it runs in steps (`Scan`). Not here:
plain lookups (`data/query/pull.py`), what runs between two steps (`node/worker/pull/scans.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, Final, Protocol

import msgspec

from standpipe.data.encoding.cells import cell_json, row_of
from standpipe.data.encoding.kafka_keys import bounds_of
from standpipe.data.encoding.store_keys import parse_store_key
from standpipe.data.encoding.stored_rows import StoredRow, fitted, unpack_row
from standpipe.data.query import order
from standpipe.data.query.order import Pair, marked
from standpipe.data.query.raw_rows import RawRows, raw_rows
from standpipe.errors import BadRequest, NotComputable
from standpipe.model import Column, Source
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.made_fields import TooManyFields
from standpipe.sql.types.types import LONG_KEPT_MAX, SHORT_CHARS_MAX, SqlType, parse_type

SCAN_ROWS_MAX: Final = 1_000_000
#: rows that one step copies, in 0.05 ms
STEP_ROWS: Final = 128
#: rows that one step decodes, in 0.2 ms
DECODED_ROWS: Final = 32
#: bytes of the rows that one step takes as they are, in 0.2 ms; of most tables all that one copied
RAW_BYTES: Final = 256 * 1024
#: expressions computed in one step, at some 0.2 µs each: a statement may have thousands
STEP_EXPRESSIONS: Final = 4_000
#: may be copied ahead of decoding; 1 M rows of the usual size
COPIED_BYTES_MAX: Final = 96 * 1024 * 1024
#: what Python takes for a row of the answer, beside its bytes
ROW_BYTES: Final = 41

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]]).decode


def rows_bytes(rows: Sequence[bytes]) -> int:
    """What rows of an answer take in memory."""
    return sum(map(len, rows)) + ROW_BYTES * len(rows)


class Ranged(Protocol):
    """The part of `data.query.pull.ReadView` that a scan reads."""

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[Pair]:
        """At most `limit` pairs with low <= key < high, in order."""
        ...


class Scan:
    """One partition's rows of a scanning plan, a step at a time.

    Rows are copied from the store first and decoded afterwards, which takes 20 times as long. So
    one instant of the store is needed only for a short time, until `is_copied`. The two alternate
    only beyond `copied_bytes_max`, and if a LIMIT may end the scan early. What is shown as it is
    stored is not decoded (`data/query/raw_rows.py`).

    `ranges`: the parts of the store that have the windows of the keys of a lookup, each low <= key
    < high; None: the plan is a scan.
    """

    def __init__(self, plan: PullPlan, ranges: Sequence[tuple[bytes, bytes]] | None = None) -> None:
        self._plan = plan
        given = [order.bounds(plan)] if ranges is None else ranges
        #: what is still to be copied
        self._ranges = deque((low, high) for low, high in given if low < high)
        self._limit = None if plan.is_count else plan.limit
        self._raw = raw_rows(plan)
        self._counts_keys = (
            plan.is_count and not (plan.after or plan.conditions) and order.has_exact_bounds(plan)
        )
        #: one item per step that copied; packed, since pairs take three times their bytes
        self._copied: deque[bytes] = deque()
        self.copied_bytes = 0
        #: the caller sets it lower while memory is scarce
        self.copied_bytes_max = COPIED_BYTES_MAX
        #: of `_copied`, unpacked for the next steps that decode
        self._unpacked: deque[Pair] = deque()
        self._read_count = 0
        self._last_key = b""  # of the newest row that was decoded
        self._rows: list[bytes] = []
        #: what the decoded rows take in memory
        self.kept_bytes = 0
        self._count = 0

    @property
    def is_copied(self) -> bool:
        """Whether no further step will read the store."""
        return not self._ranges

    @property
    def is_over(self) -> bool:
        return (self.is_copied and not self._has_copied) or self._is_full()

    @property
    def _has_copied(self) -> bool:
        return bool(self._copied or self._unpacked)

    def step(self, view: Ranged, is_due: Callable[[], bool] = lambda: False) -> None:
        """Copy or decode a few rows. All steps that copy must see one instant of the store.

        `is_due`: asked between two rows that are decoded; true: the step ends. Raises BadRequest
        beyond SCAN_ROWS_MAX, DamagedRow if a row fails its checksum.
        """
        if self.is_copying:
            self._copy(view)
        else:
            self._decode(is_due)

    def rows(self) -> list[bytes]:
        """JSON arrays of the rows that satisfy the plan, once the scan is over."""
        if self._plan.is_count:
            return [b"[%d]" % self._count]
        if self._plan.is_ordered:  # rows begin with their keys; shortened ones arrive in any order
            self._rows.sort()
        return self._rows if self._limit is None else self._rows[: self._limit]

    @property
    def is_copying(self) -> bool:
        """Whether the next step copies rows, rather than decode some."""
        if self.is_copied:
            return False
        return not self._has_copied or (
            self._limit is None and self.copied_bytes < self.copied_bytes_max
        )

    def _copy(self, view: Ranged) -> None:
        low, high = self._ranges.popleft()
        pairs = view.scan(low, high, STEP_ROWS)
        self._read_count += len(pairs)
        if self._read_count > SCAN_ROWS_MAX:
            raise _too_many(self._plan.source)
        if len(pairs) == STEP_ROWS:
            self._ranges.appendleft((pairs[-1][0] + b"\0", high))
        if pairs:
            packed = _pack(pairs)
            self._copied.append(packed)
            self.copied_bytes += len(packed)

    def _decode(self, is_due: Callable[[], bool]) -> None:
        self._unpack()
        if self._counts_keys:
            self._count += len(self._unpacked)
            self._unpacked.clear()
        elif self._raw is None or not self._take_raw(self._raw):
            self._decode_some(is_due)

    def _take_raw(self, raw: RawRows) -> bool:
        """As many rows as one step may; False: one is unusual, and none was taken."""
        sizes = accumulate(len(row) for _, row in self._unpacked)
        count = 1 + sum(1 for size in sizes if size < RAW_BYTES)
        pairs = [*islice(self._unpacked, count)]
        wanted = [*order.behind(self._plan, pairs)] if self._plan.is_ordered else pairs
        rows = raw.of(wanted)
        if rows is None:
            return False
        self._last_key = pairs[-1][0]
        for _ in pairs:
            self._unpacked.popleft()
        if self._plan.is_count:
            self._count += len(rows) - rows.count(None)
        elif self._plan.is_ordered:
            keyed = zip(wanted, rows, strict=True)
            self._keep(marked(key, row) for (key, _), row in keyed if row is not None)
        else:
            self._keep(row for row in rows if row is not None)
        return True

    def _decode_some(self, is_due: Callable[[], bool]) -> None:
        rows_max = max(
            1, min(DECODED_ROWS, STEP_EXPRESSIONS // max(1, self._plan.expression_count))
        )
        pairs = self._drawn(min(rows_max, len(self._unpacked)), is_due)
        wanted = order.behind(self._plan, pairs) if self._plan.is_ordered else pairs
        rows = rows_of(self._plan, wanted)
        if self._plan.is_count:
            self._count += sum(1 for _ in rows)
        else:
            self._keep(rows)

    def _keep(self, rows: Iterable[bytes]) -> None:
        # all of an ordered plan: rows with shortened keys arrive in any order
        missing = None if self._limit is None else self._limit - len(self._rows)
        found = list(rows if self._plan.is_ordered else islice(rows, missing))
        self._rows += found
        self.kept_bytes += rows_bytes(found)

    def _drawn(self, count: int, is_due: Callable[[], bool]) -> Iterator[Pair]:
        for number in range(count):
            if number and is_due():
                return
            pair = self._unpacked.popleft()
            self._last_key = pair[0]
            yield pair

    def _unpack(self) -> None:
        if not self._unpacked and self._copied:
            packed = self._copied.popleft()
            self.copied_bytes -= len(packed)
            self._unpacked.extend(_unpack(packed))

    def _is_full(self) -> bool:
        """Whether the rows that LIMIT allows are among the decoded ones; at once for LIMIT 0."""
        if self._limit is None or len(self._rows) < self._limit:
            return False
        if not self._plan.is_ordered or self._limit == 0:
            return True
        # keys that begin with the same bytes may arrive in any order
        self._unpack()
        next_key = self._unpacked[0][0] if self._unpacked else None
        return next_key is not None and not order.are_alike(self._last_key, next_key)


def _too_many(source: Source) -> BadRequest:
    return BadRequest(
        f"the query would read more than {SCAN_ROWS_MAX} rows of a partition of"
        f" {source.name}: name its keys, or a LIMIT"
    )


def rows_of(plan: PullPlan, pairs: Iterable[Pair]) -> Iterator[bytes]:
    """JSON arrays of the rows that satisfy the plan. Raises BadRequest beyond SCAN_ROWS_MAX."""
    source = plan.source
    for count, (key, data) in enumerate(pairs):
        if count >= SCAN_ROWS_MAX:
            raise _too_many(source)
        stored = unpack_row(data)
        row = full_row(source, key, stored)
        window_ms = row[len(source.key_columns) :][:2] if source.window else ()
        is_wanted = plan.where is None or _value(plan.where, row)
        if is_wanted and is_in_window(plan, window_ms):
            laid = laid_out(plan, row)
            yield marked(stored.full_key or key, laid) if plan.is_ordered else laid


def full_row(source: Source, store_key: bytes, stored: StoredRow) -> list[Any]:
    """Key columns, window bounds, value columns, ROWTIME: as values. Raises NotComputable."""
    window = source.window
    types = [column.type for column in source.key_columns]
    key = stored.full_key or store_key
    values, window_ms = parse_store_key(key, types, bounds_of(window))
    row: list[Any] = [*values, *window_ms]
    if window is not None and len(window_ms) == 1:
        row.append(window_ms[0] + window.size_ms)
    array = stored.value_json
    if stored.added or source.columns_first:
        array = fitted(stored, count_added(source))
    try:
        row += row_of(array, types_of(source.value_columns))
    except TooManyFields as error:  # the row is sound, so no other replica has another answer
        raise NotComputable(
            f"A row of {source.name} cannot be decoded: its STRUCTs have {error}"
        ) from error
    row.append(stored.rowtime_ms)
    return row


def laid_out(plan: PullPlan, row: list[Any]) -> bytes:
    """The cells of the answer as one JSON array."""
    types = [parse_type(name) for name in plan.column_types]
    if plan.cells is not None:
        cells = [_value(cell, row) for cell in plan.cells]
    elif plan.projection is not None:
        cells = [row[index] for index in plan.projection]
    else:
        cells = row[: plan.full_row_width]
    return b"[%b]" % b",".join(map(cell_json, cells, types))


def _value(compute: Callable[[list[Any]], Any], row: list[Any]) -> Any:
    """Raises NotComputable: the row is sound, so no other replica has another answer."""
    try:
        return compute(row)
    except NotComputable:
        raise
    except Exception as error:
        raise NotComputable(f"An expression has no value for a row: {error}") from error


def is_in_window(plan: PullPlan, window_ms: Sequence[int]) -> bool:
    """Whether a row's window, its start and its end, lies within the bounds of the plan."""
    if plan.source.window is None:
        return True
    bounds = (
        (window_ms[0], plan.window_start_low_ms, plan.window_start_high_ms),
        (window_ms[1], plan.window_end_low_ms, plan.window_end_high_ms),
    )
    return all(
        (low is None or value >= low) and (high is None or value <= high)
        for value, low, high in bounds
    )


@lru_cache(maxsize=1024)
def _types(names: tuple[str, ...]) -> tuple[SqlType, ...]:
    return tuple(map(parse_type, names))


@lru_cache(maxsize=LONG_KEPT_MAX)
def _long_types(names: tuple[str, ...]) -> tuple[SqlType, ...]:
    return tuple(map(parse_type, names))


def types_of(columns: Sequence[Column]) -> tuple[SqlType, ...]:
    """The columns' types, parsed once for equal ones."""
    names = tuple(column.type for column in columns)
    return (_types if sum(map(len, names)) <= SHORT_CHARS_MAX else _long_types)(names)
