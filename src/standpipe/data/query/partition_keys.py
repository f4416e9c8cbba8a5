"""The keys of a lookup by partition: each key is hashed once, however many there are.

Usual keys (one column of type STRING, BIGINT or INTEGER, in the KAFKA format) have a compiled form
(`data/encoding/native.py`). The Python here defines it, and takes the keys that it leaves.

Not here: their rows (`data/query/pull.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import encode_key, partition_of
from standpipe.model import Source
from standpipe.sql.plans import PullPlan, Value


class PartitionKeys(NamedTuple):
    """The keys of one partition, in the order in which they were asked for."""

    keys: Sequence[tuple[Value, ...]]
    #: the same without a window, as a store has them; empty: they are unusual
    store_keys: Sequence[bytes] = ()
    #: how `native.spliced` shows them
    kind: int = 0


NO_KEYS: Final = PartitionKeys(())


def keys_by_partition(plan: PullPlan) -> Mapping[int, PartitionKeys]:
    """The keys of a plan by partition, ascending; a null key is in none. Raises UnfitKey."""
    source = plan.source
    kind = native.kind_of(source)
    if kind is not None and (found := native.keys_by_partition(plan.keys, kind, source.partitions)):
        return {partition: PartitionKeys(*found[partition], kind) for partition in sorted(found)}
    columns = source.key_columns
    keys: dict[int, list[tuple[Value, ...]]] = {}
    for key in plan.keys:
        raw = encode_key(key, columns, source.key_format, source.key_delimiter)
        if raw is not None:
            keys.setdefault(partition_of(raw, source.partitions), []).append(key)
    return {partition: PartitionKeys(keys[partition]) for partition in sorted(keys)}


def usual_values_by_partition(
    source: Source, values: Iterable[Value]
) -> Mapping[int, PartitionKeys] | None:
    """The same of values of the only key column; None: one is unusual, or the column has no such
    value."""
    kind = native.kind_of(source)
    if kind is None:
        return None
    found = native.values_by_partition(values, kind, source.partitions)
    if found is None:
        return None
    return {partition: PartitionKeys(*found[partition], kind) for partition in sorted(found)}
