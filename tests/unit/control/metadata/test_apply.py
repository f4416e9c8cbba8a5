"""What replacing a table does to the catalog: two generations, one that is read."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import (
    after,
    generation_of,
    rewritten,
    stream,
    table_as,
    written_by,
)

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    DropSource,
    SwitchTable,
    TerminateQuery,
)

ONE = after(CreateSource(source=stream("R")), table_as("U", "R", 23))
BOTH = after(generation_of("U", 2, 24), start=ONE)
TWO = after(SwitchTable(name="U", generation=2), start=BOTH)


def queries_of(catalog: Catalog) -> list[str]:
    return [*catalog.queries]


def test_reads_know_nothing_of_a_generation_that_is_being_built() -> None:
    assert BOTH.sources == ONE.sources
    assert [each.generation for each in BOTH.generations if each.name == "U"] == [1, 2]
    assert queries_of(BOTH) == ["CTAS_U_23", "CTAS_U_24"]
    assert "CTAS_U_24-changelog" in BOTH.topics


def test_a_switch_leaves_the_public_topic_and_ends_the_query_before() -> None:
    assert TWO.sources["U"].generation == 2
    assert (TWO.sources["U"].topic, TWO.sources["U"].public_topic) == ("CTAS_U_24-changelog", "U")
    assert queries_of(TWO) == ["CTAS_U_24"]
    assert (TWO.successors, TWO.doomed_topics) == ({}, ())
    assert {"U", "CTAS_U_24-changelog"} <= TWO.topics.keys()


def test_the_topic_of_a_generation_goes_with_it() -> None:
    three = after(generation_of("U", 3, 27), SwitchTable(name="U", generation=3), start=TWO)
    assert three.doomed_topics == ("CTAS_U_24-changelog",)
    assert "CTAS_U_24-changelog" not in three.topics
    assert three.sources["U"].public_topic == "U"


def test_a_newer_generation_takes_the_place_of_one_that_is_being_built() -> None:
    again = after(generation_of("U", 3, 25), start=BOTH)
    assert again.successors["U"].generation == 3
    assert queries_of(again) == ["CTAS_U_23", "CTAS_U_25"]
    assert again.doomed_topics == ("CTAS_U_24-changelog",)


@pytest.mark.parametrize("ids", [("CTAS_U_24",), ("CTAS_U_23", "CTAS_U_24")])
def test_terminating_its_query_abandons_what_is_being_built(ids: tuple[str, ...]) -> None:
    ended = after(TerminateQuery(query_ids=ids), start=BOTH)
    assert (ended.successors, ended.doomed_topics) == ({}, ("CTAS_U_24-changelog",))
    assert ended.sources == ONE.sources


@pytest.mark.parametrize(
    ("catalog", "delete_topic", "doomed"),
    [
        (BOTH, False, ("CTAS_U_24-changelog",)),
        (BOTH, True, ("CTAS_U_24-changelog", "U")),
        (TWO, False, ("CTAS_U_24-changelog",)),
        (TWO, True, ("CTAS_U_24-changelog", "U")),
        (ONE, True, ("U",)),
    ],
)
def test_a_drop_takes_all_generations(
    catalog: Catalog, delete_topic: bool, doomed: tuple[str, ...]
) -> None:
    dropped = after(DropSource(name="U", delete_topic=delete_topic), start=catalog)
    assert (dropped.successors, dropped.queries, dropped.doomed_topics) == ({}, {}, doomed)
    assert not dropped.topics.keys() & {"U", "CTAS_U_24-changelog"}


@pytest.mark.parametrize(
    ("start", "command", "why"),
    [
        (ONE, generation_of("U", 3, 24), "U has since been replaced"),
        (BOTH, generation_of("U", 2, 24), "CTAS_U_24 exists"),
        (BOTH, SwitchTable(name="U", generation=3), "U has no generation 3 to switch to"),
        (TWO, SwitchTable(name="U", generation=2), "U has no generation 2 to switch to"),
        (ONE, rewritten("O", 26), "O or CSAS_O_26 does not exist"),
        (
            after(written_by("O", 26), rewritten("O", 26), start=ONE),
            rewritten("O", 26),
            "CSAS_O_26 has since been replaced",
        ),
    ],
)
def test_what_came_too_late_changes_nothing(start: Catalog, command: Command, why: str) -> None:
    found = after(msgspec.structs.replace(command, request_id="r"), start=start)
    assert found.applied_requests["r"].refusal == why
    assert (found.sources, found.successors, found.queries) == (
        start.sources,
        start.successors,
        start.queries,
    )


def test_a_replaced_stream_keeps_its_query_and_its_wish_to_be_paused() -> None:
    before = after(CreateSource(source=stream("R")), written_by("O", 26))
    found = after(rewritten("O", 26), start=before)
    assert queries_of(found) == ["CSAS_O_26"]
    assert found.queries["CSAS_O_26"].revision == 2
