"""Elections, pre-votes, resignations, start and shutdown of one core, fact by fact."""

import pytest
from tests.unit.control.raft_bench import SETTINGS, Bench, key, log, voters
from tests.unit.control.scenarios import covers

from standpipe.control.raft import events as ev
from standpipe.control.raft import messages as msg
from standpipe.control.raft.core import Raft
from standpipe.control.raft.events import ElectionState, ElectionStateLost, Recovered
from standpipe.control.raft.log import LeaderChange, SnapshotInfo
from standpipe.control.raft.messages import Error, ProtocolViolation
from standpipe.control.raft.roles import IllegalTransition, Role
from standpipe.control.raft.timeouts import RaftSettings

ME, YOU = key(1), key(2)


def persisted(bench: Bench) -> list[ElectionState]:
    return [order.state for order in bench.everything if isinstance(order, ev.PersistElection)]


# -- the contract ---------------------------------------------------------------------------------


@covers("EL-03", "PE-01", "PV-01", "PV-03")
def test_the_vote_is_durable_before_it_is_asked_for() -> None:
    bench = Bench(among=(1, 2))
    assert bench.at(999) == []
    [pre] = bench.at(1000)
    assert pre.message == msg.VoteRequest(100, 0, ME, YOU, 0, 0, pre=True)
    assert persisted(bench) == [], "a pre-vote stores nothing"
    orders = bench.answer_vote(2, granted=True)
    assert orders[0] == ev.PersistElection(ElectionState(1, None, ME))
    assert orders[1] == ev.Send("2", msg.VoteRequest(101, 1, ME, YOU, 0, 0, pre=False))


@covers("EL-04", "EL-05", "EL-29", "RC-01")
@pytest.mark.parametrize("among", [(1, 2), (1, 2, 3)])
def test_elected(among) -> None:
    bench = Bench(among=among).candidate()
    orders = bench.answer_vote(2, granted=True)
    assert bench.role is Role.LEADER
    assert orders[0] == ev.PersistElection(ElectionState(1, "1", ME))
    change, sets = orders[1].entries
    assert change.payload == LeaderChange("1", voters(*among), (ME, YOU))
    assert sets.payload == voters(*among), "the first leader records the bootstrap set"
    assert [m.voter for m in bench.said(msg.BeginQuorumEpochRequest)] == [
        key(node) for node in among if node != 1
    ]


@covers("EL-01", "PV-24", "RO-11", "ZL-05")
def test_a_sole_voter_leads_at_once() -> None:
    bench = Bench(among=(1,))
    assert bench.role is Role.LEADER
    assert bench.raft.epoch == 1
    assert bench.said(object) == []
    assert bench.did(ev.AppendLog)[0].entries[0].offset == 0
    assert bench.mark == 0, "its own entries count when they are flushed, not before"
    bench.flush()
    assert bench.mark == bench.raft.log.end
    bench.at(1_000_000)
    assert bench.role is Role.LEADER
    bench.read(5)
    assert bench.did(ev.AnswerRead) == [ev.AnswerRead(5, Error.NONE, bench.mark)]


@covers("EL-02")
def test_a_sole_voter_leads_again_in_the_next_epoch() -> None:
    bench = Bench(among=(1,), entries=log(4), election=ElectionState(4, "1", ME))
    assert (bench.role, bench.raft.epoch) == (Role.LEADER, 5)


# -- asking for votes -----------------------------------------------------------------------------


@covers("EL-06")
def test_a_lost_election_backs_off_and_asks_again() -> None:
    bench = Bench(among=(1, 2)).candidate()
    bench.answer_vote(2, granted=False)
    assert bench.role is Role.CANDIDATE
    assert bench.raft.state.election.voted == ME
    assert bench.raft.deadline_ms() - bench.now <= SETTINGS.backoff_ms_max
    bench.prospective()
    assert bench.raft.epoch == 1, "the next epoch is invented only after new pre-votes"
    bench.answer_vote(2, granted=True)
    assert (bench.role, bench.raft.epoch) == (Role.CANDIDATE, 2)


