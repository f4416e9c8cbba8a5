"""Linearizable reads: the leader's rounds, the reader's queue, and both together."""

import pytest
from tests.unit.control.raft_bench import SETTINGS, Bench, key, log
from tests.unit.control.scenarios import covers

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.messages import Error
from standpipe.control.raft.reads import ReadQueue, ReadRounds


def a_leader(**more) -> Bench:
    return Bench(**more).leader(committed=True)


def done(bench: Bench) -> list[tuple[int, int | None]]:
    return [(order.read, order.offset) for order in bench.did(ev.AnswerRead)]


@covers("RO-06", "RO-07", "RO-10", "RO-08")
def test_only_an_echoed_round_confirms() -> None:
    bench = a_leader()
    assert bench.fetch(3, 2, mark=2) is None
    bench.read(5)
    assert done(bench) == []
    [woken] = bench.said_to(3, msg.FetchResponse)
    assert woken.round == 1, "parked fetches carry the question at once"
    bench.fetch(2, 2, round_=0)
    assert done(bench) == [], "sent before the read, however late it arrives"
    bench.propose()
    bench.fetch(2, 2, round_=1)
    assert done(bench) == [(5, 2)], "the high watermark of its arrival, not the log's end"


@covers("RO-09")
def test_a_new_leader_answers_only_after_its_own_commit() -> None:
    bench = Bench(entries=log(1, 1)).leader()
    bench.read(5)
    bench.flush()
    bench.fetch(2, 2)
    assert done(bench) == []
    bench.fetch(2, bench.raft.log.end, round_=0)
    assert done(bench) == []
    bench.fetch(2, bench.raft.log.end, round_=1)
    assert done(bench) == [(5, bench.raft.log.end)]


@covers("RO-17")
def test_one_round_answers_all_that_wait() -> None:
    bench = a_leader()
    for number in (1, 2, 3):
        bench.hear(3, msg.ReadOffsetRequest(number, 1))
    bench.fetch(2, 2, round_=3)
    assert [m.request for m in bench.said(msg.ReadOffsetResponse)] == [1, 2, 3]


@covers("RO-12")
@pytest.mark.parametrize("how", ["resigns", "higher epoch"])
def test_reads_fail_with_the_leadership(how: str) -> None:
    bench = a_leader()
    bench.hear(3, msg.ReadOffsetRequest(1, 1))
    if how == "resigns":
        bench.tell(ev.ResignRequested(bench.now, 1))
    else:
        bench.begin(2, 2)
    [answer] = bench.said(msg.ReadOffsetResponse)
    assert answer.error is Error.NOT_LEADER_OR_FOLLOWER


@covers("RO-23")
def test_a_leader_under_removal_needs_the_others() -> None:
    bench = a_leader()
    bench.tell(ev.VoterRemoveRequested(bench.now, 4, key(1)))
    bench.read(5)
    bench.fetch(2, 2, round_=1)
    assert done(bench) == []
    bench.fetch(3, 2, round_=1)
    assert done(bench) == [(5, 2)]


def a_reader() -> Bench:
    bench = Bench(me=3, entries=log(1, 1, 1)).following(2, 5)
    bench.answer_fetch(2, high_watermark=1)
    return bench


def answer(bench: Bench, offset: int = 3, error: Error = Error.NONE, **more) -> list:
    fields = {"request": bench.requests.get((msg.ReadOffsetRequest, "2")), "epoch": 5, **more}
    made = msg.ReadOffsetResponse(fields["request"], error, fields["epoch"], "2", offset)
    return bench.hear(2, made)


@covers("RO-01", "RO-02")
def test_a_read_waits_until_it_is_applied() -> None:
    bench = a_reader()
    bench.read(5)
    answer(bench, 3)
    assert done(bench) == []
    bench.answer_fetch(2, high_watermark=3)
    kinds = [type(order) for order in bench.orders]
    assert kinds.index(ev.ApplyCommitted) < kinds.index(ev.AnswerRead)
    assert done(bench) == [(5, 3)]


@covers("RO-03")
def test_a_read_that_is_applied_already_is_answered_at_once() -> None:
    bench = a_reader()
    bench.read(5)
    answer(bench, 1)
    assert done(bench) == [(5, 1)]


