"""Scalar functions of text and of URLs: ksqlDB's semantics in Spark SQL."""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.cast import BLANKS
from standpipe.sql.functions.signature import Function
from standpipe.sql.types.types import BYTES, INTEGER, STRING, array


def literally(text: str) -> str:
    """Spark SQL: a regular expression that matches exactly a text, given as SQL. As Java's
    Pattern.quote: an end of the quotation within the text is quoted apart."""
    return f"concat('\\\\Q', replace({text}, '\\\\E', '\\\\E\\\\\\\\E\\\\Q'), '\\\\E')"


LITERALLY: Final = literally("{1}")
_BYTES_LITERALLY: Final = literally("decode({1}, 'ISO-8859-1')")
#: splits bytes as text in which each character is one byte
_SPLIT_BYTES: Final = (
    "transform(if(octet_length({1}) = 0, split(decode({0}, 'ISO-8859-1'), ''),"
    f" split(decode({{0}}, 'ISO-8859-1'), {_BYTES_LITERALLY}, -1)),"
    " e -> encode(e, 'ISO-8859-1'))"
)
#: 16 bytes as text in five groups
_UUID: Final = (
    "if(length({0}) = 16, regexp_replace(lower(hex({0})),"
    " '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-'), NULL)"
)

#: both ends of a text, and what is between one and the other end
_LEFT: Final = "left({0}, {1})"
_AFTER_LEFT: Final = "substring({0}, least({1}, length({0})) + 1)"
_RIGHT: Final = "right({0}, {1})"
_BEFORE_RIGHT: Final = "left({0}, greatest(0, length({0}) - {1}))"

#: a start before the beginning is the beginning; Spark would count the length from there
_START: Final = "if({1} < -length({0}), 1, {1})"

_PLACES: Final = (
    "filter(sequence(1, greatest(1, length({0}))), i -> substring({0}, i, length({1})) = {1})"
)
#: the n-th occurrence of a text from a position onwards; backwards if it is negative, when what is
#: found ends there or before. An empty text is everywhere, and ksqlDB does not count it
_NTH_PLACE: Final = (
    "if({2} IS NULL OR {3} IS NULL, NULL, if({0} IS NULL OR {1} IS NULL OR {2} = 0"
    " OR abs({2}) > length({0}), 0, if({1} = '', if({2} > 0, {2}, length({0}) + {2} + 2),"
    f" coalesce(try_element_at(if({{2}} > 0, filter({_PLACES}, i -> i >= {{2}}), reverse(filter("
    f"{_PLACES}, i -> i + length({{1}}) <= length({{0}}) + {{2}} + 2))), nullif(greatest(0, {{3}}),"
    " 0)), 0))))"
)

#: how many characters or bytes a result has: of all arguments together; and with a separator
SIZE_OF_TEXTS: Final = "{total}"
_SIZE_JOINED: Final = "{total} + ({count} - 2) * coalesce(length({0}), 0)"
#: counted exactly only if it might be too large
_ADDED: Final = "greatest(0L, cast(length({2}) AS BIGINT) - length({1}))"
_SIZE_REPLACED: Final = (
    f"if((1L + length({{0}})) * (1L + {_ADDED}) <= {{limit}}, 0L, length({{0}}) + {_ADDED} *"
    " if({1} = '', 1L + length({0}),"
    " (length({0}) - length(replace({0}, {1}, ''))) div greatest(1, length({1}))))"
)


def _masks(name: str, count: int, whole: str, part: str) -> tuple[Function, Function]:
    """A function with `count` arguments that masks `part`; and with the marks for upper case, lower
    case, digits and others besides, of which NULL keeps such characters. Spark wants literals."""
    marks = tuple(range(count, count + 4))
    given = ", ".join(f"{{{place}}}" for place in marks)
    parameters = (STRING, INTEGER)[:count]

    def template(marks: str) -> str:
        made = whole.replace("{masked}", f"mask({part}, {marks})")
        return made if count == 1 else f"if({{1}} < 0, NULL, {made})"

    return (
        Function(name, parameters, STRING, template("'X', 'x', 'n', '-'")),
        Function(name, (*parameters, *[STRING] * 4), STRING, template(given), literals=marks),
    )


