"""One push query, from its text to its last item: `Live` over a topic
(`node/worker/push/stream_loop.py`).

    plan ─► where it starts: latest (the default), earliest, an earlier token, or a session's
         ─► progress topic read to its end, if a query of ours writes the rows
         ─► TopicTail ─► PushQuery ─► PushForm

The query ends with an error if its stream or table is dropped or recreated, if another query writes
its topic now (it would wait for commits of the old one), or if Kafka removed records before they
were read: no row is skipped silently.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from standpipe.adapters.http.server import Headers
from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.read_once import log_ends, log_starts, read_topic
from standpipe.adapters.kafka.reader import Partition
from standpipe.adapters.kafka.tail import TopicTail
from standpipe.adapters.kafka.topic_ids import topics_now
from standpipe.control.metadata.transients import is_transient_id
from standpipe.data.commit.committed import Committed
from standpipe.data.commit.seal import NO_SEAL, ProgressReader, ProgressSeal
from standpipe.data.query.push import (
    PushQuery,
    Token,
    identity_of,
    parse_token,
    token_text,
)
from standpipe.data.query.record_rows import Share, TopicRecord, topic_of, writer_of
from standpipe.errors import BadRequest, ServerError, StandpipeError
from standpipe.model import Progress, Snapshot, Source
from standpipe.node.worker.push.encoding import PushForm
from standpipe.node.worker.push.push_session import PushSession
from standpipe.node.worker.push.stream_loop import STEP_BYTES, STEP_RECORDS, Ending, is_large
from standpipe.node.worker.request.body import PUSH_TOKEN
from standpipe.node.worker.request.cluster_view import ClusterView, Map
from standpipe.node.worker.request.computing_turn import FREE, Turn
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.session_token import SessionToken
from standpipe.sql.context import sanitised
from standpipe.sql.plans import PushPlan
from standpipe.topics import progress_topic

READ_S_MAX: Final = 30.0  # for the progress topic
POLL_RECORDS: Final = 200
NAME_CHARACTERS_MAX: Final = 64

RESET: Final = ("auto.offset.reset", "ksql.streams.auto.offset.reset")
#: between two tokens for records that were read and not shown: a client that resumes behind them
#: need not have them read again
UNSHOWN_TOKEN_S: Final = 1.0
#: so often a token comes even if nothing changes: a client that gets none goes to another node
TOKEN_INTERVAL_S: Final = 3.0
#: says so, in ms
TOKEN_INTERVAL_HEADER: Final = b"standpipe-token-interval-ms"
#: asks for tokens; ksqlDB's name, like that of `PUSH_TOKEN`, which gives one back
TOKENS: Final = "ksql.query.push.v2.continuation.tokens.enabled"

_LAST: Final = {
    Ending.OVER: "Limit Reached",
    Ending.CLOSED: "Query Completed",
    Ending.LEAVING: "Query ended: the node is about to stop. Continue at another node.",
}


def new_query_id(source: str) -> str:
    """As ksqlDB names push queries; safe as the name of a file."""
    name = sanitised(source)[:NAME_CHARACTERS_MAX]
    return f"transient_{name}_{secrets.randbits(63)}"


def starts_at_end(properties: Mapping[str, str]) -> bool:
    """Whether only future rows are wanted, which is ksqlDB's default. Raises BadRequest."""
    for name in RESET:
        reset = properties.get(name, "").lower()
        if reset:
            if reset not in ("earliest", "latest"):
                raise BadRequest(f"{name} = {reset!r}: use earliest or latest")
            return reset == "latest"
    return True


