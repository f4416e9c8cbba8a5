"""Scalar functions of BYTES and of text encodings: ksqlDB's semantics in Spark SQL."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.signature import Function
from standpipe.sql.types.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType

_NOT_ASCII: Final = "'[^\\\\x00-\\\\x7F]'"


def _to_bytes(text: str, encoding: str) -> str:
    """Bytes of a text in one of ksqlDB's four encodings; an odd number of digits only after 0x."""
    digits = f"regexp_replace({text}, '^(0[xX]|[xX]\\'(.*)\\'$)', '$2')"
    whole = f"(length({digits}) % 2 = 0 OR lower(left({text}, 2)) = '0x')"
    return (
        f"(CASE lower({encoding})"
        f" WHEN 'hex' THEN if({whole}, try_to_binary({digits}, 'hex'), NULL)"
        f" WHEN 'base64' THEN try_to_binary({text}, 'base64')"
        f" WHEN 'utf8' THEN encode({text}, 'UTF-8')"
        f" WHEN 'ascii' THEN encode(regexp_replace({text}, {_NOT_ASCII}, '?'), 'UTF-8') END)"
    )


def _from_bytes(data: str, encoding: str, hexadecimal: str) -> str:
    """The text of bytes; what is not valid becomes U+FFFD, where Spark would end the query."""
    ascii_text = f"regexp_replace(decode({data}, 'ISO-8859-1'), {_NOT_ASCII}, '\ufffd')"
    return (
        f"(CASE lower({encoding}) WHEN 'hex' THEN {hexadecimal}"
        f" WHEN 'base64' THEN base64({data}) WHEN 'ascii' THEN {ascii_text}"
        f" WHEN 'utf8' THEN make_valid_utf8(cast({data} AS STRING)) END)"
    )


def _encoded(text: str, given: str, wanted: str) -> str:
    """Like `_from_bytes`, with hexadecimal digits in lower case; NULL from one to itself."""
    data = _to_bytes(text, given)
    made = _from_bytes(data, wanted, f"lower(hex({data}))")
    return f"if(lower({given}) = lower({wanted}), NULL, {made})"


#: the bits of a BIGINT as a double: sign, exponent, mantissa (IEEE 754)
_DOUBLE_OF_BITS: Final = (
    "element_at(transform(array(cast(conv({hex}, 16, -10) AS BIGINT)), b ->"
    " if(b < 0, -1.0D, 1.0D) * if((shiftright(b, 52) & 2047L) = 2047,"
    " if((b & 4503599627370495L) = 0, double('Infinity'), double('NaN')),"
    " if((shiftright(b, 52) & 2047L) = 0,"
    " (b & 4503599627370495L) * power(2.0D, -1074),"
    " (1.0D + (b & 4503599627370495L) / 4503599627370496.0D)"
    " * power(2.0D, (shiftright(b, 52) & 2047L) - 1023)))), 1)"
)
_HEX: Final = "hex({0})"
#: the same, in the byte order that the second argument names; NULL for another name
_ORDERED_HEX: Final = (
    "(CASE upper({1}) WHEN 'LITTLE_ENDIAN' THEN"
    " concat_ws('', reverse(regexp_extract_all(hex({0}), '(..)', 1)))"
    " WHEN 'BIG_ENDIAN' THEN hex({0}) END)"
)


def _of_length(count: int, made: str) -> str:
    """NULL for any other number of bytes."""
    return f"if(octet_length({{0}}) = {count}, {made}, NULL)"


def _numbers_of_bytes(parameters: tuple[SqlType, ...], digits: str) -> tuple[Function, ...]:
    unsigned = f"cast(conv({digits}, 16, 10) AS BIGINT)"
    whole = f"cast({unsigned} - if(substring({digits}, 1, 1) >= '8', 4294967296L, 0L) AS INT)"
    long = f"cast(conv({digits}, 16, -10) AS BIGINT)"
    double = _DOUBLE_OF_BITS.replace("{hex}", digits)
    return (
        Function("INT_FROM_BYTES", parameters, INTEGER, _of_length(4, whole)),
        Function("BIGINT_FROM_BYTES", parameters, BIGINT, _of_length(8, long)),
        Function("DOUBLE_FROM_BYTES", parameters, DOUBLE, _of_length(8, double)),
    )


FUNCTIONS: Final = (
    Function("ENCODE", (STRING,) * 3, STRING, _encoded("{0}", "{1}", "{2}")),
    Function("TO_BYTES", (STRING, STRING), BYTES, _to_bytes("{0}", "{1}")),
    Function("FROM_BYTES", (BYTES, STRING), STRING, _from_bytes("{0}", "{1}", "hex({0})")),
    *_numbers_of_bytes((BYTES,), _HEX),
    *_numbers_of_bytes((BYTES, STRING), _ORDERED_HEX),
)
