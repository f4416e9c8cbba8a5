"""How many fields of STRUCTs the bytes of a row may make.

A STRUCT has all fields of its type, those that its bytes do not name as NULL. So an object of two
bytes in a list may make as many fields as a type has, and a row of 12 KB a record of 3 MB. What a
row makes is counted while it is read, and bounded by its bytes. A row with many fields and few
values, as others write it, is far below the bound.

Avro counts likewise, with another number for each byte (`data/encoding/avro_reading.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: fields that any row may make, however short it is
FREE_FIELDS: Final = 65_536
#: and these for each byte of JSON, where the shortest field that is given has five bytes: an object
#: of 25 bytes makes a hundred fields, free ones not counted
JSON_FIELDS_PER_BYTE_MAX: Final = 4
#: JSON shows the names. So many characters of them, in all that an object makes, count as one more
#: field: a type may have names of thousands of characters
_NAME_CHARS: Final = 16


class TooManyFields(ValueError):
    """A row makes more fields of STRUCTs than its bytes allow."""

    def __init__(self) -> None:
        super().__init__("more fields than its bytes allow")


class MadeFields:
    """What one row may still make."""

    __slots__ = ("_left",)

    def __init__(self, size_bytes: int, per_byte_max: int = JSON_FIELDS_PER_BYTE_MAX) -> None:
        """`size_bytes`: of the row as it was written."""
        self._left = FREE_FIELDS + per_byte_max * size_bytes

    def make(self, count: int) -> None:
        """Count fields, before they are made. Raises TooManyFields."""
        self._left -= count
        if self._left < 0:
            raise TooManyFields

    def make_named(self, names: Sequence[str]) -> None:
        """Count the fields of a STRUCT of JSON. Raises TooManyFields."""
        self.make(len(names) + sum(map(len, names)) // _NAME_CHARS)
