"""When the holder of a table's lease must stop, as its catalog says."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.metadata.test_catalog import external
from tests.unit.control.metadata.test_isolation import X, led, starts

from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.commands import (
    Command,
    DropSource,
    EndPipelines,
    SetQueryState,
    TerminateQuery,
)
from standpipe.model import LeaseEpoch, LogIndex
from standpipe.pipeline.run.reconcile import PipelineRegistration, external_query, wanted_queries
from standpipe.spark.lease import standby_message, why_gone, why_over

SERVED = msgspec.structs.replace(
    led(external("X", 9), starts("a", X)), feature_level=feature_levels.NEWEST
)


def registered(pipeline: str) -> PipelineRegistration:
    return PipelineRegistration(
        pipeline_id=pipeline, lease_epoch=LeaseEpoch(1), log_index=LogIndex(1), isolates=X
    )


A, B = registered("a"), registered("b")
MINE = external_query(SERVED, X, A)
GONE = EndPipelines(pipeline_ids=("a",))


@pytest.mark.parametrize(
    ("commands", "reason", "words", "why"),
    [
        ([], None, "", "nothing has happened"),
        ([starts("b", X)], None, "", "another one stands by"),
        ([GONE], None, "", "silent for a while, but nobody took over"),
        ([GONE, starts("b", X)], "FENCED", "the holder is b", "a standby took over"),
        (
            [GONE, starts("b", X), EndPipelines(pipeline_ids=("b",)), starts("a", X)],
            "FENCED",
            "this one again, under a newer lease",
            "its run is of the old lease",
        ),
        ([DropSource(name="X")], "DROPPED", "X was dropped", ""),
        (
            [DropSource(name="X"), external("X", 20)],
            "DROPPED",
            "X was dropped",
            "another table has its name by now",
        ),
        ([TerminateQuery(query_ids=(X,))], "TERMINATED", "DROP TABLE X;", ""),
        ([SetQueryState(query_ids=(X,), state="PAUSED")], "PAUSED", f"RESUME {X};", ""),
    ],
)
def test_when_a_holder_must_stop(
    commands: list[Command], reason: str | None, words: str, why: str
) -> None:
    assert MINE is not None
    over = why_over(led(*commands, start=SERVED), MINE, A)
    assert (over and over.reason) == reason, why
    assert over is None or words in over.message, why


def test_who_stands_by_waits_while_the_table_is_there() -> None:
    catalog = led(starts("b", X), start=SERVED)
    assert external_query(catalog, X, B) is None
    assert why_gone(catalog, X, "X") is None
    assert standby_message(catalog, X, "X") == "standing by: X is written by a"
    paused = led(SetQueryState(query_ids=(X,), state="PAUSED"), start=catalog)
    assert f"waiting for RESUME {X};" in standby_message(paused, X, "X")
    assert external_query(led(GONE, start=catalog), X, B) is not None


def test_no_pipeline_runs_it_whatever_lease_it_has() -> None:
    assert wanted_queries(SERVED, A) == {}
