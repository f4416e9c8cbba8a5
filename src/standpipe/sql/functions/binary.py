"""Scalar functions of BYTES and of text encodings: ksqlDB's semantics in Spark SQL."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.signature import Function
from standpipe.sql.types.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType


def _to_bytes(text: str, encoding: str) -> str:
    """Bytes of a text in one of ksqlDB's four encodings; an odd number of digits only after 0x."""
    digits = f"regexp_replace({text}, '^(0[xX]|[xX]\\'(.*)\\'$)', '$2')"
    whole = f"(length({digits}) % 2 = 0 OR lower(left({text}, 2)) = '0x')"
    return (
        f"(CASE lower({encoding})"
        f" WHEN 'hex' THEN if({whole}, try_to_binary({digits}, 'hex'), NULL)"
        f" WHEN 'base64' THEN try_to_binary({text}, 'base64') ELSE encode({text}, 'UTF-8') END)"
    )


def _from_bytes(data: str, encoding: str) -> str:
    return (
        f"(CASE lower({encoding}) WHEN 'hex' THEN hex({data}) WHEN 'base64' THEN base64({data})"
        f" ELSE decode({data}, 'UTF-8') END)"
    )


def _encoded(text: str, given: str, wanted: str) -> str:
    """Like `_from_bytes`, but hexadecimal digits are lower case, and non-ASCII is replaced."""
    data = _to_bytes(text, given)
    plain = f"regexp_replace(decode({data}, 'ISO-8859-1'), '[^\\\\x00-\\\\x7F]', '\ufffd')"
    return (
        f"(CASE lower({wanted}) WHEN 'hex' THEN lower(hex({data})) WHEN 'ascii' THEN {plain}"
        f" ELSE {_from_bytes(data, wanted)} END)"
    )


#: the bits of a BIGINT as a double: sign, exponent, mantissa (IEEE 754)
_DOUBLE_OF_BITS: Final = (
    "element_at(transform(array(cast(conv({hex}, 16, -10) AS BIGINT)), b ->"
    " if(b < 0, -1.0D, 1.0D) * if((shiftright(b, 52) & 2047L) = 0,"
    " (b & 4503599627370495L) * power(2.0D, -1074),"
    " (1.0D + (b & 4503599627370495L) / 4503599627370496.0D)"
    " * power(2.0D, (shiftright(b, 52) & 2047L) - 1023))), 1)"
)
_HEX: Final = "hex({0})"
#: the same, in the byte order that the second argument names
_ORDERED_HEX: Final = (
    "if(upper({1}) = 'LITTLE_ENDIAN',"
    " concat_ws('', reverse(regexp_extract_all(hex({0}), '(..)', 1))), hex({0}))"
)


def _numbers_of_bytes(parameters: tuple[SqlType, ...], digits: str) -> tuple[Function, ...]:
    unsigned = f"cast(conv({digits}, 16, 10) AS BIGINT)"
    negative = f"substring({digits}, 1, 1) >= '8'"
    return (
        Function(
            "INT_FROM_BYTES",
            parameters,
            INTEGER,
            f"cast({unsigned} - if({negative}, 4294967296L, 0L) AS INT)",
        ),
        Function(
            "BIGINT_FROM_BYTES", parameters, BIGINT, f"cast(conv({digits}, 16, -10) AS BIGINT)"
        ),
        Function("DOUBLE_FROM_BYTES", parameters, DOUBLE, _DOUBLE_OF_BITS.replace("{hex}", digits)),
    )


FUNCTIONS: Final = (
    Function("ENCODE", (STRING,) * 3, STRING, _encoded("{0}", "{1}", "{2}")),
    Function("TO_BYTES", (STRING, STRING), BYTES, _to_bytes("{0}", "{1}")),
    Function("FROM_BYTES", (BYTES, STRING), STRING, _from_bytes("{0}", "{1}")),
    *_numbers_of_bytes((BYTES,), _HEX),
    *_numbers_of_bytes((BYTES, STRING), _ORDERED_HEX),
)
