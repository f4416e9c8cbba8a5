"""Scalar functions of dates and times: ksqlDB's semantics in Spark SQL.

A TIME is the INT of its milliseconds. Formats are those of Java's DateTimeFormatter; for the common
letters, Spark's are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from standpipe.sql.functions.signature import Function
from standpipe.sql.types.typed_expression import Constant, Typed
from standpipe.sql.types.types import BIGINT, DATE, INSTANT_MS_MAX, INTEGER, STRING, TIME, TIMESTAMP

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


_OF_DAY: Final = "cast(pmod(unix_millis(to_timestamp({0}, {1})), 86400000L) AS INT)"

FUNCTIONS: Final = (
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
    # text after the date is ignored, as by Java's SimpleDateFormat
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


# ------------------------------------------------------------------------------- zones in patterns

#: quoted text in a pattern, and the letters for the zone's name or offset
#: (java.time.format.DateTimeFormatter, whose letters ksqlDB and Spark share)
_QUOTED: Final = re.compile("'[^']*'")
_ZONE: Final = re.compile("[zZXxOV]")


def template_for(function: Function, arguments: Sequence[Typed]) -> str:
    """The function's template for these arguments: `zoned` if the pattern names the zone."""
    if not function.zoned or not all(isinstance(each, Constant) for each in arguments[1:]):
        return function.template
    pattern = arguments[1]
    assert isinstance(pattern, Constant)
    return function.zoned if names_zone(str(pattern.value)) else function.template


def names_zone(pattern: str) -> bool:
    """Whether the pattern has a zone letter outside quotes."""
    return _ZONE.search(_QUOTED.sub("", pattern)) is not None
