"""Which queries run together, from the queries that are wanted and the groups that have begun."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.unit.pipeline.queries_of import commands_of, wanted_of

from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY
from standpipe.model import LeaseEpoch, LogIndex, Source
from standpipe.pipeline.commit.query_group import QueryGroup, groups_below, write_group
from standpipe.pipeline.run.entry import RunEntry, status_of
from standpipe.pipeline.run.group import groups
from standpipe.pipeline.run.group.groups import AGAIN_S, SETTLE_S, Groups
from standpipe.pipeline.run.group.wanted_run import WantedRun, new_groups, runs_of
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.spark.group_sql import group_plan

SQL = """
CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM R (K STRING KEY, N INT) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;
CREATE TABLE OF_R AS SELECT K, COUNT(*) AS C FROM R GROUP BY K;
CREATE TABLE B AS SELECT N, SUM(N) AS T FROM S WHERE N > 1 GROUP BY N;
CREATE TABLE W AS SELECT K, COUNT(*) AS C FROM S WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY K;
CREATE TABLE ALL_N AS SELECT K, COLLECT_LIST(N) AS N FROM S GROUP BY K;
CREATE STREAM COPY AS SELECT * FROM S;
"""
WANTED = {query.table.name: query for query in wanted_of(SQL)}


def sources() -> Mapping[str, Source]:
    catalog = EMPTY
    for index, command in enumerate(commands_of(SQL), 1):
        catalog = apply(catalog, LogIndex(index), command)
    return catalog.sources


def by_id(*names: str) -> dict[str, WantedQuery]:
    return {WANTED[name].query_id: WANTED[name] for name in names}


def group_of(*names: str) -> QueryGroup:
    (members,) = new_groups([WANTED[name] for name in names], sources())
    plan = group_plan([aggregation for _, aggregation in members], "V")
    return QueryGroup.begin([query for query, _ in members], plan, "s_")


def names_of(runs: list[WantedRun]) -> list[list[str]]:
    return [[each.table.name for each in run.members] for run in runs]


def test_tables_over_one_stream_form_a_group() -> None:
    groups = new_groups(list(WANTED.values()), sources())
    assert [[query.table.name for query, _ in each] for each in groups] == [["A", "B", "W"]]


def test_a_stream_that_was_replaced_since_gives_no_group() -> None:
    """Its tables run as planned; a group would be planned as the stream is now."""
    changed = dict(sources())
    del changed["S"]
    assert new_groups([WANTED["A"], WANTED["B"]], changed) == []


@pytest.mark.parametrize(
    ("wanted", "expected", "why"),
    [
        (["A", "B", "W"], [["A", "B", "W"]], "all of them"),
        (["A", "OF_R", "B", "W"], [["A", "B", "W"], ["OF_R"]], "another one beside them"),
        (["A", "W"], [["A", "W"]], "one is paused, or another pipeline has its lease"),
        (["B"], [["B"]], "all others are"),
    ],
)
def test_runs(wanted: list[str], expected: list[list[str]], why: str) -> None:
    runs = runs_of(by_id(*wanted), [group_of("A", "B", "W")])
    assert names_of(runs) == expected, why
    ids = [run.run_id for run in runs]
    assert ids[0].startswith("GROUP_") is (len(expected[0]) > 1), "one alone has its own name"
    entry = RunEntry(runs[0])
    said = {status_of(entry, each, 0.0).group for each in runs[0].members}
    assert said == {ids[0] if len(expected[0]) > 1 else ""}


def test_a_held_query_runs_by_itself() -> None:
    """It commits nothing while reads move to its next generation; the others go on."""
    held = dataclasses.replace(WANTED["B"], is_held=True)
    wanted = by_id("A", "B", "W") | {held.query_id: held}
    assert names_of(runs_of(wanted, [group_of("A", "B", "W")])) == [["A", "W"], ["B"]]


def test_another_generation_is_no_member() -> None:
    group = group_of("A", "B")
    table = dataclasses.replace(WANTED["A"], lease_epoch=LeaseEpoch(9))
    assert group.number_of(table) == 0
    again = dataclasses.replace(table, table=replace(table.table, generation=2))
    assert group.number_of(again) is None


def test_new_queries_wait_for_each_other_and_begin_a_group(tmp_path: Path) -> None:
    groups = Groups(tmp_path, "s_", forms=True)
    assert groups.arrange(by_id("A", "COPY"), sources(), 10.0) == runs_of(by_id("COPY"), [])
    both = by_id("A", "B", "COPY")
    assert names_of(groups.arrange(both, sources(), 10.5)) == [["COPY"]], "B has just come"
    runs = groups.arrange(both, sources(), 10.5 + SETTLE_S)
    assert names_of(runs) == [["A", "B"], ["COPY"]]
    (written,) = groups_below(tmp_path, "s_")
    assert runs[0].group == written
    assert groups_below(tmp_path, "another_") == []
    late = groups.arrange(both | by_id("W"), sources(), 20.0 + SETTLE_S)
    assert names_of(late) == [["A", "B"], ["COPY"]], "it waits, too"
    late = groups.arrange(both | by_id("W"), sources(), 20.0 + 2 * SETTLE_S)
    assert names_of(late) == [["A", "B"], ["COPY"], ["W"]], "the group has begun"


def test_queries_that_have_run_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / f"{WANTED['A'].query_id}-1").mkdir()
    groups = Groups(tmp_path, "s_", forms=True)
    assert names_of(groups.arrange(by_id("A"), sources(), 0.0)) == [["A"]]
    groups.arrange(by_id("A", "B"), sources(), 1.0)
    runs = groups.arrange(by_id("A", "B"), sources(), 1.0 + SETTLE_S)
    assert names_of(runs) == [["A"], ["B"]]
    off = Groups(tmp_path, "s_")
    assert names_of(off.arrange(by_id("B", "W"), sources(), 0.0)) == [["B"], ["W"]]


def test_no_group_forms_before_every_pipeline_knows_them(tmp_path: Path) -> None:
    """One that does not would say that the checkpoints of the members are lost."""
    groups, both = Groups(tmp_path, "s_", forms=True), by_id("A", "B")
    alone = groups.arrange(both, sources(), 0.0, may_form=False)
    assert names_of(alone) == [["A"], ["B"]]
    raised = groups.arrange(both, sources(), SETTLE_S, may_form=True)
    assert names_of(raised) == [["A"], ["B"]], "what runs alone goes on alone"


def test_who_has_left_does_not_return(tmp_path: Path) -> None:
    groups = Groups(tmp_path, "s_", forms=True)
    three = by_id("A", "B", "W")
    groups.arrange(three, sources(), 0.0)
    (run,) = groups.arrange(three, sources(), SETTLE_S)
    assert run.group is not None
    groups.let_leave(run.group.group_id, [WANTED["B"].query_id])
    assert names_of(groups.arrange(three, sources(), 2.0)) == [["A", "W"], ["B"]]
    again = Groups(tmp_path, "s_")
    runs = again.arrange(three, sources(), 0.0)
    assert names_of(runs) == [["A", "W"], ["B"]], "the next driver finds the same"
    assert runs[1].group is not None, "it continues with the plan of the group"
    again.divide(run.group.group_id, "why")
    assert names_of(again.arrange(three, sources(), 1.0)) == [["A"], ["B"], ["W"]]
    assert again.group_ids([WANTED["W"].query_id, "X"]) == {run.group.group_id}
    assert again.group_ids(["X"]) == set()


def test_a_group_waits_for_the_lease_of_a_member(tmp_path: Path) -> None:
    """A driver that starts gets its leases one after the other: no member is left behind."""
    three = by_id("A", "B", "W")
    first = Groups(tmp_path, "s_", forms=True)
    first.arrange(three, sources(), 0.0)
    (whole,) = first.arrange(three, sources(), SETTLE_S)
    again = Groups(tmp_path, "s_")
    assert again.arrange(by_id("A"), sources(), 10.0) == []
    assert again.arrange(by_id("A", "W"), sources(), 10.9) == []
    assert again.arrange(by_id("A", "W"), sources(), 11.8) == [], "another has just come"
    assert again.arrange(three, sources(), 11.85) == [whole]
    # a member that goes: the run stays as it is until it is sure
    assert again.arrange(by_id("A", "B"), sources(), 20.0) == [whole]
    assert again.arrange(three, sources(), 20.5) == [whole]
    assert again.arrange(by_id("A", "B"), sources(), 21.0) == [whole]
    assert names_of(again.arrange(by_id("A", "B"), sources(), 22.0)) == [["A", "B"]]
    assert names_of(again.arrange(by_id("A", "B"), sources(), 22.1)) == [["A", "B"]]
    assert again.arrange({}, sources(), 23.0) == []


def test_a_driver_waits_until_the_one_before_it_has_lost_its_leases(tmp_path: Path) -> None:
    """The leader gives a new pipeline its share at once, and the rest when the old one counts as
    dead. A group that had been divided meanwhile would stay so."""
    three = by_id("A", "B", "W")
    first = Groups(tmp_path, "s_", forms=True)
    first.arrange(three, sources(), 0.0)
    (whole,) = first.arrange(three, sources(), SETTLE_S)
    again = Groups(tmp_path, "s_", lease_timeout_s=6.0)
    assert again.arrange(by_id("B", "W"), sources(), 10.0) == []
    assert again.arrange(by_id("B", "W"), sources(), 16.9) == []
    assert again.arrange(three, sources(), 16.95) == [whole]
    third = Groups(tmp_path, "s_", lease_timeout_s=6.0)
    assert third.arrange(by_id("B", "W"), sources(), 20.0) == []
    assert names_of(third.arrange(by_id("B", "W"), sources(), 27.0)) == [["B", "W"]], "it lives"


def test_a_driver_does_not_wait_for_members_that_another_has_let_leave(tmp_path: Path) -> None:
    """A second pipeline gets a share of the members; the first one goes on with the others."""
    three = by_id("A", "B", "W")
    first = Groups(tmp_path, "s_", forms=True)
    first.arrange(three, sources(), 0.0)
    (whole,) = first.arrange(three, sources(), SETTLE_S)
    assert whole.group is not None
    second = Groups(tmp_path, "s_", lease_timeout_s=6.0)
    assert second.arrange(by_id("W"), sources(), 10.0) == []
    first.let_leave(whole.group.group_id, [WANTED["W"].query_id])
    assert names_of(second.arrange(by_id("W"), sources(), 10.1)) == [["W"]]


def test_a_query_that_comes_back_is_in_the_group_that_another_put_it_into(tmp_path: Path) -> None:
    """Alone and without that group's checkpoint, it would say CHECKPOINT_LOST."""
    ours, other = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    for now_s in (0.0, SETTLE_S):
        alone = ours.arrange(by_id("A"), sources(), now_s)
    assert names_of(alone) == [["A"]]
    assert alone[0].group is None
    assert ours.arrange({}, sources(), 2.0) == []
    for now_s in (3.0, 3.0 + SETTLE_S):
        together = other.arrange(by_id("A", "B"), sources(), now_s)
    assert names_of(together) == [["A", "B"]]
    assert ours.arrange(by_id("A"), sources(), 6.0) == [], "it waits for the lease of B"
    (again,) = ours.arrange(by_id("A"), sources(), 6.0 + SETTLE_S)
    assert again.group == together[0].group