@covers("EL-07")
def test_one_refusal_of_two_does_not_decide() -> None:
    bench = Bench().candidate()
    bench.answer_vote(2, granted=False)
    assert bench.role is Role.CANDIDATE
    bench.answer_vote(3, granted=True)
    assert bench.role is Role.LEADER


@covers("EL-08")
def test_an_election_without_an_end_is_given_up() -> None:
    bench = Bench().candidate()
    bench.after(SETTINGS.election_ms)
    assert bench.role is Role.CANDIDATE
    bench.after(SETTINGS.backoff_ms_max)
    assert bench.role is Role.PROSPECTIVE


@covers("EL-12")
def test_nobody_leads_without_having_asked() -> None:
    with pytest.raises(IllegalTransition):
        Bench().raft._lead(())


@covers("EL-25", "VA-08", "FD-25", "PV-10")
@pytest.mark.parametrize("pre", [True, False])
def test_a_request_is_repeated_and_its_late_answer_ignored(pre: bool) -> None:
    settings = RaftSettings(election_ms=5000, request_ms=400)
    bench = Bench(settings=settings)
    bench = bench.prospective() if pre else bench.candidate()
    first = bench.requests[msg.VoteRequest, "3"]
    bench.after(400)
    assert bench.requests[msg.VoteRequest, "3"] != first
    role = bench.role
    bench.answer_vote(3, granted=True, request=first)
    assert bench.role is role
    bench.answer_vote(3, granted=True)
    assert bench.role is not role


@covers("EL-26", "PV-08")
@pytest.mark.parametrize("pre", [True, False])
def test_a_leader_that_speaks_ends_the_election(pre: bool) -> None:
    bench = Bench().prospective() if pre else Bench().candidate()
    epoch, asked = bench.raft.epoch, bench.requests[msg.VoteRequest, "3"]
    bench.begin(2, epoch)
    assert bench.role is Role.FOLLOWER
    bench.answer_vote(3, granted=True, request=asked, epoch=epoch)
    assert bench.role is Role.FOLLOWER


@covers("EL-27", "PV-07")
@pytest.mark.parametrize(("leader", "role"), [(None, Role.UNATTACHED), ("3", Role.FOLLOWER)])
@pytest.mark.parametrize("pre", [True, False])
def test_an_answer_of_a_higher_epoch(leader: str | None, role: Role, pre: bool) -> None:
    bench = Bench().prospective() if pre else Bench().candidate()
    bench.answer_vote(2, granted=False, epoch=9, leader=leader, error=Error.FENCED_LEADER_EPOCH)
    assert (bench.role, bench.raft.epoch, bench.raft.known_leader) == (role, 9, leader)
    assert persisted(bench)[-1] == ElectionState(9, leader)


# -- giving votes ---------------------------------------------------------------------------------


@covers("EL-13", "EL-16", "EL-15", "EL-17")
def test_one_vote_per_epoch_and_replica() -> None:
    bench = Bench(election=ElectionState(3))
    assert bench.vote(YOU, 3).granted
    assert isinstance(bench.orders[0], ev.PersistElection)
    assert bench.vote(YOU, 3).granted, "again the same one"
    assert bench.did(ev.PersistElection) == []
    assert not bench.vote(key(3), 3).granted
    assert not bench.vote(key(2, "b"), 3).granted, "another disk is another replica"
    assert bench.raft.state.election.voted == YOU


@covers("EL-14")
def test_an_epoch_with_a_leader_gives_no_votes() -> None:
    bench = Bench().following(2, 3, fetched=True)
    answer = bench.vote(key(3), 3)
    assert not answer.granted
    assert answer.leader == "2"


@covers("EL-18", "PV-20")
@pytest.mark.parametrize("pre", [True, False])
def test_an_older_epoch_is_fenced(pre: bool) -> None:
    bench = Bench().following(2, 3, fetched=True)
    answer = bench.vote(key(3), 2, pre=pre)
    assert (answer.error, answer.epoch, answer.leader) == (Error.FENCED_LEADER_EPOCH, 3, "2")
    assert bench.role is Role.FOLLOWER


