"""The inner loops of a restore in C (`_quick.c`), where a compiler was at hand when Standpipe was
installed: half as many microseconds for each of millions of records (bench/restore.py).

Nothing depends on it: each function answers None for "go the other way", which is Python beside
the call (`data/stage.py`, `data/digest.py`), and always does so where nothing was compiled. What it
does answer is what Python would; tests/unit/data/test_quick.py holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from standpipe.data.fetched import Headers
from standpipe.data.records import HEADER_COMMIT, HEADER_ROWTIME

try:
    from standpipe.data import _quick
except ImportError:  # no compiler, or another processor than it can do with
    _quick = None

IS_COMPILED: Final = _quick is not None

_HEADERS: Final = (HEADER_COMMIT, HEADER_ROWTIME)

#: what stands before each column in a value as our writer makes it, the first with its brace
Labels = tuple[bytes, ...]


def labels_of(names: Sequence[str]) -> Labels:
    """Of an object with these columns, at least one, in this order and without spaces."""
    texts = [msgspec.json.encode(name) + b":" for name in names]
    return (b"{" + texts[0], *(b"," + text for text in texts[1:]))


def pack_rows(
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None],
    wanted: bytes | None,
    labels: Labels,
) -> list[bytes] | None:
    """Stored rows (`data/rows.py`) of a fetch in which all is as our writer makes it: our two
    headers, that of the commit `wanted`, and an object of just these columns; else None."""
    if _quick is None or wanted is None or not labels:
        return None
    return _quick.pack_rows([*values], [*headers], _HEADERS, wanted, labels)


def digest(rows: list[tuple[bytes, bytes]]) -> int | None:
    """`digest.rows_digest` of a list."""
    return None if _quick is None else _quick.digest(rows)