def test_members_of_a_group_that_cannot_be_read_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failed read of `group.json`: they started alone, and were CHECKPOINT_LOST."""
    ours, other = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    both = by_id("A", "B")
    for now_s in (0.0, SETTLE_S):
        together = other.arrange(both, sources(), now_s)
    (copy,) = ours.arrange(by_id("COPY"), sources(), 5.0)
    wanted = both | by_id("COPY")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", _fails)
        for now_s in (6.0, 6.0 + SETTLE_S):
            assert ours.arrange(wanted, sources(), now_s) == [copy]
        assert ours.arrange(by_id("COPY"), sources(), 8.0) == [copy], "this one needs no group"
    assert ours.arrange(wanted, sources(), 9.0) == [*together, copy]


def test_what_two_pipelines_formed_at_once_is_read_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has lost the race for a query must know its group, or wait."""
    ours, other = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    both = by_id("A", "B")
    assert ours.arrange(both, sources(), 3.0) == []
    for now_s in (0.0, SETTLE_S):
        together = other.arrange(both, sources(), now_s)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", _fails)
        assert ours.arrange(both, sources(), 3.0 + SETTLE_S) == []
    assert ours.arrange(both, sources(), 9.0) == together


def _fails(path: Path) -> bytes:
    raise OSError(errno.EIO, "not now", str(path))


