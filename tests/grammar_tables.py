"""The grammar's tables, kept from one run of the tests to the next: they take seconds to build.

A change of the grammar, of lark or of `sql/syntax/tables.py` has them built again.
`tests/unit/sql/syntax/test_tables.py` builds its own.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from lark import Lark

from standpipe.sql.syntax import tables

#: what builds them, whatever is kept
build_again = tables.build
FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "grammar"


def keep() -> None:
    """Let each parser of this process be restored from what an earlier process built."""
    tables.build = _kept_or_built


def _kept_or_built(transformer: object) -> Lark:
    """Saves what it builds; a reader beside it sees the whole file or none."""
    made_by = hashlib.sha256(Path(tables.__file__).read_bytes()).hexdigest()
    kept = FOLDER / f"{made_by}.json"
    saved = kept.read_bytes() if kept.is_file() else b""
    if parser := tables.restore(saved, transformer):
        return parser
    parser = build_again(transformer)
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(tables.dump(parser))
    part.replace(kept)
    return parser