#: each run of characters that are no blanks with the blanks behind it; those before the first go
_INITCAP: Final = (
    "array_join(transform(regexp_extract_all(lower({0}), '[^\\\\s]+\\\\s*', 0),"
    " w -> concat(upper(left(w, 1)), substring(w, 2))), '')"
)

_STRINGS: Final = (
    Function(
        "CHR",
        (INTEGER,),
        STRING,
        "if({0} BETWEEN 0 AND 1114111, decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32'), NULL)",
    ),
    Function(
        "CHR",
        (STRING,),
        STRING,
        # \\u0041, or a pair of them: JSON's escape for a character
        "if(regexp_like({0}, '^(\\\\\\\\u[0-9a-fA-F]{{4}})+$'),"
        " from_json(concat('{{\"v\":\"', {0}, '\"}}'), 'v STRING').v, NULL)",
    ),
    Function(
        "CONCAT",
        (STRING,),
        STRING,
        "concat_ws('', {all})",
        is_variadic=True,
        size=SIZE_OF_TEXTS,
    ),
    Function(
        "CONCAT",
        (BYTES,),
        BYTES,
        "aggregate(array({all}), X'', (s, e) -> if(e IS NULL, s, concat(s, e)))",
        is_variadic=True,
        size=SIZE_OF_TEXTS,
    ),
    Function(
        "CONCAT_WS",
        (STRING, STRING),
        STRING,
        "concat_ws({all})",
        is_variadic=True,
        size=_SIZE_JOINED,
    ),
    Function(
        "CONCAT_WS",
        (BYTES, BYTES),
        BYTES,
        "if({0} IS NULL, NULL, coalesce(aggregate(filter(slice(array({all}), 2, 10000),"
        " e -> e IS NOT NULL), cast(NULL AS BINARY), (s, e) -> if(s IS NULL, e,"
        " concat(s, {0}, e))), X''))",
        is_variadic=True,
        size=_SIZE_JOINED,
    ),
    Function(
        "ELT",
        (INTEGER, STRING),
        STRING,
        "if({0} BETWEEN 1 AND {count} - 1, element_at(array({all}), {0} + 1), NULL)",
        is_variadic=True,
    ),
    Function(
        "FIELD",
        (STRING, STRING),
        INTEGER,
        "coalesce(array_position(slice(array({all}), 2, 10000), {0}), 0)",
        is_variadic=True,
    ),
    Function("INITCAP", (STRING,), STRING, _INITCAP),
    Function("INSTR", (STRING, STRING), INTEGER, "if({0} = '', 0, coalesce(instr({0}, {1}), 0))"),
    Function("INSTR", (STRING, STRING, INTEGER), INTEGER, _NTH_PLACE.replace("{3}", "1")),
    Function("INSTR", (STRING, STRING, INTEGER, INTEGER), INTEGER, _NTH_PLACE),
    Function("LCASE", (STRING,), STRING, "lower({0})"),
    # UTF-16 units, which Java counts
    Function(
        "LEN",
        (STRING,),
        INTEGER,
        "shiftright(octet_length(encode({0}, 'UTF-16BE')), 1)",
    ),
    Function("LEN", (BYTES,), INTEGER, "octet_length({0})"),
    *(
        Function(
            name,
            (of, INTEGER, of),
            of,
            f"if({{1}} < 0 OR length({{2}}) = 0, NULL, {name.lower()}({{0}}, {{1}}, {{2}}))",
            size="{1}",
        )
        for name in ("LPAD", "RPAD")
        for of in (STRING, BYTES)
    ),
    *_masks("MASK", 1, "{masked}", "{0}"),
    *_masks("MASK_LEFT", 2, f"concat({{masked}}, {_AFTER_LEFT})", _LEFT),
    *_masks("MASK_RIGHT", 2, f"concat({_BEFORE_RIGHT}, {{masked}})", _RIGHT),
    *_masks("MASK_KEEP_LEFT", 2, f"concat({_LEFT}, {{masked}})", _AFTER_LEFT),
    *_masks("MASK_KEEP_RIGHT", 2, f"concat({{masked}}, {_RIGHT})", _BEFORE_RIGHT),
    Function("MD5", (STRING,), STRING, "md5({0})"),
    # Spark's own run on Java's engine, which goes back over a text without end
    Function(
        "REGEXP_EXTRACT",
        (STRING, STRING),
        STRING,
        "standpipe_regexp_extract({0}, {1}, 0)",
        expression=0,
    ),
    Function(
        "REGEXP_EXTRACT",
        (STRING, STRING, INTEGER),
        STRING,
        "standpipe_regexp_extract({0}, {1}, {2})",
        expression=0,
    ),
    Function(
        "REGEXP_EXTRACT_ALL",
        (STRING, STRING),
        array(STRING),
        "standpipe_regexp_extract_all({0}, {1}, 0)",
        expression=0,
    ),
    Function(
        "REGEXP_EXTRACT_ALL",
        (STRING, STRING, INTEGER),
        array(STRING),
        "standpipe_regexp_extract_all({0}, {1}, {2})",
        expression=0,
    ),
    Function(
        "REGEXP_REPLACE",
        (STRING,) * 3,
        STRING,
        "standpipe_regexp_replace({1}, {0}, {2})",
        expression=1,
    ),
    Function(
        "REGEXP_SPLIT_TO_ARRAY",
        (STRING, STRING),
        array(STRING),
        "standpipe_regexp_split({1}, {0}, '')",
        expression=1,
    ),
    Function(
        "REPLACE",
        (STRING, STRING, STRING),
        STRING,
        # Java finds an empty text before each character and at the end; Spark finds none
        "if({1} = '', concat({2}, concat_ws('', transform(filter(split({0}, ''), e -> e <> ''),"
        " e -> concat(e, {2})))), replace({0}, {1}, {2}))",
        size=_SIZE_REPLACED,
    ),
    Function(
        "SPLIT",
        (STRING, STRING),
        array(STRING),
        f"if({{1}} = '', split({{0}}, ''), split({{0}}, {LITERALLY}, -1))",
    ),
    Function("SPLIT", (BYTES, BYTES), array(BYTES), _SPLIT_BYTES),
    Function("SUBSTRING", (STRING, INTEGER), STRING, f"substring({{0}}, {_START})"),
    Function("SUBSTRING", (STRING, INTEGER, INTEGER), STRING, f"substring({{0}}, {_START}, {{2}})"),
    Function("SUBSTRING", (BYTES, INTEGER), BYTES, f"substring({{0}}, {_START})"),
    Function("SUBSTRING", (BYTES, INTEGER, INTEGER), BYTES, f"substring({{0}}, {_START}, {{2}})"),
    Function("TRIM", (STRING,), STRING, f"btrim({{0}}, {BLANKS})"),
    Function("UCASE", (STRING,), STRING, "upper({0})"),
    Function("UUID", (), STRING, "uuid()"),
    Function("UUID", (BYTES,), STRING, _UUID),
)


def _url_part(part: str) -> str:
    """As java.net.URI has it: path, query and fragment without % escapes, and + as it is."""
    raw = f"try_parse_url({{0}}, '{part}')"
    return f"try_url_decode(replace({raw}, '+', '%2B'))" if part in _ESCAPED else raw


_ESCAPED: Final = frozenset({"PATH", "QUERY", "REF"})


def _url(name: str, part: str) -> Function:
    return Function(f"URL_EXTRACT_{name}", (STRING,), STRING, _url_part(part))


#: the first of that name; '' if it has no =
_PARAMETER: Final = (
    f"try_element_at(transform(filter(split({_url_part('QUERY')}, '&'),"
    " p -> substring_index(p, '=', 1) = {1}),"
    " p -> if(instr(p, '=') > 0, substring(p, instr(p, '=') + 1), '')), 1)"
)


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
        _PARAMETER,
    ),
    Function("URL_ENCODE_PARAM", (STRING,), STRING, "url_encode({0})"),
    Function("URL_DECODE_PARAM", (STRING,), STRING, "try_url_decode({0})"),
)

FUNCTIONS: Final = (*_STRINGS, *_URLS)
