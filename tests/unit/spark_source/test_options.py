"""The options of spark.read, as Spark hands them over."""

from __future__ import annotations

import pytest

from standpipe.client.core.settings import Settings
from standpipe.spark_source.options import ReadOptions, ReadRefused

GIVEN = {"nodes": "h:1", "path": "SCORES"}


def test_the_usual_ones() -> None:
    found = ReadOptions.read(GIVEN)
    assert (found.nodes, found.table, found.ca) == ("h:1", "SCORES", None)
    assert found.settings == Settings(timeout_s=60, consistency="snapshot")
    assert found.is_of_one_batch
    assert found.comes_with_plan


def test_all_of_them() -> None:
    found = ReadOptions.read(
        {
            "nodes": "https://h:1",
            "table": "`low`",
            "consistency": "Eventual",
            "timeout_s": "1.5",
            "lag_records_max": "0",
            "replica_lag_ms_max": "10",
            "source_lag_ms_max": "20",
            "ca": "/ca.pem",
            "finds_members": "FALSE",
            "secret_file": "is not opened",
        }
    )
    assert (found.table, found.ca, found.is_of_one_batch) == ("`low`", "/ca.pem", False)
    assert found.settings == Settings(
        timeout_s=1.5,
        lag_records_max=0,
        replica_lag_ms_max=10,
        source_lag_ms_max=20,
        finds_members=False,
        consistency="eventual",
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"node": "h:1"}, "no option node(.|\n)*did you mean nodes?"),
        ({"x": "1"}, "no option x(.|\n)*it is nodes, path"),
        ({"nodes": ""}, "nodes is missing"),
        ({"path": ""}, "no table is named"),
        ({"table": "T"}, "two tables are named"),
        ({"consistency": "session"}, "snapshot, eventual, linearizable"),
        ({"timeout_s": "0"}, "a number of seconds above 0"),
        ({"timeout_s": "soon"}, "a number of seconds above 0"),
        ({"timeout_s": "nan"}, "a number of seconds above 0"),
        ({"lag_records_max": "-1"}, "a whole number"),
        ({"finds_members": "no"}, "true or false"),
    ],
)
def test_refused(changed: dict[str, str], says: str) -> None:
    with pytest.raises(ReadRefused, match=says):
        ReadOptions.read({**GIVEN, **changed})


def test_the_rows_of_a_condition_come_with_the_plan() -> None:
    given = {**GIVEN, "consistency": "eventual"}
    assert not ReadOptions.read(given).comes_with_plan
    found = ReadOptions.read({**given, "where": "ID = 'a'"})
    assert (found.where, found.comes_with_plan, found.is_of_one_batch) == ("ID = 'a'", True, False)


def test_a_task_knows_whom_to_ask() -> None:
    found = ReadOptions.read(GIVEN).with_holders(["a:1", "b:1"])
    assert found.nodes == "a:1,b:1,h:1"
    assert not found.settings.finds_members
    assert found.settings.timeout_s == 60
