"""Files of SQL, and SQL on standard input: UTF-8, with or without its mark, and any line ends.

Not here: where a statement ends (`sql_text.py`).
"""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from pathlib import Path

from standpipe.errors import SetupError


def read_sql(file: str | Path, command: str = "") -> str:
    """The text of a file. `command`: what an error says to be reading it. Raises SetupError."""
    failed = f"{command} cannot read {file}".lstrip()
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise SetupError(
            f"{failed}: {error.strerror or error}",
            next_step="name a file of SQL; a relative path starts where the command runs",
        ) from error
    return _decoded(content, failed)


def read_standard_input() -> str:
    """The whole of it. Raises SetupError."""
    return _decoded(sys.stdin.buffer.read(), "cannot read standard input")


def _decoded(content: bytes, failed: str) -> str:
    marks = len(BOM_UTF8) if content.startswith(BOM_UTF8) else 0
    try:
        text = content[marks:].decode()
    except UnicodeDecodeError as error:
        place = error.start + marks
        line = content.count(b"\n", 0, place) + 1
        raise SetupError(
            f"{failed}: byte 0x{content[place]:02x} at offset {place}, in line {line}, is not "
            "UTF-8",
            next_step="save it as UTF-8",
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
