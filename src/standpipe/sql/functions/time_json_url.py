"""Scalar functions of time, JSON, URLs and bytes: ksqlDB's meaning in Spark's words.

A TIME is the INT of its milliseconds. Formats are Java's DateTimeFormatter's, which is Spark's too
for the letters that people use.
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.cast import ISO, TIME_TEXT
from standpipe.sql.functions.signature import Function, T
from standpipe.sql.types.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INSTANT_MS_MAX,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array,
    map_of,
)

#: name of a unit as DATEADD and its like take it, bare -> milliseconds
UNITS: Final = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
    "WEEKS": 604_800_000,
}
#: functions whose first argument is a unit
TAKES_UNIT: Final = frozenset(
    {"TIMESTAMPADD", "TIMESTAMPSUB", "DATEADD", "DATESUB", "TIMEADD", "TIMESUB"}
)
_DAY: Final = "86400000L"
_WHENS: Final = " ".join(f"WHEN '{name}' THEN {length}L" for name, length in UNITS.items())
_STEP: Final = f"({{1}} * CASE {{0}} {_WHENS} END)"


def _instant(millis: str) -> str:
    """NULL beyond Spark's instants: an error would end the query."""
    fits = f"{millis} BETWEEN -{INSTANT_MS_MAX}L AND {INSTANT_MS_MAX}L"
    return f"timestamp_millis(if({fits}, {millis}, NULL))"


def _shifts(word: str, sign: str) -> tuple[Function, ...]:
    return (
        Function(
            f"TIMESTAMP{word}",
            (STRING, INTEGER, TIMESTAMP),
            TIMESTAMP,
            _instant(f"unix_millis({{2}}) {sign} {_STEP}"),
        ),
        Function(
            f"DATE{word}",
            (STRING, INTEGER, DATE),
            DATE,
            f"date_from_unix_date(cast(unix_date({{2}}) {sign} ({_STEP} div {_DAY}) AS INT))",
        ),
        Function(
            f"TIME{word}",
            (STRING, INTEGER, TIME),
            TIME,
            f"cast(pmod({{2}} {sign} {_STEP}, {_DAY}) AS INT)",
        ),
    )


def _in_zone(moment: str, place: str) -> str:
    return f"from_utc_timestamp({moment}, {place})"


def _zoned(moment: str) -> str:
    """JSON is the one writer of Spark's that takes a zone; it must be a literal."""
    options = "map('timeZone', {2}, 'timestampFormat', {1})"
    return f"get_json_object(to_json(named_struct('t', {moment}), {options}), '$.t')"


_OF_DAY: Final = "cast(pmod(unix_millis(to_timestamp({0}, {1})), 86400000L) AS INT)"