@covers("EL-19")
def test_a_higher_epoch_is_entered_before_voting() -> None:
    bench = Bench().following(2, 3)
    answer = bench.vote(key(3), 5)
    assert (answer.granted, answer.epoch) == (True, 5)
    assert bench.raft.state.election == ElectionState(5, None, key(3))


@covers("EL-20", "ZL-09", "HW-19")
def test_a_leader_gives_way_to_a_higher_epoch_even_if_it_does_not_vote_for_it() -> None:
    bench = Bench(entries=log(1, 1)).leader(committed=True)
    bench.propose(b"x", 7)
    bench.fetch(2, bench.raft.log.end)
    answer = bench.vote(key(3), 9, last=1, end=1)
    assert not answer.granted
    assert (bench.role, bench.raft.epoch) == (Role.UNATTACHED, 9)
    failed = [order for order in bench.did(ev.AnswerProposal) if order.proposal == 7]
    assert failed[0].error is Error.NOT_LEADER_OR_FOLLOWER
    assert failed[0].offset is not None, "it was appended: the outcome is unknown"


@covers("EL-21", "PV-14", "VA-05")
@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize("who", [key(2), key(9)], ids=["voter", "stranger"])
def test_a_leader_refuses_votes_of_its_epoch(pre: bool, who) -> None:
    bench = Bench().leader()
    assert not bench.vote(who, 1, pre=pre, last=0, end=99).granted
    assert bench.role is Role.LEADER


@covers("EL-22", "PV-15")
@pytest.mark.parametrize("pre", [True, False])
def test_a_candidate_has_given_its_vote_but_would_have_given_another(pre: bool) -> None:
    bench = Bench().candidate()
    assert bench.vote(YOU, 1, pre=pre).granted is pre
    assert bench.role is Role.CANDIDATE
    assert bench.raft.state.election.voted == ME


@covers("EL-24", "PV-22")
@pytest.mark.parametrize(
    ("pre", "last", "end", "why"),
    [
        (False, 0, -1, "negative offset"),
        (False, -1, 0, "negative epoch"),
        (False, 7, 5, "the candidate's own epoch cannot be in its log yet"),
        (True, 8, 5, "a log from the future"),
        (True, 0, -1, "negative offset"),
    ],
)
def test_malformed_vote_requests_move_nobody(pre: bool, last: int, end: int, why: str) -> None:
    bench = Bench()
    assert bench.vote(YOU, 7, pre=pre, last=last, end=end).error is Error.INVALID_REQUEST, why
    assert bench.raft.epoch == 0


def test_a_pre_vote_may_have_its_own_epoch_in_its_log() -> None:
    assert Bench().vote(YOU, 7, pre=True, last=7, end=5).granted


@covers("EL-28")
@pytest.mark.parametrize("leader", [2, 3])
def test_who_was_voted_for_need_not_win(leader: int) -> None:
    bench = Bench()
    bench.vote(YOU, 1)
    bench.begin(leader, 1)
    assert bench.role is Role.FOLLOWER
    assert bench.raft.state.election == ElectionState(1, str(leader), YOU)
    assert bench.did(ev.PersistElection) != []


@covers("EL-33", "PV-18", "RV-05")
@pytest.mark.parametrize("pre", [True, False])
def test_an_observer_votes_for_it_may_be_a_voter_unawares(pre: bool) -> None:
    bench = Bench(me=4)
    assert bench.role is Role.OBSERVER
    assert bench.vote(key(9), 3, pre=pre).granted
    assert bench.role is Role.OBSERVER
    assert bench.raft.state.election.voted == (None if pre else key(9))


@covers("EL-32", "OB-03")
def test_an_observer_never_asks_for_votes() -> None:
    bench = Bench(me=4)
    bench.at(60_000)
    kinds = {type(order.message) for order in bench.everything if isinstance(order, ev.Send)}
    assert kinds == {msg.FetchRequest}
    assert bench.role is Role.OBSERVER