@dataclass
class PushAnswer:
    """`Live`, once it is opened."""

    plan: PushPlan
    properties: Mapping[str, str]
    form: PushForm
    query_id: str
    map: Map
    kafka: Kafka
    seal: ProgressSeal = NO_SEAL
    #: None: there is no schema registry
    schemas: SchemaFetcher | None = None
    #: which thread computes while it is opened
    turn: Turn = FREE
    #: the token of its session, "" for the first one; None: it has no session
    session_text: str | None = None
    #: monotonic seconds
    now_s: Callable[[], float] = time.monotonic
    #: of the wall clock, seconds
    wall_s: Callable[[], float] = time.time
    _query: PushQuery = field(init=False)
    _committed_by: Committed | None = field(init=False, default=None)
    _tail: TopicTail = field(init=False)
    #: a token is due, for rows that were sent
    _is_token_due: bool = field(init=False, default=False)
    #: its positions may be ahead of the rows that were sent
    _is_taking: bool = field(init=False, default=False)
    #: from then on, steps have a thread
    _has_met_large: bool = field(init=False, default=False)
    #: what the last token covers, and when it was sent
    _told: tuple[Mapping[int, int], float] = field(init=False, default=({}, 0.0))

    def __post_init__(self) -> None:
        self._topic = topic_of(self.plan.source)
        snapshot = self.map.view.snapshot
        self._view = self.map.view
        self._identity = identity_of(self.plan.source, snapshot.cluster_id)
        self._writer = writer_of(self._topic, snapshot)
        self._progress_topic = progress_topic(snapshot.service_id)
        self._progress = ProgressReader(self.seal)
        self._from_end = starts_at_end(self.properties)
        self._is_continued = self.properties.get(TOKENS, "").lower() == "true"
        self._session = self._session_of(self.session_text, snapshot)

    def _session_of(self, text: str | None, snapshot: Snapshot) -> PushSession | None:
        """Raises TokenRefused, and BadRequest for tokens of both kinds."""
        if text is None:
            return None
        if text and self.properties.get(PUSH_TOKEN):
            raise BadRequest(
                "the query cannot begin behind a continuation token and a session token: leave one"
                " of them out"
            )
        return PushSession(SessionToken.parse(text), self.plan.source, self._writer, snapshot)

    @property
    def headers(self) -> Headers:
        """Of the answer: its media type and, if it gives tokens, how often at least."""
        found = [(b"content-type", self.form.form.value)]
        if self._gives_tokens:
            found.append((TOKEN_INTERVAL_HEADER, b"%d" % (TOKEN_INTERVAL_S * 1000)))
        return found

    @property
    def is_costly(self) -> bool:
        """Whether a row may take long to compute, or a large record has come."""
        return self.plan.has_costly_rows or self._has_met_large

    @property
    def is_over(self) -> bool:
        """Whether the statement's LIMIT is reached."""
        return self._query.is_over

    def open(self) -> None:
        """Raises KafkaUnavailable, or BadRequest, TokenRefused or NoReplica for a token that does
        not fit."""
        with self.turn:
            self._open()

    def _open(self) -> None:
        committed, read = None, 0
        if self._writer is not None:
            committed, read = self._committed(self._writer)
        numbers = range(self.plan.source.partitions)
        if committed is None:
            with self.turn.waiting():
                ends = log_ends(self.kafka, self._topic, self.plan.source.partitions)
        else:
            ends = {number: committed.end(number) for number in numbers}
        self._committed_by = committed
        session = self._session
        if session is not None and not session.has_batches:
            with self.turn.waiting():
                found = topics_now(self.kafka, [self._topic]).get(self._topic)
            session.topic_id = "" if found is None else found.topic_id
        starts = self._starts(ends)
        registry = None if self.schemas is None else self.schemas.registry
        self._query = PushQuery(self.plan, starts, committed, registry)
        if session is not None:
            session.check_room(session.token(starts, committed, self._now_ms()))
        places = {Partition(self._topic, number): at for number, at in starts.items()}
        if committed is not None:
            places[Partition(self._progress_topic, 0)] = read
        self._tail = TopicTail(self.kafka, places)

    def _committed(self, writer: str) -> tuple[Committed, int]:
        """What is committed by now, and the offset after it in the progress topic."""
        committed, read = Committed(writer), 0
        deadline = time.monotonic() + READ_S_MAX
        waiting = self.turn.waiting
        for record in read_topic(self.kafka, self._progress_topic, 1, deadline, waiting):
            self._take_progress(committed.take, record)
            read = record.offset + 1
        if read == 0:  # nothing was ever committed
            with waiting():
                read = log_starts(self.kafka, self._progress_topic, 1)[0]
        return committed, read

    def _take_progress(self, take: Callable[[Progress], None], record: TopicRecord) -> None:
        if record.value is not None:  # tailers log what is ignored
            progress = self._progress.read(record.key, record.value, record.headers)
            if progress is not None:
                take(progress)

    def _starts(self, ends: Mapping[int, int]) -> dict[int, int]:
        text = self.properties.get(PUSH_TOKEN)
        if text:
            known = parse_token(text, self._identity, self.plan.source.partitions)
            ahead = [number for number, at in known.items() if at > ends[number]]
            if ahead:
                raise BadRequest(f"the continuation token is ahead of partition {ahead[0]}")
            missing = ends.keys() - known.keys()
            return {**(self._log_starts() if missing else {}), **known}
        if self._session is not None:
            seen = self._session.starts(self._committed_by, ends, self._log_starts, self._now_ms())
            if seen is not None:
                return seen
            if not self._from_end:
                self._session.begins_at_beginning(self._now_ms())
        return dict(ends) if self._from_end else self._log_starts()

    def _now_ms(self) -> int:
        return int(self.wall_s() * 1000)

    def _log_starts(self) -> dict[int, int]:
        with self.turn.waiting():
            return log_starts(self.kafka, self._topic, self.plan.source.partitions)

    def head(self) -> bytes:
        """The answer's first item."""
        self._is_token_due = True  # a client may be gone before the first row
        return self.form.head(self.plan, self.query_id)

    def step(self) -> bytes | None:
        """Raises RecordsLost; ServerError when the source has changed."""
        self._check_source()
        if self._query.is_ready and self._has_schemas():
            self._is_taking = True  # until its positions are those of the rows that are sent
            taken = self._query.take(Share(STEP_RECORDS, STEP_BYTES), self._now_ms())
            rows = self.form.rows(taken)
            self._is_taking = False
            self._is_token_due |= bool(taken)
            return rows
        if self._gives_tokens and self._is_next_token_due():
            return self._tokens()
        records = self._tail.poll(POLL_RECORDS)
        for topic, record in records:
            if topic == self._topic:
                self._query.heard(record)
                self._has_met_large |= is_large(record)
            else:
                self._take_progress(self._query.progress, record)
        self._tail.hold({Partition(self._topic, number) for number in self._query.held})
        return b"" if records else None

    def _has_schemas(self) -> bool:
        """Whether the schemas of the next records are known. While the registry does not answer,
        the query waits: it would else leave good records out, or end."""
        if self.schemas is None:
            return True
        return self.schemas.are_known(self._query.schema_ids(STEP_RECORDS))

    def last(self, ending: Ending) -> bytes:
        """A token if the client wants them, and the final message."""
        return self._tokens() + self.form.end(_LAST[ending])

    def failed(self, error: StandpipeError) -> bytes:
        """An error as the answer's last item, after a token for the rows that came before it."""
        is_told = self._gives_tokens and self._is_token_due and not self._is_taking
        return (self._tokens() if is_told else b"") + self.form.failed(error)

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()

    @property
    def _gives_tokens(self) -> bool:
        return self._is_continued or self._session is not None

    def _is_next_token_due(self) -> bool:
        if self._is_token_due:
            return True
        positions, told_s = self._told
        ago_s = self.now_s() - told_s
        if ago_s < UNSHOWN_TOKEN_S:
            return False
        return ago_s >= TOKEN_INTERVAL_S or positions != self._query.positions

    def _tokens(self) -> bytes:
        """Of the kinds that the client has asked for."""
        positions = self._query.positions
        self._is_token_due, self._told = False, ({**positions}, self.now_s())
        told = b""
        if self._is_continued:
            told = self.form.token(token_text(Token(of=self._identity, positions=positions)))
        if self._session is not None:
            token = self._session.token(positions, self._committed_by, self._now_ms())
            told += self.form.session_token(token)
        return told

    def _check_source(self) -> None:
        """One comparison, unless control has published since."""
        if self.map.view is self._view:
            return
        self._view = self.map.view
        check_source(self.plan.source, self._writer, self._view)


