"""Scalar functions of dates and times: ksqlDB's semantics in Spark SQL.

A TIME is the INT of its milliseconds. Formats are those of Java's DateTimeFormatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from standpipe.sql.functions import time_patterns
from standpipe.sql.functions.signature import Function
from standpipe.sql.types import zones
from standpipe.sql.types.typed_expression import Constant, Typed
from standpipe.sql.types.types import (
    BIGINT,
    DATE,
    INSTANT_MS_MAX,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
)

#: name of a unit as an argument of DATEADD and similar functions -> milliseconds
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
    """NULL outside Spark's range of instants: an error would end the query."""
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
            f"date_from_unix_date(cast((unix_date({{2}}) * {_DAY} {sign} {_STEP}) div {_DAY} AS"
            " INT))",
        ),
        Function(
            f"TIME{word}",
            (STRING, INTEGER, TIME),
            TIME,
            f"cast(pmod({{2}} {sign} {_STEP}, {_DAY}) AS INT)",
        ),
    )


# those with a pattern are ours (`pipeline/run/start/TimeTexts.java`): Spark's refuse what java.time
# adjusts, and show no zone but the session's
FUNCTIONS: Final = (
    *_shifts("ADD", "+"),
    *_shifts("SUB", "-"),
    Function(
        "CONVERT_TZ",
        (TIMESTAMP, STRING, STRING),
        TIMESTAMP,
        "timestamp_millis(unix_millis({0}) + unix_millis(from_utc_timestamp({0}, {2}))"
        " - unix_millis(from_utc_timestamp({0}, {1})))",
        zones=(1, 2),
    ),
    Function(
        "DATETOSTRING",
        (INTEGER, STRING),
        STRING,
        "standpipe_shown_date({0}, {1}, 'UTC')",
        letters=time_patterns.SHOWN_DATE,
    ),
    Function(
        "FORMAT_DATE",
        (DATE, STRING),
        STRING,
        "standpipe_shown_date(unix_date({0}), {1}, 'UTC')",
        letters=time_patterns.SHOWN_DATE,
    ),
    Function(
        "FORMAT_TIME",
        (TIME, STRING),
        STRING,
        "standpipe_shown_time({0}, {1}, 'UTC')",
        letters=time_patterns.SHOWN_TIME,
    ),
    Function(
        "FORMAT_TIMESTAMP",
        (TIMESTAMP, STRING),
        STRING,
        "standpipe_shown_instant(unix_millis({0}), {1}, 'GMT')",
        letters=time_patterns.SHOWN,
    ),
    Function(
        "FORMAT_TIMESTAMP",
        (TIMESTAMP, STRING, STRING),
        STRING,
        "standpipe_shown_instant(unix_millis({0}), {1}, {2})",
        letters=time_patterns.SHOWN,
        zones=(2,),
    ),
    Function("FROM_DAYS", (INTEGER,), DATE, "date_from_unix_date({0})"),
    Function("FROM_UNIXTIME", (BIGINT,), TIMESTAMP, _instant("{0}")),
    Function(
        "PARSE_DATE",
        (STRING, STRING),
        DATE,
        "date_from_unix_date(standpipe_lenient_date({0}, {1}, 'UTC'))",
        letters=time_patterns.PARSED_DATE,
    ),
    Function(
        "PARSE_TIME",
        (STRING, STRING),
        TIME,
        "standpipe_time({0}, {1}, 'UTC')",
        letters=time_patterns.PARSED_TIME,
    ),
    Function(
        "PARSE_TIMESTAMP",
        (STRING, STRING),
        TIMESTAMP,
        "timestamp_millis(standpipe_instant({0}, {1}, 'UTC'))",
        letters=time_patterns.PARSED,
    ),
    Function(
        "PARSE_TIMESTAMP",
        (STRING, STRING, STRING),
        TIMESTAMP,
        "timestamp_millis(standpipe_instant({0}, {1}, {2}))",
        letters=time_patterns.PARSED,
        zones=(2,),
    ),
    Function(
        "STRINGTODATE",
        (STRING, STRING),
        INTEGER,
        "standpipe_date({0}, {1}, 'UTC')",
        letters=time_patterns.PARSED,
    ),
    Function(
        "STRINGTOTIMESTAMP",
        (STRING, STRING),
        BIGINT,
        "standpipe_instant({0}, {1}, 'UTC')",
        letters=time_patterns.PARSED,
    ),
    Function(
        "STRINGTOTIMESTAMP",
        (STRING, STRING, STRING),
        BIGINT,
        "standpipe_instant({0}, {1}, {2})",
        letters=time_patterns.PARSED,
        zones=(2,),
    ),
    Function(
        "TIMESTAMPTOSTRING",
        (BIGINT, STRING),
        STRING,
        "standpipe_shown_instant({0}, {1}, 'UTC')",
        letters=time_patterns.SHOWN,
    ),
    Function(
        "TIMESTAMPTOSTRING",
        (BIGINT, STRING, STRING),
        STRING,
        "standpipe_shown_instant({0}, {1}, {2})",
        letters=time_patterns.SHOWN,
        zones=(2,),
    ),
    Function("UNIX_DATE", (), INTEGER, "unix_date(current_date())"),
    Function("UNIX_DATE", (DATE,), INTEGER, "unix_date({0})"),
    Function("UNIX_TIMESTAMP", (), BIGINT, "unix_millis(current_timestamp())"),
    Function("UNIX_TIMESTAMP", (TIMESTAMP,), BIGINT, "unix_millis({0})"),
)


# ----------------------------------------------------------------------------- patterns and zones

#: whether Spark knows the zone: its CAST reads one behind a time. The short names of its own
#: (java.time.ZoneId.SHORT_IDS) are none to ksqlDB
_SHORT_NAMES: Final = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
    *("EST", "HST", "MST"),
)
_ZONE_TEST: Final = (
    "regexp_like({zone}, '^[A-Za-z0-9+:/_.~-]+$') AND {zone} NOT IN ("
    + ", ".join(f"'{name}'" for name in _SHORT_NAMES)
    + ") AND cast(concat('2020-01-01 00:00:00 ', {zone}) AS TIMESTAMP) IS NOT NULL"
)


def template_for(function: Function, arguments: Sequence[Typed]) -> str:
    """The function's template for these arguments. Out of a column, a pattern that Python does not
    know, and a zone that Spark would refuse, and so end the query, make NULL.

    Raises ValueError for a literal that is no such pattern, or no zone.
    """
    tests: list[str] = []
    for index in function.zones:
        zone = arguments[index] if index < len(arguments) else None
        if isinstance(zone, Constant) and zone.value is not None:
            zones.zone_of(str(zone.value))
        elif zone is not None:
            tests.append(_ZONE_TEST.replace("{zone}", f"{{{index}}}"))
    if function.letters is not None:
        pattern = arguments[1]
        if not isinstance(pattern, Constant):
            tests.append(time_patterns.spark_test(function.letters))
        elif pattern.value is not None:
            time_patterns.parts_of(str(pattern.value), function.letters)
    return f"if({' AND '.join(tests)}, {function.template}, NULL)" if tests else function.template
