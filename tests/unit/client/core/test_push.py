"""A push query over nodes that break off: each row once. Answers are in the nodes' own layout."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.samples import sample_table

from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.attempts import NodesUnreachable
from standpipe.client.core.exchange import (
    SILENT,
    HandOver,
    HttpAnswer,
    NoAnswer,
    OpenStream,
    Pause,
    ReadStream,
)
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations
from standpipe.client.core.push import (
    RESET,
    SILENT_FACTOR_MAX,
    SILENT_INTERVALS,
    TOKEN,
    TOKEN_INTERVAL_HEADER,
    TOKENS,
    PushReader,
    push_reader,
)
from standpipe.client.core.session import ClientSession
from standpipe.client.core.settings import Settings
from standpipe.data.query.push import PushedRow
from standpipe.errors import ServerError, StatementError, TextRefused, TokenRefused
from standpipe.node.worker.push import push_query
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.push_query import _LAST
from standpipe.node.worker.push.stream_loop import Ending
from standpipe.node.worker.request.head import Form
from standpipe.session_token import (
    TOKEN_PROPERTY,
    FollowedTable,
    SeenBatch,
    SessionToken,
    TableKey,
)
from standpipe.sql.plans import PushPlan

#: the nodes' own layout
FORM = PushForm(Form.ARRAY)
PLAN = PushPlan(
    source=sample_table(), schema="`K` STRING KEY, `P` DECIMAL(4, 2)", column_names=("K", "P"),
    column_types=("STRING", "DECIMAL(4, 2)"), cells=(), key_cells=(True, False),
)  # fmt: skip
HEAD = FORM.head(PLAN, "q")
OK = HttpAnswer(200, {}, b"")
BROKEN = NoAnswer("reset", was_sent=True)
LEAVING = FORM.end(_LAST[Ending.LEAVING])
LIMIT = FORM.end(_LAST[Ending.OVER])


def row(number: int, *, is_deleted: bool = False) -> bytes:
    columns = b'["k%d",%b]' % (number, b"null" if is_deleted else b"1.5")
    return FORM.rows([PushedRow(columns, is_deleted)])


def token(number: int) -> bytes:
    return FORM.token(f"t{number}")


@dataclass
class Quiet:
    """Nothing comes for a while."""

    seconds: float
    then: bytes | NoAnswer


class Play:
    """Runs a reader against scripted answers: each a head, or a head and the bytes that follow."""

    def __init__(
        self,
        answers: Sequence[HttpAnswer | NoAnswer | list[Any]],
        text: str = "SELECT * FROM T EMIT CHANGES;",
        **options: Any,
    ) -> None:
        self.answers = list(answers)
        self.now_s = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.addresses: list[str] = []
        #: how long each answer may be silent
        self.within_s: list[float | None] = []
        self.rows: list[Any] = []
        self.pauses: list[float] = []
        nodes = Nodes(("a:1", "b:1"))
        self.reader = PushReader(
            nodes, lambda: self.now_s, text, options.pop("properties", {}), 30.0, **options
        )

    def run(self) -> list[str]:
        """Keys of the rows that were handed over, until the query ends."""
        steps = self.reader.run()
        pieces: list[Any] = []
        fact: Any = None
        while True:
            try:
                order = steps.send(fact)
            except StopIteration:
                return [each["K"] for each in self.rows]
            fact = None
            if isinstance(order, OpenStream):
                self.addresses.append(order.request.address)
                self.bodies.append(msgspec.json.decode(order.request.body))
                answer = self.answers.pop(0) if self.answers else BROKEN
                if isinstance(answer, list):
                    pieces, answer = answer, OK
                    if isinstance(pieces[0], HttpAnswer):
                        answer = pieces.pop(0)
                fact = answer
            elif isinstance(order, ReadStream):
                self.within_s.append(order.within_s)
                fact = pieces.pop(0) if pieces else b""
                if isinstance(fact, Quiet):
                    self.now_s += fact.seconds
                    fact = fact.then
            elif isinstance(order, HandOver):
                self.rows.append(order.row)
            elif isinstance(order, Pause):
                self.pauses.append(order.seconds)
                self.now_s += max(order.seconds, 0.01)


def test_rows_until_the_limit() -> None:
    play = Play([[HEAD, token(0), row(1) + row(2), token(2), LIMIT]])
    assert play.run() == ["k1", "k2"]
    assert str(play.rows[0]["P"]) == "1.50"
    assert play.bodies[0]["streamsProperties"][RESET] == "latest"


def test_it_continues_at_the_last_token() -> None:
    first = [HEAD, token(0), row(1), token(1), row(2), BROKEN]
    play = Play([first, BROKEN, [HEAD, row(2), row(3), token(3), LIMIT]])
    assert play.run() == ["k1", "k2", "k3"], "k2 came twice over the wire, and once to the caller"
    assert [body["streamsProperties"].get(TOKEN) for body in play.bodies] == [None, "t1", "t1"]
    assert play.pauses[:2] == [0.0, 0.0], "another node at once"


def test_a_node_that_stops_hands_over_to_another() -> None:
    play = Play([[HEAD, row(1), token(1), LEAVING], [HEAD, row(2), token(2), LIMIT]])
    assert play.run() == ["k1", "k2"]


def test_a_limit_counts_over_all_nodes() -> None:
    text = "SELECT * FROM T EMIT CHANGES LIMIT 3;"
    first = [HEAD, row(1), token(1), BROKEN]
    play = Play([first, [HEAD, row(2) + row(3), token(3), LIMIT]], text)
    assert play.run() == ["k1", "k2", "k3"]
    assert play.bodies[1]["ksql"].endswith("LIMIT 2;")


def test_a_limit_that_is_reached_needs_no_other_node() -> None:
    play = Play([[HEAD, row(1), token(1), BROKEN]], "SELECT * FROM T EMIT CHANGES LIMIT 1;")
    assert play.run() == ["k1"]
    assert len(play.bodies) == 1


def test_a_deleted_row() -> None:
    play = Play([[HEAD, row(1, is_deleted=True), token(1), LIMIT]])
    play.run()
    assert (play.rows[0].is_deleted, play.rows[0]["P"]) == (True, None)


def test_an_error_of_the_answer_ends_it() -> None:
    play = Play([[HEAD, row(1), FORM.failed(ServerError("T was dropped"))]])
    with pytest.raises(ServerRefused, match="T was dropped"):
        play.run()
    assert len(play.rows) == 1, "what came before it"


def test_a_wrong_statement_is_not_tried_elsewhere() -> None:
    body = json.dumps(StatementError("no").body()).encode()
    with pytest.raises(StatementError):
        Play([HttpAnswer(400, {}, body)]).run()


def test_a_busy_node_is_passed_over() -> None:
    busy = HttpAnswer(429, {"retry-after": "1"}, b'{"error_code":42900,"message":"busy"}')
    play = Play([busy, [HEAD, row(1), token(1), LIMIT]])
    assert play.run() == ["k1"]


def test_a_busy_node_is_left_alone_as_long_as_it_says() -> None:
    busy = HttpAnswer(429, {"retry-after": "7"}, b'{"error_code":42900,"message":"busy"}')
    answers = [busy, [HEAD, row(1), token(1), BROKEN], [HEAD, row(2), token(2), LIMIT]]
    play = Play(answers)
    assert play.run() == ["k1", "k2"]
    first, second, third = play.addresses
    assert (first != second, second == third) == (True, True)


def test_where_all_are_busy_it_waits_for_the_first() -> None:
    busy = [
        HttpAnswer(429, {"retry-after": after}, b'{"error_code":42900,"message":"busy"}')
        for after in ("9", "7")
    ]
    play = Play([*busy, [HEAD, row(1), token(1), LIMIT]])
    assert play.run() == ["k1"]
    assert play.addresses[2] == play.addresses[1]
    assert 7 <= play.now_s < 8


def test_where_all_are_busy_for_too_long_it_gives_up_at_once() -> None:
    busy = HttpAnswer(429, {"retry-after": "31"}, b'{"error_code":42900,"message":"busy"}')
    play = Play([busy, busy])
    with pytest.raises(NodesUnreachable, match="wants no request for 31"):
        play.run()
    assert play.now_s < 1


@pytest.mark.parametrize("before", [[HEAD], [HEAD, token(0)]])
def test_answers_that_break_at_once_are_not_asked_for_at_once(before: list[bytes]) -> None:
    """A proxy may take each request, and drop it."""
    play = Play([[*before, BROKEN] for _ in range(15)] + [[HEAD, row(1), token(1), LIMIT]])
    assert play.run() == ["k1"]
    assert play.pauses[-3:] == [2.0, 2.0, 2.0]


def test_answers_without_a_token_are_none() -> None:
    play = Play([[HEAD, BROKEN] for _ in range(1000)])
    with pytest.raises(NodesUnreachable, match="within 30 s"):
        play.run()


def test_an_answer_that_lasted_is_continued_at_once() -> None:
    lasting = [HEAD, token(0), Quiet(6.0, BROKEN)]
    play = Play([*[lasting[:] for _ in range(12)], [HEAD, row(1), token(1), LIMIT]])
    assert play.run() == ["k1"]
    assert set(play.pauses) == {0.0}


def test_a_refused_text_is_not_tried_elsewhere() -> None:
    body = json.dumps({"error_code": TextRefused.code, "message": "it stopped a worker"}).encode()
    with pytest.raises(ServerRefused, match="stopped a worker"):
        Play([HttpAnswer(429, {"retry-after": "60"}, body)]).run()


def test_it_gives_up_after_its_patience() -> None:
    play = Play([])
    with pytest.raises(NodesUnreachable, match="within 30 s"):
        play.run()
    assert play.pauses[-1] == 2.0, "the pauses grow up to a limit"


def test_a_quiet_answer_that_breaks_goes_on_at_another_node() -> None:
    """While nothing changes, nodes send nothing: patience counts from the break."""
    end = Quiet(31.0, BROKEN)
    first = [HEAD, row(1), token(1), end]
    play = Play([first, BROKEN, [HEAD, row(2), token(2), end], [HEAD, row(3), token(3), LIMIT]])
    assert play.run() == ["k1", "k2", "k3"]


def test_the_time_that_the_caller_takes_is_no_silence_of_the_nodes() -> None:
    play = Play([[HEAD, row(1) + token(1), BROKEN], [HEAD, row(2), token(2), LIMIT]])

    class Slowly(list[Any]):
        def append(self, one: Any) -> None:
            play.now_s += 31.0
            super().append(one)

    play.rows = Slowly()
    assert play.run() == ["k1", "k2"]


def test_after_a_quiet_answer_it_gives_up_after_its_patience() -> None:
    play = Play([[HEAD, row(1), token(1), Quiet(31.0, BROKEN)]])
    with pytest.raises(NodesUnreachable, match="within 30 s"):
        play.run()
    assert 31 + 30 < play.now_s < 31 + 30 + 2 + 1


#: of a node that says how often a token comes
TELLING = HttpAnswer(200, {TOKEN_INTERVAL_HEADER: "3000"}, b"")
USUAL_S = 3.0 * SILENT_INTERVALS


def test_the_header_has_one_name() -> None:
    assert push_query.TOKEN_INTERVAL_HEADER.decode() == TOKEN_INTERVAL_HEADER


def test_a_silent_node_is_left_for_another() -> None:
    """It is paused, or hangs: its connection does not break."""
    first = [TELLING, HEAD, row(1), token(1), row(2), Quiet(USUAL_S, SILENT)]
    play = Play([first, [TELLING, HEAD, row(2), token(2), LIMIT]])
    assert play.run() == ["k1", "k2"]
    assert set(play.addresses) == {"a:1", "b:1"}
    assert [body["streamsProperties"].get(TOKEN) for body in play.bodies] == [None, "t1"]
    assert set(play.within_s[:-1]) == {USUAL_S, 2 * USUAL_S}


def test_a_row_that_takes_long_is_waited_for_longer_and_longer() -> None:
    """Else it would be begun at one node after the other, and never come."""
    quiet = [TELLING, HEAD, token(0), SILENT]
    rows = [TELLING, HEAD, row(1), token(1), token(1), SILENT]
    play = Play([quiet, quiet[:], rows, [TELLING, HEAD, row(2), token(2), LIMIT]])
    assert play.run() == ["k1", "k2"]
    ticks = [round((each or 0) / USUAL_S) for each in play.within_s]
    assert ticks == [1, 1, 1, 2, 2, 2, 4, 4, 4, 1, 1, 2, 2, 2, 1, 1]


def test_it_is_not_waited_for_without_end() -> None:
    play = Play([[TELLING, HEAD, token(0), SILENT] for _ in range(9)])
    with pytest.raises(NodesUnreachable, match=r"[ab]:1: (reset|silent for \d+ s)"):
        play.run()
    assert max(each or 0 for each in play.within_s) == USUAL_S * SILENT_FACTOR_MAX


@pytest.mark.parametrize("said", ["", "0", "-1", "soon", "\u00b2"])
def test_a_node_that_does_not_say_it_may_be_silent_for_ever(said: str) -> None:
    head = HttpAnswer(200, {TOKEN_INTERVAL_HEADER: said} if said else {}, b"")
    play = Play([[head, HEAD, row(1), token(1), LIMIT]])
    assert play.run() == ["k1"]
    assert set(play.within_s) == {None}


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_each_row_once_wherever_it_breaks(seed: int) -> None:
    """A log of rows, cut at random places, into random pieces, with tokens here and there. Answers
    without a token never come for as long as the reader is patient."""
    chance = random.Random(seed)
    count = chance.randint(1, 12)
    answers: list[list[Any]] = []
    at = without_token = 0
    while at < count:
        end = chance.randint(at, count) if without_token < 10 else count
        items = [HEAD]
        for number in range(at, end):
            items.append(row(number))
            items += [token(number + 1)] if chance.random() < 0.5 else []
        is_whole = end == count
        items += [token(count), LIMIT] if is_whole else []
        log = b"".join(items)
        log = log if is_whole else log[: chance.randint(0, len(log))]
        cuts = sorted(chance.randint(0, len(log)) for _ in range(chance.randint(0, 4)))
        pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
        answers.append([*filter(None, pieces), *([] if is_whole else [BROKEN])])
        # what the cut has left decides where the next node continues
        kept = [number for number in range(at, end + 1) if token(number) in log]
        without_token = 0 if kept else without_token + 1
        at = count if is_whole else max(kept, default=at)
    assert Play(answers).run() == [f"k{number}" for number in range(count)]


def seen(batch: int) -> str:
    """What reads of the session have shown."""
    return SessionToken({TableKey("c", "T_1"): SeenBatch(1, batch, 1)}).text()


def pushed(at: int) -> bytes:
    return FORM.session_token(own(at))


def own(at: int) -> str:
    """Of a push query that has shown batch 10 + `at`."""
    newest = SeenBatch(1, 10 + at, 1)
    return SessionToken(followed={TableKey("c", "T_1"): FollowedTable(1, {0: at}, newest)}).text()


def test_a_session_sees_what_it_delivers_and_goes_on_at_its_own_last_token() -> None:
    """What reads beside it have seen is further, and would leave changes out."""
    session = ClientSession(seen(7))
    first = [HEAD, row(1), pushed(1), row(2), BROKEN]
    play = Play([first, [HEAD, row(2), pushed(2), LIMIT]], session=session)
    reads, goes_on = list[bool](), list[bool]()

    class Rows(list[Any]):
        def append(self, one: Any) -> None:
            token, whole = (
                SessionToken.parse(session.token),
                SessionToken.parse(own(len(reads) + 1)),
            )
            reads.append(token.covers(whole.for_reads()))
            goes_on.append(token.covers(whole))
            session.saw(seen(9))
            super().append(one)

    play.rows = Rows()
    assert play.run() == ["k1", "k2"]
    assert reads == [True, True], "no read is older than a row that the caller has"
    assert goes_on == [False, False], "the caller may leave before it has the next"
    assert SessionToken.parse(session.token).covers(SessionToken.parse(own(2)))
    asked = [body["streamsProperties"] for body in play.bodies]
    assert [each[TOKEN_PROPERTY] for each in asked] == [seen(7), own(1)]
    assert all(TOKENS not in each and TOKEN not in each for each in asked)


@pytest.mark.parametrize(
    ("before", "delivered", "batch"),
    [([], 0, 10), ([pushed(1)], 1, 11), ([pushed(1), row(2)], 1, 11)],
)
def test_an_error_leaves_no_row_that_the_session_does_not_know(
    before: list[bytes], delivered: int, batch: int
) -> None:
    """A read of the session would else be older than what its caller has."""
    session = ClientSession(seen(7))
    failed = FORM.failed(ServerError("T was dropped or recreated"))
    play = Play([[HEAD, pushed(0), row(1), *before, failed]], session=session)
    with pytest.raises(ServerRefused, match="dropped or recreated"):
        play.run()
    assert len(play.rows) == delivered
    (mark,) = SessionToken.parse(session.token).seen.values()
    assert mark.batch == batch


def test_from_the_beginning_in_a_session_is_not_behind_it() -> None:
    session = ClientSession(seen(7))
    earliest = {RESET: "earliest"}
    answers = [BROKEN, [HEAD, row(1), pushed(1), BROKEN], [HEAD, pushed(1), LIMIT]]
    play = Play(answers, properties=earliest, session=session)
    play.run()
    asked = [body["streamsProperties"][TOKEN_PROPERTY] for body in play.bodies]
    assert asked == ["", "", own(1)]


def test_a_token_that_is_refused_ends_it() -> None:
    body = json.dumps(TokenRefused("it is gone").body()).encode()
    with pytest.raises(TokenRefused, match="it is gone"):
        Play([HttpAnswer(400, {}, body)], session=ClientSession()).run()


def test_without_a_session_there_is_none_to_join() -> None:
    client = Operations(Nodes(("a:1",)), lambda: 0.0)
    with pytest.raises(ValueError, match="keeps no session"):
        push_reader(client, "SELECT * FROM T EMIT CHANGES;", (), 1.0, in_session=True)
    alone = push_reader(client, "SELECT * FROM T EMIT CHANGES;", (), 1.0)
    assert alone.session is None
    client = Operations(Nodes(("a:1",)), lambda: 0.0, Settings(session=""))
    joined = push_reader(client, "SELECT * FROM T EMIT CHANGES;", (), 1.0, in_session=True)
    assert joined.session is client.session
    apart = push_reader(client, "SELECT * FROM T EMIT CHANGES;", (), 1.0)
    assert apart.session is None, "unless it is asked for"
