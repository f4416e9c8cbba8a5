"""Which aircraft a probe asks, and for how many flights."""

from standpipe.local.demo.feed import ProbeBook
from standpipe.local.demo.questions import Probe


def test_probe_counts_all_flights_of_the_aircraft_up_to_the_event() -> None:
    told: list[Probe] = []
    book = ProbeBook(["A", "B", None, "A", None, "A"], 3, told.append)
    first, none, second = book(0), book(1), book(2)
    assert none is None, "no tail number, no row to look at"
    assert first is not None
    assert second is not None
    first(1.5)
    second(2.5)
    assert told == [
        Probe(tailnum="A", count=2, acked=1.5),
        Probe(tailnum="A", count=3, acked=2.5),
    ]