def test_a_process_that_stood_still_finds_the_group_that_another_formed(tmp_path: Path) -> None:
    ours, other = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    assert ours.arrange(by_id("A"), sources(), 0.0) == []
    for now_s in (3.0, 3.0 + SETTLE_S):
        together = other.arrange(by_id("A", "B"), sources(), now_s)
    assert ours.arrange(by_id("A"), sources(), 20.0) == [], "it waits for the lease of B"
    (alone,) = ours.arrange(by_id("A"), sources(), 20.0 + SETTLE_S)
    assert alone.group == together[0].group


class Reads:
    """Counts how often the files of all groups are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.is_away = 0, False
        monkeypatch.setattr(groups, "groups_below", self._read)

    def _read(self, checkpoints: Path, service_id: str) -> list[QueryGroup]:
        self.count += 1
        if self.is_away:
            raise OSError(errno.ESTALE, "Stale file handle")
        return groups_below(checkpoints, service_id)


def test_a_driver_that_starts_while_storage_is_away_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended, again and again. A member must not begin alone, with a checkpoint of its own."""
    write_group(group_of("A", "B"), tmp_path)
    reads, two = Reads(monkeypatch), by_id("A", "B")
    for query_id in two:  # they have run
        (tmp_path / f"{query_id}-1").mkdir()
    reads.is_away = True
    ours = Groups(tmp_path, "s_", forms=True)
    assert ours.arrange(two, sources(), 0.0) == []
    assert ours.arrange(two, sources(), AGAIN_S - 0.1) == []
    assert (reads.count, ours.is_known) == (1, False)
    reads.is_away = False
    (run,) = ours.arrange(two, sources(), AGAIN_S)
    assert (run.group, ours.is_known) == (group_of("A", "B"), True)