@covers("RO-17", "RO-24")
def test_one_request_serves_what_had_arrived_before_it() -> None:
    bench = a_reader()
    bench.read(1)
    first = bench.requests[msg.ReadOffsetRequest, "2"]
    bench.read(2)
    bench.read(3)
    assert bench.said(msg.ReadOffsetRequest) == []
    answer(bench, 1, request=first)
    assert done(bench) == [(1, 1)]
    second = bench.said(msg.ReadOffsetRequest)[0].request
    answer(bench, 1, request=first)
    assert done(bench) == [], "a repeated answer releases nobody"
    answer(bench, 1, request=second)
    assert done(bench) == [(2, 1), (3, 1)]


@covers("RO-04", "RO-21")
def test_a_read_without_an_answer_fails_in_time() -> None:
    bench = a_reader()
    bench.read(5)
    for _ in range(3):
        bench.after(1000)
        bench.answer_fetch(2)
    failed = [o for o in bench.everything if isinstance(o, ev.AnswerRead)]
    assert failed == [ev.AnswerRead(5, Error.REQUEST_TIMED_OUT)]
    assert bench.raft._reads.deadline_ms() is None, "nothing is left of it"


@covers("RO-05")
def test_a_refused_request_is_asked_again() -> None:
    bench = a_reader()
    bench.read(5)
    answer(bench, 0, Error.NOT_LEADER_OR_FOLLOWER)
    assert bench.said(msg.ReadOffsetRequest) == []
    bench.after(SETTINGS.retry_ms)
    assert len(bench.said(msg.ReadOffsetRequest)) == 1


@covers("RO-13", "RO-14")
def test_an_offset_stays_valid_when_the_leader_changes() -> None:
    bench = a_reader()
    bench.read(5)
    answer(bench, 3)
    bench.begin(1, 6)
    bench.answer_fetch(1, leader="1", high_watermark=3)
    assert done(bench) == [(5, 3)]


@covers("RO-24", "RO-05")
def test_an_unanswered_request_is_sent_to_the_next_leader() -> None:
    bench = a_reader()
    bench.read(5)
    late = bench.requests[msg.ReadOffsetRequest, "2"]
    bench.begin(1, 6)
    assert [o.to for o in bench.did(ev.Send) if isinstance(o.message, msg.ReadOffsetRequest)] == [
        "1"
    ]
    answer(bench, 1, request=late)
    assert done(bench) == []


@covers("RO-15")
def test_a_snapshot_satisfies_reads() -> None:
    queue = ReadQueue(1000)
    queue.add(1, 7, 0)
    assert queue.released(6) == []
    assert [answered.read for answered in queue.released(9)] == [1]


@covers("RO-02")
def test_reads_are_released_by_offset() -> None:
    queue = ReadQueue(1000)
    for read, offset in ((1, 9), (2, 3), (3, 5)):
        queue.add(read, offset, 0)
    assert [answered.read for answered in queue.released(9)] == [2, 3, 1]


@covers("RO-04")
def test_a_read_that_failed_is_not_answered_later() -> None:
    queue = ReadQueue(100)
    queue.add(1, None, 0)
    queue.add(2, 5, 10)
    queue.add(3, 5, 50)
    queue.asked(7)
    assert [failed.read for failed in queue.expired(110)] == [1, 2]
    queue.answered(7, 4)
    assert [answered.read for answered in queue.released(9)] == [3]
    assert queue.deadline_ms() is None


@covers("RO-20")
def test_a_position_token_needs_no_leader_and_is_never_undercut() -> None:
    bench = a_reader()
    bench.read(5, offset=2)
    assert bench.said(msg.ReadOffsetRequest) == []
    assert done(bench) == []
    bench.answer_fetch(2, high_watermark=2)
    assert done(bench) == [(5, 2)]


@covers("RO-18")
def test_a_later_read_never_gets_a_lower_offset() -> None:
    rounds = ReadRounds()
    rounds.note("2", 1, 5)
    rounds.note("3", 2, 7)
    offsets = [read.offset for read in rounds.confirmed(2)]
    assert offsets == sorted(offsets)


def test_rounds_are_confirmed_up_to_what_a_majority_echoed() -> None:
    rounds = ReadRounds()
    for request in (1, 2, 3):
        rounds.note(None, request, 5)
    assert [read.request for read in rounds.confirmed(2)] == [1, 2]
    assert rounds.wanted == 3
    assert rounds.confirmed(2) == []
    assert rounds.abandoned() == [(None, 3)]
