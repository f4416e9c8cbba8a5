"""Who may run what: no change of the isolated names, of drivers or of queries lets two write."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.control.metadata.test_catalog import (
    after,
    external,
    generation_of,
    stream,
    table_as,
    written_by,
)

from standpipe.control.metadata import isolation
from standpipe.control.metadata.catalog import Catalog, from_bytes, to_bytes
from standpipe.control.metadata.commands import (
    Command,
    CommandRejected,
    CreateSource,
    DropSource,
    EndPipelines,
    GrantLeases,
    InsertInto,
    IsolateQuery,
    SetQueryState,
    StartPipeline,
    SwitchTable,
    TerminateQuery,
)
from standpipe.errors import BadRequest

T, U = "CTAS_T_23", "CTAS_U_4"
INSERT = msgspec.structs.replace(table_as("O", "R", 30).query, query_id="INSERTQUERY_30")
BASE = after(
    CreateSource(source=stream("R")),
    table_as("T", "R", 23),
    table_as("U", "R", 4),
)


def starts(pipeline: str, isolates: str = "") -> StartPipeline:
    version = 3 if isolates else 2
    return StartPipeline(pipeline_id=pipeline, version=version, isolates=isolates or msgspec.UNSET)


def led(*commands: Command, start: Catalog = BASE) -> Catalog:
    """As a leader would log them: after each, the grants that follow from it."""
    catalog = start
    for command in commands:
        catalog = after(command, start=catalog)
        if grants := isolation.grants_due(catalog):
            catalog = after(GrantLeases(grants=grants), start=catalog)
    return catalog


def holders(catalog: Catalog) -> dict[str, str]:
    return {query: lease.pipeline_id for query, lease in catalog.leases.items()}


ISOLATED = IsolateQuery(name="T")
UNDONE = IsolateQuery(name="T", is_isolated=False)


@pytest.mark.parametrize(
    ("commands", "held", "why"),
    [
        ([starts("s")], {T: "s", U: "s"}, "nothing is isolated"),
        ([starts("s"), ISOLATED], {U: "s"}, "the shared driver ran it: it waits for its own"),
        ([ISOLATED, starts("s")], {U: "s"}, "isolated before anything runs"),
        ([starts("s"), ISOLATED, starts("o", "T")], {U: "s", T: "o"}, "it has its own"),
        ([ISOLATED, starts("o", "T")], {T: "o"}, "its driver takes nothing else"),
        ([starts("s"), IsolateQuery(name=T), starts("o", T)], {U: "s", T: "o"}, "by its id"),
        (
            [starts("s"), ISOLATED, starts("o", "T"), EndPipelines(pipeline_ids=("o",))],
            {U: "s", T: "o"},
            "its driver is dead: nobody else gets it",
        ),
        (
            [ISOLATED, starts("o", "T"), EndPipelines(pipeline_ids=("o",)), starts("p", "T")],
            {T: "p"},
            "its driver came back, as another process",
        ),
        (
            [ISOLATED, starts("o", "T"), starts("p", "T")],
            {T: "o"},
            "started twice: the second stands by",
        ),
        (
            [ISOLATED, starts("o", "T"), starts("p", "T"), EndPipelines(pipeline_ids=("o",))],
            {T: "p"},
            "the second takes over",
        ),
        (
            [starts("s"), EndPipelines(pipeline_ids=("s",)), ISOLATED, starts("o", "T")],
            {U: "s", T: "o"},
            "no shared driver is left: its own one does not stand in",
        ),
        ([starts("s"), ISOLATED, starts("o", "T"), UNDONE], {U: "s", T: "s"}, "given back"),
        ([ISOLATED, starts("o", "T"), UNDONE], {}, "given back while there is no shared driver"),
        (
            [starts("s"), ISOLATED, starts("o", "T"), UNDONE, starts("o", "T")],
            {U: "s", T: "s"},
            "its driver was paused meanwhile: it is refused, and is not a shared one",
        ),
        (
            [starts("s"), ISOLATED, IsolateQuery(name="U"), starts("o", "T")],
            {T: "o"},
            "each name has its own",
        ),
        (
            [starts("s"), ISOLATED, starts("o", "T"), generation_of("T", 2, 40)],
            {U: "s", T: "o", "CTAS_T_40": "o"},
            "its replacement is as little trusted",
        ),
        (
            [
                *(starts("s"), ISOLATED, starts("o", "T"), generation_of("T", 2, 40)),
                SwitchTable(name="T", generation=2),
            ],
            {U: "s", "CTAS_T_40": "o"},
            "also when reads have moved to it",
        ),
        (
            [starts("s"), ISOLATED, starts("o", "T"), DropSource(name="T"), table_as("T", "R", 50)],
            {U: "s", "CTAS_T_50": "o"},
            "created again under its name",
        ),
        (
            [SetQueryState(query_ids=(T,), state="PAUSED"), ISOLATED, starts("o", "T")],
            {},
            "paused: it needs no driver",
        ),
    ],
)
def test_who_holds_what(commands: list[Command], held: dict[str, str], why: str) -> None:
    catalog = led(*commands)
    there = {query: who for query, who in holders(catalog).items() if query in catalog.queries}
    assert there == held, why


@pytest.mark.parametrize("commands", [[ISOLATED, starts("o", "T")], [ISOLATED, UNDONE]])
def test_each_change_of_hands_fences_who_wrote_before(commands: list[Command]) -> None:
    """Also one that is paused and has not heard of the change."""
    before = led(starts("s"))
    now = led(*commands, start=before)
    assert now.leases[T].lease_epoch > before.leases[T].lease_epoch
    assert now.leases[U] == before.leases[U], "others are not disturbed"


def test_isolating_again_changes_nothing() -> None:
    catalog = led(starts("s"), ISOLATED, starts("o", "T"))
    again = led(ISOLATED, start=catalog)
    assert (again.leases, again.isolated) == (catalog.leases, {"T": ("o",)})


@pytest.mark.parametrize(
    ("commands", "without", "why"),
    [
        ([ISOLATED], {T: "T"}, "no driver yet"),
        ([ISOLATED, starts("s")], {T: "T"}, "a shared one does not count"),
        ([ISOLATED, starts("o", "T")], {}, "it has one"),
        ([ISOLATED, starts("o", "T"), EndPipelines(pipeline_ids=("o",))], {T: "T"}, "it had one"),
        ([ISOLATED, SetQueryState(query_ids=(T,), state="PAUSED")], {}, "it should not run"),
        ([IsolateQuery(name="X")], {}, "no query is concerned"),
    ],
)
def test_who_waits_for_a_driver(commands: list[Command], without: dict[str, str], why: str) -> None:
    found = isolation.without_driver(led(*commands))
    assert found.keys() == without.keys(), why
    for query, name in without.items():
        assert f"start `standpipe pipeline --isolate {name}`" in found[query]
        assert f"`standpipe query isolate {name} --undo`" in found[query]


@pytest.mark.parametrize(
    ("names", "drivers", "why"),
    [
        ([], [], "all are shared"),
        (["T"], ["T"], "one of its own"),
        (["T", U], [U, "T"], "by name, by id"),
        (["T", T], [T], "its id is the closer name: one driver is enough"),
        (["X"], [], "no query has that name: a JVM would wait for nothing"),
    ],
)
def test_which_names_need_a_driver(names: list[str], drivers: list[str], why: str) -> None:
    assert isolation.names_in_use(list(BASE.queries.values()), names) == sorted(drivers), why


WITH_INSERT = after(written_by("O", 26), InsertInto(query=INSERT), start=BASE)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("T", "T", "a table"),
        ("t", "T", "as in SQL"),
        (T, "T", "a replacement of the table has another query"),
        ("CSAS_O_26", "O", "of a stream too"),
        ("INSERTQUERY_30", "INSERTQUERY_30", "one of several writers of its stream"),
        ("later", "LATER", "isolated before it is created"),
        ("`later`", "later", "as in SQL"),
        ("`", "`", "one mark quotes nothing"),
    ],
)
def test_what_an_operator_names(text: str, name: str, why: str) -> None:
    assert isolation.resolved(text, WITH_INSERT) == name, why


@pytest.mark.parametrize("text", ["", "``", "a\nb", "x" * 250])
def test_what_can_be_no_name(text: str) -> None:
    with pytest.raises(BadRequest, match="SHOW QUERIES lists queries"):
        isolation.resolved(text, BASE)


def test_what_is_not_isolated_cannot_be_given_back() -> None:
    with pytest.raises(BadRequest, match=r"U is not isolated\. Isolated are: T"):
        isolation.check_isolated("U", led(ISOLATED))
    with pytest.raises(BadRequest, match="Isolated are: none"):
        isolation.check_isolated("U", BASE)


PIPELINES = st.sampled_from("abc")
NAMES = st.sampled_from(["T", "U", T, U])
COMMANDS = st.one_of(
    st.builds(starts, PIPELINES),
    st.builds(lambda pipeline, name: starts(f"{pipeline}@{name}", name), PIPELINES, NAMES),
    st.builds(lambda name, on: IsolateQuery(name=name, is_isolated=on), NAMES, st.booleans()),
    st.builds(
        lambda pipeline, name: EndPipelines(pipeline_ids=(f"{pipeline}@{name}", pipeline)),
        PIPELINES,
        NAMES,
    ),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_no_driver_gets_what_it_was_not_started_for(commands: list[Command]) -> None:
    catalog = BASE
    for command in commands:
        before, catalog = catalog, led(command, start=catalog)
        for query, lease in catalog.leases.items():
            name = isolation.isolation_of(catalog.queries[query], catalog.isolated)
            assert lease.pipeline_id.partition("@")[2] == name, command
            held = before.leases.get(query)
            assert lease == held or lease.lease_epoch > before.pipeline_epoch, "fenced"
        for name, pipelines in catalog.isolated.items():
            assert set(pipelines) <= set(catalog.pipelines)
            assert {each.partition("@")[2] for each in pipelines} <= {name}


# ------------------------------------------------------------------------------ external queries

X = "EXTERNAL_X_9"
EXTERNAL = led(starts("s"), external("X", 9))


@pytest.mark.parametrize(
    ("commands", "held", "why"),
    [
        ([], {}, "a shared driver cannot run it"),
        ([starts("a", X)], {X: "a"}, "an application that registers for it"),
        ([starts("a", X), starts("b", X)], {X: "a"}, "a second one stands by"),
        (
            [starts("a", X), starts("b", X), EndPipelines(pipeline_ids=("a",))],
            {X: "b"},
            "and takes over",
        ),
        ([starts("a", X), EndPipelines(pipeline_ids=("a",))], {X: "a"}, "nobody else gets it"),
        ([SetQueryState(query_ids=(X,), state="PAUSED"), starts("a", X)], {}, "it should not run"),
        ([IsolateQuery(name="X"), starts("o", "X"), starts("a", X)], {X: "a"}, "the id is closer"),
    ],
)
def test_who_writes_an_external_table(
    commands: list[Command], held: dict[str, str], why: str
) -> None:
    catalog = led(*commands, start=EXTERNAL)
    assert {query: by for query, by in holders(catalog).items() if query == X} == held, why


def test_an_application_that_comes_back_goes_on_if_no_other_took_over() -> None:
    first = led(starts("a", X), start=EXTERNAL)
    silent = led(EndPipelines(pipeline_ids=("a",)), start=first)
    assert led(starts("a", X), start=silent).leases == first.leases
    taken = led(starts("b", X), EndPipelines(pipeline_ids=("b",)), starts("a", X), start=silent)
    assert taken.leases[X].pipeline_id == "a"
    assert taken.leases[X].lease_epoch > first.leases[X].lease_epoch, "its old run is fenced"


@pytest.mark.parametrize(
    "ends",
    [DropSource(name="X"), TerminateQuery(query_ids=(X,))],
    ids=["dropped", "terminated"],
)
def test_an_external_query_that_ends_leaves_no_application_behind(ends: Command) -> None:
    catalog = led(starts("a", X), ends, start=EXTERNAL)
    assert (catalog.isolated, list(catalog.pipelines)) == ({}, ["s"]), (
        "else it would count as shared"
    )
    with pytest.raises(CommandRejected, match=f"{X} is not isolated"):
        isolation.registered(catalog, "a", X)


def test_a_snapshot_keeps_what_is_external() -> None:
    catalog = led(starts("a", X), start=EXTERNAL)
    read = from_bytes(to_bytes(catalog))
    assert (read.queries[X].is_external, read.isolated) == (True, {X: ("a",)})


def test_no_driver_is_started_for_an_external_query() -> None:
    assert isolation.names_in_use(list(EXTERNAL.queries.values()), [*EXTERNAL.isolated, "X"]) == []
    (why,) = isolation.without_driver(EXTERNAL).values()
    assert "A Spark application writes X" in why


@pytest.mark.parametrize("name", ["X", X])
def test_an_external_query_is_not_isolated_by_hand(name: str) -> None:
    with pytest.raises(BadRequest, match="is run by a Spark application"):
        isolation.check_internal(name, EXTERNAL)


def test_an_application_writes_external_tables_only() -> None:
    isolation.check_external(X, EXTERNAL)
    for name in (T, "X", ""):
        with pytest.raises(BadRequest, match="it is no external query"):
            isolation.check_external(name, EXTERNAL)
