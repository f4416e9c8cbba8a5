"""Values for `both_ways.py`: what each kind of argument is tried with, and when two are alike."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

from standpipe.sql.functions.cast import spark_name
from standpipe.sql.functions.signature import VARIABLES, Function
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.spark.expression_sql import constant_sql
from standpipe.sql.types.calendar import date_text, timestamp_text
from standpipe.sql.types.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array,
    decimal,
    map_of,
    quoted,
    struct,
)

#: rows of the table: more than any kind has values
ROWS: Final = 60


@dataclass(frozen=True, slots=True)
class Kind:
    """A domain of values. `copies`: how many columns of it there are."""

    name: str
    type: SqlType
    values: tuple[object, ...]
    copies: int = 3


def _kind(name: str, of: SqlType, *values: object, copies: int = 3) -> Kind:
    return Kind(name, of, (None, *values), copies)


_DECIMAL: Final = decimal(6, 2)
_WIDE: Final = decimal(20, 5)
_WIDEST: Final = decimal(38, 2)
_SMALL_PARTS: Final = decimal(30, 28)
_S: Final = struct((("A", INTEGER), ("B", STRING)))
_WORDS: Final = (
    "",
    "a",
    "abc",
    "ABC def",
    " x ",
    "\t y\x00\x1f",
    "\u00a0n\u3000",
    "ÄÖß",
    "😀a😀",
    "a,b,,c",
    "12",
    "-7",
    "+3",
    "1.5",
    "1e3",
    " 8 ",
    "true",
    "T",
    "no",
    "x%y_z",
    "a\\b",
    "it's",
    "2020-02-29",
    "23:59:59.5",
    "2020-02-29T12:34:56.789",
    "99999999999",
    "o'NEIL-smith jr",
    "aaaa",
    "{x}",
    "Σας",
    "a1B2",
    "1970-01-01",
    "NaN",
    "٣",
    "0x1F",
    "1_000",
    "-",
    "12d",
    "x\\E(y",
)

KINDS: Final = {
    each.name: each
    for each in (
        _kind("I", INTEGER, 0, 1, -1, 2, 3, -3, 7, 10, 100, 45, 2147483647, -2147483648, copies=4),
        _kind("SMALL", INTEGER, 0, 1, -1, 2, 3, 5, -2, -4, 10, 40, 2147483647, -2147483648),
        _kind("L", BIGINT, 0, 1, -1, 5, -7, 1700000000123, 2147483648, 2**63 - 1, -(2**63), 10**15),
        _kind(
            "D", DOUBLE, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.1, 1e7, 1e-4, 1e-3,
            123456789.125, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, 1000.0, -2.675,
            0.49999999999999994, 0.29, 1e22, 9.5e15, 1.1e10, 123456.7, 2.0, 100.0, -1000.0, 4.35,
            2147483648.0, 9.3e18, copies=5,
        ),
        _kind(
            "C", _DECIMAL, *map(
                Decimal, ["0.00", "1.00", "-1.00", "1.25", "-1.25", "2.50", "-2.50", "9999.99",
                "-9999.99", "0.01", "0.50", "-0.50", "100.00"]
            ),
        ),
        _kind("W", _WIDE, *map(
            Decimal, ["0.00000", "1.50000", "-1.50000", "123456789012345.67890", "0.00001",
            "-7.00005"])),
        _kind("WW", _WIDEST, *map(
            Decimal, ["0.00", "1.00", "-7.00", "0.03", "999999999999999999999999999999999999.99",
            "-100000000000000000000000000000000000.01", "9812880523922269336248996434762856.00",
            "30047618587261588965938937663718286.81", "12345.67"])),
        _kind("SP", _SMALL_PARTS, *map(
            Decimal, ["0.0000000000000000000000000001", "-99.9999999999999999999999999999",
            "1.0000000000000000000000000000", "3.0000000000000000000000000007",
            "0.0000000000000000000000000000", "-0.5000000000000000000000000000"])),
        _kind("S", STRING, *_WORDS, copies=4),
        _kind("Y", BYTES, b"", b"\x00", b"abc", b"\xff\xfe", b"a,b", b"\x80\x00\x00\x01",
              bytes(range(113, 129)),
              b"\x00" * 7 + b"\x05", b"\xc0\x09\x21\xfb\x54\x44\x2d\x18", b","),
        _kind("B", BOOLEAN, True, False),
        _kind("DT", DATE, 0, 1, -1, 18321, 18628, -719162, 2932896, 19000, -141428),
        _kind("FARDAY", DATE, 0, 106751990, -106751990, 106751991, 2147483647, -2147483648),
        _kind("TM", TIME, 0, 1, 1000, 60000, 86399999, 45296789, 43200000, 45296700),
        _kind("TS", TIMESTAMP, 0, 1, -1, 1582979696789, 1604217600000, 1585443600000,
              253402300799999, -62135596800000, -12219292800001, 1700000000000),
        _kind("AI", array(INTEGER), [], [1], [1, 2, 3], [3, None, 1, 3], [None], [-5, 2147483647]),
        _kind("AD", array(DOUBLE), [], [1.5], [math.nan, 1.0, None], [0.0, -0.0, 1e7], [-1.5, 2.5]),
        _kind("AS", array(STRING), [], ["a"], ["b", "a", None, "b"], ["", "😀"], [None], ["ab",
        "B"]),
        _kind("AA", array(array(INTEGER)), [], [[]], [[1, 2], None, [1, 2], [None]], [[3], [1]]),
        _kind("AT", array(TIMESTAMP), [], [0, 1582979696789], [None, -1]),
        _kind("AM", array(map_of(STRING, INTEGER)), [], [{"a": 1, "b": 2}, None, {"b": 2, "a": 1}],
              [{"a": 1}, {}]),
        _kind("MI", map_of(STRING, INTEGER), {}, {"a": 1}, {"b": None, "a": 2}, {"😀": 3, "a": 1}),
        _kind("ME", map_of(INTEGER, DOUBLE), {}, {1: 1.5}, {2: None, 1: 1e7}),
        _kind("Z", _S, {"A": 1, "B": "x"}, {"A": None, "B": None}, {"A": -1, "B": ""}),
        _kind("ENC", STRING, "hex", "utf8", "base64", "ascii", "HEX", "nonsense"),
        _kind("HEXED", STRING, "", "41", "0x41", "X'4142'", "4", "0x4", "zz", "YWJj", "YQ==", "é",
              "616263", "ÿ", "a b"),
        _kind("ORDER", STRING, "BIG_ENDIAN", "LITTLE_ENDIAN", "little_endian", "x"),
        _kind("UNIT", STRING, "DAYS", "HOURS", "MILLISECONDS", "WEEKS", "SECONDS", "MINUTES"),
        _kind("ZONE", STRING, "UTC", "Europe/Paris", "America/Los_Angeles", "+02:00", "GMT+2",
              "UTC-03:30", "-0500", "Z", "Asia/Kolkata", "CET", "nowhere/x", "", "+2", "EST", "PST",
              copies=2),
        _kind("FDATE", STRING, "yyyy-MM-dd", "d/M/yy", "dd MMM yyyy", "EEE, MMMM d, y", "D",
        "QQQ yy",
              "yyyyMMdd", "'on' dd", "'it''s' MM", "yyyy-MM-dd G", "uuuu", "YYYY", "w", "b",
              "MMMMM LLLLL EEEEE QQQQQ qqqqq GGGGG", "u uu uuu uuuuuu yyyyyy",
              "E EEEE", "L LLL", "", "q", "yyyy HH", "yyyy-MM-dd'"),
        _kind("FTIME", STRING, "HH:mm:ss", "h:mm a", "HH:mm:ss.SSS", "K k", "H.m.s", "S SS SSSSSS",
              "hh 'o''clock' a", "A", "n NNN AAAAAAAAAAA", "mm", "yyyy"),
        _kind("FSTAMP", STRING, "yyyy-MM-dd HH:mm:ss", "d/M/yy h:mm a", "yyyy-MM-dd'T'HH:mm:ss.SSS",
              "yyyy-MM-dd HH:mm:ss z", "yyyy-MM-dd HH:mm Z", "XXX x xx xxx X", "VV", "O OOOO",
              "EEE MMM dd HH:mm:ss zzz yyyy", "yyyy-MM-dd'T'HH:mm:ssX", "zzzz", "ZZZZ ZZZZZ",
              "yyyy[-MM]", "SSSSSSSSS", "B", "W", "''", "e", "y M d H m s S", "XX", "GGGG yyy",
              "uuuu-MM-dd'T'HH:mm:ss.SSSXXX'['VV']'"),
        _kind("TDATE", STRING, "2020-02-29", "2019-02-29", "29/2/20", "29 Feb 2020", "20200229",
              "2020-02-29 tail", "Sat, February 29, 2020", "1/1/70", "01 jan 1970", "", "60",
              "2020-2-9", "99999-01-01"),
        _kind("TTIME", STRING, "12:34:56", "1:05 PM", "23:59:59.999", "24:00", "7.8.9", "12:34",
              "12:34:56 x", "01 o'clock AM", "0 24"),
        _kind("TSTAMP", STRING, "2020-02-29 12:34:56", "29/2/20 1:05 PM", "2020-02-29T12:34:56.789",
              "2020-02-29 12:34:56 UTC", "2020-02-29 12:34 +0100", "2020-02-29T12:34:56+01",
              "2020-02-29T12:34:56Z", "2020", "2020-02-30 00:00:00", "2020-02-29 25:00:00",
              "2020-2-9 1:2:3", "2020 2 9 1 2 3 4", "Sat Feb 29 12:34:56 UTC 2020", "x",
              "2020-02-29 12:34:56 tail", "2020-10-25 02:30:00", "2020-03-29 02:30:00",
              "2020-02-29 12:34:56 PST", "2020-07-01 12:34:56 pst", "2020-02-29 12:34:56 BST",
              "2020-02-29 12:34:56 Europe/Paris", "2020-02-29 12:34:56 america/new_york",
              "2020-02-29 12:34:56 GMT+02:00", "2020-02-29 12:34:56 GMT+2", "Europe/Berlin",
              "2020-02-29 12:34:56 Etc/GMT+5", "2020-02-29 12:34:56 NOPE"),
        _kind("URL", STRING, "http://user@h.com:8080/a/b?x=1&y=a%20b#frag", "https://h", "nothing",
              "http://h/?q", "http://h/%zz", "mailto:a@b.c", "http://[::1]:90/x?x=%zz#", "a b", "",
              "//h:1/p", "/only/path?y=2#r", "http://h:x/", "HTTP://Ex.Com:080/?x=&x=2",
              "http://h:/"),
        _kind("ENCODED", STRING, "a%20b+c", "%", "%zz", "%C3%A4", "%ff", "plain", "", "ä", "~*-._",
              "a b&c=d", "😀"),
        _kind("PARAM", STRING, "x", "y", "", "z", "q"),
        _kind("JSON", STRING, '{"a": {"b": [1, 2.50, "x"]}, "c": null}',
        "[1, 2, 2.0, \"1\", null, true]",
              "{}", "[]", "null", "1", '"t"', "bad", "", '{"a":1}', '{"a":1,"a":2}',
              '[[1],{"z":1e3}]',
              '{"b":"ü\\u00e4","a":{"k":1}}', "[1,", "true", "[1] x", "{'a': 1}", "NaN", " [ ] ",
              "1x", "1 x", "truex", "-0", "-0.0", "1e5", "1E-7", "[1.5, -0.0]", "[3000000000, 1]",
              '["a", bad', '[{"a":1},{"b":[2]}]', '[{"a":1},2]', '{"x y":1}', "1e99999",
              '{"x-y":1,"@a":2,"a\\"\\\\":3}',
              '["\\ud83d", "\\u0001/"]', "[" * 150 + "]" * 150, "[" * 250 + "]" * 250),
        _kind("PATH", STRING, "$.a", "$.a.b", "$.a.b[1]", "$.c", "$", "$.a.b[*]", "$['a']", "a", "",
              "$[0]", "$[1].z", "$.a.b[9]", "$.*", "$..b", "$[-1]", '$["x y"]', "$.x y", "$.x-y",
              "$.@a", "$[@a]", '$["a\\"\\\\"]', '$["a\\b"]', '$["', '$["a'),
        _kind("REGEX", STRING, "a", "", "a*", "(a+)+$", "(a|aa)+$", "(.*)*x", "((a{3}){3}){3}", ".",
              "\\s+", "(\\w)(\\w*)", "[^a-c]", "(?i)ab|c", "\\b", "^.", "$", "(a)|(b)", "a*?", "[",
              "(?=a)", "(a)\\1", "\\p{L}+", "\\P{Lu}", "\\Qa.\\E|\\.", "(?s).+", ",",
              "\\d+(\\.\\d+)?",
              "[\\h\\v]", "😀", "[😀-🙏]", "x{2,1}", "(?<n>a)b?", "(a*)*", "(|a)+", "()", "a++",
              "[a&&b]", "(?:a|(b))*", "[^\\W_]", "(?-i:A)", "\\R", "(?d).", "[]a-]+",
              "\\x41|\\u0061",
              copies=1),
        _kind("GROUP", INTEGER, 0, 1, 2, 3, -1, 10, copies=1),
        _kind("NEW", STRING, "", "x", "<$0>", "$1", "$2-$1", "${n}", "\\$", "$", "\\", "$9", "${x}",
              "$12", "a\\b$1c", "😀", copies=1),
        _kind("SORT", STRING, "ASC", "DESC", "desc", "Descending", "x"),
        _kind("PAIRS", STRING, "a\\E(1,b:2", "a:1,b:2", "a:1,,b", "", "a:1:2", "x", "a:1,a:2",
              "😀:é"),
        _kind("MARK", STRING, "X", "#", "é", "Xx", "", copies=4),
        _kind("COMMA", STRING, ",", ":", "", "::", ".", "\\E("),
        _kind("LAT", DOUBLE, 0.0, 51.5, -33.9, 90.0, -90.0, 37.4, 180.0),
        _kind("MILES", STRING, "KM", "MI", "miles", "x", "Mi"),
        _kind("LIKED", STRING, "a%", "%", "", "_", "__", "x\\%y%", "a\\b", "%B%", "%😀", "x!%y!_z",
              "a\\\\b", "😀_😀", "%a%a%", "."),
    )
}  # fmt: skip

#: for each function, the kinds of arguments that its types alone do not tell
_KINDS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "CHR": ("S",),
    "CONVERT_TZ": ("TS", "ZONE", "ZONE"),
    "DATETOSTRING": ("I", "FDATE"),
    "ELT": ("SMALL", "S"),
    "ENCODE": ("HEXED", "ENC", "ENC"),
    "EXTRACTJSONFIELD": ("JSON", "PATH"),
    "FORMAT_DATE": ("DT", "FDATE"),
    "FORMAT_TIME": ("TM", "FTIME"),
    "FORMAT_TIMESTAMP": ("TS", "FSTAMP", "ZONE"),
    "FROM_BYTES": ("Y", "ENC"),
    "GENERATE_SERIES": ("SMALL", "SMALL", "SMALL"),
    "GEO_DISTANCE": ("LAT", "LAT", "LAT", "LAT", "MILES"),
    "IS_JSON_STRING": ("JSON",),
    "JSON_ARRAY_CONTAINS": ("JSON",),
    "JSON_ARRAY_LENGTH": ("JSON",),
    "JSON_CONCAT": ("JSON", "JSON"),
    "JSON_ITEMS": ("JSON",),
    "JSON_KEYS": ("JSON",),
    "JSON_RECORDS": ("JSON",),
    "PARSE_DATE": ("TDATE", "FDATE"),
    "PARSE_TIME": ("TTIME", "FTIME"),
    "PARSE_TIMESTAMP": ("TSTAMP", "FSTAMP", "ZONE"),
    "SPLIT_TO_MAP": ("PAIRS", "COMMA", "COMMA"),
    "STRINGTODATE": ("TDATE", "FDATE"),
    "STRINGTOTIMESTAMP": ("TSTAMP", "FSTAMP", "ZONE"),
    "TIMESTAMPTOSTRING": ("L", "FSTAMP", "ZONE"),
    "TO_BYTES": ("HEXED", "ENC"),
    "URL_DECODE_PARAM": ("ENCODED",),
    "URL_ENCODE_PARAM": ("ENCODED",),
    "URL_EXTRACT_PARAMETER": ("URL", "PARAM"),
    **{
        f"URL_EXTRACT_{part}": ("URL",)
        for part in ("FRAGMENT", "HOST", "PATH", "PORT", "PROTOCOL", "QUERY")
    },
    **{f"{what}{way}": ("UNIT", "I") for what in ("TIMESTAMP", "DATE", "TIME") for way in
       ("ADD", "SUB")},
    **{f"{base}_FROM_BYTES": ("Y", "ORDER") for base in ("INT", "BIGINT", "DOUBLE")},
    "MASK": ("S", *["MARK"] * 4),
    **dict.fromkeys(("MASK_LEFT", "MASK_RIGHT", "MASK_KEEP_LEFT", "MASK_KEEP_RIGHT"), ("S",
    "SMALL", *["MARK"] * 4)),
    **dict.fromkeys(("LPAD", "RPAD"), ("S", "SMALL", "S")),
    "INSTR": ("S", "S", "SMALL", "SMALL"),
    "SUBSTRING": ("S", "SMALL", "SMALL"),
    "SLICE": ("AI", "SMALL", "SMALL"),
    "REGEXP_EXTRACT": ("REGEX", "S", "GROUP"),
    "REGEXP_EXTRACT_ALL": ("REGEX", "S", "GROUP"),
    "REGEXP_REPLACE": ("S", "REGEX", "NEW"),
    "REGEXP_SPLIT_TO_ARRAY": ("S", "REGEX"),
    "ROUND": ("D", "SMALL"),
    "TRUNC": ("D", "SMALL"),
    "ARRAY_SORT": ("AI", "SORT"),
}  # fmt: skip

_BY_TYPE: Final = {
    INTEGER: "I", BIGINT: "L", DOUBLE: "D", STRING: "S", BYTES: "Y", BOOLEAN: "B", DATE: "DT",
    TIME: "TM", TIMESTAMP: "TS", _DECIMAL: "C", array(INTEGER): "AI", array(STRING): "AS",
    array(DOUBLE): "AD", map_of(STRING, INTEGER): "MI", map_of(INTEGER, DOUBLE): "ME", _S: "Z",
    array(array(INTEGER)): "AA", array(TIMESTAMP): "AT", map_of(STRING, STRING): "MI",
    array(map_of(STRING, INTEGER)): "AM",
}  # fmt: skip
_NUMBERS: Final = (INTEGER, BIGINT, DOUBLE, _DECIMAL, _WIDE)
_ANY: Final = (INTEGER, DOUBLE, STRING, BOOLEAN, BYTES, _DECIMAL, DATE, TIME, TIMESTAMP,
               array(INTEGER), map_of(STRING, INTEGER), _S)  # fmt: skip
_ELEMENTS: Final = (INTEGER, DOUBLE, STRING, array(INTEGER), TIMESTAMP, map_of(STRING, INTEGER))


def kinds_of(variant: Function) -> Iterator[tuple[Kind, ...]]:
    """The kinds of arguments to try a variant with: one tuple for each choice of T, K and V."""
    parameters = variant.parameters
    if variant.is_variadic:
        parameters += (parameters[-1],)
    given = _KINDS_OF.get(variant.name, ())
    nested = any(part.contains("T") and part.base != "T" for part in parameters)
    choices: dict[str, Sequence[SqlType]] = {
        "T": _ELEMENTS if nested else _ANY,
        "NUMBER": _NUMBERS,
        "DECIMAL(P, S)": (_DECIMAL,),
        "K": (STRING, INTEGER),
        "V": (INTEGER, DOUBLE),
    }
    free = [name for name in choices if any(part.contains(name) for part in parameters)]
    for chosen in itertools.product(*(choices[name] for name in free)):
        bound = dict(zip(free, chosen, strict=True))
        if {"K", "V"} <= set(bound) and map_of(bound["K"], bound["V"]) not in _BY_TYPE:
            continue
        yield tuple(
            _kind_for(_bound(of, bound), given[n] if n < len(given) else "")
            for n, of in enumerate(parameters)
        )


def _bound(of: SqlType, bound: Mapping[str, SqlType]) -> SqlType:
    if of.base in VARIABLES:
        return bound[of.base]
    if of.arguments and not of.field_names:
        return SqlType(of.base, arguments=tuple(_bound(part, bound) for part in of.arguments))
    return of


def _kind_for(of: SqlType, wanted: str) -> Kind:
    if wanted and KINDS[wanted].type == of:
        return KINDS[wanted]
    if of == _WIDE:
        return KINDS["W"]
    return KINDS[_BY_TYPE[of]]


_ARITHMETIC: Final = ("+", "-", "*", "/", "%")
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_CASTS: Final = ("BOOLEAN", "INTEGER", "BIGINT", "DECIMAL(6, 2)", "DECIMAL(38, 10)", "DOUBLE",
                 "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP", "ARRAY<STRING>", "ARRAY<BIGINT>",
                 "ARRAY<DOUBLE>", "ARRAY<INTEGER>", "MAP<STRING, STRING>", "MAP<STRING, BIGINT>",
                 "STRUCT<A STRING, B STRING>", "ARRAY<ARRAY<STRING>>")  # fmt: skip


#: kind: a list of literals of other types, which take a common one
_LISTED: Final = {
    "I": "'1', NULL, 2.0, '-3', 7",
    "L": "'0', 3000000000, 1E0",
    "D": "'0.5', 1, 2.50, '-1e300'",
    "C": "'1.10', 0, 2.5",
    "B": "'tr', NULL",
    "S": "'a', 5, ''",
    "DT": "'1970-01-01', '2020-02-29'",
    "TM": "'00:00', '10:20:30'",
    "TS": "'1970-01-01', '2020-02-29T10:20:30.123'",
    "AI": "ARRAY['1', 2], ARRAY[NULL, 1]",
    "MI": "MAP('a' := '1'), MAP('b' := 2)",
    "Z": "STRUCT(A := '1', B := 'x'), STRUCT(A := -1)",
}
#: kind: expressions in which a literal takes the type of a column
_BESIDE: Final = {
    "I": "ARRAY[{0}, '4.000', NULL]",
    "L": "MAP('a' := {0}, 'b' := '-7')",
    "D": "ARRAY[STRUCT(A := {0}), STRUCT(A := 1, B := 'x')]",
    "B": "ARRAY[{0}, 'y', 'FAL']",
    "DT": "({0} BETWEEN '1970-01-01' AND '2020-02-29')",
    "TM": "({0} NOT BETWEEN '00:00' AND '12:00')",
    "TS": "(CASE {0} WHEN '1970-01-01' THEN 'epoch' ELSE 'later' END)",
}


def operators() -> Iterator[tuple[str, str, tuple[Kind, ...]]]:
    """Operators, CAST, CASE, predicates and constructors."""
    numbers = [KINDS[name] for name in ("I", "L", "D", "C", "W")]
    wide = [KINDS["WW"], KINDS["SP"]]
    for sign in _ARITHMETIC:
        for one, two in itertools.product((*numbers, *wide), repeat=2):
            yield f"{one.type} {sign} {two.type}", f"({{0}} {sign} {{1}})", (one, two)
    for kind in numbers:
        yield f"-({kind.type})", "(-({0}))", (kind,)
    for sign in ("+", "||"):
        yield f"STRING {sign} STRING", f"({{0}} {sign} {{1}})", (KINDS["S"],) * 2
    yield "BYTES || BYTES", "({0} || {1})", (KINDS["Y"],) * 2
    alike = [(kind, kind) for kind in KINDS.values() if kind.name == _BY_TYPE.get(kind.type)]
    mixed = itertools.combinations(numbers, 2)
    pairs = ("DT TS", "TDATE DT", "TM TTIME", "TS TSTAMP", "Y S", "S Y")
    read = [(KINDS[one], KINDS[two]) for one, two in (pair.split() for pair in pairs)]
    for one, two in (*alike, *mixed, *read):
        for sign in _COMPARISONS:
            yield f"{one.type} {sign} {two.type}", f"({{0}} {sign} {{1}})", (one, two)
        yield f"{one.type} IN ({two.type})", "({0} IN ({1}, {1}))", (one, two)
        yield f"{one.type} BETWEEN", "({0} BETWEEN {1} AND {0})", (one, two)
        if one.type == two.type:
            yield f"CASE {one.type}", "(CASE WHEN B_0 THEN {0} ELSE {1} END)", (one, two)
        yield f"ARRAY[{one.type}, {two.type}]", "ARRAY[{0}, {1}]", (one, two)
    for one, two in (("I", "I"), ("I", "D"), ("S", "S"), ("I", "C")):
        kinds = KINDS[one], KINDS[two]
        yield f"MAP {one} {two}", "MAP('a' := {0}, 'b' := {1})", kinds
        yield f"MAP of keys {one}", "MAP({0} := {1}, {0} := {1})[{0}]", kinds
        yield f"STRUCT {one} {two}", "STRUCT(A := {0}, B := {1})->B", kinds
        yield f"GREATEST {one} {two}", "GREATEST({0}, {1})", kinds
        yield f"LEAST {one} {two}", "LEAST({0}, {1})", kinds
        yield f"COALESCE {one} {two}", "COALESCE({0}, {1})", kinds
        yield f"IFNULL {one} {two}", "IFNULL({0}, {1})", kinds
        yield f"NULLIF {one} {two}", "NULLIF({0}, {1})", kinds
    for name, items in _LISTED.items():
        for negated in ("", "NOT "):
            yield f"{negated}IN, mixed, {name}", f"({{0}} {negated}IN ({items}))", (KINDS[name],)
    for name, items in _BESIDE.items():
        yield f"beside literals, {name}", items, (KINDS[name],)
    yield "LIKE", "({0} LIKE {1})", (KINDS["S"], KINDS["LIKED"])
    yield "NOT LIKE", "({0} NOT LIKE {1})", (KINDS["S"], KINDS["LIKED"])
    yield "LIKE ESCAPE", "({0} LIKE {1} ESCAPE '!')", (KINDS["S"], KINDS["LIKED"])
    yield "AND OR NOT", "(({0} AND {1}) OR NOT {0})", (KINDS["B"], KINDS["B"])
    for name in ("AI", "AS", "AA"):
        yield f"{name}[]", "{0}[{1}]", (KINDS[name], KINDS["SMALL"])
    yield "SPLIT at odd texts", "SPLIT({0}, {1})", (KINDS["S"], KINDS["COMMA"])
    yield "far days as instants", "UNIX_TIMESTAMP(CAST({0} AS TIMESTAMP))", (KINDS["FARDAY"],)
    yield "far days beside instants", "({0} > {1})", (KINDS["FARDAY"], KINDS["TS"])
    yield "MAP of other keys", "CAST({0} AS MAP<INTEGER, STRING>)", (KINDS["MI"],)
    yield "MAP[]", "{0}[{1}]", (KINDS["MI"], KINDS["S"])
    yield "MAP with keys", "MAP({0} := {1})", (KINDS["S"], KINDS["I"])
    yield "STRUCT->", "{0}->A", (KINDS["Z"],)
    for kind in KINDS.values():
        if kind.name == _BY_TYPE.get(kind.type) or kind.name in ("W", "TTIME", "TSTAMP"):
            for target in _CASTS:
                yield f"CAST {kind.type} AS {target}", f"CAST({{0}} AS {target})", (kind,)


# ----------------------------------------------------------------------------------- the table


def value(kind: Kind, copy: int, row: int) -> object:
    """The value of a kind's column in a row: the first column has each of the values."""
    if copy == 0:
        return kind.values[row % len(kind.values)]
    return random.Random(f"{kind.name} {copy} {row}").choice(kind.values)


