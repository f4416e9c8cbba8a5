"""Texts of dates and times that java.time adjusts, for `both_ways.py`: each by each pattern."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.e2e.both_values import Kind

#: patterns -> texts
_DATES: Final[Mapping[Sequence[str], Sequence[str]]] = {
    ("yyyy-MM-dd", "y-M-d", "yy-MM-dd", "uuuu-MM-dd", "yyyy-DDD", "yyyy-MM", "MM-dd-D"): (
        *("2021-02-30", "2021-02-29", "2020-02-29", "2021-04-31", "2021-04-32", "2021-13-01"),
        *("2021-00-10", "2021-02-00", "2021-2-3", "21-02-03", "46-02-03", "45-12-31", "2021-366"),
        *("2020-366", "2021-060", "2021-02-03T10:00", " 2021- 02- 03", "0-02-03", "12-31-365"),
        *("-5-02-03", "0000-02-03", "2021-02-99999", "99999999999-01-01", "2021", "x"),
    ),
    ("yyyyMMdd", "yyMMdd", "ddMMyyyy", "yyyyDDD"): (
        *("20210230", "210230", "30022021", "2021060", "20211301", "2021023", "202102030"),
    ),
    ("dd MMM yyyy", "d MMMM y", "MMM dd''yy", "EEE, d MMM yyyy", "EEEE d MMM yyyy", "EEE"): (
        *("30 Feb 2021", "30 FEBRUARY 2021", "1 mar 2021", "feb 30'21", "Mon, 1 Mar 2021"),
        *("Tue, 1 Mar 2021", "Monday 1 Mar 2021", "Mon", "31 Xyz 2021"),
    ),
}
_TIMES: Final[Mapping[Sequence[str], Sequence[str]]] = {
    ("HH:mm", "H:m:s", "kk:mm", "hh:mm", "hh:mm a", "KK:mm a", "mm:ss", "HH:ss", "HH", "a"): (
        *("24:00", "24:01", "23:59", "00:00", "12:00", "12:30 AM", "12:30 pm", "0:5:7", "24:0:0"),
        *("13:00 PM", "11:30 PM", "23", "24", "PM", "60:00", "7:60"),
    ),
    ("HH:mm:ss.SSS", "HH:mm:ss.S", "HHmmssSSS", "HH:mm:ss.SSSSSSSSS", "HH.SSS"): (
        *("24:00:00.000", "24:00:00.001", "12:34:56.7", "12:34:56.789", "123456789"),
        *("12:34:56.123456789", "12.345"),
    ),
}
_INSTANTS: Final[Mapping[Sequence[str], Sequence[str]]] = {
    ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd kk:mm:ss", "uuuu-MM-dd H:m:s"): (
        *("2021-02-30 10:00:00", "2021-12-31 24:00:00", "2021-02-30 24:00:00"),
        *("2020-10-25 02:30:00", "2020-03-29 02:30:00", "2020-11-01 01:30:00"),
        *("2021-02-28 24:00:01", "2021-02-28 00:60:00", "1900-01-01 00:00:00"),
    ),
    ("MM-dd", "dd HH:mm", "EEE HH:mm", "yyyy", "yyyy-dd", "D", "HH:mm"): (
        *("02-29", "02-30", "31 10:00", "32 10:00", "Mon 10:00", "Sun 24:00", "2020", "2020-31"),
        *("366", "365", "24:00", "23:00"),
    ),
    ("yyyy-MM-dd HH:mm z", "yyyy-MM-dd HH:mmXXX", "yyyy-MM-dd HH:mm VV", "yyyyMMddHHmmssSSS"): (
        *("2020-02-30 10:00 UTC", "2020-02-30 10:00+02:00", "2020-07-01 10:00 Europe/Paris"),
        *("2020-10-25 02:30 Europe/Paris", "20200230102030123", "2020023010203012"),
    ),
}


def calls() -> Iterator[tuple[str, str, tuple[Kind, ...]]]:
    """(about, text, no arguments)."""
    tables = (
        (_DATES, "PARSE_DATE({}, {})", "STRINGTODATE({}, {})", "STRINGTOTIMESTAMP({}, {})"),
        (_TIMES, "PARSE_TIME({}, {})", "STRINGTOTIMESTAMP({}, {})"),
        (_INSTANTS, "STRINGTOTIMESTAMP({}, {}, 'Europe/Paris')",
         "PARSE_TIMESTAMP({}, {}, 'America/New_York')", "STRINGTODATE({}, {})"),
    )  # fmt: skip
    for table, *templates in tables:
        for patterns, texts in table.items():
            for template, pattern, text in itertools.product(templates, patterns, texts):
                given = [f"'{each.replace(chr(39), chr(39) * 2)}'" for each in (text, pattern)]
                yield f"times {template}", template.format(*given), ()
