"""Lag reports, from the sender's replicas to the receiver's ledger. Sources: KLIP-12 "Lag
reporting", KIP-535 LagInfo, ksql#4833, ksql#4472."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.liveness.lag import (
    DELTA_BYTES_MAX,
    Ledger,
    Reporter,
    digest_of,
    known_lag_ms,
    offset_lag,
)
from standpipe.model import BatchId, NodeId, Offset, ReplicaState
from standpipe.model_liveness import LagDelta, ReplicaLag

A, B = NodeId("a"), NodeId("b")
RUNNING, ABSENT = ReplicaState.RUNNING, ReplicaState.ABSENT


def lag(partition: int = 0, position: int = 10, end: int = 10, **changes: object) -> ReplicaLag:
    made = ReplicaLag(
        table_id="T1",
        generation=1,
        partition=partition,
        position=Offset(position),
        committed_end=Offset(end),
        state=RUNNING,
        batch=BatchId(1),
    )
    return msgspec.structs.replace(made, **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("ends", "position", "expected", "why"),
    [
        ([123000], 123000, 0, "ksqlDB's example, its active"),
        ([107000], 100000, 7000, "ksqlDB's example, its standby"),
        ([90, 100, 95], 90, 10, "KLIP-12: against the maximum over all reports"),
        ([5], 7, 0, "a report that is behind the replica: not negative"),
        ([-1, -1], 7, None, "nobody knows an end: unknown is not 0"),
        ([], 0, None, "nobody reported"),
        ([-1, 0], 0, 0, "nothing is committed, and that is known"),
    ],
)
def test_offset_lag(ends: list[int], position: int, expected: int | None, why: str) -> None:
    assert offset_lag(map(Offset, ends), Offset(position)) == expected, why


def ledger(**incarnations: str) -> Ledger:
    made = Ledger()
    made.members({NodeId(node): name for node, name in incarnations.items()})
    return made


def test_a_change_goes_with_the_next_beat_and_only_once() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    assert sender.observe([lag(0), lag(1)])
    first = sender.delta(0)
    assert [one.partition for one in first.changes] == [0, 1], "at once, not after an interval"
    have = receiver.take(A, "x", first, at_ms=100)
    assert have == first.through
    assert sender.delta(have).changes == ()
    assert not sender.observe([lag(0, replica_lag_ms=5), lag(1)]), "time alone is no change"
    assert sender.observe([lag(0), lag(1, position=9)])
    assert [one.partition for one in sender.delta(have).changes] == [1]


def test_a_lag_is_as_old_as_the_last_beat_that_covered_it() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag()])
    have = receiver.take(A, "x", sender.delta(0), at_ms=100) or 0
    assert [one.at_boot_ms for one in receiver.known()] == [100]
    receiver.take(A, "x", sender.delta(have), at_ms=900)
    assert [one.at_boot_ms for one in receiver.known()] == [900]


@pytest.mark.parametrize(
    ("told_ms", "beat_ms", "now_ms", "expected", "why"),
    [
        (40, None, 100, 40, "just told"),
        (40, None, 4500, 4440, "nothing came since"),
        (40, 4400, 4500, 4440, "beats say that nothing changed, and time is no change"),
        (None, 4400, 4500, None, "it never was at its end"),
    ],
)
def test_a_lag_in_ms_grows_between_reports(
    told_ms: int | None, beat_ms: int | None, now_ms: int, expected: int | None, why: str
) -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(replica_lag_ms=told_ms)])
    have = receiver.take(A, "x", sender.delta(0), at_ms=100) or 0
    if beat_ms is not None:
        sender.observe([lag(replica_lag_ms=told_ms and told_ms + beat_ms - 100)])
        receiver.take(A, "x", sender.delta(have), at_ms=beat_ms)
    (known,) = receiver.known()
    assert known_lag_ms(known, now_ms) == expected, why


def test_a_full_report_tells_the_lag_in_ms_anew() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(replica_lag_ms=40)])
    receiver.take(A, "x", sender.full(), at_ms=100)
    sender.observe([lag(replica_lag_ms=50)])
    receiver.take(A, "x", sender.full(), at_ms=5100)
    (known,) = receiver.known()
    assert known_lag_ms(known, 5200) == 150, "not as if it had stood still"


def test_what_does_not_fit_goes_with_later_beats() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    everything = [lag(partition) for partition in range(200)]
    sender.observe(everything)
    have, beats = 0, 0
    while True:
        delta = sender.delta(have)
        assert len(msgspec.json.encode(delta)) < 1024
        have = receiver.take(A, "x", delta, at_ms=beats) or 0
        beats += 1
        if delta.digest is not None:
            break
        assert all(one.at_boot_ms == 0 or one.at_boot_ms < beats for one in receiver.known())
    assert 200 * 30 / DELTA_BYTES_MAX < beats < 20
    assert sorted(one.lag.partition for one in receiver.known()) == list(range(200))


def test_a_lag_larger_than_a_beat_still_goes() -> None:
    sender = Reporter(session=1)
    sender.observe([lag(table_id="T" * 2000), lag(1)])
    assert len(sender.delta(0).changes) == 1


@pytest.mark.parametrize(
    ("incarnation", "session", "heard", "why"),
    [
        ("x", 2, True, "the living"),
        ("x", 3, True, "restarted: a new session"),
        ("x", 1, False, "a beat of the process before, on the way for long"),
        ("old", 9, False, "another data directory under the same name"),
    ],
)
def test_the_dead_cannot_poison(incarnation: str, session: int, heard: bool, why: str) -> None:
    receiver = ledger(a="x")
    living = Reporter(session=2)
    living.observe([lag()])
    receiver.take(A, "x", living.delta(0), at_ms=1)
    other = Reporter(session=session)
    other.observe([lag(position=99, end=99)])
    answer = receiver.take(A, incarnation, other.full(), at_ms=2)
    assert (answer is not None) is heard, why
    assert (receiver.known()[0].lag.position == 99) is heard, why


def test_strangers_and_those_who_left_are_forgotten() -> None:
    receiver = ledger(a="x", b="y")
    sender = Reporter(session=1)
    sender.observe([lag()])
    assert receiver.take(NodeId("c"), "z", sender.full(), at_ms=1) is None
    receiver.take(A, "x", sender.full(), at_ms=1)
    receiver.take(B, "y", sender.full(), at_ms=1)
    receiver.members({A: "x2", B: "y"})
    assert [one.node_id for one in receiver.known()] == [B], "a came back with another directory"


def test_a_receiver_that_restarted_asks_for_everything() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(0), lag(1)])
    have = ledger(a="x").take(A, "x", sender.delta(0), at_ms=1) or 0
    sender.observe([lag(0), lag(1, position=5)])
    assert receiver.take(A, "x", sender.delta(have), at_ms=2) == 0
    assert receiver.known() == []
    receiver.take(A, "x", sender.delta(0), at_ms=3)
    assert len(receiver.known()) == 2


def test_a_digest_that_differs_asks_for_everything() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(0), lag(1)])
    have = receiver.take(A, "x", sender.delta(0), at_ms=1) or 0
    wrong = LagDelta(session=1, base=have, through=have, digest=sender.digest + 1)
    assert receiver.take(A, "x", wrong, at_ms=2) == 0
    assert receiver.known() == [], "unknown, rather than wrong"
    assert receiver.take(A, "x", sender.delta(0), at_ms=3) == have


def test_a_replica_that_left_is_gone_everywhere() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(0), lag(1)])
    have = receiver.take(A, "x", sender.delta(0), at_ms=1) or 0
    sender.observe([lag(1)])
    receiver.take(A, "x", sender.delta(have), at_ms=2)
    assert [one.lag.partition for one in receiver.known()] == [1]


def test_another_generation_is_another_table() -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(generation=1, end=10**9), lag(generation=2, end=10)])
    receiver.take(A, "x", sender.full(), at_ms=1)
    assert {one.lag.generation: one.lag.committed_end for one in receiver.known()} == {
        1: 10**9,
        2: 10,
    }


OBSERVATIONS = st.lists(
    st.dictionaries(st.integers(0, 40), st.integers(0, 3), max_size=40), min_size=1, max_size=12
)


@given(OBSERVATIONS, st.lists(st.sampled_from(["lost", "answer_lost", "late", "ok"]), max_size=40))
def test_heals_after_lost_doubled_and_overtaken_beats(
    observations: list[dict[int, int]], fates: list[str]
) -> None:
    """However beats fared: once some go through, the ledger holds exactly what the sender has."""
    sender, receiver, acked, now = Reporter(session=1), ledger(a="x"), 0, 0
    late: list[LagDelta] = []
    todo = [*observations]
    for fate in [*fates, *["ok"] * 20]:
        now += 100
        if todo:
            sender.observe([lag(p, position) for p, position in todo.pop(0).items()])
        delta = sender.delta(acked)
        if fate == "late":
            late.append(delta)
        if fate in ("lost", "late"):
            continue
        answer = receiver.take(A, "x", delta, now)
        if fate == "ok":
            acked = answer or 0
            for overtaken in late:
                receiver.take(A, "x", overtaken, now)
            late.clear()
    living = [one for one in sender.lags if one.state is not ABSENT]
    assert digest_of(one.lag for one in receiver.known()) == digest_of(living)


def test_a_report_of_another_time_is_left_out() -> None:
    """Who leads again would take what it was told when it led before for the state of now."""
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag()])
    receiver.take(A, "x", sender.full(), 1000)
    assert receiver.whole(1000).keys() == {A}
    assert receiver.whole(1001) == {}


@pytest.mark.parametrize(
    ("lag_ms", "told_ms_ago", "is_current", "why"),
    [
        (200, 3000, True, "at its end then"),
        (200, 0, True, "just told"),
        (12_000, 3000, True, "the limit: 15 s"),
        (12_001, 3000, False, "too long ago"),
        (60_000, 0, False, "it stands still, as it says itself"),
        (None, 0, False, "it never was at its end"),
    ],
)
def test_a_copys_own_word(lag_ms: int | None, told_ms_ago: int, is_current: bool, why: str) -> None:
    sender, receiver = Reporter(session=1), ledger(a="x")
    sender.observe([lag(replica_lag_ms=lag_ms)])
    receiver.take(A, "x", sender.full(), at_ms=100_000 - told_ms_ago)
    assert (("T1", 1, 0) in receiver.current(85_000)[A]) is is_current, why


def test_the_furthest_end_is_never_too_old() -> None:
    receiver = ledger(a="x", b="y")
    for node, incarnation, end, at_ms in ((A, "x", 30, 1), (B, "y", 20, 9_000_000)):
        sender = Reporter(session=1)
        sender.observe([lag(end=end)])
        receiver.take(node, incarnation, sender.full(), at_ms=at_ms)
    assert receiver.ends() == {("T1", 1, 0): 30}