@covers("EL-34")
@pytest.mark.parametrize(
    "was", [ElectionState(4, "1", ME), ElectionState(4, None, ME)], ids=["led", "stood"]
)
def test_its_vote_of_that_epoch_was_its_own(was: ElectionState) -> None:
    bench = Bench(election=was)
    assert not bench.vote(YOU, 4, last=1, end=99).granted


@covers("EL-35")
def test_a_leader_that_shuts_down_still_votes() -> None:
    bench = Bench().leader(committed=True)
    bench.tell(ev.ShutdownRequested(bench.now))
    assert bench.role is Role.RESIGNED
    assert bench.vote(YOU, 2, last=1, end=99).granted


@covers("EL-36")
def test_a_candidate_that_shuts_down_sees_its_election_through() -> None:
    bench = Bench().candidate()
    bench.tell(ev.ShutdownRequested(bench.now))
    assert bench.did(ev.Stop) == []
    bench.answer_vote(2, granted=True)
    assert bench.role is Role.RESIGNED, "won, and handed on at once"
    assert bench.said(msg.EndQuorumEpochRequest) != []


@covers("VA-03")
@pytest.mark.parametrize("wrong", [key(3), key(1, "b")], ids=["node", "disk"])
@pytest.mark.parametrize("pre", [True, False])
def test_a_vote_asked_of_another_replica_is_not_even_read(wrong, pre: bool) -> None:
    bench = Bench()
    assert bench.vote(YOU, 9, voter=wrong, pre=pre).error is Error.INVALID_VOTER_KEY
    assert bench.raft.epoch == 0


@covers("VA-01", "VA-02", "PV-23")
@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        (None, Error.NONE),
        ("c", Error.NONE),
        ("", Error.INCONSISTENT_CLUSTER_ID),
        ("d", Error.INCONSISTENT_CLUSTER_ID),
    ],
)
@pytest.mark.parametrize("pre", [True, False])
def test_cluster(cluster: str | None, error: Error, pre: bool) -> None:
    bench = Bench()
    bench.hear(2, msg.VoteRequest(7, 3, YOU, ME, 0, 0, pre), cluster)
    [answer] = bench.said(msg.VoteResponse)
    assert answer.error is error
    assert bench.raft.epoch == (3 if error is Error.NONE else 0)


# -- pre-votes ------------------------------------------------------------------------------------


@covers("PV-02", "TO-01", "PV-05")
def test_a_follower_that_hears_nothing_asks_and_returns() -> None:
    bench = Bench().following(2, 3)
    before = len(persisted(bench))
    bench.at(1999)
    assert bench.role is Role.FOLLOWER
    bench.prospective()
    assert bench.raft.state.leader == "2"
    for sender in (2, 3):
        bench.answer_vote(sender, granted=False)
    assert (bench.role, bench.raft.known_leader) == (Role.FOLLOWER, "2")
    bench.prospective()
    bench.after(SETTINGS.election_ms)
    assert bench.role is Role.FOLLOWER, "nor does silence cost it its leader"
    assert len(persisted(bench)) == before


@covers("PV-04", "PV-29", "PV-31")
@pytest.mark.parametrize("answered", [True, False])
def test_pre_votes_are_repeated_for_ever_without_an_epoch(answered: bool) -> None:
    bench = Bench(election=ElectionState(6))
    for _ in range(50):
        bench.prospective()
        if answered:
            bench.answer_vote(2, granted=False)
            bench.answer_vote(3, granted=False)
        else:
            bench.after(SETTINGS.election_ms)
        assert (bench.role, bench.raft.epoch) == (Role.UNATTACHED, 6)
    assert persisted(bench) == []


@covers("PV-06")
@pytest.mark.parametrize("granted", [True, False])
def test_an_answer_that_names_the_leader_ends_the_asking(granted: bool) -> None:
    bench = Bench(election=ElectionState(6)).prospective()
    bench.answer_vote(3, granted=granted, leader="2")
    assert (bench.role, bench.raft.known_leader) == (Role.FOLLOWER, "2")


