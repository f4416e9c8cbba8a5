"""What a follower or observer does with the answers to its fetches."""

import pytest
from tests.unit.control.raft_bench import SETTINGS, Bench, key, log, voters
from tests.unit.control.scenarios import covers

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.log import Entry, EpochEnd, LogViolation, SnapshotInfo
from standpipe.control.raft.messages import Error
from standpipe.control.raft.roles import Role
from standpipe.control.raft.timeouts import LOST_DOUBLINGS


def a_follower(*epochs: int, **more) -> Bench:
    """Follows 2 in epoch 5, its log of these epochs flushed, its first fetch in flight."""
    return Bench(entries=log(*epochs), **more).following(2, 5)


def asked(bench: Bench) -> msg.FetchRequest:
    return bench.said(msg.FetchRequest)[-1]


@covers("FD-23")
def test_the_first_fetch_names_the_end_of_the_log() -> None:
    fetch = asked(a_follower(3))
    assert (fetch.epoch, fetch.offset, fetch.last_epoch, fetch.round) == (5, 1, 3, 0)


@covers("FD-15", "LI-08", "FD-20")
@pytest.mark.parametrize("me", [1, 4], ids=["voter", "observer"])
def test_entries_are_flushed_before_the_next_fetch(me: int) -> None:
    bench = a_follower(1, me=me)
    bench.answer_fetch(2, entries=log(5, 5, start=1), high_watermark=2)
    assert bench.said(msg.FetchRequest) == [], "the fetch is the acknowledgement"
    assert [e.offset for e in bench.did(ev.ApplyCommitted)[0].entries] == [0, 1]
    bench.flush()
    assert asked(bench).offset == 3
    bench.answer_fetch(2, high_watermark=3)
    assert [e.offset for e in bench.did(ev.ApplyCommitted)[0].entries] == [2]


@covers("FD-11", "FD-24")
def test_divergence_truncates_and_fetches_again() -> None:
    bench = a_follower(1, 3, 3)
    bench.answer_fetch(2, diverging=EpochEnd(3, 2), high_watermark=9)
    assert bench.did(ev.TruncateLog) == [ev.TruncateLog(1, 2)]
    assert bench.mark == 0, "what is left has not been compared yet"
    bench.flush()
    assert (asked(bench).offset, asked(bench).last_epoch) == (2, 3)


@covers("FD-13")
def test_committed_entries_are_kept_whatever_the_leader_says() -> None:
    bench = a_follower(1, 3, 3)
    bench.answer_fetch(2, high_watermark=3)
    with pytest.raises(LogViolation):
        bench.answer_fetch(2, diverging=EpochEnd(1, 1))


@covers("FD-16", "FD-25")
@pytest.mark.parametrize("then", ["prospective", "another leader"])
def test_answers_of_a_former_leader_are_ignored(then: str) -> None:
    bench = a_follower(1)
    request = bench.requests[msg.FetchRequest, "2"]
    if then == "prospective":
        bench.prospective()
    else:
        bench.begin(3, 6)
    for _ in range(2):
        bench.answer_fetch(2, request=request, epoch=5, entries=log(5, start=1), high_watermark=2)
        assert bench.raft.log.end == 1


@covers("FD-25")
def test_an_answer_that_comes_twice_counts_once() -> None:
    bench = a_follower(1)
    request = bench.requests[msg.FetchRequest, "2"]
    for _ in range(2):
        bench.answer_fetch(2, request=request, entries=log(5, start=1))
    assert bench.raft.log.end == 2


@covers("FD-21")
def test_the_high_watermark_is_bounded_by_the_own_log() -> None:
    bench = a_follower(1, 1)
    bench.answer_fetch(2, high_watermark=50)
    assert bench.mark == 2


