"""The inner loops of a restore in C (`_native.c`), where a compiler was at hand when Standpipe
was installed: two thirds more records a second (bench/restore.py).

Nothing depends on it: each function returns None for "take the other way", which is Python beside
the call (`data/replica/stage.py`, `data/encoding/stored_rows.py`), and always does so where nothing
was compiled. What it does return is what Python would; tests/unit/data/encoding/test_native.py
compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Final

import msgspec

from standpipe.data.encoding.store_keys import HEADER_COMMIT, HEADER_ROWTIME, Headers

#: of what `_native.c` is asked and makes; higher with each change of either
FORM: Final = 2

try:
    from standpipe.data.encoding import _native
except ImportError:  # no compiler, or another processor than it can do with
    _native = None
else:
    if _native.FORM != FORM:  # built from an older source: `make setup` builds it again
        _native = None

IS_COMPILED: Final = _native is not None

_HEADERS: Final = (HEADER_COMMIT, HEADER_ROWTIME)

#: what stands before each column in a value as our writer makes it, the first with its brace
Heads = tuple[bytes, ...]


def heads_of(names: Sequence[str]) -> Heads:
    """Of an object with these columns in this order, without spaces; of none: none."""
    texts = [msgspec.json.encode(name) + b":" for name in names]
    return tuple((b"," if n else b"{") + text for n, text in enumerate(texts))


def pack_rows(
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None],
    wanted: bytes,
    heads: Heads,
) -> list[bytes] | None:
    """Stored rows (`data/encoding/stored_rows.py`) of a fetch in which all is as our writer makes
    it: our two headers, that of the commit `wanted`, and an object of just these columns; else
    None."""
    if _native is None or not heads:
        return None
    return _native.pack_rows([*values], [*headers], _HEADERS, wanted, heads)


def digest(rows: Collection[tuple[bytes, bytes]]) -> int | None:
    """`stored_rows.rows_digest` of a list; of anything else None."""
    return None if _native is None else _native.digest(rows)


def in_order(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Sorted by their keys; equal ones stay in their order."""
    found = None if _native is None else _native.in_order(pairs)
    return sorted(pairs, key=itemgetter(0)) if found is None else found
