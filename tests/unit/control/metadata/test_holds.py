"""A table is held: its query gets a lease epoch of its own, and commits nothing."""

from __future__ import annotations

import pytest
from tests.unit.control.metadata.test_catalog import after, generation_of, stream, table_as

from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    DropSource,
    GrantLeases,
    HoldTable,
    StartPipeline,
    SwitchTable,
)
from standpipe.control.metadata.holds import Offsets, covers, held_queries

BUILT = after(
    CreateSource(source=stream("R")),
    table_as("U", "R", 23),
    StartPipeline(pipeline_id="p1", version=2),
    GrantLeases(grants=(("CTAS_U_23", "p1"),)),
    generation_of("U", 2, 24),
)
HOLD = HoldTable(name="U", generation=2)


def test_a_held_query_has_a_lease_epoch_that_no_run_before_had() -> None:
    before, held = BUILT.leases["CTAS_U_23"], after(HOLD, start=BUILT)
    lease = held.leases["CTAS_U_23"]
    assert lease.pipeline_id == before.pipeline_id
    assert lease.lease_epoch == held.pipeline_epoch == BUILT.pipeline_epoch + 1
    assert held_queries(held) == {"CTAS_U_23"}
    assert held_queries(BUILT) == frozenset()


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([HoldTable(name="U", generation=2, is_held=False)], "it is released"),
        ([SwitchTable(name="U", generation=2, floor={})], "reads have moved"),
        ([generation_of("U", 3, 25)], "it is replaced again: another generation is built"),
        ([DropSource(name="U")], "there is no such table any more"),
        (
            [DropSource(name="U"), table_as("U", "R", 33), generation_of("U", 2, 24)],
            "another table of that name",
        ),
    ],
)
def test_a_hold_ends(commands: list[Command], why: str) -> None:
    assert held_queries(after(HOLD, *commands, start=BUILT)) == frozenset(), why


@pytest.mark.parametrize(("name", "generation"), [("U", 3), ("X", 2)])
def test_a_hold_names_a_generation_that_is_being_built(name: str, generation: int) -> None:
    assert after(HoldTable(name=name, generation=generation), start=BUILT).held == {}


@pytest.mark.parametrize(
    ("read", "does", "why"),
    [
        ({"s": {0: 5, 1: 7}}, True, "exactly that"),
        ({"s": {0: 5, 1: 6}}, False, "one record less"),
        ({"s": {0: 9}}, False, "one partition less"),
        ({"s": {0: 9, 1: 9}, "t": {}}, True, "and another topic"),
        ({"t": {0: 1}}, True, "it does not read that topic at all"),
    ],
)
def test_covers(read: Offsets, does: bool, why: str) -> None:
    assert covers(read, {"s": {0: 5, 1: 7}}) is does, why
