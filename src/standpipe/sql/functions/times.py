"""Scalar functions of dates and times: ksqlDB's semantics in Spark SQL.

A TIME is the INT of its milliseconds. Formats are those of Java's DateTimeFormatter; for the common
letters, Spark's are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from standpipe.sql.functions import time_patterns
from standpipe.sql.functions.signature import Function
from standpipe.sql.types import zones
from standpipe.sql.types.typed_expression import Constant, Typed
from standpipe.sql.types.types import (
    BIGINT,
    DATE,
    DATE_DAYS_MAX,
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


def _days(days: str) -> str:
    """NULL for a date whose midnight Spark cannot format: an error would end the query."""
    return f"if({days} BETWEEN -{DATE_DAYS_MAX} AND {DATE_DAYS_MAX}, {days}, NULL)"


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
    """Of Spark's formatters only to_json accepts a zone, which must be a literal."""
    options = "map('timeZone', {2}, 'timestampFormat', {1})"
    return f"get_json_object(to_json(named_struct('t', {moment}), {options}), '$.t')"


FUNCTIONS: Final = (
    *_shifts("ADD", "+"),
    *_shifts("SUB", "-"),
    Function(
        "CONVERT_TZ",
        (TIMESTAMP, STRING, STRING),
        TIMESTAMP,
        "from_utc_timestamp(to_utc_timestamp({0}, {1}), {2})",
        zones=(1, 2),
    ),
    Function(
        "DATETOSTRING",
        (INTEGER, STRING),
        STRING,
        f"date_format(date_from_unix_date({_days('{0}')}), {{1}})",
        letters=time_patterns.SHOWN_DATE,
    ),
    Function(
        "FORMAT_DATE",
        (DATE, STRING),
        STRING,
        f"date_format(date_from_unix_date({_days('unix_date({0})')}), {{1}})",
        letters=time_patterns.SHOWN_DATE,
    ),
    Function(
        "FORMAT_TIME",
        (TIME, STRING),
        STRING,
        "date_format(timestamp_millis({0}), {1})",
        letters=time_patterns.SHOWN_TIME,
    ),
    Function(
        "FORMAT_TIMESTAMP",
        (TIMESTAMP, STRING),
        STRING,
        "date_format({0}, {1})",
        letters=time_patterns.SHOWN,
    ),
    Function(
        "FORMAT_TIMESTAMP",
        (TIMESTAMP, STRING, STRING),
        STRING,
        f"date_format({_in_zone('{0}', '{2}')}, {{1}})",
        zoned=_zoned("{0}"),
        letters=time_patterns.SHOWN,
        zones=(2,),
    ),
    Function("FROM_DAYS", (INTEGER,), DATE, "date_from_unix_date({0})"),
    Function("FROM_UNIXTIME", (BIGINT,), TIMESTAMP, _instant("{0}")),
    # these are ours (`pipeline/run/start/TimeTexts.java`): Spark's refuse what java.time adjusts
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
        f"date_format({_instant('{0}')}, {{1}})",
        letters=time_patterns.SHOWN,
    ),
    Function(
        "TIMESTAMPTOSTRING",
        (BIGINT, STRING, STRING),
        STRING,
        f"date_format({_in_zone(_instant('{0}'), '{2}')}, {{1}})",
        zoned=_zoned(_instant("{0}")),
        letters=time_patterns.SHOWN,
        zones=(2,),
    ),
    Function("UNIX_DATE", (), INTEGER, "unix_date(current_date())"),
    Function("UNIX_DATE", (DATE,), INTEGER, "unix_date({0})"),
    Function("UNIX_TIMESTAMP", (), BIGINT, "unix_millis(current_timestamp())"),
    Function("UNIX_TIMESTAMP", (TIMESTAMP,), BIGINT, "unix_millis({0})"),
)


# ----------------------------------------------------------------------------- patterns and zones

#: quoted text in a pattern, and the letters for the zone's name or offset
#: (java.time.format.DateTimeFormatter, whose letters ksqlDB and Spark share)
_QUOTED: Final = re.compile("'[^']*'")
_ZONE: Final = re.compile("[zZXxOV]")
#: whether Spark knows the zone: its CAST reads one behind a time. The short names of its own
#: (java.time.ZoneId.SHORT_IDS) are none to ksqlDB
_SHORT_NAMES: Final = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
_ZONE_TEST: Final = (
    "regexp_like({zone}, '^[A-Za-z0-9+:/_.~-]+$') AND {zone} NOT IN ("
    + ", ".join(f"'{name}'" for name in _SHORT_NAMES)
    + ") AND cast(concat('2020-01-01 00:00:00 ', {zone}) AS TIMESTAMP) IS NOT NULL"
)


def template_for(function: Function, arguments: Sequence[Typed]) -> str:
    """The function's template for these arguments: `zoned` if the pattern names the zone. Out of a
    column, a pattern that Spark would refuse, and so end the query, makes NULL.

    Raises ValueError for a literal that is no such pattern, or no zone, and for a pattern that
    shows the zone of a column: Spark would show the session's.
    """
    tests: list[str] = []
    for index in function.zones:
        zone = arguments[index] if index < len(arguments) else None
        if isinstance(zone, Constant) and zone.value is not None:
            zones.zone_of(str(zone.value))
        elif zone is not None:
            tests.append(_ZONE_TEST.replace("{zone}", f"{{{index}}}"))
    plain = function.template
    if function.letters is None:
        return f"if({' AND '.join(tests)}, {plain}, NULL)" if tests else plain
    pattern = arguments[1]
    if not isinstance(pattern, Constant):
        tests.append(time_patterns.spark_test(function.letters, zones=not function.zoned))
    if tests:
        plain = f"if({' AND '.join(tests)}, {function.template}, NULL)"
    if not isinstance(pattern, Constant) or pattern.value is None:
        return plain
    time_patterns.parts_of(str(pattern.value), function.letters)
    if not function.zoned or not names_zone(str(pattern.value)):
        return plain
    given = [each.value for each in arguments[1:] if isinstance(each, Constant)]
    if len(given) < len(arguments) - 1:
        raise ValueError("a pattern with the zone needs that as a literal")
    return plain if None in given else function.zoned


def names_zone(pattern: str) -> bool:
    """Whether the pattern has a zone letter outside quotes."""
    return _ZONE.search(_QUOTED.sub("", pattern)) is not None