def rows(names: PullNames) -> list[tuple[object, ...]]:
    """The rows in the order of the columns; ROWTIME last."""
    made: list[tuple[object, ...]] = []
    for row in range(ROWS):
        cells = {
            f"{kind.name}_{copy}": value(kind, copy, row)
            for kind in KINDS.values()
            for copy in range(kind.copies)
        }
        made.append((*(cells[name] for name, _ in names.row), 1000))
    return made


def table_sql() -> str:
    """The same rows as an inline table of Spark's."""
    columns = [(kind, copy) for kind in KINDS.values() for copy in range(kind.copies)]
    listed = ", ".join(
        "("
        + ", ".join(value_sql(value(kind, copy, row), kind.type) for kind, copy in columns)
        + ")"
        for row in range(ROWS)
    )
    names = ", ".join(quoted(f"{kind.name}_{copy}") for kind, copy in columns)
    return f"SELECT * FROM VALUES {listed} AS T({names})"


def value_sql(given: object, of: SqlType) -> str:
    """Spark's SQL for a value."""
    if given is None:
        return f"cast(NULL AS {spark_name(of)})"
    if of.base == "DOUBLE":
        return f"double('{given!r}')"
    if of.base == "DECIMAL":
        return f"cast('{given}' AS {of})"
    if of.base == "BIGINT":
        return f"cast('{given}' AS BIGINT)"
    if of.base == "INTEGER":
        return f"cast('{given}' AS INT)"
    if of.base == "ARRAY":
        items = [value_sql(item, of.arguments[0]) for item in cast("list[object]", given)]
        return f"cast(array({', '.join(items)}) AS {spark_name(of)})"
    if of.base == "MAP":
        pairs = cast("dict[object, object]", given).items()
        parts = [value_sql(part, of.arguments[n]) for pair in pairs for n, part in enumerate(pair)]
        return f"cast(map({', '.join(parts)}) AS {spark_name(of)})"
    if of.base == "STRUCT":
        fields = cast("dict[str, object]", given).items()
        parts = [f"'{name}', {value_sql(item, of.field(name) or of)}" for name, item in fields]
        return f"named_struct({', '.join(parts)})"
    return constant_sql(given, of)