@covers("PV-12", "PV-13", "RV-01")
def test_a_follower_vouches_for_its_leader_once_it_has_fetched() -> None:
    bench = Bench().following(2, 3)
    hearsay = bench.vote(key(3), 3, pre=True)
    assert (hearsay.granted, hearsay.leader) == (True, None)
    bench.answer_fetch(2)
    witness = bench.vote(key(3), 3, pre=True)
    assert (witness.granted, witness.leader) == (False, "2")
    assert bench.did(ev.PersistElection) == []


@covers("PV-16")
@pytest.mark.parametrize("voted", [None, key(3)])
def test_pre_votes_are_free(voted) -> None:
    bench = Bench(election=ElectionState(3, None, voted))
    assert bench.vote(key(2), 3, pre=True).granted
    assert bench.vote(key(3), 3, pre=True).granted
    assert bench.raft.state.election == ElectionState(3, None, voted)
    assert persisted(bench) == []


@covers("PV-17")
def test_a_resigned_leader_names_itself_and_grants() -> None:
    bench = Bench(election=ElectionState(4, "1", ME))
    answer = bench.vote(YOU, 4, pre=True)
    assert (answer.granted, answer.leader) == (True, "1")


@covers("PV-19")
@pytest.mark.parametrize("good", [True, False])
def test_a_pre_vote_of_a_higher_epoch_is_learned_from(good: bool) -> None:
    bench = Bench(entries=log(2, 2, 2)).following(2, 3, fetched=True)
    answer = bench.vote(key(3), 5, pre=True, last=2, end=3 if good else 2)
    assert (answer.granted, bench.role, bench.raft.epoch) == (good, Role.UNATTACHED, 5)
    assert bench.raft.state.election.voted is None


@covers("PV-21")
def test_a_pre_vote_needs_a_good_log() -> None:
    bench = Bench(entries=log(2, 2, 2))
    assert not bench.vote(YOU, 3, pre=True, last=2, end=2).granted
    assert bench.vote(YOU, 3, pre=True, last=2, end=3).granted


@covers("PV-30")
def test_a_real_election_deposes_a_leader_that_came_back() -> None:
    bench = Bench().following(2, 3, fetched=True)
    assert bench.vote(key(3), 4).granted


# -- resigning ------------------------------------------------------------------------------------


@covers("ZL-01", "ZL-02", "ZL-06", "HW-16", "TO-09")
def test_a_leader_without_a_majority_gives_up() -> None:
    bench = Bench().leader(committed=True)
    began = bench.now
    bench.at(began + 2000)
    asked = msg.FetchSnapshotRequest(1, 1, key(2), (4, 1), 0, 10)
    bench.hear(2, asked)
    bench.at(began + 4999)
    assert bench.role is Role.LEADER, "a voter that downloads follows, too"
    bench.fetch(key(9), 0)
    bench.at(began + 5000)
    assert (bench.role, bench.raft.epoch) == (Role.RESIGNED, 1)
    bench.propose(b"x", 3)
    assert bench.did(ev.AnswerProposal)[0].error is Error.NOT_LEADER_OR_FOLLOWER


@covers("ZL-03", "ZL-04")
def test_check_quorum_of_five_needs_two_others() -> None:
    bench = Bench(among=(1, 2, 3, 4, 5)).leader(committed=True)
    began = bench.now
    for ms in (1000, 2000, 2900):
        bench.at(began + ms)
        bench.fetch(2, bench.raft.log.end)
    bench.fetch(3, bench.raft.log.end)
    bench.at(began + 2900 + 2999)
    assert bench.role is Role.LEADER
    bench.fetch(2, bench.raft.log.end)
    bench.at(began + 2900 + 3000)
    assert bench.role is Role.RESIGNED, "one of them alone is not enough"


@covers("TO-09", "ZL-01")
def test_a_leader_that_was_stopped_knows_it_before_it_answers() -> None:
    bench = Bench().leader(committed=True)
    bench.now += 10_000
    assert bench.fetch(2, bench.raft.log.end).error is Error.NOT_LEADER_OR_FOLLOWER
    bench.read(4)
    bench.propose(b"late", 5)
    assert bench.role is Role.RESIGNED
    assert bench.did(ev.AnswerProposal)[0].error is Error.NOT_LEADER_OR_FOLLOWER


