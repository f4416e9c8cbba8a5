"""Records on their way into a store: the codec of one table partition, and what it has staged.

A node that lost its disk does not answer until millions of records have passed through here. So a
fetch whose records are all as our writer writes them takes the fast path: in C if that is compiled
(`data/encoding/native.py`), else column by column. Any other fetch takes the slow path, record by
record (`Stage._add_one_by_one`), which defines what each record means.

Not here: which range belongs to which commit (`data/replica/machine.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from standpipe.data.encoding.kafka_keys import WINDOW_BYTES, bounds_of
from standpipe.data.encoding.native import Heads, heads_of, pack_rows
from standpipe.data.encoding.row_values import (
    ToArray,
    ToArrays,
    count_beyond,
    object_names,
    own_columns_to_array,
    to_array,
    to_arrays,
)
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    Headers,
    UnfitKey,
    partition_of,
    store_key_from_raw,
    store_keys_from_raw,
)
from standpipe.data.encoding.stored_rows import pack_row_at, pack_rows_at
from standpipe.data.replica.events import Fetched, columns_of
from standpipe.model import Source
from standpipe.sql.declarations.added_columns import count_first, may_grow

#: in fetches of more records than this, only samples have their partitions checked
SAMPLED_ABOVE: Final = 256
SAMPLED_EACH: Final = 64
#: changes of one batch kept although some are superseded by later ones
CHANGES_MAX: Final = 400_000
_NO_ROWTIME: Final = bytes(8)
_NO_HEADER: Final = ("", None)


@dataclass(frozen=True)
class RowCodec:
    """How records of one table partition become rows."""

    partition: int
    partitions: int
    #: length of the window at the end of a key
    window_bytes: int
    to_store_key: Callable[[bytes], tuple[bytes, bytes]]
    to_array: ToArray
    #: the same for many at once
    to_store_keys: Callable[[Sequence[bytes]], list[bytes] | None]
    to_arrays: ToArrays | None
    #: heads of the columns if values are objects, else none
    heads: Heads = ()
    #: of a table that gets columns in place: how many it began with; a row has those that its
    #: writer knew, whatever is known here
    first: int | None = None

    @classmethod
    def of(cls, source: Source, partition: int) -> RowCodec:
        """Raises UnfitKey or ValueError for formats that a store cannot keep."""
        bounds = bounds_of(source.window)
        key = (source.key_columns, source.key_format)
        grows = may_grow(source)
        return cls(
            partition=partition,
            partitions=source.partitions,
            window_bytes=bounds * WINDOW_BYTES,
            to_store_key=store_key_from_raw(*key, bounds=bounds, delimiter=source.key_delimiter),
            to_array=own_columns_to_array if grows else to_array(source),
            to_store_keys=store_keys_from_raw(*key, bounds=bounds, delimiter=source.key_delimiter),
            to_arrays=None if grows else to_arrays(source),
            heads=heads_of(object_names(source)),
            first=count_first(source) if grows else None,
        )

    def is_misplaced(self, record: Fetched) -> bool:
        """Whether readers would look for its key in another partition."""
        key = record[1] or b""
        raw = key[: -self.window_bytes] if self.window_bytes else key
        return partition_of(raw, self.partitions) != self.partition


@dataclass
class Stage:
    """The changes of whole batches, or of the batch that is being filled."""

    #: store keys and their rows (None: deleted) in the order of the changelog. A key's last row
    #: counts; it is found later, since a lookup per record would slow a restore. Two lists, because
    #: long-lived pairs among many short-lived ones leave holes in memory: a fifth more time
    keys: list[bytes] = field(default_factory=list[bytes])
    rows: list[bytes | None] = field(default_factory=list["bytes | None"])
    has_deletes: bool = False
    foreign: int = 0
    mismatched: int = 0
    unreadable: int = 0
    example: str = ""
    #: number of changes above which superseded ones are dropped
    room: int = CHANGES_MAX

    def add(self, records: Sequence[Fetched], codec: RowCodec, wanted: bytes | None) -> None:
        """Stage the records whose commit header is `wanted` (None: any), count the others."""
        rows = _rows_at_once(records, codec, wanted) if records else None
        if rows is not None:
            self.keys += rows[0]
            self.rows += rows[1]
        else:
            self._add_one_by_one(records, codec, wanted)
        if len(self.keys) > self.room:
            self.forget_superseded()
        self.mismatched += _misplaced(records, codec, wanted)

    def _add_one_by_one(
        self, records: Sequence[Fetched], codec: RowCodec, wanted: bytes | None
    ) -> None:
        to_store_key, to_array, mark = codec.to_store_key, codec.to_array, (HEADER_COMMIT, wanted)
        keys, rows, first = self.keys, self.rows, codec.first
        for offset, raw_key, value, headers in records:
            # fast path for our writer's headers, in its order: one comparison instead of a search
            is_ours = headers is not None and len(headers) == 2 and headers[0] == mark
            if not is_ours and wanted is not None and (headers is None or mark not in headers):
                self.foreign += 1
                continue
            try:
                if raw_key is None:
                    raise UnfitKey("a record without a key")
                key, full_key = to_store_key(raw_key)
                if value is None:
                    keys.append(key)
                    rows.append(None)
                    self.has_deletes = True
                else:
                    last = headers[1] if is_ours and headers else _NO_HEADER
                    rowtime = last[1] if last[0] == HEADER_ROWTIME else None
                    if rowtime is None:
                        rowtime = _rowtime(headers or ())
                    array = to_array(value)
                    added = 0 if first is None else count_beyond(array, first)
                    row = pack_row_at(array, rowtime, full_key, added)
                    keys.append(key)
                    rows.append(row)
            except (UnfitKey, ValueError) as error:
                self.unreadable += 1
                self.example = f"offset {offset}: {error}"

    def followed_by(self, later: Stage) -> Stage:
        """Append a later stage to this one; the later row of a key wins. Returns this one."""
        self.keys += later.keys
        self.rows += later.rows
        self.has_deletes |= later.has_deletes
        self.foreign += later.foreign
        self.mismatched += later.mismatched
        self.unreadable += later.unreadable
        self.example = later.example or self.example
        return self

    def forget_superseded(self) -> None:
        """Keep only the last row of each key."""
        last = dict(zip(self.keys, self.rows, strict=True))
        self.keys, self.rows = [*last.keys()], [*last.values()]
        self.room = max(CHANGES_MAX, 2 * len(last))

    def puts_and_deletes(self) -> tuple[Sequence[tuple[bytes, bytes]], Sequence[bytes]]:
        """What a transaction writes, see `data.replica.events.ApplyBatch`."""
        if not self.has_deletes:
            return [*zip(self.keys, cast("list[bytes]", self.rows), strict=True)], ()
        last = dict(zip(self.keys, self.rows, strict=True))
        puts = [(key, row) for key, row in last.items() if row is not None]
        return puts, [key for key, row in last.items() if row is None]


def _rows_at_once(
    records: Sequence[Fetched], codec: RowCodec, wanted: bytes | None
) -> tuple[list[bytes], list[bytes]] | None:
    """Store keys and rows of all, in order; None: some lack a row or our two headers."""
    raw_keys, values, headers = columns_of(records)
    if wanted is None or None in raw_keys:
        return None
    try:
        rows = pack_rows(values, headers, wanted, codec.heads, codec.first)
        if rows is None and codec.to_arrays is not None:
            rows = _rows_by_column(values, headers, codec.to_arrays, wanted)
        # only after all are known to be of this commit: other records may have any key
        keys = None if rows is None else codec.to_store_keys(cast("Sequence[bytes]", raw_keys))
    except (UnfitKey, ValueError):
        return None
    return None if rows is None or keys is None else (keys, rows)


def _rows_by_column(
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None],
    to_arrays: ToArrays,
    wanted: bytes,
) -> list[bytes] | None:
    """`pack_rows` in Python. Raises ValueError if some do not have two headers."""
    if None in headers or None in values:
        return None
    # all first headers, then all second ones, each in one operation
    commits, others = zip(*cast("Sequence[Headers]", headers), strict=True)
    names, rowtimes = zip(*others, strict=True)
    if commits.count((HEADER_COMMIT, wanted)) < len(values) or None in rowtimes:
        return None
    if names.count(HEADER_ROWTIME) < len(values):
        return None
    arrays = to_arrays(cast("Sequence[bytes]", values))
    return None if arrays is None else pack_rows_at(arrays, cast("Sequence[bytes]", rowtimes))


def _rowtime(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    for name, data in reversed(headers):  # our writer puts it last
        if name == HEADER_ROWTIME and data is not None:
            return data
    return _NO_ROWTIME


def _misplaced(records: Sequence[Fetched], codec: RowCodec, wanted: bytes | None) -> int:
    """How many of them readers will look for in another partition.

    Murmur2 in Python takes a microsecond, so of many records only every SAMPLED_EACHth is checked
    until one is misplaced: a writer that partitions by another rule misplaces most records.
    """
    step = 1 if len(records) <= SAMPLED_ABOVE else SAMPLED_EACH
    if codec.partitions == 1 or not any(map(codec.is_misplaced, records[::step])):
        return 0
    return sum(
        codec.is_misplaced(record)
        for record in records
        if wanted is None or (HEADER_COMMIT, wanted) in (record[3] or ())
    )