_TIME: Final = (
    *_shifts("ADD", "+"),
    *_shifts("SUB", "-"),
    Function(
        "CONVERT_TZ",
        (TIMESTAMP, STRING, STRING),
        TIMESTAMP,
        "from_utc_timestamp(to_utc_timestamp({0}, {1}), {2})",
    ),
    Function(
        "DATETOSTRING", (INTEGER, STRING), STRING, "date_format(date_from_unix_date({0}), {1})"
    ),
    Function("FORMAT_DATE", (DATE, STRING), STRING, "date_format({0}, {1})"),
    Function("FORMAT_TIME", (TIME, STRING), STRING, "date_format(timestamp_millis({0}), {1})"),
    Function("FORMAT_TIMESTAMP", (TIMESTAMP, STRING), STRING, "date_format({0}, {1})"),
    Function(
        "FORMAT_TIMESTAMP",
        (TIMESTAMP, STRING, STRING),
        STRING,
        f"date_format({_in_zone('{0}', '{2}')}, {{1}})",
        zoned=_zoned("{0}"),
    ),
    Function("FROM_DAYS", (INTEGER,), DATE, "date_from_unix_date({0})"),
    Function("FROM_UNIXTIME", (BIGINT,), TIMESTAMP, _instant("{0}")),
    # what follows the date is not looked at, as by Java's SimpleDateFormat
    Function(
        "PARSE_DATE",
        (STRING, STRING),
        DATE,
        "coalesce(to_date({0}, {1}), to_date(left({0}, length({1})), {1}))",
    ),
    Function("PARSE_TIME", (STRING, STRING), TIME, _OF_DAY),
    Function("PARSE_TIMESTAMP", (STRING, STRING), TIMESTAMP, "to_timestamp({0}, {1})"),
    Function(
        "PARSE_TIMESTAMP",
        (STRING, STRING, STRING),
        TIMESTAMP,
        "to_utc_timestamp(to_timestamp({0}, {1}), {2})",
    ),
    Function("STRINGTODATE", (STRING, STRING), INTEGER, "unix_date(to_date({0}, {1}))"),
    Function("STRINGTOTIMESTAMP", (STRING, STRING), BIGINT, "unix_millis(to_timestamp({0}, {1}))"),
    Function(
        "STRINGTOTIMESTAMP",
        (STRING, STRING, STRING),
        BIGINT,
        "unix_millis(to_utc_timestamp(to_timestamp({0}, {1}), {2}))",
    ),
    Function(
        "TIMESTAMPTOSTRING", (BIGINT, STRING), STRING, f"date_format({_instant('{0}')}, {{1}})"
    ),
    Function(
        "TIMESTAMPTOSTRING",
        (BIGINT, STRING, STRING),
        STRING,
        f"date_format({_in_zone(_instant('{0}'), '{2}')}, {{1}})",
        zoned=_zoned(_instant("{0}")),
    ),
    Function("UNIX_DATE", (), INTEGER, "unix_date(current_date())"),
    Function("UNIX_DATE", (DATE,), INTEGER, "unix_date({0})"),
    Function("UNIX_TIMESTAMP", (), BIGINT, "unix_millis(current_timestamp())"),
    Function("UNIX_TIMESTAMP", (TIMESTAMP,), BIGINT, "unix_millis({0})"),
)

#: any value as JSON text: to_json takes no plain value, so it travels in an array
_AS_JSON: Final = (
    f"to_json(array({{0}}), map('ignoreNullFields', 'false', 'timestampFormat', {ISO}))"
)

_IS_A: Final = "schema_of_variant(try_parse_json({text})) LIKE '{kind}%'"
_OBJECT: Final = "cast(try_parse_json({text}) AS MAP<STRING, VARIANT>)"
_LIST: Final = "cast(try_parse_json({text}) AS ARRAY<VARIANT>)"


def _both(template: str, kind: str = "") -> tuple[str, str]:
    one, two = (template.replace("{text}", text).replace("{kind}", kind) for text in ("s", "e"))
    return one, two


def _json_concat() -> str:
    """Objects are merged, arrays put behind one another; anything else makes an array of both."""
    objects, lists = _both(_IS_A, "OBJECT"), _both(_IS_A, "ARRAY")
    merged, joined = _both(_OBJECT), _both(_LIST)
    step = (
        "CASE WHEN try_parse_json(s) IS NULL OR try_parse_json(e) IS NULL THEN NULL"
        f" WHEN {objects[0]} AND {objects[1]} THEN to_json(map_concat({merged[0]}, {merged[1]}))"
        f" WHEN {lists[0]} AND {lists[1]} THEN to_json(concat({joined[0]}, {joined[1]}))"
        f" WHEN {lists[0]} THEN to_json(concat({joined[0]}, array(try_parse_json(e))))"
        f" WHEN {lists[1]} THEN to_json(concat(array(try_parse_json(s)), {joined[1]}))"
        " ELSE to_json(array(try_parse_json(s), try_parse_json(e))) END"
    )
    return f"aggregate(slice(array({{all}}), 2, 10000), {{0}}, (s, e) -> {step})"


