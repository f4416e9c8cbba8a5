"""What is shown of queries: the newest report, for as long as somebody reports."""

from __future__ import annotations

from typing import Any

import pytest

from standpipe.control.metadata.query_status import SILENT_MS, QueryReports
from standpipe.model import LeaseEpoch, QueryStatus

QUERY = "CTAS_T_1"


def said(state: Any, epoch: int = 1, **more: Any) -> QueryStatus:
    return QueryStatus(query_id=QUERY, state=state, lease_epoch=LeaseEpoch(epoch), **more)


def states(reports: QueryReports, now_ms: int, *queries: str) -> list[str]:
    return [status.state for status in reports.shown(queries or (QUERY,), now_ms)]


def test_a_zombie_is_not_heard() -> None:
    reports = QueryReports()
    reports.take([said("RUNNING", 2)], 0)
    reports.take([said("FAILED", 1)], 1)
    assert states(reports, 1) == ["RUNNING"]
    reports.take([said("FAILED", 2)], 2)
    assert states(reports, 2) == ["FAILED"]


def test_nobody_says_of_himself_that_he_is_silent() -> None:
    reports = QueryReports()
    reports.take([said("UNRESPONSIVE")], 0)
    assert states(reports, 0) == []


def test_only_queries_that_exist_and_were_named() -> None:
    reports = QueryReports()
    reports.take([said("RUNNING")], 0)
    assert states(reports, 0, "CTAS_U_2") == []
    assert states(reports, 0, "CTAS_U_2", QUERY) == ["RUNNING"]


def test_reports_of_ended_queries_are_forgotten() -> None:
    """Each push query with GROUP BY is a query that ends: they would become more and more."""
    reports = QueryReports()
    reports.take([said("FAILED")], 0)
    assert states(reports, SILENT_MS - 1, "CTAS_U_2") == []
    assert states(reports, SILENT_MS - 1) == ["FAILED"], "the catalog was behind"
    assert states(reports, SILENT_MS) == ["FAILED"]
    assert states(reports, SILENT_MS, "CTAS_U_2") == []
    assert not reports.newest


@pytest.mark.parametrize(
    ("state", "silent_ms", "shown", "why"),
    [
        ("RUNNING", SILENT_MS - 1, "RUNNING", "reports may be late"),
        ("RUNNING", SILENT_MS, "UNRESPONSIVE", "its pipeline may be dead"),
        ("STARTING", SILENT_MS, "UNRESPONSIVE", "nobody starts it"),
        ("RETRYING", SILENT_MS, "UNRESPONSIVE", "nobody tries"),
        ("FAILED", SILENT_MS, "FAILED", "who failed for good stays so, whoever lives"),
        ("STOPPED", SILENT_MS, "STOPPED", "as it said when it went"),
    ],
)
def test_silence(state: str, silent_ms: int, shown: str, why: str) -> None:
    reports = QueryReports()
    reports.take([said(state)], 500)
    assert states(reports, 500 + silent_ms) == [shown], why


def test_silence_names_who_is_silent_and_keeps_what_was_counted() -> None:
    reports = QueryReports()
    status = said("RUNNING", reason="NO_PROGRESS", pipeline_id="p-1", bad_records=3, at_ms=77)
    reports.take([status], 0)
    (shown,) = reports.shown([QUERY], SILENT_MS)
    assert "Pipeline p-1 has sent this node no report" in shown.message
    assert (shown.reason, shown.bad_records, shown.at_ms) == ("", 3, 77)
    assert dict(reports.newest) == {QUERY: status}, "decisions go by what was said"


@pytest.mark.parametrize(
    ("state", "shown", "why"),
    [
        (None, "UNRESPONSIVE", "nobody has run it yet"),
        ("RUNNING", "UNRESPONSIVE", "so it was before it was isolated"),
        ("STOPPED", "UNRESPONSIVE", "its driver went in order, and no other took it over"),
        ("FAILED", "FAILED", "the reason must stay visible"),
    ],
)
def test_an_isolated_query_without_a_driver_names_the_next_step(
    state: str | None, shown: str, why: str
) -> None:
    reports = QueryReports()
    if state is not None:
        reports.take([said(state, message="as reported")], 0)
    (status,) = reports.shown([QUERY], 1, {QUERY: "start it"})
    assert status.state == shown, why
    assert status.message == "start it" or (shown, status.message) == ("FAILED", "as reported")
    assert reports.shown([QUERY], 1, {"CTAS_U_2": "T"}) == reports.shown([QUERY], 1)


def test_a_zombies_report_does_not_break_the_silence() -> None:
    reports = QueryReports()
    reports.take([said("RUNNING", 2)], 0)
    reports.take([said("RUNNING", 1)], SILENT_MS - 1)
    assert states(reports, SILENT_MS) == ["UNRESPONSIVE"]
    reports.take([said("RUNNING", 3)], SILENT_MS)
    assert states(reports, SILENT_MS) == ["RUNNING"], "another has taken over"
