"""Text, as Java's String and ksqlDB's functions of it have it.

Positions and lengths count characters, except for LEN, which counts UTF-16 units as Java does.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import hashlib
import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from standpipe.sql.expressions.python.computed import (
    Computed,
    first_length,
    lengths,
    of_types,
    present,
    times,
)

#: what Java's String.trim removes
BLANKS: Final = "".join(map(chr, range(33)))
_ESCAPED: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
#: what separates words
_SPACES: Final = " \t\n\x0b\f\r"
_FIRST_OF_WORD: Final = re.compile(rf"(?:^|(?<=[{_SPACES}]))[^{_SPACES}]")


def _chr(code: Any) -> str | None:
    """A character by its code point, or by JSON's escapes of its UTF-16 units."""
    if isinstance(code, str):
        if _ESCAPED.fullmatch(code) is None:
            return None
        units = bytes.fromhex(code.replace("\\u", ""))
        return units.decode("utf-16-be", "replace")
    is_character = 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return chr(code) if is_character else None if not 0 <= code <= 0x10FFFF else "\ufffd"


def _concat(_: Any, result: Any) -> Callable[..., Any]:
    """All texts, or all BYTES, one after the other; NULLs are left out."""
    empty: Any = b"" if result.base == "BYTES" else ""
    return lambda *given: empty.join(present(*given))


def _joined(by: Any, *given: Any) -> Any:
    return None if by is None else by.join(present(*given))


def _joined_length(by: Any, *given: Any) -> int:
    return lengths(*given) + len(by or "") * len(given)


def _instr(
    text: str | None, part: str | None, position: int | None = 1, occurrence: int | None = 1
) -> int | None:
    """The place of the n-th occurrence from a position on. If the position is negative, it counts
    from the end: what is found ends there or before. 0: none, also for no text."""
    if position is None or occurrence is None:
        return None
    if text is None or part is None or position == 0 or abs(position) > len(text):
        return 0
    if not part:  # it is everywhere, and ksqlDB does not count it
        return position if position > 0 else len(text) + position + 2
    at, end = position - 2, len(text) + position + 1
    for _ in range(occurrence):
        at = text.find(part, at + 1) if position > 0 else text.rfind(part, 0, end)
        if at < 0:
            return 0
        end = at + len(part) - 1
    return at + 1 if occurrence > 0 else 0


def _instr_work(text: str | None, part: str | None, *rest: int | None) -> int:
    if text is None or part is None or None in rest:
        return 0
    occurrence = max(1, rest[1] or 1) if len(rest) > 1 else 1
    return len(text) + len(part) * min(occurrence, len(text) + 1)


def length(text: Any) -> int:
    """UTF-16 units of a text, which Java counts; bytes of BYTES."""
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