@covers("FD-22", "TO-02", "SN-09")
@pytest.mark.parametrize(
    "bad",
    [
        {"entries": log(5, start=7)},
        {"snapshot": SnapshotInfo(-1, 1, voters(1), 5)},
        {"snapshot": SnapshotInfo(9, -1, voters(1), 5)},
        {"error": Error.NOT_LEADER_OR_FOLLOWER},
    ],
    ids=["a gap", "negative end", "negative epoch", "refused"],
)
def test_nonsense_does_not_count_as_hearing_the_leader(bad) -> None:
    bench = a_follower(1)
    bench.at(1000)
    bench.answer_fetch(2, **bad)
    assert bench.raft.state.timer_ms == 2000
    assert bench.raft.log.end == 1
    assert bench.said(msg.FetchRequest) == []
    bench.after(SETTINGS.retry_ms)
    assert asked(bench).offset == 1


@covers("TO-02")
def test_a_success_starts_the_fetch_time_anew() -> None:
    bench = a_follower(1)
    bench.at(1000)
    bench.answer_fetch(2)
    assert bench.raft.state.timer_ms == 3000


@covers("HW-11")
def test_the_high_watermark_outlives_leaders() -> None:
    bench = a_follower(1, 1)
    bench.answer_fetch(2, high_watermark=2)
    bench.vote(key(3), 9, last=5, end=9)
    assert (bench.role, bench.mark) == (Role.UNATTACHED, 2)
    bench.candidate()
    assert bench.mark == 2


@covers("RC-04")
def test_a_voters_record_is_in_force_when_it_arrives() -> None:
    bench = a_follower(1)
    bench.answer_fetch(2, entries=(Entry(1, 5, voters(1, 2)),))
    assert bench.raft.log.voters == voters(1, 2)


@covers("RV-02", "RC-27")
def test_a_voter_learns_that_it_was_removed() -> None:
    bench = a_follower(1)
    bench.answer_fetch(2, entries=(Entry(1, 5, voters(2, 3)),))
    assert bench.role is Role.FOLLOWER, "not committed yet: it may be needed"
    bench.flush()
    bench.answer_fetch(2, high_watermark=2)
    assert bench.role is Role.OBSERVER
    assert asked(bench).offset == 2, "it goes on fetching"


def test_an_observer_becomes_a_voter() -> None:
    bench = a_follower(1, me=4)
    assert bench.role is Role.OBSERVER
    bench.answer_fetch(2, entries=(Entry(1, 5, voters(1, 2, 3, 4)),))
    assert bench.role is Role.FOLLOWER


@covers("RC-25")
def test_a_voter_whose_record_is_truncated_observes_again() -> None:
    bench = a_follower(1, me=4)
    bench.answer_fetch(2, entries=(Entry(1, 5, voters(1, 2, 3, 4)),))
    bench.flush()
    bench.answer_fetch(2, diverging=EpochEnd(1, 1))
    assert bench.role is Role.OBSERVER


@covers("RV-06")
def test_a_leader_outside_of_the_own_set_is_followed() -> None:
    bench = Bench().following(9, 5)
    assert bench.role is Role.FOLLOWER
    assert [o.to for o in bench.did(ev.Send) if isinstance(o.message, msg.FetchRequest)] == ["9"]


# -- snapshots ------------------------------------------------------------------------------------

SNAPSHOT = SnapshotInfo(9, 4, voters(1, 2), 10)


def piece(bench: Bench, position: int, data: bytes, **more) -> list:
    number = bench.requests[msg.FetchSnapshotRequest, "2"]
    fields = {"error": Error.NONE, "epoch": bench.raft.epoch, "leader": "2", **more}
    answer = msg.FetchSnapshotResponse(
        number, fields["error"], fields["epoch"], fields["leader"], (9, 4), position, 10, data
    )
    return bench.hear(2, answer)


def downloading() -> Bench:
    bench = a_follower(1)
    bench.answer_fetch(2, snapshot=SNAPSHOT)
    return bench