@covers("ZL-11")
def test_end_quorum_is_repeated_to_those_who_did_not_answer() -> None:
    bench = Bench(settings=RaftSettings(election_ms=5000, request_ms=400))
    bench.leader(committed=True)
    bench.tell(ev.ResignRequested(bench.now, 1))
    number = bench.requests[msg.EndQuorumEpochRequest, "2"]
    bench.hear(2, msg.QuorumEpochResponse(number, Error.NONE, 1, None))
    bench.after(400)
    again = [order.to for order in bench.orders if isinstance(order, ev.Send)]
    assert again == ["3"]


@covers("ZL-12", "ZL-17", "FD-19", "RO-12", "ZL-13")
def test_a_resigned_leader_answers_nothing_more() -> None:
    bench = Bench().leader(committed=True)
    assert bench.fetch(2, bench.raft.log.end, mark=bench.mark) is None
    bench.hear(3, msg.ReadOffsetRequest(77, 1))
    bench.fetch(2, bench.raft.log.end, mark=bench.mark, round_=1)
    bench.tell(ev.ResignRequested(bench.now, 1))
    refused = [m for m in bench.said(msg.FetchResponse) if m.error is not Error.NONE]
    assert {m.error for m in refused} <= {Error.NOT_LEADER_OR_FOLLOWER}
    assert bench.fetch(3, bench.raft.log.end).error is Error.NOT_LEADER_OR_FOLLOWER
    bench.prospective()
    assert bench.raft.epoch == 1


@covers("ZL-15", "ZL-16")
def test_resigning_from_another_epoch() -> None:
    bench = Bench().leader()
    bench.tell(ev.ResignRequested(bench.now, 0))
    assert bench.role is Role.LEADER
    with pytest.raises(ValueError, match="cannot resign"):
        bench.tell(ev.ResignRequested(bench.now, 2))
    for other in (Bench().following(2, 1), Bench(me=4)):
        with pytest.raises(ValueError, match="cannot resign"):
            other.tell(ev.ResignRequested(0, other.raft.epoch))


@covers("ZL-18")
def test_a_resigned_leader_follows_the_next() -> None:
    bench = Bench(election=ElectionState(4, "1", ME))
    bench.begin(2, 5)
    assert bench.role is Role.FOLLOWER
    assert ev.AnnounceLeader(5, "2") in bench.orders


@covers("ZL-19")
def test_successors_are_named_by_how_much_they_hold() -> None:
    bench = Bench(among=(1, 2, 3, 4), entries=log(1, 1)).leader()
    bench.fetch(2, 1)
    bench.fetch(4, 2)
    bench.tell(ev.ResignRequested(bench.now, bench.raft.epoch))
    asked = bench.said(msg.EndQuorumEpochRequest)
    assert asked[0].successors == (key(4), key(2), key(3))
    assert len(asked) == 3


@covers("ZL-20", "ZL-22")
@pytest.mark.parametrize("follows", [True, False])
def test_the_first_successor_stands_at_once(follows: bool) -> None:
    bench = Bench(election=ElectionState(3))
    if follows:
        bench.following(2, 3, fetched=True)
    bench.end(2, 3, 1, 3)
    assert (bench.role, bench.raft.epoch) == (Role.CANDIDATE, 4)
    assert [m.pre for m in bench.said(msg.VoteRequest)] == [False, False]


@covers("ZL-21")
def test_later_successors_wait_the_longer_the_later() -> None:
    waits = []
    for rank in (1, 2, 3):
        bench = Bench(among=(1, 2, 3, 4, 5)).following(2, 3, fetched=True)
        order = [3, 4, 5]
        order.insert(rank, 1)
        bench.end(2, 3, *order)
        assert bench.role is Role.UNATTACHED
        waits.append(bench.raft.deadline_ms() - bench.now)
        assert bench.vote(key(3), 3, pre=True).granted, "it vouches for that leader no longer"
    assert waits == sorted(set(waits))
    assert waits[-1] <= SETTINGS.backoff_ms_max