def _padded(text: Any, size: int, pad: Any) -> Any:
    """The padding, and what of the text fits; None if the arguments are not valid."""
    if size < 0 or not pad:
        return None
    missing = max(0, size - len(text))
    return (pad * (missing // len(pad) + 1))[:missing], text[:size]


def _lpad(text: Any, size: int, pad: Any) -> Any:
    made = _padded(text, size, pad)
    return None if made is None else made[0] + made[1]


def _rpad(text: Any, size: int, pad: Any) -> Any:
    made = _padded(text, size, pad)
    return None if made is None else made[1] + made[0]


#: what stands for an upper-case letter, a lower-case letter, a digit, and anything else
_MASKS: Final = ("X", "x", "n", "-")
_CLASSES: Final = {"Lu": 0, "Ll": 1, "Nd": 2}
_OTHERS: Final = 3
_UUID_BYTES: Final = 16
#: characters whose marks are held as objects at a time
_MASKED_AT_ONCE: Final = 4_096
_MASK_WORK: Final = times(4, first_length)


def _mask(text: str | None, *given: str | None) -> str | None:
    """Each of Java's characters: beyond the BMP, a letter is two that are none. A mark that is NULL
    keeps its characters."""
    if text is None:
        return None
    marks = given or _MASKS
    parts = (text[at : at + _MASKED_AT_ONCE] for at in range(0, len(text), _MASKED_AT_ONCE))
    return "".join(["".join([_mark(each, marks) for each in part]) for part in parts])


def _mark(character: str, marks: Sequence[str | None]) -> str:
    is_pair = character > "\uffff"
    of = _OTHERS if is_pair else _CLASSES.get(unicodedata.category(character), _OTHERS)
    mark = marks[of]
    return character if mark is None else mark * (1 + is_pair)


def _masked(keeps: bool, from_left: bool) -> Callable[..., str | None]:
    """MASK_LEFT, MASK_KEEP_RIGHT …: a part is masked, the rest is kept. NULL below zero."""

    def compute(text: str | None, count: int | None, *marks: str | None) -> str | None:
        if text is None or count is None or count < 0:
            return None
        at = min(count, len(text)) if from_left else max(0, len(text) - count)
        left, right = text[:at], text[at:]
        if keeps is not from_left:
            return f"{_mask(left, *marks)}{right}"
        return f"{left}{_mask(right, *marks)}"

    return compute


def _uuid_text(given: bytes) -> str | None:
    return str(uuid.UUID(bytes=given)) if len(given) == _UUID_BYTES else None


def _replaced_length(text: str, old: str, new: str) -> int:
    return len(text) + text.count(old) * max(0, len(new) - len(old))


def _split(text: Any, by: Any) -> list[Any]:
    """An empty separator splits between all characters or bytes."""
    if by:
        return text.split(by)
    if isinstance(text, bytes):
        return [text[at : at + 1] for at in range(len(text))] or [b""]
    return list(text) or [""]


def _substring(text: Any, start: int, size: int | None = None) -> Any:
    """SUBSTRING: positions start at 1; a negative start counts from the end."""
    first = start - 1 if start > 0 else max(0, len(text) + start) if start < 0 else 0
    return text[first:] if size is None else text[first : first + max(0, size)]


def _initcap(text: str) -> str:
    lower = text.lower().lstrip(_SPACES)
    return _FIRST_OF_WORD.sub(lambda first: first[0].upper(), lower)


def _elt(index: int | None, *given: Any) -> Any:
    return given[index - 1] if index is not None and 1 <= index <= len(given) else None


def _field(text: str | None, *given: Any) -> int:
    return given.index(text) + 1 if text is not None and text in given else 0


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "CHR": Computed(_chr),
    "CONCAT": of_types(_concat, is_strict=False, work=lengths),
    "CONCAT_WS": Computed(_joined, is_strict=False, work=_joined_length),
    "ELT": Computed(_elt, is_strict=False),
    "FIELD": Computed(_field, is_strict=False),
    "INITCAP": Computed(_initcap, work=times(4, len)),
    "INSTR": Computed(_instr, is_strict=False, work=_instr_work),
    "LCASE": Computed(str.lower, work=len),
    "UCASE": Computed(str.upper, work=len),
    "LEN": Computed(length, work=len),
    "LPAD": Computed(_lpad, work=lambda text, size, pad: max(0, size) + len(pad)),
    "RPAD": Computed(_rpad, work=lambda text, size, pad: max(0, size) + len(pad)),
    "MASK": Computed(_mask, is_strict=False, work=_MASK_WORK),
    "MASK_LEFT": Computed(_masked(False, True), is_strict=False, work=_MASK_WORK),
    "MASK_RIGHT": Computed(_masked(False, False), is_strict=False, work=_MASK_WORK),
    "MASK_KEEP_LEFT": Computed(_masked(True, True), is_strict=False, work=_MASK_WORK),
    "MASK_KEEP_RIGHT": Computed(_masked(True, False), is_strict=False, work=_MASK_WORK),
    "MD5": Computed(
        lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), work=len
    ),
    "REPLACE": Computed(str.replace, work=_replaced_length),
    "SPLIT": Computed(_split, work=times(4, first_length)),
    "SUBSTRING": Computed(_substring, work=first_length),
    "UUID": Computed(_uuid_text, counts=(1,)),
    "TRIM": Computed(lambda text: text.strip(BLANKS), work=len),
}
