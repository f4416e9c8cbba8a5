"""What follows from each outcome of a request: stories with a clock of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.attempts import (
    PAUSE_S,
    AnswerLost,
    Ask,
    Attempt,
    NodesUnreachable,
    gather,
)
from standpipe.client.core.exchange import HttpAnswer, HttpRequest, NoAnswer, Pause, SendAll
from standpipe.client.core.nodes import Nodes
from standpipe.errors import NodeLeaving, NoReplica, OutcomeUnknown, StatementError, TextRefused

OK = HttpAnswer(200, {}, b"fine")
DEAD = NoAnswer("connection refused", was_sent=False)
SILENT = NoAnswer("no answer within 500 ms", was_sent=True)


def refused(status: int, code: int = 0, again_s: int | None = None) -> HttpAnswer:
    headers = {} if again_s is None else {"retry-after": str(again_s)}
    body = {"@type": "generic_error", "error_code": code or status * 100, "message": "no"}
    return HttpAnswer(status, headers, json.dumps(body).encode())


class Story:
    """One attempt over nodes a, b, c; each step is told an outcome and says where it went."""

    def __init__(self, deadline_s: float = 10.0, **ask: object) -> None:
        self.nodes = Nodes(("a:1", "b:1", "c:1"))
        self.now_s = 0.0
        asked = Ask("/query-stream", b"{}", **ask)  # pyright: ignore[reportArgumentType]
        self.attempt = Attempt(self.nodes, asked, deadline_s, ("a:1", "b:1"))

    def next(self) -> HttpRequest | float:
        return self.attempt.next(self.now_s)

    def tell(self, outcome: HttpAnswer | NoAnswer, took_s: float = 0.0) -> str:
        request = self.next()
        assert isinstance(request, HttpRequest), request
        self.now_s += took_s
        self.attempt.took(request, outcome, self.now_s)
        return request.address[0]


def test_the_owner_answers() -> None:
    story = Story()
    assert story.tell(OK) == "a"
    assert (story.attempt.answer, story.attempt.address) == (OK, "a:1")


@pytest.mark.parametrize("outcome", [DEAD, SILENT, refused(503, NodeLeaving.code, 1)])
def test_another_replica_is_asked_at_once(outcome: HttpAnswer | NoAnswer) -> None:
    story = Story()
    assert [story.tell(outcome), story.tell(OK)] == ["a", "b"]
    assert story.nodes.order(["a:1"], story.now_s)[-1] == "a:1", "later calls go past it"


def test_all_are_asked_and_then_again_after_a_pause() -> None:
    story = Story()
    assert [story.tell(DEAD) for _ in range(3)] == ["a", "b", "c"]
    assert story.next() == PAUSE_S
    story.now_s += 1.0
    assert story.tell(OK) in "abc"


def test_patience_is_for_those_that_are_not_the_last() -> None:
    story = Story(patience_s=0.5)
    timeouts: list[float] = []
    for _ in range(3):
        request = story.next()
        assert isinstance(request, HttpRequest)
        timeouts.append(request.timeout_s)
        story.tell(SILENT, took_s=request.timeout_s)
    assert timeouts == [0.5, 0.5, 9.0], "the last has all the time that is left"


@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_is_as_told(status: int) -> None:
    story = Story()
    assert story.tell(refused(status, again_s=3)) == "a"
    assert story.tell(refused(status, again_s=3)) == "b", "one retry on another replica"
    assert story.next() == 3.0, "then the wait"
    story.now_s = 2.9
    assert story.next() == pytest.approx(0.1)
    story.now_s = 3.0
    assert story.tell(OK) == "a"


def test_others_leave_a_busy_node_alone_too() -> None:
    story = Story()
    story.tell(refused(429, again_s=3))
    assert story.nodes.busy_until("a:1") == 3.0
    other = Attempt(story.nodes, Ask("/query-stream", b"{}"), 10.0, ("a:1", "b:1"))
    request = other.next(0.0)
    assert isinstance(request, HttpRequest)
    assert request.address == "b:1"


def test_an_answer_that_was_on_its_way_keeps_the_wait_of_another_call() -> None:
    story = Story()
    other = Attempt(story.nodes, Ask("/query-stream", b"{}"), 10.0, ("a:1", "b:1"))
    request = other.next(0.0)
    assert isinstance(request, HttpRequest)
    assert story.tell(refused(429, again_s=3)) == request.address[0] == "a"
    other.took(request, OK, 0.1)
    assert story.nodes.busy_until("a:1") == 3.0


def test_when_all_are_busy_it_waits_for_the_first() -> None:
    story = Story()
    for address, until_s in (("a:1", 4.0), ("b:1", 2.0), ("c:1", 3.0)):
        story.nodes.hold(address, until_s)
    assert story.next() == 2.0


def test_a_refused_text_goes_to_no_other_node_and_holds_none() -> None:
    """It stopped a worker there, and would elsewhere; the nodes take any other text."""
    story = Story()
    with pytest.raises(ServerRefused) as raised:
        story.tell(refused(429, TextRefused.code, again_s=60))
    assert (raised.value.error_code, raised.value.again_after_s) == (TextRefused.code, 60)
    assert story.nodes.are_well


def test_without_a_try_it_says_who_asked_to_be_left_alone() -> None:
    story = Story()
    for address, until_s in (("a:1", 60.0), ("b:1", 30.0), ("c:1", 90.0)):
        story.nodes.hold(address, until_s)
    story.now_s = 0.5
    alone = r"b:1 asked to be left alone for another 29\.5 s; a:1 .* 59\.5 s; c:1 .* 89\.5 s"
    with pytest.raises(NodesUnreachable, match=alone) as raised:
        story.next()
    assert "public addresses" not in str(raised.value), "they are right"


def test_those_that_failed_and_those_that_asked_to_be_left_alone() -> None:
    story = Story(deadline_s=0.05)
    story.nodes.hold("b:1", 30.0)
    story.tell(DEAD)
    story.tell(DEAD)
    tries = r"a:1: connection refused; c:1: .*; b:1 asked .* 30\.0 s\): check .* public addresses"
    with pytest.raises(NodesUnreachable, match=tries):
        story.next()


def test_a_wait_beyond_the_deadline_is_the_error_itself() -> None:
    story = Story(deadline_s=2.0)
    story.tell(refused(503, NoReplica.code, again_s=60))
    story.tell(refused(503, NoReplica.code, again_s=60))
    with pytest.raises(ServerRefused) as raised:
        story.next()
    error = raised.value
    assert (error.http_status, error.error_code, error.again_after_s) == (503, NoReplica.code, 60)


def test_without_any_answer_each_try_is_named() -> None:
    story = Story(deadline_s=0.05)
    for _ in range(3):
        story.tell(DEAD)
    with pytest.raises(NodesUnreachable, match=r"a:1: connection refused; b:1.*c:1"):
        story.next()


def test_a_refusal_stays_the_reason_where_a_later_node_may_have_waited() -> None:
    """Each of three nodes said what it wanted and had; the fourth try was cut, and the error was
    that no node runs."""
    for may_wait, error in ((True, ServerRefused), (False, NodesUnreachable)):
        story = Story(deadline_s=10.0, may_wait=may_wait)
        for _ in range(3):
            if isinstance(pause_s := story.next(), float):
                story.now_s += pause_s
            story.tell(refused(503, NoReplica.code), took_s=3.0)
        story.tell(SILENT, took_s=0.9)
        with pytest.raises(error):
            story.next()


@pytest.mark.parametrize(("may_wait", "hint"), [(True, "twice that"), (False, "they are busy")])
def test_without_any_answer_the_error_says_that_nodes_may_have_waited(
    may_wait: bool, hint: str
) -> None:
    story = Story(deadline_s=2.0, may_wait=may_wait)
    for _ in range(2):
        story.tell(SILENT, took_s=1.0)
    with pytest.raises(NodesUnreachable, match=hint):
        story.next()


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (refused(500), ServerRefused),
        (HttpAnswer(404, {}, b"Not Found"), ServerRefused),
        (HttpAnswer(400, {}, b'{"@type":"statement_error","message":"x"}'), StatementError),
    ],
)
def test_what_no_other_node_would_mend(outcome: HttpAnswer, error: type[Exception]) -> None:
    with pytest.raises(error):
        Story().tell(outcome)


def test_a_statement_is_sent_again_only_if_nobody_read_it() -> None:
    story = Story(is_repeatable=False)
    assert [story.tell(DEAD), story.tell(OK)] == ["a", "b"]
    with pytest.raises(AnswerLost, match="may or may not"):
        Story(is_repeatable=False).tell(SILENT)
    with pytest.raises(ServerRefused):
        Story(is_repeatable=False).tell(refused(503, again_s=1))


def test_a_statement_has_all_the_time_once_it_is_sent() -> None:
    """Nobody else is asked then: patience is for its connection alone."""
    story = Story(is_repeatable=False, patience_s=0.5)
    found: list[tuple[float, float]] = []
    for took_s in (0.5, 0.5, 0.0):
        request = story.next()
        assert isinstance(request, HttpRequest)
        found.append((request.timeout_s, request.connect_s))
        story.tell(DEAD, took_s)
    assert found == [(10.0, 0.5), (9.5, 0.5), (9.0, 9.0)], "the last one has all of it"
    reader = Story(patience_s=0.5).next()
    assert isinstance(reader, HttpRequest)
    assert (reader.timeout_s, reader.connect_s) == (0.5, 0.5)


def test_a_node_that_does_not_know_what_became_of_a_statement_gave_no_answer() -> None:
    body = json.dumps({"error_code": OutcomeUnknown.code, "message": "some may be in force"})
    with pytest.raises(AnswerLost, match="some may be in force"):
        Story(is_repeatable=False).tell(HttpAnswer(503, {}, body.encode()))


def test_what_follows_a_statement_goes_to_the_same_node() -> None:
    story = Story(is_repeatable=False)
    story.tell(DEAD)
    assert story.tell(OK) == "b"
    assert {story.nodes.order((), 1.0)[0] for _ in range(5)} == {"b:1"}
    reader = Story()
    reader.tell(OK)
    assert len({reader.nodes.order((), 1.0)[0] for _ in range(5)}) > 1, "a read changes nothing"


def test_attempts_side_by_side() -> None:
    """Their requests go out together; the one that failed goes on alone."""
    nodes = Nodes(("a:1", "b:1"))
    clock: Callable[[], float] = lambda: 0.0  # noqa: E731
    attempts = [Attempt(nodes, Ask("/x", b"{}"), 10.0, (each,)) for each in ("a:1", "b:1")]
    steps = gather(attempts, clock)
    first = next(steps)
    assert isinstance(first, SendAll)
    assert [each.address for each in first.requests] == ["a:1", "b:1"]
    second = steps.send([DEAD, OK])
    assert isinstance(second, SendAll)
    assert [each.address for each in second.requests] == ["b:1"]
    with pytest.raises(StopIteration):
        steps.send([OK])
    assert [each.address for each in attempts] == ["b:1", "b:1"]


def test_attempts_that_all_wait_pause() -> None:
    nodes = Nodes(("a:1",))
    nodes.hold("a:1", 1.5)
    steps = gather([Attempt(nodes, Ask("/x", b"{}"), 10.0)], lambda: 0.0)
    assert next(steps) == Pause(1.5)
