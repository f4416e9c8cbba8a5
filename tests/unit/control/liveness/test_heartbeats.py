"""Verdicts on peers from their beats. Source: KLIP-12 "Failure detection/Healthcheck"."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.liveness.heartbeats import (
    NEXT,
    RETURNS_MAX,
    RETURNS_MS,
    BeatHeard,
    CheckDue,
    CheckVoid,
    Count,
    Event,
    HeartbeatSettings,
    Mark,
    MembersKnown,
    Order,
    PeerVerdicts,
    missed_in_row,
    received_in_row,
)
from standpipe.model import Health, NodeId

A, B = NodeId("a"), NodeId("b")
UNKNOWN, ALIVE, DOWN = Health.UNKNOWN, Health.ALIVE, Health.DOWN


@pytest.mark.parametrize(
    ("silent_ms", "missed", "why"),
    [
        (0, 0, "a beat at this very moment"),
        (100, 0, "the next one is due now: not missed"),
        (101, 1, "late by 1 ms: missed so far"),
        (300, 2, "two whole beats missed, the third is due now"),
        (301, 3, "the threshold"),
        (2000, 19, "a window without any"),
    ],
)
def test_missed_in_row(silent_ms: float, missed: int, why: str) -> None:
    assert missed_in_row(silent_ms, 100) == missed, why


@pytest.mark.parametrize(
    ("beats", "now", "received", "why"),
    [
        ([], 0, 0, "none"),
        ([0], 0, 1, "one"),
        ([0], 200, 1, "none was missed twice"),
        ([0], 201, 0, "two were due since: the row is broken"),
        ([0, 100], 150, 2, "two in a row"),
        ([0, 150], 150, 2, "jitter: late by half an interval"),
        ([0, 200, 300], 300, 3, "one late by an interval still follows"),
        ([0, 201, 300], 300, 2, "one was missed between the first two"),
        ([0, 100, 400], 400, 1, "what came before the gap does not count"),
    ],
)
def test_received_in_row(beats: list[float], now: float, received: int, why: str) -> None:
    assert received_in_row(beats, now, 100) == received, why


def test_every_transition_is_in_the_table() -> None:
    """No count makes a peer unknown again, and none but beats makes it alive."""
    assert UNKNOWN not in NEXT.values()
    assert {count for (_, count), end in NEXT.items() if end is ALIVE} == {Count.ENOUGH_RECEIVED}


# ---------------------------------------------------------------------------------- stories


def told(machine: PeerVerdicts, events: Iterable[Event]) -> list[Order]:
    return [order for event in events for order in machine.handle(event)]


def beats(*instants: float, node: NodeId = A) -> list[Event]:
    return [BeatHeard(node, at) for at in instants]


def checks(*instants: float) -> list[Event]:
    return [CheckDue(at) for at in instants]


def known(*nodes: NodeId, at: float = 0) -> MembersKnown:
    return MembersKnown(frozenset(nodes), at)


def alive_at(now: float) -> PeerVerdicts:
    """A machine that found A alive at its check at `now`, its last beat then."""
    machine = PeerVerdicts()
    told(machine, [known(A), CheckDue(now - 200), *beats(now - 100, now), CheckDue(now)])
    assert machine.health == {A: ALIVE}
    return machine


def test_newly_known_is_unknown_not_alive() -> None:
    machine = PeerVerdicts()
    assert machine.handle(known(A, B)) == [Mark(A, UNKNOWN, None), Mark(B, UNKNOWN, None)]
    assert told(machine, [*beats(50), *checks(100)]) == [], "one beat is not enough"
    assert told(machine, [*beats(150), *checks(300)]) == [Mark(A, ALIVE, 150)]
    assert machine.health == {A: ALIVE, B: UNKNOWN}


def test_never_heard_for_a_window_is_down() -> None:
    machine = PeerVerdicts()
    machine.handle(known(A))
    assert told(machine, checks(*range(200, 2001, 200))) == [], "it may still be starting"
    assert told(machine, checks(2200)) == [Mark(A, DOWN, None)]


@pytest.mark.parametrize(
    ("check_ms", "orders", "why"),
    [
        (200, [], "one missed so far"),
        (300, [], "KLIP-12: missed at 100 and 200, the third is due only now"),
        (301, [Mark(A, DOWN, 301)], "KLIP-12: 3 missed heartbeats = server is down"),
    ],
)
def test_klip_12_down(check_ms: float, orders: list[Order], why: str) -> None:
    machine = alive_at(1000)
    assert told(machine, [CheckDue(1000 + check_ms - 200), CheckDue(1000 + check_ms)]) == orders, (
        why
    )


def test_klip_12_up() -> None:
    """RECEIVED_THRESHOLD: 2 received heartbeats = server is up."""
    machine = alive_at(1000)
    down = told(machine, checks(1200, 1400))
    assert [(m.node, m.health) for m in down if isinstance(m, Mark)] == [(A, DOWN)]
    assert told(machine, [*beats(1590), *checks(1600)]) == []
    assert told(machine, [*beats(1690), *checks(1800)]) == [Mark(A, ALIVE, 110)]


def test_beats_before_the_window_are_expunged() -> None:
    machine = PeerVerdicts(HeartbeatSettings(window_ms=300))
    told(machine, [known(A), CheckDue(0), *beats(0, 100), CheckDue(200)])
    assert machine.health == {A: ALIVE}
    assert told(machine, checks(400)) == [], "300 ms of silence: still in the window"
    assert told(machine, checks(500)) == [Mark(A, DOWN, 400)]


def test_a_late_check_is_void() -> None:
    """This node was stopped for ten seconds. Beats lie unread; nobody is condemned."""
    machine = alive_at(1000)
    assert told(machine, checks(11_000)) == [CheckVoid(late_ms=9_800)]
    assert told(machine, checks(11_200)) == [], "silence counts from when it listens again"
    assert told(machine, [*beats(11_250), *checks(11_400)]) == []
    assert machine.health == {A: ALIVE}


def test_a_late_check_within_a_send_interval_counts() -> None:
    assert told(alive_at(1000), checks(1300)) == []
    machine = alive_at(1000)
    assert told(machine, checks(1300, 1600)) == [Mark(A, DOWN, 600)]
    assert told(alive_at(1000), checks(1301)) == [CheckVoid(late_ms=101)]


def test_dead_after_void_is_found_all_the_same() -> None:
    machine = alive_at(1000)
    orders = told(machine, checks(11_000, 11_200, 11_400))
    assert orders[-1] == Mark(A, DOWN, 10_400)


def test_flapping_comes_up_twice_a_minute() -> None:
    """400 ms of beats, 400 ms of silence, for three minutes."""
    machine = PeerVerdicts()
    machine.handle(known(A))
    ups: list[float] = []
    for now in range(0, 180_000, 50):
        if now % 100 == 0 and now % 800 < 400:
            machine.handle(BeatHeard(A, now))
        if now % 200 == 150:
            orders = machine.handle(CheckDue(now))
            ups += [now for m in orders if isinstance(m, Mark) and m.health is ALIVE]
    assert len(ups) >= 5, "it does come back"
    for first, last in zip(ups[1:], ups[1 + RETURNS_MAX :], strict=False):
        assert last - first >= RETURNS_MS, "the first time up is no return"


def test_who_came_back_too_often_is_held_down_and_not_dead() -> None:
    """It was refused as dead: three faults of one node within a minute, then one of another."""
    machine, now = alive_at(1000), 1000
    for turn in range(RETURNS_MAX + 1):
        told(machine, checks(*range(now + 200, now + 1001, 200)))  # silence
        assert machine.health == {A: DOWN}
        assert machine.held_down == frozenset(), "it is silent"
        now += 1000
        for _ in range(5):
            told(machine, [*beats(now + 100, now + 200), *checks(now + 200)])
            now += 200
        is_back = turn < RETURNS_MAX
        assert machine.health == {A: ALIVE if is_back else DOWN}
        assert machine.held_down == (frozenset() if is_back else {A})
    told(machine, checks(*range(now + 200, now + 1001, 200)))
    assert machine.held_down == frozenset(), "silent again"


def test_a_member_that_left_is_forgotten() -> None:
    machine = alive_at(1000)
    assert machine.handle(known()) == []
    assert machine.health == {}
    assert told(machine, [*beats(1100), *checks(1200)]) == []
    assert machine.handle(known(A)) == [Mark(A, UNKNOWN, None)], "nothing is inherited"


def test_beats_of_strangers_are_not_heard() -> None:
    machine = PeerVerdicts()
    told(machine, [known(A), *beats(0, 100, node=B), *checks(150)])
    assert machine.health == {A: UNKNOWN}


# ------------------------------------------------------------------------------- properties


@given(st.lists(st.floats(50, 190), min_size=2, max_size=60), st.integers(0, 199))
def test_jitter_below_an_interval_never_condemns(gaps: list[float], phase: int) -> None:
    """Beats never 200 ms apart: at no check has the peer missed three."""
    machine = PeerVerdicts()
    machine.handle(known(A))
    now, due = 0.0, float(phase)
    for gap in gaps:
        while due < now + gap:
            assert machine.handle(CheckDue(due)) in ([], [Mark(A, ALIVE, due - now)])
            due += 200
        now += gap
        machine.handle(BeatHeard(A, now))
    assert machine.health[A] is not DOWN


@given(st.integers(0, 99), st.integers(0, 199), st.integers(0, 100))
def test_detection_time(last_phase: int, check_phase: int, late: int) -> None:
    """Silence is found within send x missed + 1 + check (+ how late the check may be)."""
    machine = PeerVerdicts()
    machine.handle(known(A))
    instants = [100 * i + last_phase for i in range(20)]
    last = instants[-1]
    due = [at for i in range(20) if (at := 200 * i + check_phase) <= last]
    told(machine, sorted([*beats(*instants), *checks(*due)], key=lambda event: event.at_ms))
    assert machine.health[A] is ALIVE
    now = due[-1]
    while machine.health[A] is ALIVE:
        now += 200 + late
        machine.handle(CheckDue(now))
    assert 300 < now - last <= 501 + late


@given(
    st.lists(st.tuples(st.sampled_from(["beat", "check"]), st.floats(1, 500)), max_size=80),
)
def test_agrees_with_a_dull_twin(steps: list[tuple[str, float]]) -> None:
    """Without damping and void checks: counted again from all beats, slot by slot."""
    machine = PeerVerdicts(HeartbeatSettings(check_ms=10**6))
    machine.handle(known(A))
    heard: list[float] = []
    state, now, returns = UNKNOWN, 0.0, 0
    for what, gap in steps:
        now += gap
        if what == "beat":
            heard.append(now)
            machine.handle(BeatHeard(A, now))
            continue
        machine.handle(CheckDue(now))
        newest = heard[-1] if heard else 0.0
        slots_missed = sum(1 for k in range(1, 400) if newest + 100 * k < now)
        window = [at for at in heard if at >= now - 2000]
        row, later = 0, now
        while window and later - window[-1] <= 200:
            later = window.pop()
            row += 1
        if now - newest > 2000 or (slots_missed >= 3 and state is ALIVE):
            state = DOWN
        elif row >= 2 and (state is not DOWN or returns < RETURNS_MAX):
            returns += state is DOWN
            state = ALIVE
        assert machine.health[A] is state