_JSON: Final = (
    Function("JSON_CONCAT", (STRING, STRING), STRING, _json_concat(), is_variadic=True),
    Function("EXTRACTJSONFIELD", (STRING, STRING), STRING, "get_json_object({0}, {1})"),
    Function("IS_JSON_STRING", (STRING,), BOOLEAN, "(try_parse_json({0}) IS NOT NULL)"),
    Function("JSON_ARRAY_LENGTH", (STRING,), INTEGER, "json_array_length({0})"),
    Function(
        "JSON_ARRAY_CONTAINS",
        (STRING, STRING),
        BOOLEAN,
        "coalesce(exists(cast(try_parse_json({0}) AS ARRAY<VARIANT>),"
        " e -> schema_of_variant(e) = 'STRING' AND cast(e AS STRING) <=> {1}), false)",
    ),
    Function(
        "JSON_ARRAY_CONTAINS",
        (STRING, T),
        BOOLEAN,
        "coalesce(exists(cast(try_parse_json({0}) AS ARRAY<VARIANT>),"
        " e -> schema_of_variant(e) <> 'STRING'"
        " AND cast(e AS STRING) <=> cast({1} AS STRING)), false)",
    ),
    Function("JSON_ITEMS", (STRING,), array(STRING), "from_json({0}, 'array<string>')"),
    Function("JSON_KEYS", (STRING,), array(STRING), "json_object_keys({0})"),
    Function(
        "JSON_RECORDS", (STRING,), map_of(STRING, STRING), "from_json({0}, 'map<string,string>')"
    ),
    Function(
        "TO_JSON_STRING",
        (TIME,),
        STRING,
        f"coalesce(concat('\"', {TIME_TEXT}, '\"'), 'null')",
    ),
    Function(
        "TO_JSON_STRING",
        (T,),
        STRING,
        f"coalesce(substring({_AS_JSON}, 2, length({_AS_JSON}) - 2), 'null')",
    ),
)


def _url(name: str, part: str) -> Function:
    return Function(f"URL_EXTRACT_{name}", (STRING,), STRING, f"try_parse_url({{0}}, '{part}')")


_URLS: Final = (
    _url("FRAGMENT", "REF"),
    _url("HOST", "HOST"),
    _url("PATH", "PATH"),
    _url("PROTOCOL", "PROTOCOL"),
    _url("QUERY", "QUERY"),
    Function(
        "URL_EXTRACT_PORT",
        (STRING,),
        INTEGER,
        "cast(nullif(regexp_extract(try_parse_url({0}, 'AUTHORITY'), ':([0-9]+)$', 1), '') AS INT)",
    ),
    Function(
        "URL_EXTRACT_PARAMETER",
        (STRING, STRING),
        STRING,
        "try_url_decode(try_parse_url({0}, 'QUERY', {1}))",
    ),
    Function("URL_ENCODE_PARAM", (STRING,), STRING, "url_encode({0})"),
    Function("URL_DECODE_PARAM", (STRING,), STRING, "try_url_decode({0})"),
)


def _to_bytes(text: str, encoding: str) -> str:
    """Bytes of a text in one of ksqlDB's four encodings; half a byte only behind 0x."""
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
    """As `_from_bytes`, but hexadecimal digits are small, and what is no ASCII is replaced."""
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
#: … in the byte order that the second argument names
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


_BYTES: Final = (
    Function("ENCODE", (STRING,) * 3, STRING, _encoded("{0}", "{1}", "{2}")),
    Function("TO_BYTES", (STRING, STRING), BYTES, _to_bytes("{0}", "{1}")),
    Function("FROM_BYTES", (BYTES, STRING), STRING, _from_bytes("{0}", "{1}")),
    *_numbers_of_bytes((BYTES,), _HEX),
    *_numbers_of_bytes((BYTES, STRING), _ORDERED_HEX),
)


MORE_SCALARS: Final = (*_TIME, *_JSON, *_URLS, *_BYTES)