def check_source(source: Source, writer: str | None, view: ClusterView) -> None:
    """Raises ServerError if a query that began when `writer` wrote its topic may not continue."""
    now, topic = view.sources.get(source.name), topic_of(source)
    if is_transient_id(source.name) and source.query_id == source.name:  # else a user's stream
        now = _transient(source.name, view)
    if now is None or _made(now) != _made(source):
        raise ServerError(f"{source.name} was dropped or recreated: the query ends")
    if writer_of(topic, view.snapshot) != writer:
        # the topic's writer was dropped or recreated: the old query no longer commits
        raise ServerError(f"another query writes {topic} now, or none: the query ends")


def _transient(query_id: str, view: ClusterView) -> Source:
    """What a transient query writes. Raises ServerError if it has ended, or has failed in Spark."""
    now = next((each for each in view.snapshot.transients if each.query_id == query_id), None)
    if now is None:
        raise ServerError(
            f"{query_id} has ended: it was terminated, what it reads was dropped or replaced, or"
            " this node could not renew it"
        )
    for status in view.snapshot.query_statuses:
        if status.query_id == query_id and status.state == "FAILED":
            raise ServerError(f"{query_id} has failed: {status.reason}: {status.message}")
    return now


def _made(source: Source) -> tuple[object, ...]:
    """What adding a column does not change."""
    return (source.topic, source.changelog, source.table_id, source.generation, source.query_id)
