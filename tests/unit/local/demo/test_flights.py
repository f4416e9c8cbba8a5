"""The demo's events are in event order, complete, and keyed by aircraft."""

from itertools import islice

import msgspec
import pytest

from standpipe.local.demo import flights as demo_flights


@pytest.fixture(scope="module")
def flights() -> demo_flights.Flights:
    """Of the first 5,000 rows of the file; tests/e2e/test_demo_data.py reads all."""
    return demo_flights.in_order(islice(demo_flights.rows(), 5_000), 4_000)


def test_event_order_and_its_tie_break(flights: demo_flights.Flights) -> None:
    times = [event.time_ms for event in flights.events]
    assert times == sorted(times)
    assert len(times) == 4_000
    assert times[0] == demo_flights.unix_ms("2013-01-01T10:00:00Z")
    first = msgspec.json.decode(flights.events[0].value)
    assert (first["CARRIER"], first["FLIGHT"]) == ("UA", 1545), "the file's own first row"


def test_key_is_the_tail_number_or_nothing(flights: demo_flights.Flights) -> None:
    for event, flight in zip(flights.events, flights.flights, strict=True):
        assert event.key == (flight.tailnum.encode() if flight.tailnum else None)
        assert flight.tailnum != ""
    assert any(event.key is None for event in flights.events), "4 % have none"


def test_unknown_numbers_are_null(flights: demo_flights.Flights) -> None:
    cancelled = [f for f in flights.flights if f.arr_delay is None]
    assert cancelled
    values = [msgspec.json.decode(event.value) for event in flights.events]
    assert sum(value["ARR_DELAY"] is None for value in values) == len(cancelled)


@pytest.mark.parametrize(
    ("stream", "count"),
    list(zip(demo_flights.SIDE_STREAMS, (26_115, 3_322, 1_458), strict=True)),
)
def test_side_streams_are_whole_and_name_their_columns(
    stream: demo_flights.SideStream, count: int
) -> None:
    events = list(demo_flights.side_events(stream))
    assert len(events) == count
    names = {column.split()[0] for column in stream.columns.split(", ")} - {stream.key}
    assert msgspec.json.decode(events[0].value).keys() == names
    assert f"CREATE STREAM {stream.name}" in demo_flights.side_statement(stream)