def test_an_idle_driver_knows_the_groups(tmp_path: Path) -> None:
    """It looks after their checkpoints, too: those of nobody are removed after a week."""
    write_group(group_of("A", "B"), tmp_path)
    idle = Groups(tmp_path, "s_")
    assert idle.arrange({}, sources(), 0.0) == []
    assert idle.group_ids([WANTED["A"].query_id]) == {group_of("A", "B").group_id}


def test_what_runs_goes_on_while_storage_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, ours = Reads(monkeypatch), Groups(tmp_path, "s_", forms=True)
    three = by_id("A", "B", "COPY")
    ours.arrange(three, sources(), 0.0)
    before = ours.arrange(three, sources(), SETTLE_S)
    assert names_of(before) == [["A", "B"], ["COPY"]]
    reads.is_away = True
    more = three | by_id("OF_R")
    with capture_logs() as said:
        for now_s in (2.0, 2.1, 2.1 + AGAIN_S):
            assert ours.arrange(more, sources(), now_s) == before, "OF_R may be in a group"
        assert names_of(ours.arrange(by_id("B"), sources(), 4.2)) == [["A", "B"]]
        leased = dataclasses.replace(WANTED["COPY"], lease_epoch=LeaseEpoch(9))
        assert ours.arrange({leased.query_id: leased}, sources(), 4.3) == [], "others'"
    assert [each["log_level"] for each in said] == ["error"], "once"
    reads.is_away = False
    runs = ours.arrange(more, sources(), 9.0)
    assert names_of(runs) == [["A", "B"], ["COPY"]]
    runs = ours.arrange(more, sources(), 9.0 + SETTLE_S)
    assert names_of(runs) == [["A", "B"], ["COPY"], ["OF_R"]]


