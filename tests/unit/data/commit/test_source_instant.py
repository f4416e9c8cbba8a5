"""Which instant a batch covers: never a newer one than that up to which it has everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.commit.source_instant import PROBES_MAX, Offsets, SourceInstants


def ends(*offsets: int) -> Offsets:
    return {"s": dict(enumerate(offsets))}


@pytest.mark.parametrize(
    ("probes", "batch", "instant", "why"),
    [
        ([], ends(9), 7, "nothing was asked since the newest commit"),
        ([(10, ends(9))], ends(9), 10, "it takes everything"),
        ([(10, ends(9))], ends(8), 7, "it takes one record less"),
        ([(10, ends(9, 4))], ends(9, 3), 7, "of one partition"),
        ([(10, ends(9, 0))], ends(9), 10, "a partition without records"),
        ([(10, ends(9, 1))], ends(9), 7, "a partition that it does not know yet"),
        ([(10, {**ends(9), "t": {0: 1}})], ends(9), 7, "a topic that it has not read yet"),
        ([(10, ends(9)), (20, ends(12)), (30, ends(15))], ends(12), 20, "a backlog of three"),
        ([(10, ends(9)), (20, ends(12)), (30, ends(15))], ends(14), 20, "which do not fit"),
        ([(10, ends(9)), (20, ends(9)), (30, ends(9))], ends(9), 30, "idle: the newest of equals"),
        ([(10, ends(9)), (20, ends(9)), (30, ends(10))], ends(9), 20, "but no newer one"),
        (
            [(10, ends(9)), (5, ends(12))],
            ends(9),
            5,
            "the clock was set back",
        ),
        ([(10, ends(9)), (5, ends(12))], ends(12), 5, "what it said before is void"),
    ],
)
def test_covered(probes: list[tuple[int, Offsets]], batch: Offsets, instant: int, why: str) -> None:
    instants = SourceInstants(known_ms=7)
    for probe in probes:
        instants.probed(*probe)
    assert instants.covered(batch) == instant, why


def test_an_instant_is_unknown_before_any_is_covered() -> None:
    instants = SourceInstants()
    instants.probed(10, ends(9))
    assert instants.covered(ends(3)) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=40),
    st.lists(st.integers(1, 9), max_size=10),
)
def test_no_record_below_the_instant_is_missing(written: Any, taken: list[int]) -> None:
    """Records come at instants that ascend; batches take some of them, the oldest first. Beside it
    a second, dull computation: the newest instant at which no more was there than is covered."""
    instants, counts, known = SourceInstants(), [(0, 0)], 0
    at_ms = 0
    for pause_ms, more in written:
        at_ms += pause_ms + 1
        counts.append((at_ms, counts[-1][1] + more))
        instants.probed(at_ms, ends(counts[-1][1]))
    covered = 0
    for more in taken:
        covered = min(covered + more, counts[-1][1])
        known = max((at for at, count in counts if count <= covered), default=0)
        assert instants.covered(ends(covered)) == known


def test_a_long_backlog_keeps_what_a_batch_can_cover() -> None:
    """Probes are thinned out: the instant may be older than the best one, never newer."""
    instants = SourceInstants()
    for number in range(1, 5 * PROBES_MAX):
        instants.probed(number, ends(number))
    assert len(instants._probes) <= PROBES_MAX + 1
    for number in range(1, 5 * PROBES_MAX, 7):
        found = instants.covered(ends(number))
        assert number - 5 * PROBES_MAX // 32 <= found <= number