@covers("SN-07", "SN-08", "LI-06", "SN-25")
def test_download() -> None:
    bench = downloading()
    [first] = bench.said(msg.FetchSnapshotRequest)
    assert (first.snapshot, first.position) == ((9, 4), 0)
    piece(bench, 0, b"abcd")
    assert bench.did(ev.WriteSnapshotChunk) == [ev.WriteSnapshotChunk((9, 4), 0, b"abcd")]
    assert bench.said(msg.FetchSnapshotRequest)[0].position == 4
    piece(bench, 4, b"efghij")
    [install] = bench.did(ev.InstallSnapshot)
    assert install.snapshot == SNAPSHOT
    assert bench.did(ev.LoadSnapshot) == [ev.LoadSnapshot(SNAPSHOT)]
    assert (bench.mark, bench.raft.applied, bench.raft.log.voters) == (9, 9, voters(1, 2))
    assert bench.said(msg.FetchRequest) == [], "not before it is durable"
    bench.flush()
    assert (asked(bench).offset, asked(bench).last_epoch) == (9, 4)


@covers("SN-07")
@pytest.mark.parametrize("position", [1, 8])
def test_pieces_must_fit(position: int) -> None:
    bench = downloading()
    piece(bench, position, b"abcd")
    assert bench.did(ev.WriteSnapshotChunk) == []


