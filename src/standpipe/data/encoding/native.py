"""The inner loops of a restore and of a lookup in C (`_native.c`), if a compiler was available when
Standpipe was installed.

Nothing depends on it: each function returns None for "take the slow path", which is Python at the
call site (`data/replica/stage.py`, `data/encoding/stored_rows.py`, `data/encoding/arrow.py`,
`data/query/partition_keys.py`, `data/query/pull.py`, `data/query/literal_lookup.py`,
`data/query/statement_lookup.py`, `data/query/list_lookup.py`,
`node/worker/query_batch/reads.py`), and always does so if nothing was compiled. Any other result is
what Python would return; tests/unit/data/encoding/test_native.py, and the tests beside it whose
names begin alike, compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

import msgspec

from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_ROWTIME, Headers
from standpipe.model import Column
from standpipe.sql.plans import Value

#: version of the input and output of `_native.c`; raised with each change of either
FORM: Final = 12

try:
    from standpipe.data.encoding import _native
except ImportError:  # no compiler, or an unsupported processor
    _native = None
else:
    if _native.FORM != FORM:  # built from older source: `make setup` rebuilds it
        _native = None

IS_COMPILED: Final = _native is not None

_HEADERS: Final = (HEADER_COMMIT, HEADER_ROWTIME)

#: type of a single key column of the KAFKA format -> its kind, a number in C
KINDS: Final = {"STRING": 0, "BIGINT": 1, "INTEGER": 2}

#: partition -> keys of it, and the same keys as the store has them
KeysByPartition = dict[int, tuple[list[tuple[Value, ...]], list[bytes]]]
#: what precedes each column in a value as our writer writes it; the first includes the brace
Heads = tuple[bytes, ...]


def heads_of(names: Sequence[str]) -> Heads:
    """Heads of an object with these columns in this order, without spaces; none for no columns."""
    texts = [msgspec.json.encode(name) + b":" for name in names]
    return tuple((b"," if n else b"{") + text for n, text in enumerate(texts))


def pack_rows(
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None],
    wanted: bytes,
    heads: Heads,
    first: int | None = None,
) -> list[bytes] | None:
    """Stored rows (`data/encoding/stored_rows.py`) of a fetch in which every record is as our
    writer writes it: our two headers, with the commit `wanted`, and an object of exactly these
    columns; else None. `first`: an object may have these alone, or some of those behind them, in
    their order; a row then says how many."""
    if _native is None or not heads:
        return None
    count = len(heads) if first is None else first
    return _native.pack_rows([*values], [*headers], _HEADERS, wanted, heads, count)


def digest(rows: Collection[tuple[bytes, bytes]]) -> int | None:
    """`stored_rows.rows_digest` of a list; None for anything else."""
    return None if _native is None else _native.digest(rows)


def in_order(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Pairs sorted by key; a stable sort."""
    found = None if _native is None else _native.in_order(pairs)
    return sorted(pairs, key=itemgetter(0)) if found is None else found


class Keyed(Protocol):
    """A table, as a node or as a client knows it."""

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """In the order of declaration."""
        ...

    @property
    def key_format(self) -> str:
        """KAFKA, JSON or DELIMITED."""
        ...


def kind_of(source: Keyed) -> int | None:
    """The form of its keys, for the functions below; None: they are not compiled."""
    if _native is None or source.key_format != "KAFKA":
        return None
    columns = source.key_columns
    return KINDS.get(columns[0].type) if len(columns) == 1 else None


def keys_by_partition(
    keys: tuple[tuple[Value, ...], ...], kind: int, partitions: int
) -> KeysByPartition | None:
    """Keys by partition, in their order; None if one of them is unusual."""
    return None if _native is None else _native.keys_by_partition(keys, kind, partitions)


def values_by_partition(
    values: Iterable[Value], kind: int, partitions: int
) -> KeysByPartition | None:
    """`keys_by_partition` of keys of one column by their values; None if one is unusual, or none
    that its column may have."""
    if _native is None:
        return None
    return _native.keys_by_partition((*values,), kind, partitions, True)