@covers("ZL-23")
@pytest.mark.parametrize("make", [Bench.candidate, Bench.leader])
def test_an_old_end_quorum_is_fenced(make) -> None:
    bench = make(Bench(election=ElectionState(3)))
    role = bench.role
    bench.end(2, 3, 1)
    assert bench.said(msg.QuorumEpochResponse)[0].error is Error.FENCED_LEADER_EPOCH
    assert bench.role is role


@covers("ZL-24")
@pytest.mark.parametrize("announced", [True, False])
def test_a_leader_stops_when_another_leads(announced: bool) -> None:
    bench = Bench().leader(committed=True)
    bench.tell(ev.ShutdownRequested(bench.now))
    if announced:
        bench.begin(2, 2)
        assert ev.Stop(clean=True) in bench.orders
    else:
        bench.after(SETTINGS.change_ms)
        assert ev.Stop(clean=False) in bench.orders


@covers("ZL-25", "OB-11")
@pytest.mark.parametrize(
    "bench", [Bench().following(2, 1), Bench(me=4), Bench(among=(1,))], ids=["f", "o", "sole"]
)
def test_others_stop_at_once(bench: Bench) -> None:
    bench.tell(ev.ShutdownRequested(bench.now))
    assert bench.did(ev.Stop) == [ev.Stop(clean=True)]


# -- start ----------------------------------------------------------------------------------------


@covers("PE-02", "PE-05", "PE-06", "PE-07", "PE-08")
@pytest.mark.parametrize(
    ("found", "role", "why"),
    [
        (None, Role.UNATTACHED, "nothing found: epoch 0"),
        (ElectionState(4, "1", ME), Role.RESIGNED, "it led, and may have lost what it appended"),
        (ElectionState(4, None, ME), Role.CANDIDATE, "its election goes on"),
        (ElectionState(4, None, YOU), Role.UNATTACHED, "its vote is given"),
        (ElectionState(4, "2", YOU), Role.FOLLOWER, "its leader may still lead"),
    ],
)
def test_start(found: ElectionState | None, role: Role, why: str) -> None:
    bench = Bench(election=found)
    assert bench.role is role, why
    assert bench.raft.epoch == (found.epoch if found else 0)
    if role is Role.CANDIDATE:
        assert [m.epoch for m in bench.said(msg.VoteRequest)] == [4, 4]
    if role is Role.FOLLOWER:
        assert bench.raft.state.timer_ms == SETTINGS.fetch_ms


@covers("PE-03")
def test_a_lost_election_file_keeps_the_replica_down() -> None:
    start = SnapshotInfo(0, 0, voters(1, 2, 3))
    with pytest.raises(ElectionStateLost):
        Raft(
            ME,
            Recovered(None, start, start, log(1)),
            SETTINGS,
            cluster="c",
            draw=lambda: 0.0,
            first_request=0,
        )


@covers("PE-04")
def test_an_election_file_older_than_the_log_gives_no_vote_in_the_logs_epoch() -> None:
    bench = Bench(entries=log(1, 4), election=ElectionState(2, None, YOU))
    assert bench.raft.epoch == 4
    assert not bench.vote(YOU, 4, last=3, end=99).granted
    assert bench.vote(YOU, 5, last=4, end=2).granted


@covers("PE-14")
def test_an_epoch_never_falls() -> None:
    bench = Bench(election=ElectionState(4))
    with pytest.raises(AssertionError, match="never goes back"):
        bench.raft.state.remember(ElectionState(3))


@covers("PE-15", "PE-16")
def test_learning_an_epoch_keeps_the_time_that_runs_and_voting_does_not() -> None:
    bench = Bench(entries=log(1, 1))
    bench.at(600)
    bench.vote(YOU, 5, last=1, end=1)
    assert bench.raft.epoch == 5
    assert bench.raft.deadline_ms() == 1000
    bench.vote(YOU, 6, last=1, end=2)
    assert bench.raft.deadline_ms() == 1600