def literal(given: object, of: SqlType) -> str | None:
    """ksqlDB's SQL for a value; None if it has none."""
    if given is None:
        return f"CAST(NULL AS {of})"
    if of.base == "STRING":
        return "'" + str(given).replace("'", "''") + "'"
    if of.base == "DOUBLE":
        number = cast(float, given)
        text = repr(number).replace("e+", "E").replace("e", "E")
        return (text if "E" in text else f"{text}E0") if math.isfinite(number) else None
    if of.base == "DECIMAL":
        return f"CAST('{given}' AS {of})"
    if of.base in ("INTEGER", "BOOLEAN"):
        return str(given).upper()
    if of.base == "BIGINT":
        return f"CAST('{given}' AS BIGINT)"
    if of.base == "DATE":
        return f"CAST('{date_text(cast(int, given))}' AS DATE)"
    if of.base == "TIMESTAMP":
        return f"CAST('{timestamp_text(cast(int, given))}' AS TIMESTAMP)"
    if of.base == "ARRAY":
        items = [literal(item, of.arguments[0]) for item in cast("list[object]", given)]
        return f"ARRAY[{', '.join(map(str, items))}]" if items and None not in items else None
    return None


# ------------------------------------------------------------------------------------ comparing


def plain_sql(text: str, of: SqlType) -> str:
    """The expression with dates and instants as numbers: Python's own have fewer years."""
    if of.base == "DATE":
        return f"unix_date({text})"
    if of.base == "TIMESTAMP":
        return f"unix_millis({text})"
    if of.base == "ARRAY" and (of.contains("DATE") or of.contains("TIMESTAMP")):
        return f"transform({text}, x -> {plain_sql('x', of.arguments[0])})"
    return text