def spliced(
    keys: Sequence[bytes], stored: Sequence[bytes | None], kind: int, added: int = 0
) -> list[bytes] | None:
    """The whole rows of store keys, of those that have one; None if one is unusual or damaged.

    `stored`: of each key its stored row; None: it has none. `added`: how many columns were added to
    the table in place; of those that a row lacks, the cells are null.
    """
    return None if _native is None else _native.spliced([*keys], [*stored], kind, added)


def placed(
    found: dict[Any, bytes], keys: Sequence[tuple[Value, ...]], rows: Sequence[bytes], kind: int
) -> bool | None:
    """Put rows into `found` by the values of their keys, as `node.worker.query_batch.reads` does;
    None: something is unusual, and some of them may be there already."""
    return None if _native is None else _native.placed(found, (*keys,), (*rows,), kind)


def windows(
    begin: bytes, pairs: Sequence[tuple[bytes, bytes]], size_ms: int, added: int = 0
) -> list[bytes] | None:
    """The whole rows of the windows of one key; None if one is unusual or damaged.

    `begin`: a row up to its key; `pairs`: store keys and stored rows; `size_ms`: of a window, 0:
    the store key has its end, too.
    """
    return None if _native is None else _native.windows(begin, (*pairs,), size_ms, added)


def arrow_columns(
    rows: Iterable[bytes], kinds: bytes
) -> list[tuple[int, bytes | None, bytes | None, bytes]] | None:
    """Of each column nulls, validity, offsets and values as Arrow has them; None if a row is
    unusual. `kinds`: those of `data/encoding/arrow.py`."""
    return None if _native is None else _native.arrow_columns((*rows,), kinds)


def cut(mark: bytes, body: bytes) -> bytes | None:
    """`data.query.literal_lookup.cut`."""
    return None if _native is None else _native.cut(mark, body)


def compiled(name: str) -> Callable[..., Any] | None:
    """A function of `_native.c` itself, for a caller for whom one call more is too much."""
    return getattr(_native, name, None)


def known_literal(
    known: Mapping[bytes, Any], mark: bytes, message: bytes
) -> tuple[Any, int, bytes] | None:
    """`data.query.literal_lookup.known_literal`; `known` is a dictionary."""
    return None if _native is None else _native.known_literal(known, mark, message)


def known_part(
    known: Mapping[bytes, Any], mark: bytes, message: bytes, now_s: float, *causes: object
) -> tuple[Any, int, bytes, Any, Any] | None:
    """`data.query.literal_lookup.known_part`; `known` is a dictionary."""
    return None if _native is None else _native.known_part(known, mark, message, now_s, *causes)


def response(
    around: tuple[bytes, bytes, bytes, int, bool], key: bytes, stored: bytes, added: int = 0
) -> bytes | None:
    """`data.query.literal_lookup.response`; None also for a row that is unusual or damaged."""
    return None if _native is None else _native.response(around, key, stored, added)


def cut_all(mark: bytes, body: bytes) -> bytes | None:
    """`data.query.statement_lookup.cut_all`."""
    return None if _native is None else _native.cut_all(mark, body)


def known_statement(
    known: Mapping[bytes, Any], mark: bytes, message: bytes
) -> tuple[Any, int, bytes, tuple[bytes, ...]] | None:
    """`data.query.statement_lookup.known_statement`; `known` is a dictionary."""
    return None if _native is None else _native.known_statement(known, mark, message)


def shown(
    key: bytes, stored: bytes, is_text: bool, program: bytes, literals: tuple[bytes, ...]
) -> bytes | bool | None:
    """The row of a key as a statement shows it (`data.query.statement_lookup.program_of`); False:
    its conditions do not hold; None: it is unusual or damaged."""
    return None if _native is None else _native.shown(key, stored, is_text, program, literals)


def cut_list(mark: bytes, body: bytes) -> bytes | None:
    """`data.query.list_lookup.cut_list`."""
    return None if _native is None else _native.cut_list(mark, body)


def known_list(
    known: Mapping[bytes, Any], mark: bytes, body: bytes
) -> tuple[Any, dict[int, list[bytes]]] | None:
    """`data.query.list_lookup.known_list`; `known` is a dictionary."""
    return None if _native is None else _native.known_list(known, mark, body)