@covers("PE-17", "VA-07")
def test_two_leaders_of_one_epoch_end_the_process() -> None:
    bench = Bench().following(2, 3)
    with pytest.raises(ProtocolViolation, match="two leaders"):
        bench.begin(3, 3)


@covers("PE-18", "VA-06")
def test_nobody_is_told_that_it_leads() -> None:
    bench = Bench(election=ElectionState(3)).prospective()
    bench.answer_vote(2, granted=True, leader="1")
    assert bench.role is Role.PROSPECTIVE
    bench.begin(1, 3)
    assert bench.said(msg.QuorumEpochResponse)[0].error is Error.INVALID_REQUEST
    assert bench.role is Role.PROSPECTIVE


@covers("VA-04")
def test_a_leader_is_learned_even_from_a_message_to_a_former_disk() -> None:
    bench = Bench(me=4)
    bench.begin(2, 3, voter=key(4, "old"))
    assert bench.said(msg.QuorumEpochResponse)[0].error is Error.INVALID_VOTER_KEY
    assert bench.raft.known_leader == "2"


@covers("PE-19")
def test_nothing_is_sent_in_the_same_breath_as_a_vote_before_it() -> None:
    """A driver whose disk fails stops at the first order, so the grant below it never leaves."""
    bench = Bench()
    bench.vote(YOU, 1)
    kinds = [type(order) for order in bench.orders]
    assert kinds.index(ev.PersistElection) < kinds.index(ev.Send)


# -- time -----------------------------------------------------------------------------------------


@covers("TO-03")
@pytest.mark.parametrize(("jitter", "due"), [(0.0, 1000), (0.5, 1500), (0.999, 1999)])
def test_election_time_out(jitter: float, due: int) -> None:
    assert Bench(jitter=jitter).raft.deadline_ms() == due


@covers("TO-01")
@pytest.mark.parametrize(("jitter", "due"), [(0.0, 2000), (0.5, 2250), (0.999, 2499)])
def test_followers_that_were_answered_together_do_not_give_up_together(
    jitter: float, due: int
) -> None:
    """Found by a transcript: equal time-outs made both followers of a dead leader candidates."""
    assert Bench(jitter=jitter).following(2, 1).raft.state.timer_ms == due
    assert due < SETTINGS.check_ms


@covers("TO-04")
def test_back_off_doubles_up_to_its_bound() -> None:
    bench = Bench(among=(1, 2), jitter=0.999)
    waits = []
    for _ in range(6):
        bench.candidate()
        bench.answer_vote(2, granted=False)
        waits.append(bench.raft.deadline_ms() - bench.now)
    bounds = [100, 200, 400, 800, 1000, 1000]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))


@covers("TO-06")
@pytest.mark.parametrize("me", [1, 4], ids=["voter", "observer"])
def test_it_sleeps_between_timers(me: int) -> None:
    bench = Bench(me=me)
    bench.at(20_000)  # `at` itself fails when a timer fires without moving on
    assert bench.raft.deadline_ms() > bench.now


@covers("TO-08")
def test_a_clock_that_goes_back_is_not_believed() -> None:
    bench = Bench().following(2, 1)
    bench.at(1000)
    bench.tell(ev.TimePassed(10))
    assert bench.raft.now_ms == 1000
    assert bench.role is Role.FOLLOWER


@covers("LI-01", "HW-01", "HW-20")
def test_leading_begins_when_everything_before_is_applied() -> None:
    bench = Bench(entries=log(1, 1, 1)).leader()
    assert bench.did(ev.BeginLeading) == []
    bench.flush()
    bench.fetch(2, 3)
    assert bench.mark == 0, "entries of older epochs are not committed by counting"
    bench.fetch(2, bench.raft.log.end)
    [applied] = bench.did(ev.ApplyCommitted)
    assert [entry.offset for entry in applied.entries] == list(range(bench.raft.log.end))
    kinds = [type(order) for order in bench.orders]
    assert kinds.index(ev.ApplyCommitted) < kinds.index(ev.BeginLeading)
