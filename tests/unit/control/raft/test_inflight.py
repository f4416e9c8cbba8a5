"""Requests in flight, told apart by number."""

from tests.unit.control.scenarios import covers

from standpipe.control.raft.inflight import Calls
from standpipe.control.raft.messages import FetchRequest, VoteRequest


@covers("VA-08", "FD-25")
def test_only_the_awaited_answer_counts_and_only_once() -> None:
    calls = Calls(10)
    first = calls.open(VoteRequest, "2", 100)
    second = calls.open(VoteRequest, "2", 200)
    assert (first, second) == (10, 11)
    assert not calls.close(VoteRequest, "2", first), "replaced"
    assert not calls.close(VoteRequest, "3", second), "somebody else's answer"
    assert not calls.close(FetchRequest, "2", second), "another kind's answer"
    assert calls.close(VoteRequest, "2", second)
    assert not calls.close(VoteRequest, "2", second), "twice"


def test_what_is_due_is_named_once() -> None:
    calls = Calls(0)
    calls.open(VoteRequest, "2", 100)
    calls.open(VoteRequest, "3", 200)
    assert calls.deadline_ms() == 100
    assert calls.take_due(99) == []
    assert calls.take_due(100) == [(VoteRequest, "2")]
    assert calls.take_due(100) == []
    assert calls.deadline_ms() == 200


def test_a_failed_request_becomes_a_pause() -> None:
    calls = Calls(0)
    number = calls.open(FetchRequest, "2", 500)
    assert calls.failed("2", number + 1, 20) is None
    assert calls.failed("2", number, 20) is FetchRequest
    assert calls.is_open(FetchRequest)
    assert not calls.close(FetchRequest, "2", number), "its answer is not awaited any more"
    assert calls.take_due(20) == [(FetchRequest, "2")]