def alike(spark: Any, ours: Any, of: SqlType) -> bool:
    """Whether the two are one value. A DOUBLE's last bit may differ: Java and C compute sines
    and powers by different formulas."""
    if spark is None or ours is None:
        return spark is None and ours is None
    if of.base == "DOUBLE":
        if not isinstance(ours, float) or not isinstance(spark, float):
            return False
        return (math.isnan(spark) and math.isnan(ours)) or math.isclose(
            spark, ours, rel_tol=1e-15, abs_tol=5e-324
        )
    if of.base == "ARRAY":
        return (
            isinstance(ours, list)
            and isinstance(spark, list)
            and len(spark) == len(ours)
            and all(alike(one, two, of.arguments[0]) for one, two in zip(spark, ours, strict=True))
        )
    if of.base in ("MAP", "STRUCT"):
        if not isinstance(ours, dict) or not isinstance(spark, dict) or set(spark) != set(ours):
            return False
        return all(
            alike(spark[name], ours[name], of.arguments[1] if of.base == "MAP" else of.field(name))
            for name in spark
        )
    if of.base == "DECIMAL":
        return isinstance(ours, Decimal) and spark == ours
    if isinstance(ours, bool) is not isinstance(spark, bool):
        return False
    if of.base == "BYTES" and isinstance(spark, (bytes, bytearray)):
        return bytes(spark) == ours
    return type(spark) is type(ours) and bool(spark == ours)