def test_what_another_pipeline_had_while_storage_was_away_is_learnt_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have put it into a group, whose checkpoint it has now."""
    ours, other = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    for now_s in (0.0, SETTLE_S):
        alone = ours.arrange(by_id("A"), sources(), now_s)
    assert names_of(alone) == [["A"]]
    reads = Reads(monkeypatch)
    reads.is_away = True
    assert ours.arrange(by_id("A", "OF_R"), sources(), 2.0) == alone
    assert ours.arrange({}, sources(), 2.1) == []
    reads.is_away = False  # of the other one
    for now_s in (2.1, 2.1 + SETTLE_S):
        other.arrange(by_id("A", "B"), sources(), now_s)
    back = dataclasses.replace(WANTED["A"], lease_epoch=LeaseEpoch(9))
    for now_s in (3.2, 2.0 + AGAIN_S):
        assert ours.arrange({back.query_id: back}, sources(), now_s) == [], "it waits for B's lease"


def test_a_share_that_does_not_say_what_exists_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, stale = Path.stat, f"{WANTED['A'].query_id}-1"

    def answer(path: Path, **how: bool) -> os.stat_result:
        if path.name == stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, **how)

    ours = Groups(tmp_path, "s_", forms=True)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", answer)
        assert ours.arrange(by_id("A"), sources(), 0.0) == []
    assert ours.arrange(by_id("A"), sources(), AGAIN_S) == [], "it waits for others"
    assert names_of(ours.arrange(by_id("A"), sources(), AGAIN_S + SETTLE_S)) == [["A"]]


def test_a_group_of_which_one_member_is_here_is_not_read_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of all groups were read ten times a second, for as long as that lasted."""
    reads, ours = Reads(monkeypatch), Groups(tmp_path, "s_", forms=True)
    two, one = by_id("A", "B"), by_id("A")
    ours.arrange(two, sources(), 0.0)
    ours.arrange(two, sources(), SETTLE_S)
    for tick in range(20):
        runs = ours.arrange(one, sources(), 10.0 + tick / 10)
    assert names_of(runs) == [["A"]], "B is another pipeline's, or paused"
    known = reads.count
    for tick in range(100):
        assert names_of(ours.arrange(one, sources(), 12.0 + tick / 10)) == [["A"]]
    assert reads.count == known
    assert names_of(ours.arrange(two, sources(), 30.0)) == [["A", "B"]], "it decides at its start"


def test_a_group_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    groups = Groups(tmp_path / "file", "s_", forms=True)
    groups.arrange(by_id("A", "B"), sources(), 0.0)
    runs = groups.arrange(by_id("A", "B"), sources(), SETTLE_S)
    assert names_of(runs) == [["A"], ["B"]]


def test_two_pipelines_that_form_groups_at_once_share_no_query(tmp_path: Path) -> None:
    """One of them has lost its leases and does not know yet."""
    old, new = (Groups(tmp_path, "s_", forms=True) for _ in range(2))
    two, three = by_id("A", "B"), by_id("A", "B", "W")
    old.arrange(two, sources(), 0.0)
    new.arrange(three, sources(), 0.0)
    assert names_of(old.arrange(two, sources(), SETTLE_S)) == [["A", "B"]]
    assert names_of(new.arrange(three, sources(), SETTLE_S)) == [["A", "B"], ["W"]]
    (only,) = groups_below(tmp_path, "s_")
    assert len(only.members) == 2


def test_a_pipeline_that_dies_while_it_forms_a_group_leaves_none(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / f"{WANTED[name].query_id}-1").mkdir()
    groups = Groups(tmp_path, "s_", forms=True)
    three = by_id("A", "B", "W")
    groups.arrange(three, sources(), 0.0)
    assert names_of(groups.arrange(three, sources(), SETTLE_S)) == [["A"], ["B"], ["W"]]
