"""What a lag report is worth, by the end that Kafka tells."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.control.liveness.end_checks import (
    ANSWER_MS_MAX,
    NO_BOUND,
    Credence,
    EndChecks,
)
from standpipe.control.liveness.lag import NO_END, SESSION_SILENT_MS, Ledger, Reporter
from standpipe.model import BatchId, NodeId, Offset, ReplicaId, ReplicaState
from standpipe.model_liveness import LagDelta, ReplicaLag

A, B = NodeId("a"), NodeId("b")
HERE = ReplicaId("T1", 1, 0)
BELIEVED, DOUBTED, REFUSED = Credence.BELIEVED, Credence.DOUBTED, Credence.REFUSED


def lag(position: int = 100, end: int = 100) -> ReplicaLag:
    return ReplicaLag(
        table_id="T1",
        generation=1,
        partition=0,
        position=Offset(position),
        committed_end=Offset(end),
        state=ReplicaState.RUNNING,
        batch=BatchId(1),
        replica_lag_ms=5,
    )


@pytest.mark.parametrize(
    ("position", "end", "told_ms", "worth", "why"),
    [
        (100, 100, 900, BELIEVED, "within the end"),
        (120, 120, 900, BELIEVED, "at the end of the log itself"),
        (120, 121, 900, REFUSED, "one record beyond it, and Kafka was asked later"),
        (121, 120, 900, REFUSED, "nobody has read beyond it either"),
        (10, 10**12, 900, REFUSED, "an end that refuses every bounded read"),
        (10**12, 100, 900, REFUSED, "a position that attracts every read"),
        (120, 121, 1000, DOUBTED, "Kafka was asked in the same millisecond"),
        (120, 121, 1001, DOUBTED, "it may have been written since"),
        (10**12, 10**12, 1001, DOUBTED, "and so may this, until Kafka is asked again"),
        (0, -1, 900, BELIEVED, "an end that is not known claims nothing"),
    ],
)
def test_what_a_report_is_worth(
    position: int, end: int, told_ms: int, worth: Credence, why: str
) -> None:
    checks = EndChecks()
    checks.answered({HERE: Offset(120)}, asked_ms=1000)
    assert checks.judge(lag(position, end), told_ms) is worth, why


def test_before_kafka_has_answered_and_after_it_has_fallen_silent() -> None:
    checks, beyond = EndChecks(), lag(10**12, 10**12)
    assert checks.judge(beyond, 0) is BELIEVED, "nobody here knows better"
    assert not checks.asked(0)
    checks.answered({}, asked_ms=0)
    assert checks.judge(beyond, 0) is DOUBTED, "Kafka answers, and will tell this one too"
    checks.answered({HERE: Offset(120)}, asked_ms=10)
    assert checks.judge(beyond, 0) is REFUSED
    assert not checks.asked(1000)
    assert not checks.asked(1000 + ANSWER_MS_MAX)
    assert checks.judge(beyond, 0) is REFUSED, "what it told is true until then"
    assert checks.asked(1001 + ANSWER_MS_MAX), "given up"
    assert not checks.asked(1002 + ANSWER_MS_MAX), "once"
    assert checks.judge(beyond, 0) is BELIEVED
    checks.answered({HERE: Offset(120)}, asked_ms=9000)
    assert checks.judge(beyond, 0) is REFUSED


def test_a_topic_that_kafka_does_not_know_bounds_nothing_and_stays_open() -> None:
    checks = EndChecks()
    checks.answered({HERE: NO_BOUND}, asked_ms=10)
    assert checks.judge(lag(10**12, 10**12), 0) is BELIEVED
    assert checks.is_unbounded(HERE), "it is asked for again"
    checks.keep_only(lambda replica: replica != HERE)
    assert checks.end_of(HERE) is None


# ------------------------------------------------------------------------------- the ledger


class World:
    """A ledger that hears `a`, honest, and `b`."""

    def __init__(self) -> None:
        self.checks = EndChecks()
        self.ledger = Ledger(self.checks)
        self.ledger.members({A: "x", B: "x"})
        self.reporters = {A: Reporter(1), B: Reporter(1)}

    def told(self, node: NodeId, position: int, end: int, at_ms: int) -> None:
        self.reporters[node].observe([lag(position, end)])
        self.take(node, self.reporters[node].full(), at_ms)

    def take(self, node: NodeId, delta: LagDelta, at_ms: int) -> None:
        assert self.ledger.take(node, "x", delta, at_ms) == delta.through

    def kafka(self, end: int, asked_ms: int) -> None:
        self.checks.answered({HERE: Offset(end)}, asked_ms)
        self.ledger.weigh([HERE])

    def known(self) -> dict[NodeId, tuple[int, int]]:
        return {
            known.node_id: (known.lag.position, known.lag.committed_end)
            for known in self.ledger.known()
        }


@pytest.mark.parametrize(
    ("position", "end", "why"),
    [
        (100, 10**12, "an end: every bounded read would be refused"),
        (10**12, 100, "a position: it would look caught up"),
        (121, 121, "one record"),
    ],
)
def test_a_report_that_cannot_be_true_changes_nothing_and_heals(
    position: int, end: int, why: str
) -> None:
    world = World()
    world.told(A, 110, 110, 100)
    world.told(B, 100, 100, 100)
    world.kafka(120, asked_ms=200)
    world.told(B, position, end, 300)
    assert world.known() == {A: (110, 110), B: (100, 100)}, "doubted: the one before it counts"
    assert world.ledger.ends() == {HERE: 110}, why
    assert world.ledger.unchecked == {HERE}, "so Kafka is asked"
    world.kafka(120, asked_ms=400)
    assert world.known() == {A: (110, 110)}, "refused: its lag is not known"
    assert world.ledger.ends() == {HERE: 110}
    assert world.ledger.whole()[B][HERE].committed_end == NO_END
    assert world.ledger.whole()[B][HERE].position == 0, "it is there, and not caught up"
    assert world.ledger.current(0)[B] == frozenset()
    assert world.ledger.unchecked == set()
    (refused,) = world.ledger.refusals
    assert (refused.node, refused.lag.committed_end, refused.end) == (B, end, 120)
    world.told(B, 111, 111, 500)
    assert world.known() == {A: (110, 110), B: (111, 111)}, "its next good report"
    assert world.ledger.refused_count == 1


def test_an_honest_report_that_is_newer_than_kafkas_answer_counts_as_soon_as_kafka_says_so() -> (
    None
):
    world = World()
    world.told(A, 100, 100, 100)
    world.kafka(100, asked_ms=200)
    world.told(A, 150, 160, 300)
    assert world.known() == {A: (100, 100)}
    world.kafka(170, asked_ms=400)
    assert world.known() == {A: (150, 160)}
    assert world.ledger.refused_count == 0


def test_a_report_that_repeats_itself_is_said_once_and_counted_each_time() -> None:
    world = World()
    world.told(B, 100, 100, 0)
    world.kafka(120, asked_ms=100)
    for number in range(3):
        world.told(B, 100, 10**12 + number, 200 + 100 * number)
        world.kafka(120, asked_ms=250 + 100 * number)
    assert world.ledger.refused_count == 3
    assert len(world.ledger.refusals) == 1


def test_a_first_report_that_is_doubted_is_not_whole_yet() -> None:
    """A node that has just restarted must not look as if its copies had lost everything."""
    world = World()
    world.kafka(100, asked_ms=100)
    world.told(A, 150, 150, 200)
    assert world.ledger.whole() == {}
    world.kafka(150, asked_ms=300)
    assert world.ledger.whole()[A][HERE].position == 150
    world.told(A, 190, 190, 400)
    assert world.ledger.whole()[A][HERE].position == 150, "the one before it"


def test_reports_from_before_kafka_answered_are_judged_then() -> None:
    world = World()
    world.told(B, 100, 10**12, 100)
    assert world.known() == {B: (100, 10**12)}, "as before: nobody here knows better"
    world.kafka(120, asked_ms=200)
    assert world.known() == {}


def test_when_kafka_is_given_up_reports_count_again() -> None:
    """A node that is cut off from Kafka learns of its own lag from its peers."""
    world = World()
    world.told(A, 100, 100, 100)
    world.kafka(100, asked_ms=200)
    world.told(A, 5000, 5000, 300)
    assert world.known() == {A: (100, 100)}
    world.checks.asked(300)
    assert world.checks.asked(301 + ANSWER_MS_MAX)
    world.ledger.weigh()
    assert world.known() == {A: (5000, 5000)}
    assert world.ledger.unchecked == {HERE}, "and Kafka is asked until it answers"


@pytest.mark.parametrize(
    ("forged", "after_ms", "is_heard", "why"),
    [
        (lag(100, 10**12), 1, True, "what the other said was refused: any session may go on"),
        (lag(50, 50), 1, False, "it may be of a process that has ended"),
        (lag(50, 50), SESSION_SILENT_MS, False, "the newest session may still report"),
        (lag(50, 50), SESSION_SILENT_MS + 1, True, "it is silent, and this one is not"),
    ],
)
def test_a_forged_session_does_not_shut_out_the_node(
    forged: ReplicaLag, after_ms: int, is_heard: bool, why: str
) -> None:
    """Sessions only grow: one of 2**62 would otherwise be the last."""
    world = World()
    world.told(B, 100, 100, 0)
    world.kafka(120, asked_ms=50)
    rogue = Reporter(2**62)
    rogue.observe([forged])
    world.take(B, rogue.full(), 100)
    world.kafka(120, asked_ms=101)
    world.reporters[B].observe([lag(110, 110)])
    at_ms = 100 + after_ms
    had = world.ledger.take(B, "x", world.reporters[B].delta(1), at_ms)
    assert had == (0 if is_heard else None), why
    if is_heard:
        world.told(B, 110, 110, at_ms)
        assert world.known() == {B: (110, 110)}


def test_a_replica_that_does_not_answer_stays_one() -> None:
    """Its topic was made anew: its position is beyond the end, and so it says itself."""
    world = World()
    lost = msgspec.structs.replace(lag(500, 100), state=ReplicaState.DATA_LOSS)
    world.reporters[B].observe([lost])
    world.take(B, world.reporters[B].full(), 100)
    world.kafka(120, asked_ms=200)
    (known,) = world.ledger.known()
    assert (known.lag.state, known.lag.position) == (ReplicaState.DATA_LOSS, 0)
    assert known.lag.committed_end == NO_END
    assert world.ledger.refused_count == 1


def test_a_doubted_report_is_no_older_than_it_is() -> None:
    """The one before it was true when it came, not when the newer one did."""
    world = World()
    world.told(A, 100, 100, 100)
    world.kafka(100, asked_ms=200)
    world.told(A, 150, 150, 300)
    (known,) = world.ledger.known()
    assert (known.at_boot_ms, known.reported_boot_ms) == (100, 100)
