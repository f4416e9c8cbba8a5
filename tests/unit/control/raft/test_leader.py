"""What a leader does with fetches, flushes, proposals and parked requests."""

from dataclasses import replace

import pytest
from tests.unit.control.raft_bench import SETTINGS, Bench, key, log, voters
from tests.unit.control.scenarios import covers

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.log import EpochEnd, SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import VoterSet
from standpipe.control.raft.messages import Error
from standpipe.control.raft.roles import Role


def a_leader(**more) -> Bench:
    """Leads epoch 1 of three voters; offsets 0 (leader change) and 1 (voters) are committed."""
    return Bench(**more).leader(committed=True)


@covers("FD-01", "FD-02", "FD-03", "FD-04", "SN-16", "RO-05")
@pytest.mark.parametrize(
    ("epoch", "leads", "error"),
    [
        (0, True, Error.FENCED_LEADER_EPOCH),
        (9, True, Error.UNKNOWN_LEADER_EPOCH),
        (1, False, Error.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_the_leader_of_that_epoch_answers(epoch: int, leads: bool, error: Error) -> None:
    requests = [
        msg.FetchRequest(5, epoch, key(3), 0, 0, 0, 0, 0),
        msg.FetchSnapshotRequest(5, epoch, key(3), (4, 1), 0, 10),
        msg.ReadOffsetRequest(5, epoch),
    ]
    for request in requests:
        bench = a_leader() if leads else Bench().following(2, 1, fetched=True)
        bench.hear(3, request)
        sends = [order for order in bench.did(ev.Send) if order.to == "3"]
        assert sends[0].message.error is error
        assert sends[0].message.leader == ("1" if leads else "2")
        assert sends[0].message.epoch == 1


def test_a_leader_gives_way_to_a_replica_of_a_higher_epoch() -> None:
    """Else an observer that voted for a candidate which was wiped could never follow again."""
    bench = a_leader()
    assert bench.fetch(9, 0, 0, epoch=5).error is Error.UNKNOWN_LEADER_EPOCH
    assert (bench.role, bench.raft.epoch) == (Role.UNATTACHED, 5)


@covers("FD-04")
@pytest.mark.parametrize(
    ("offset", "last", "wait"), [(-1, 0, 0), (0, -1, 0), (0, 2, 0), (0, 0, -1)]
)
def test_malformed_fetches(offset: int, last: int, wait: int) -> None:
    bench = a_leader()
    assert bench.fetch(2, offset, last, wait=wait).error is Error.INVALID_REQUEST


@covers("FD-05")
def test_divergence_is_answered_at_once() -> None:
    bench = Bench(entries=log(1, 1, 1, 3, 3, 3, 5, 5, 5)).leader()
    answer = bench.fetch(2, 6, 2)
    assert answer.diverging == EpochEnd(1, 3)
    assert answer.entries == ()


@covers("FD-10", "HW-02", "HW-04")
def test_a_fetch_brings_uncommitted_entries_and_commits_what_it_acknowledges() -> None:
    bench = Bench(entries=log(1, 1)).leader()
    bench.flush()
    answer = bench.fetch(2, 2, 1)
    assert [entry.offset for entry in answer.entries] == [2, 3]
    assert bench.mark == 0, "a majority holds what is older, but nothing of this epoch"
    bench.fetch(2, 3)
    assert bench.mark == 3


@covers("HW-21", "HW-13")
def test_the_leaders_own_entries_count_when_flushed() -> None:
    bench = a_leader(among=(1, 2))
    bench.propose()
    bench.fetch(2, 3)
    assert bench.mark == 2
    bench.flush()
    assert bench.mark == 3
    assert bench.did(ev.AnswerProposal) == [ev.AnswerProposal(1, Error.NONE, 2, "1")]


@covers("HW-13")
def test_a_sole_voters_appends_commit_with_one_flush() -> None:
    bench = Bench(among=(1,))
    for number in range(3):
        bench.propose(b"x", number)
    bench.flush()
    assert bench.mark == bench.raft.log.end == 5
    assert [a.proposal for a in bench.did(ev.AnswerProposal)] == [0, 1, 2]


@covers("HW-05", "HW-03")
def test_the_high_watermark_never_goes_back() -> None:
    bench = a_leader()
    bench.propose()
    bench.flush()
    bench.fetch(2, 3)
    assert bench.mark == 3
    bench.fetch(2, 1)
    bench.fetch(3, 0, 0)
    assert bench.mark == 3


@covers("HW-09", "RV-03")
def test_an_observer_counts_only_from_the_moment_it_votes() -> None:
    bench = a_leader(among=(1, 2))
    bench.propose()
    bench.flush()
    bench.fetch(9, 3)
    assert bench.mark == 2
    bench.fetch(2, 3)
    bench.tell(ev.VoterAddRequested(bench.now, 4, key(9)))
    assert bench.raft.log.voters == voters(1, 2, 9)
    bench.flush()
    bench.fetch(9, 4)
    assert bench.mark == 4, "1 and 9 are two of three"


@covers("HW-06")
def test_adding_a_voter_takes_nothing_back() -> None:
    bench = a_leader(among=(1,))
    bench.fetch(9, 2)
    bench.tell(ev.VoterAddRequested(bench.now, 4, key(9)))
    assert (bench.mark, bench.raft.log.end) == (2, 3)
    bench.flush()
    assert bench.mark == 2
    bench.fetch(9, 3)
    assert bench.mark == 3


@covers("HW-07", "HW-08", "RV-03", "RC-17")
def test_a_leader_that_is_being_removed_does_not_count_itself() -> None:
    bench = a_leader()
    bench.tell(ev.VoterRemoveRequested(bench.now, 4, key(1)))
    bench.flush()
    bench.fetch(2, 3)
    assert (bench.mark, bench.role) == (2, Role.LEADER)
    bench.fetch(3, 3)
    assert bench.mark == 3
    assert ev.AnswerChange(4, Error.NONE) in bench.orders
    assert bench.role is Role.RESIGNED
    assert len(bench.said(msg.EndQuorumEpochRequest)) == 2
    bench.after(SETTINGS.election_ms)
    assert bench.role is Role.OBSERVER
    assert bench.raft.known_leader is None


@covers("HW-15", "HW-17")
@pytest.mark.parametrize(
    ("epoch", "size", "error"),
    [
        (0, 1, Error.NOT_LEADER_OR_FOLLOWER),
        (2, 1, Error.NOT_LEADER_OR_FOLLOWER),
        (None, SETTINGS.entry_bytes_max + 1, Error.RECORD_TOO_LARGE),
    ],
)
def test_refused_proposals_append_nothing(epoch, size: int, error: Error) -> None:
    bench = a_leader()
    bench.propose(b"x" * size, 1, epoch)
    assert bench.did(ev.AnswerProposal) == [ev.AnswerProposal(1, error)]
    assert bench.raft.log.end == 2


@covers("FD-17", "FD-18")
def test_a_fetch_with_nothing_to_bring_is_parked() -> None:
    bench = a_leader()
    assert bench.fetch(2, 2, mark=2) is None
    bench.propose()
    [answer] = bench.said_to(2, msg.FetchResponse)
    assert [entry.offset for entry in answer.entries] == [2]
    bench = a_leader()
    assert bench.fetch(2, 2, mark=2, wait=500) is None
    bench.after(499)
    assert bench.said_to(2, msg.FetchResponse) == []
    bench.after(1)
    [answer] = bench.said_to(2, msg.FetchResponse)
    assert (answer.entries, answer.high_watermark) == ((), 2)


def test_a_parked_fetch_brings_a_new_high_watermark_home_at_once() -> None:
    """KIP-1166: an idle follower need not wait for its next fetch to learn of a commit."""
    bench = a_leader()
    bench.propose()
    bench.flush()
    assert bench.fetch(2, 3, mark=2).high_watermark == 3
    assert bench.fetch(3, 3, mark=3) is None


@covers("FD-19", "ZL-17", "ZL-09")
def test_parked_fetches_learn_of_the_next_leader() -> None:
    bench = a_leader()
    assert bench.fetch(2, 2, mark=2) is None
    bench.begin(3, 2)
    [answer] = bench.said_to(2, msg.FetchResponse)
    assert (answer.error, answer.leader, answer.epoch) == (Error.NOT_LEADER_OR_FOLLOWER, "3", 2)


@covers("EL-30", "EL-31")
def test_voters_that_do_not_fetch_are_called_again() -> None:
    bench = a_leader()
    bench.after(900)
    bench.fetch(2, 2)
    bench.after(SETTINGS.begin_ms - 900)
    called = [
        o.to for o in bench.did(ev.Send) if isinstance(o.message, msg.BeginQuorumEpochRequest)
    ]
    assert called == ["3"]


@covers("ZL-07", "ZL-08")
def test_check_quorum_counts_by_the_set_in_force() -> None:
    bench = a_leader(among=(1, 2, 3))
    began = bench.now
    bench.fetch(9, 2)
    bench.tell(ev.VoterAddRequested(bench.now, 4, key(9)))
    for ms in (1000, 2000, 2990):
        bench.at(began + ms)
        bench.fetch(2, bench.raft.log.end)
    bench.at(began + 3000)
    assert bench.role is Role.RESIGNED, "one other voter of four is not a majority any more"
    bench = a_leader()
    began = bench.now
    bench.tell(ev.VoterRemoveRequested(bench.now, 4, key(1)))
    bench.at(began + 2990)
    bench.fetch(2, 2)
    bench.at(began + 3000)
    assert bench.role is Role.RESIGNED, "two voters are left, and both are needed"


def with_snapshot() -> Bench:
    start = SnapshotInfo(5, 2, voters(1, 2, 3), 100)
    return Bench(entries=log(2, 2, start=5), start=start).leader()


@covers("SN-01", "SN-02")
@pytest.mark.parametrize("offset", [0, 3])
def test_a_fetch_below_the_start_is_sent_to_the_snapshot(offset: int) -> None:
    answer = with_snapshot().fetch(2, offset, 1 if offset else 0)
    assert answer.snapshot == SnapshotInfo(5, 2, voters(1, 2, 3), 100)
    assert answer.entries == ()


@covers("SN-14", "SN-15", "SN-17", "ZL-06")
@pytest.mark.parametrize(
    ("name", "position", "error"),
    [
        ((5, 2), -1, Error.POSITION_OUT_OF_RANGE),
        ((5, 2), 100, Error.POSITION_OUT_OF_RANGE),
        ((4, 2), 0, Error.SNAPSHOT_NOT_FOUND),
        ((0, 0), 0, Error.SNAPSHOT_NOT_FOUND),
        ((5, 2), 99, None),
    ],
)
def test_snapshot_pieces(name, position: int, error: Error | None) -> None:
    bench = with_snapshot()
    bench.hear(2, msg.FetchSnapshotRequest(5, 3, key(2), name, position, 10))
    if error is not None:
        assert bench.said(msg.FetchSnapshotResponse)[0].error is error
    else:
        [order] = bench.did(ev.SendSnapshotChunk)
        assert (order.to, order.position, order.bytes_max) == ("2", 99, 10)


@covers("SN-19", "SN-18", "SN-21")
def test_taking_snapshots() -> None:
    bench = a_leader()
    with pytest.raises(ValueError, match="above the high watermark"):
        bench.tell(ev.SnapshotTaken(bench.now, SnapshotId(*(9, 1)), 10))
    bench.tell(ev.SnapshotTaken(bench.now, SnapshotId(*(2, 1)), 10))
    assert bench.did(ev.TrimLog)[0].start.end_offset == 0
    bench.tell(ev.SnapshotTaken(bench.now, SnapshotId(*(2, 1)), 10))
    assert bench.did(ev.TrimLog) == [], "known already"
    bench.propose()
    bench.flush()
    bench.fetch(2, 3)
    bench.tell(ev.SnapshotTaken(bench.now, SnapshotId(*(3, 1)), 10))
    assert bench.did(ev.TrimLog)[0].start == SnapshotInfo(2, 1, voters(1, 2, 3), 10)


@covers("SN-24")
def test_a_leader_never_loads_a_snapshot() -> None:
    bench = with_snapshot()
    before = len([o for o in bench.everything if isinstance(o, ev.LoadSnapshot)])
    bench.flush()
    bench.fetch(2, bench.raft.log.end)
    bench.tell(ev.SnapshotTaken(bench.now, SnapshotId(*(8, 3)), 10))
    assert len([o for o in bench.everything if isinstance(o, ev.LoadSnapshot)]) == before == 1


@covers("OB-07", "OB-08", "OB-09")
def test_describe() -> None:
    bench = a_leader()
    assert Bench().raft.describe() is None
    bench.now += 100
    bench.fetch(9, 1)
    bench.propose()
    bench.now += 100
    bench.fetch(9, 2)
    seen = {line.key: line for line in bench.raft.describe().replicas}
    assert next(iter(seen)) == key(1)
    assert seen[key(9)].end_offset == 2
    assert seen[key(9)].caught_up_ms == bench.now - 100, (
        "it has what was there when it fetched then"
    )
    assert not seen[key(9)].votes
    bench.now += 60
    for minute in range(6):
        bench.now += 60_000 if minute else 0
        bench.raft.state.leadership.followers._check_due_ms = bench.now + 70_000  # voters go on
        bench.tell(ev.TimePassed(bench.now))
    assert key(9) not in {line.key for line in bench.raft.describe().replicas}
    assert key(2) in {line.key for line in bench.raft.describe().replicas}


def test_transfer_waits_until_the_successor_has_everything() -> None:
    bench = a_leader()
    bench.propose()
    bench.flush()
    bench.tell(ev.TransferRequested(bench.now, 6, key(3)))
    bench.propose(b"y", 2)
    assert bench.did(ev.AnswerProposal)[0].error is Error.NOT_LEADER_OR_FOLLOWER
    bench.fetch(2, 3)
    assert bench.role is Role.LEADER
    bench.fetch(3, 3)
    assert bench.role is Role.RESIGNED
    assert bench.said(msg.EndQuorumEpochRequest)[0].successors == (key(3), key(2))
    assert ev.AnswerChange(6, Error.NONE, None) in bench.orders


@pytest.mark.parametrize(
    ("to", "error"), [(key(1), Error.VOTER_NOT_FOUND), (key(9), Error.VOTER_NOT_FOUND)]
)
def test_transfer_to_nobody(to, error: Error) -> None:
    bench = a_leader()
    bench.tell(ev.TransferRequested(bench.now, 6, to))
    assert bench.did(ev.AnswerChange)[0].error is error


def test_transfer_gives_up_on_a_successor_that_stays_behind() -> None:
    bench = a_leader()
    bench.propose()
    bench.tell(ev.TransferRequested(bench.now, 6, key(3)))
    bench.after(1500)
    bench.fetch(2, 2)
    bench.after(1500)
    assert ev.AnswerChange(6, Error.REQUEST_TIMED_OUT) in bench.orders
    assert bench.role is Role.LEADER


# -- voters ---------------------------------------------------------------------------------------


def add(bench: Bench, voter, number: int = 4) -> list:
    return bench.tell(ev.VoterAddRequested(bench.now, number, voter))


def remove(bench: Bench, voter, number: int = 5) -> list:
    return bench.tell(ev.VoterRemoveRequested(bench.now, number, voter))


def answers(bench: Bench) -> list[tuple[int, Error]]:
    return [(order.change, order.error) for order in bench.did(ev.AnswerChange)]


@covers("RC-05", "RC-12")
@pytest.mark.parametrize("committed", [True, False])
def test_add_voter(committed: bool) -> None:
    bench = a_leader()
    bench.fetch(9, 2)
    add(bench, key(9))
    assert bench.raft.log.voters == voters(1, 2, 3, 9), "in force from the append on"
    bench.flush()
    bench.fetch(2, 3)
    assert answers(bench) == [], "two of four are no majority"
    if committed:
        bench.fetch(9, 3)
        assert answers(bench) == [(4, Error.NONE)]
    else:
        bench.after(2500)
        bench.fetch(2, 3)
        bench.fetch(3, 2)
        bench.after(2500)
        assert answers(bench) == [(4, Error.REQUEST_TIMED_OUT)]
        assert bench.raft.log.voters == voters(1, 2, 3, 9), "it may still come true"


@covers("RC-10")
@pytest.mark.parametrize("fetched", [None, 0], ids=["never heard", "lags"])
def test_a_newcomer_that_does_not_catch_up(fetched: int | None) -> None:
    bench = a_leader()
    add(bench, key(9))
    if fetched is not None:
        bench.fetch(9, 0, 0)
    for _ in range(2):
        bench.after(2500)
        bench.fetch(2, 2)
        timed_out = answers(bench)
    assert bench.raft.log.voters == voters(1, 2, 3)
    assert (4, Error.REQUEST_TIMED_OUT) in [
        (order.change, order.error)
        for order in bench.everything
        if isinstance(order, ev.AnswerChange)
    ], timed_out


def test_a_newcomer_may_catch_up_while_the_caller_waits() -> None:
    bench = a_leader()
    add(bench, key(9))
    assert bench.raft.log.voters == voters(1, 2, 3)
    bench.fetch(9, 0, 0)
    bench.fetch(9, 2)
    assert bench.raft.log.voters == voters(1, 2, 3, 9)


@covers("RC-06", "RC-09", "RC-15", "RC-16", "RV-07")
@pytest.mark.parametrize(
    ("act", "voter", "among", "error"),
    [
        (add, key(9, ""), (1, 2), Error.INVALID_REQUEST),
        (add, key(2), (1, 2), Error.DUPLICATE_VOTER),
        (add, key(2, "b"), (1, 2), Error.DUPLICATE_VOTER),
        (remove, key(9), (1, 2), Error.VOTER_NOT_FOUND),
        (remove, key(2, "b"), (1, 2), Error.VOTER_NOT_FOUND),
        (remove, key(1), (1,), Error.INVALID_REQUEST),
    ],
)
def test_refused_changes(act, voter, among, error: Error) -> None:
    bench = a_leader(among=among)
    act(bench, voter)
    assert [order.error for order in bench.did(ev.AnswerChange)] == [error]


@covers("RC-06")
def test_changes_go_to_the_leader() -> None:
    bench = Bench().following(2, 1)
    add(bench, key(9))
    assert bench.did(ev.AnswerChange) == [ev.AnswerChange(4, Error.NOT_LEADER_OR_FOLLOWER, "2")]


@covers("RC-07", "RC-18", "RC-28")
@pytest.mark.parametrize("first", [add, remove])
@pytest.mark.parametrize("second", [add, remove])
def test_one_change_at_a_time(first, second) -> None:
    bench = a_leader(among=(1, 2, 3, 4))
    bench.fetch(9, 2)
    first(bench, key(9) if first is add else key(4), 1)
    second(bench, key(8) if second is add else key(3), 2)
    assert answers(bench) == [(2, Error.REQUEST_TIMED_OUT)]
    sets = [
        e for e in bench.raft.log.read(2, bench.raft.log.end) if isinstance(e.payload, VoterSet)
    ]
    assert len(sets) == 1


@covers("RC-08")
@pytest.mark.parametrize("act", [add, remove])
def test_no_change_before_an_own_commit(act) -> None:
    bench = Bench(entries=log(1)).leader()
    act(bench, key(9) if act is add else key(2), 1)
    assert answers(bench) == [(1, Error.REQUEST_TIMED_OUT)]


@covers("RC-13")
@pytest.mark.parametrize("act", [add, remove])
def test_a_change_ends_with_the_leadership(act) -> None:
    bench = a_leader()
    act(bench, key(9) if act is add else key(2), 1)
    bench.begin(3, 7)
    assert bench.did(ev.AnswerChange) == [ev.AnswerChange(1, Error.NOT_LEADER_OR_FOLLOWER, "3")]


@covers("RC-14")
def test_remove_voter() -> None:
    bench = a_leader()
    remove(bench, key(3))
    assert bench.raft.log.voters == voters(1, 2)
    bench.flush()
    bench.fetch(2, 3)
    assert answers(bench) == [(5, Error.NONE)]


@covers("RV-07", "RC-27")
def test_a_replica_on_a_new_disk_inherits_no_acknowledgements() -> None:
    bench = a_leader()
    bench.propose()
    bench.flush()
    bench.fetch(key(2, "b"), 3)
    assert bench.mark == 2


@covers("RV-02")
def test_a_removed_voter_is_served_as_an_observer() -> None:
    bench = a_leader()
    remove(bench, key(3))
    answer = bench.fetch(3, 2)
    assert [entry.payload for entry in answer.entries] == [voters(1, 2)]


def test_a_removed_leader_may_stand_again_until_its_removal_is_committed() -> None:
    """Found by the simulation (seed 82): else nobody could ever win.

    It removed itself, holds entries that the remaining voter lacks, and lost its quorum: the other
    cannot win against its longer log, so it must be able to win without a vote of its own.
    """
    bench = a_leader(among=(1, 2))
    remove(bench, key(1))
    bench.propose()
    bench.flush()
    bench.at(bench.now + SETTINGS.check_ms)
    assert bench.role is Role.RESIGNED
    bench.prospective()
    assert [m.voter for m in bench.said(msg.VoteRequest)] == [key(2)]
    bench.answer_vote(2, granted=True)
    assert bench.role is Role.CANDIDATE
    bench.answer_vote(2, granted=True)
    assert bench.role is Role.LEADER
    bench.flush()
    bench.fetch(2, bench.raft.log.end)
    assert bench.role is Role.RESIGNED


@pytest.mark.parametrize(
    ("bytes_max", "count", "why"),
    [(30, 3, "all fit"), (29, 2, "the third would pass it"), (1, 1, "one comes in any case")],
)
def test_an_answer_has_a_size(bytes_max: int, count: int, why: str) -> None:
    bench = a_leader(settings=replace(SETTINGS, answer_bytes_max=bytes_max))
    for number in range(3):
        bench.tell(ev.Proposed(0, number, b"x" * 10))
    assert len(bench.fetch(2, 2, 1).entries) == count, why
