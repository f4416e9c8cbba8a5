"""BYTES and URLs, as java.nio.charset, java.util.Base64 and java.net have them."""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from standpipe.sql.expressions.python.computed import Computed, lengths, times
from standpipe.sql.types.values import parse_bytes

_HEX: Final = re.compile(r"0[xX]([0-9a-fA-F]*)|[xX]'([0-9a-fA-F]*)'|([0-9a-fA-F]*)")


def to_bytes(text: str, encoding: str) -> bytes | None:
    """Bytes of a text in one of ksqlDB's encodings; NULL for another, and for text that it cannot
    decode. An odd number of hexadecimal digits is allowed only after 0x."""
    match encoding.lower():
        case "hex":
            found = _HEX.fullmatch(text)
            if found is None:
                return None
            digits = next(part for part in found.groups() if part is not None)
            if len(digits) % 2:
                return bytes.fromhex("0" + digits) if found[1] is not None else None
            return bytes.fromhex(digits)
        case "base64":
            try:
                return parse_bytes(text)
            except ValueError:
                return None
        case "utf8":
            return text.encode()
        case "ascii":
            return text.encode("ascii", "replace")
        case _:
            return None


def from_bytes(data: bytes, encoding: str) -> str | None:
    """The text of bytes; what is not valid becomes U+FFFD. Hexadecimal digits are upper case."""
    match encoding.lower():
        case "hex":
            return data.hex().upper()
        case "base64":
            return base64.b64encode(data).decode()
        case "utf8":
            return data.decode("utf-8", "replace")
        case "ascii":
            return data.decode("ascii", "replace")
        case _:
            return None


def _encode(text: str, given: str, wanted: str) -> str | None:
    """As both of the above; hexadecimal digits are lower case. NULL from an encoding to itself."""
    data = None if given.lower() == wanted.lower() else to_bytes(text, given)
    made = None if data is None else from_bytes(data, wanted)
    return made.lower() if made is not None and wanted.lower() == "hex" else made


_ORDERS: Final = {"BIG_ENDIAN": ">", "LITTLE_ENDIAN": "<"}


def _number(code: str) -> Callable[..., Any]:
    """A number of exactly its bytes; NULL for another length or order. `code`: struct's."""

    def compute(data: bytes, order: str = "BIG_ENDIAN") -> Any:
        mark = _ORDERS.get(order.upper())
        if mark is None or len(data) != struct.calcsize(f">{code}"):
            return None
        return struct.unpack(mark + code, data)[0]

    return compute


# ----------------------------------------------------------------------------------------- URLs

_URL: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
#: characters that java.net.URI refuses everywhere, and a % without two digits
_ILLEGAL: Final = re.compile(r"[\x00-\x20\x7f-\xa0\"<>\\^`{|}]|%(?![0-9a-fA-F]{2})")
_SERVER: Final = re.compile(r"(?:[^@]*@)?(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]*))?")
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-*_")
_PERCENT: Final = re.compile(rb"%([0-9a-fA-F]{2})")


def _parts(url: str) -> dict[str, str] | None:
    """The parts of a URL by name, without those that it lacks; None if it is none."""
    if _ILLEGAL.search(url) is not None:
        return None
    match = _URL.fullmatch(url)
    if match is None or (match[1] is not None and not url[len(match[1]) + 1 :]):
        return None
    names = ("PROTOCOL", "AUTHORITY", "PATH", "QUERY", "FRAGMENT")
    found = {name: part for name, part in zip(names, match.groups(), strict=True)
             if part is not None}  # fmt: skip
    is_opaque = match[1] is not None and not url[len(match[1]) + 1 :].startswith("/")
    if is_opaque:
        return {name: found[name] for name in ("PROTOCOL", "FRAGMENT") if name in found}
    server = _SERVER.fullmatch(found.get("AUTHORITY", ""))
    if server is not None and server[1]:
        found["HOST"] = server[1]
        if server[2]:
            found["PORT"] = server[2]
    return found


def _part(name: str) -> Computed:
    def compute(url: str) -> str | None:
        return _unescaped(url, name)

    return Computed(compute, work=times(2, len))


def _unescaped(url: str, name: str) -> str | None:
    """A part as java.net.URI gives it: of path, query and fragment, escapes are decoded."""
    part = (_parts(url) or {}).get(name)
    if part is None or name not in ("PATH", "QUERY", "FRAGMENT"):
        return part
    return decoded(part.replace("+", "%2B"))


def _port(url: str) -> int | None:
    port = (_parts(url) or {}).get("PORT")
    return int(port) if port and len(port) < 10 else None


def _parameter(url: str, name: str) -> str | None:
    query = _unescaped(url, "QUERY")
    for pair in [] if query is None else query.split("&"):
        key, _, value = pair.partition("=")
        if key == name:
            return value
    return None


def encoded(text: str) -> str:
    """As java.net.URLEncoder: a blank becomes a +."""
    return "".join(
        chr(byte) if byte in _PLAIN else "+" if byte == 0x20 else f"%{byte:02X}"
        for byte in text.encode()
    )


def decoded(text: str) -> str | None:
    """As java.net.URLDecoder; NULL for a % without two digits."""
    data = text.replace("+", " ").encode()
    if data.count(b"%") != len(_PERCENT.findall(data)):
        return None
    return _PERCENT.sub(lambda found: bytes.fromhex(found[1].decode()), data).decode(
        "utf-8", "replace"
    )


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "ENCODE": Computed(_encode, work=lengths),
    "TO_BYTES": Computed(to_bytes, work=lengths),
    "FROM_BYTES": Computed(from_bytes, work=lengths),
    "INT_FROM_BYTES": Computed(_number("i")),
    "BIGINT_FROM_BYTES": Computed(_number("q")),
    "DOUBLE_FROM_BYTES": Computed(_number("d")),
    **{
        f"URL_EXTRACT_{name}": _part(name)
        for name in ("FRAGMENT", "HOST", "PATH", "PROTOCOL", "QUERY")
    },
    "URL_EXTRACT_PORT": Computed(_port, work=times(2, len)),
    "URL_EXTRACT_PARAMETER": Computed(_parameter, work=times(2, lengths)),
    "URL_ENCODE_PARAM": Computed(encoded, work=times(6, len)),
    "URL_DECODE_PARAM": Computed(decoded, work=times(4, len)),
}
