"""One request and the nodes that it may go to, until one answers or its time is over. Pure.

| outcome | what follows |
|---|---|
| no answer | the node is suspected; the next node at once |
| 429 | no request to this node until Retry-After is over; another node once, then the wait |
| 429 for this text, which stopped a worker | that is the answer: it would stop one elsewhere |
| 503, the node leaves | the next node at once |
| any other 503 | another node once, then the wait of its Retry-After |
| any other status | that is the answer |

After it has tried every node, the client pauses and begins again. It repeats a request that is not
idempotent (a statement, an INSERT) only if no node can have read it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from standpipe.client.core.answers import again_after, error_code, error_of_answer
from standpipe.client.core.exchange import (
    JSON,
    Clock,
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    Outcome,
    Pause,
    SendAll,
)
from standpipe.client.core.nodes import Nodes
from standpipe.errors import NodeLeaving, OutcomeUnknown, StandpipeError, TextRefused

#: how long to wait where a node names no time, or where none answers at all
PAUSE_S: Final = 0.1
#: refusals in a row after which the wait that they ask for is kept
REFUSALS_MAX: Final = 2
TIMEOUT_S_MIN: Final = 0.001
#: where the level of a read lets nodes wait, and none has said why it gives no answer
WAITED: Final = (
    "a node waits for its replica to catch up as long as its ksql.query.pull.routing.timeout.ms"
    " says, 3 s by default: give a timeout_s of more than twice that; and check that these are"
    " public addresses of nodes that run"
)
#: tries, and nodes, that an error names
NAMED_MAX: Final = 6


class NodesUnreachable(StandpipeError):
    """No node answered a client in time; the message has what became of each try."""

    status = 503
    code = 50309


class AnswerLost(StandpipeError):
    """A client sent a statement or an INSERT, and no answer came, or the node does not know what
    became of it: it may have been carried out."""

    status = 503
    code = 50310


class Ask(msgspec.Struct, frozen=True):
    """What is asked, whichever node is asked. `body` empty: a GET.

    `statement`: the text that an error points into. `patience_s`: how long one node may take while
    there is another one to ask; if it is not repeatable, how long it may take to connect.
    `may_wait`: a node that gives no answer may be waiting for its replica to catch up.
    """

    path: str
    body: bytes = b""
    accept: str = JSON
    statement: str = ""
    patience_s: float = 0.5
    is_repeatable: bool = True
    may_wait: bool = False


@dataclass(slots=True)
class Attempt:
    """An `Ask` on its way. `preferred`: the addresses to try first, best first."""

    nodes: Nodes
    ask: Ask
    deadline_s: float
    preferred: Sequence[str] = ()
    answer: HttpAnswer | None = None
    #: where the answer came from
    address: str = ""
    _tried: list[str] = field(default_factory=list[str])
    _refusals: int = 0
    _pause_until_s: float = 0.0
    _last: StandpipeError | None = None
    _reasons: list[str] = field(default_factory=list[str])

    def next(self, now_s: float) -> HttpRequest | float:
        """What to send now, or how long to wait, in seconds. Raises the last error when the time is
        over, or would be over before the wait is."""
        if now_s < self._pause_until_s:
            return self._wait(self._pause_until_s, now_s)
        if self.preferred and not self._tried and self.nodes.are_well:  # most lookups
            return self._request(self.preferred[0], len(self.nodes.addresses) == 1, now_s)
        order = [
            each for each in self.nodes.order(self.preferred, now_s) if each not in self._tried
        ]
        free = [each for each in order if self.nodes.busy_until(each) <= now_s]
        if not free:
            busy = [self.nodes.busy_until(each) for each in order]
            self._tried.clear()
            return self._wait(min(busy, default=now_s + PAUSE_S), now_s)
        self.nodes.chosen(free[0], now_s)
        return self._request(free[0], len(free) == 1, now_s)

    def _request(self, address: str, is_only: bool, now_s: float) -> HttpRequest:
        ask, remaining = self.ask, self.deadline_s - now_s
        if remaining <= 0:
            raise self._over(now_s)
        timeout_s = remaining if is_only else min(remaining, ask.patience_s)
        if ask.is_repeatable:
            whole_s, connect_max_s = timeout_s, None
        else:  # once it is sent, no other node is asked
            whole_s, connect_max_s = remaining, max(timeout_s, TIMEOUT_S_MIN)
        return HttpRequest(
            address,
            ask.path,
            max(whole_s, TIMEOUT_S_MIN),
            ask.body,
            ask.accept,
            ask.is_repeatable,
            connect_max_s,
        )

    def took(self, request: HttpRequest, outcome: Outcome, now_s: float) -> None:
        """Take the outcome of a request. Raises an error that any node would answer."""
        address = request.address
        if isinstance(outcome, NoAnswer):
            self._failed(address, outcome, now_s)
            return
        self.nodes.answered(address, now_s)
        if outcome.status == 200:
            self.answer, self.address = outcome, address
            if not self.ask.is_repeatable:
                self.nodes.took_statement(address, now_s)
            return
        error, code = error_of_answer(outcome, self.ask.statement), error_code(outcome)
        if not self.ask.is_repeatable and code == OutcomeUnknown.code:
            raise AnswerLost(f"{address} does not know what became of the request: {error}")
        is_of_the_node = outcome.status in (429, 503) and code != TextRefused.code
        if not is_of_the_node or not self.ask.is_repeatable:
            raise error
        self._refused(address, outcome, error, now_s)

    def _failed(self, address: str, outcome: NoAnswer, now_s: float) -> None:
        self.nodes.failed(address, now_s)
        self._tried.append(address)
        self._reasons.append(f"{address}: {outcome.reason}")
        if outcome.was_sent and not self.ask.is_repeatable:
            raise AnswerLost(
                f"{address} took the request and gave no answer ({outcome.reason}): it may or may "
                "not have been carried out"
            )
        if not (self.ask.may_wait and outcome.was_sent):  # else the refusal before is the reason
            self._last = None

    def _refused(
        self, address: str, answer: HttpAnswer, error: StandpipeError, now_s: float
    ) -> None:
        self._tried.append(address)
        self._last = error
        told_s = again_after(answer)
        until_s = now_s + (PAUSE_S if told_s is None else told_s)
        if answer.status == 429:
            self.nodes.hold(address, until_s)
        if error_code(answer) == NodeLeaving.code:
            self.nodes.failed(address, now_s)
            return
        self._refusals += 1
        if self._refusals >= REFUSALS_MAX:
            self._refusals = 0
            self._tried.clear()
            self._pause_until_s = until_s

    def _wait(self, until_s: float, now_s: float) -> float:
        if until_s >= self.deadline_s:
            raise self._over(now_s)
        return max(until_s - now_s, 0.0)

    def _over(self, now_s: float) -> StandpipeError:
        """The error to raise: the last refusal, else what became of the tries, and which nodes
        could not be tried."""
        if self._last is not None:
            return self._last
        left_alone = [
            f"{address} asked to be left alone for another {left_s:.1f} s"
            for left_s, address in self.nodes.left_alone(now_s)[:NAMED_MAX]
        ]
        tries = [*dict.fromkeys(self._reasons[-NAMED_MAX:]), *left_alone]
        if left_alone and not self._reasons:
            hint = "try again then, or give a longer timeout_s"
        elif self.ask.may_wait:
            hint = WAITED
        else:
            hint = (
                "check that these are public addresses of nodes that run, and give a longer"
                " timeout_s if they are busy"
            )
        named = "; ".join(tries) or "none could be asked in time"
        return NodesUnreachable(f"no node answered in time ({named}): {hint}")


def gather(
    attempts: Sequence[Attempt], clock: Clock
) -> Generator[SendAll | Pause, list[Outcome], None]:
    """Carry out attempts side by side, each to its answer. Raises the first error of one."""
    pending: list[Attempt] = list(attempts)
    while pending:
        now_s = clock()
        due: list[tuple[Attempt, HttpRequest]] = []
        waits: list[float] = []
        for attempt in pending:
            step = attempt.next(now_s)
            if isinstance(step, HttpRequest):
                due.append((attempt, step))
            else:
                waits.append(step)
        if not due:
            yield Pause(min(waits))
            continue
        outcomes = yield SendAll(tuple([request for _, request in due]))
        now_s = clock()
        for (attempt, request), outcome in zip(due, outcomes, strict=True):
            attempt.took(request, outcome, now_s)
        pending = [attempt for attempt in pending if attempt.answer is None]


def alone(attempt: Attempt, clock: Clock) -> Generator[SendAll | Pause, list[Outcome], None]:
    """Carry out one attempt to its answer. Raises its error."""
    while attempt.answer is None:
        step = attempt.next(clock())
        if isinstance(step, HttpRequest):
            (outcome,) = yield SendAll((step,))
            attempt.took(step, outcome, clock())
        else:
            yield Pause(step)