@covers("SN-10")
@pytest.mark.parametrize("error", [Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_is_forgotten(error: Error) -> None:
    bench = downloading()
    piece(bench, 0, b"", error=error)
    bench.after(SETTINGS.retry_ms)
    assert asked(bench).offset == 1


@covers("SN-11")
@pytest.mark.parametrize("leader", ["2", "3"])
def test_a_download_ends_with_its_epoch(leader: str) -> None:
    bench = downloading()
    piece(bench, 0, b"", error=Error.FENCED_LEADER_EPOCH, epoch=6, leader=leader)
    assert (bench.raft.epoch, bench.raft.known_leader) == (6, leader)
    assert asked(bench).offset == 1


@covers("SN-12")
@pytest.mark.parametrize(("error", "epoch"), [(Error.UNKNOWN_LEADER_EPOCH, 5), (Error.NONE, 4)])
def test_a_download_is_tried_again(error: Error, epoch: int) -> None:
    bench = downloading()
    piece(bench, 0, b"abcd", error=error, epoch=epoch)
    assert bench.did(ev.WriteSnapshotChunk) == []
    bench.after(SETTINGS.retry_ms)
    assert bench.said(msg.FetchSnapshotRequest)[-1].position == 0


@covers("SN-13")
def test_a_piece_for_a_former_role_is_ignored() -> None:
    bench = downloading()
    bench.prospective()
    piece(bench, 0, b"abcd")
    assert bench.did(ev.WriteSnapshotChunk) == []


# -- observers and restarts -----------------------------------------------------------------------


@covers("OB-01", "OB-10", "RC-03")
def test_an_observer_asks_its_bootstrap_nodes_who_leads() -> None:
    empty = SnapshotInfo(0, 0, voters())
    bench = Bench(me=4, start=empty, bootstrap=("2",))
    assert [order.to for order in bench.did(ev.Send)] == ["2"]
    bench.answer_fetch(2, error=Error.FENCED_LEADER_EPOCH, epoch=7, leader="3")
    assert (bench.raft.epoch, bench.raft.known_leader) == (7, "3")
    assert [o.to for o in bench.did(ev.Send)] == ["3"]


@covers("RC-03")
def test_the_logs_voters_win_over_the_bootstrap_nodes() -> None:
    bench = Bench(me=9, among=(1, 2, 3), bootstrap=("7",))
    assert bench.raft.log.voters == voters(1, 2, 3)


@covers("OB-02", "OB-04", "OB-05")
def test_an_observer_asks_one_after_the_other() -> None:
    bench = Bench(me=4)
    to = []
    for _ in range(4):
        [send] = [o for o in bench.did(ev.Send) if isinstance(o.message, msg.FetchRequest)]
        to.append(send.to)
        bench.answer_fetch(int(send.to), error=Error.NOT_LEADER_OR_FOLLOWER, leader=None)
        assert bench.did(ev.Send) == [], "a pause first"
        bench.after(SETTINGS.retry_ms)
    assert set(to) == {"1", "2", "3"}


@covers("OB-04")
def test_an_observer_whose_leader_does_not_answer_asks_another() -> None:
    bench = a_follower(1, me=4)
    late = bench.requests[msg.FetchRequest, "2"]
    bench.tell(ev.RequestFailed(bench.now, "2", late))
    bench.after(SETTINGS.retry_ms)
    [send] = [o for o in bench.did(ev.Send) if isinstance(o.message, msg.FetchRequest)]
    assert send.to != "2"
    bench.answer_fetch(2, request=late, entries=log(5, start=1))
    assert bench.raft.log.end == 1, "the late answer is not waited for any more"


@covers("VA-08")
def test_a_voter_whose_leader_refuses_the_connection_tries_again() -> None:
    bench = a_follower(1)
    bench.tell(ev.RequestFailed(bench.now, "2", bench.requests[msg.FetchRequest, "2"]))
    assert bench.said(msg.FetchRequest) == []
    bench.after(SETTINGS.retry_ms)
    assert [o.to for o in bench.did(ev.Send)] == ["2"]


def refuse_fetch(bench: Bench) -> None:
    bench.tell(ev.RequestFailed(bench.now, "2", bench.requests[msg.FetchRequest, "2"]))
    bench.after(SETTINGS.retry_ms)


def test_a_leader_that_refuses_twice_in_a_row_is_asked_about_at_once() -> None:
    bench = a_follower(1)
    bench.answer_fetch(2)
    refuse_fetch(bench)
    asked = {"candidate": 3, "epoch": 5, "pre": True, "last": 1, "end": 1}
    assert not bench.vote(**asked).granted, "that may have been the connection"
    refuse_fetch(bench)
    assert bench.vote(**asked).granted, "nobody vouches for it any more"
    bench.after(SETTINGS.backoff_ms_min << LOST_DOUBLINGS)
    assert (bench.role, bench.raft.epoch) == (Role.PROSPECTIVE, 5), "asked; nobody is disturbed"


def test_two_failures_with_an_answer_between_are_nothing() -> None:
    bench = a_follower(1)
    for _ in range(3):
        bench.answer_fetch(2)
        refuse_fetch(bench)
    bench.after(SETTINGS.backoff_ms_min << LOST_DOUBLINGS)
    assert bench.role is Role.FOLLOWER


def test_who_is_refused_alone_asks_once_and_then_by_its_timer() -> None:
    bench = a_follower(1)
    bench.answer_fetch(2)
    refuse_fetch(bench)
    refuse_fetch(bench)
    bench.after(SETTINGS.backoff_ms_min << LOST_DOUBLINGS)
    for voter in (2, 3):
        bench.answer_vote(voter, granted=False, leader="2")
    assert bench.role is Role.FOLLOWER
    for _ in range(4):
        refuse_fetch(bench)
    bench.after(SETTINGS.backoff_ms_min << LOST_DOUBLINGS)
    assert bench.role is Role.FOLLOWER, "else it would ask ten times a second"
    bench.after(SETTINGS.fetch_ms * 5 // 4)
    assert bench.role is Role.PROSPECTIVE


@covers("PE-20", "RO-16")
def test_a_restart_begins_at_the_snapshot_and_applies_nothing_unknown() -> None:
    start = SnapshotInfo(5, 2, voters(1, 2, 3), 10)
    bench = Bench(entries=log(2, 2, start=5), start=start, election=ElectionState(5, "2"))
    assert bench.did(ev.LoadSnapshot) == [ev.LoadSnapshot(start)]
    assert (bench.mark, bench.raft.applied) == (5, 5), "its tail may be cut yet"


def test_numbers_of_an_earlier_life_are_not_awaited() -> None:
    bench = Bench(election=ElectionState(5, "2"))
    bench.answer_fetch(2, request=99, entries=log(5))
    assert bench.raft.log.end == 0
