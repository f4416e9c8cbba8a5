"""From which instant on the assigning node trusts reports."""

from __future__ import annotations

from standpipe.control.liveness.report_age import Belief


def test_reports_are_history_after_a_while() -> None:
    belief = Belief(age_ms_max=15_000, settle_ms=7500)
    belief.look(99_500, by_reports=False)
    assert belief.since_ms == 0, "beats tell who is down"
    belief.look(100_000, by_reports=True)
    assert belief.since_ms == 85_000
    belief.look(100_500, by_reports=False)
    assert belief.since_ms == 85_000, "what was history then is not news now"


def test_who_did_not_listen_waits_for_the_others_word() -> None:
    belief = Belief(age_ms_max=15_000, settle_ms=7500)
    belief.look(100_000, by_reports=True)
    for at_ms in range(120_000, 127_500, 500):
        belief.look(at_ms, by_reports=True)
        assert belief.since_ms == 85_000, "it stood still: nobody was unheard of"
    belief.look(127_500, by_reports=True)
    assert belief.since_ms == 112_500
