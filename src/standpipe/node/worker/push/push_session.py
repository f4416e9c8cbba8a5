"""The session of one push query: where it begins, and the token of what it has shown.

    token of the request ─► Where does the query begin? ─► rows ─► token of the answer

Of a table that a query of ours writes, a token names its batches and the query's positions in its
topic; of any other topic, the positions alone, which reads downstream wait for
(`data/commit/written_offsets.py`). A token's text is bounded as those that come from clients are.

Not here: whether the rows of a pull query cover a token (`node/worker/pull/session_read.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from standpipe.control.routing.session import SessionVerdict, Stamp, followed_of, wanted_of
from standpipe.data.commit.committed import Committed
from standpipe.data.query.push_start import (
    HOUR_MS,
    TopicRange,
    has_each_change,
    names_topic,
    scan_of,
    starts_of_table,
    starts_of_topic,
)
from standpipe.data.query.record_rows import topic_of
from standpipe.errors import BadRequest, TokenRefused
from standpipe.model import Snapshot, Source
from standpipe.session_scan import PushScan
from standpipe.session_token import (
    FORGED_OR_LOST,
    TOKEN_CHARS_MAX,
    FollowedTable,
    SeenBatch,
    SessionToken,
    TableKey,
    TopicKey,
)

#: of the first token of a query that does not go on from another: later ones have larger numbers,
#: and a client may keep the positions of a stream twice, for reads as well
FIRST_CHARS_MAX: Final = TOKEN_CHARS_MAX // 2


@dataclass
class PushSession:
    """Of one push query. `writer`: the query of ours that writes the topic."""

    before: SessionToken
    source: Source
    writer: str | None
    snapshot: Snapshot
    #: Kafka's, of a topic that is no table of ours; "": not known
    topic_id: str = ""
    _topic: str = field(init=False)
    #: when it began at the beginning, hours of Unix time; None: it did not, or it is past that
    _scan_hour: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._topic = topic_of(self.source)

    @property
    def has_batches(self) -> bool:
        """Whether its tokens name batches of a table, as those of reads do."""
        source = self.source
        is_table = source.kind == "TABLE" and source.table_id is not None
        return is_table and self.writer is not None and source.query_id == self.writer

    def starts(
        self,
        committed: Committed | None,
        ends: Mapping[int, int],
        log_starts: Callable[[], dict[int, int]],
        now_ms: int,
    ) -> dict[int, int] | None:
        """Where it begins; None: where the request says, as the session has not seen the source.

        `log_starts` asks Kafka for the first offsets. `now_ms`: of the wall clock. Raises
        TokenRefused, NoReplica.
        """
        cluster, others = self.snapshot.cluster_id, self.snapshot.sources
        if not self.has_batches:
            wanted_of(self.before, self.source, cluster, others)  # of another cluster, perhaps
            if not names_topic(self.before, self._topic):
                return None
            there = TopicRange(
                self._topic,
                log_starts(),
                ends,
                self.topic_id,
                committed,
                is_compacted=self._is_of_table,
                now_ms=now_ms,
            )
            return starts_of_topic(self.before, there)
        assert committed is not None
        followed = followed_of(self.before, self.source, cluster, others)
        if followed is None:
            return None
        self._check_committed(committed)
        there = TopicRange(
            self._topic,
            log_starts(),
            ends,
            committed=committed,
            is_compacted=True,
            now_ms=now_ms,
        )
        starts = starts_of_table(followed, there)
        scan = scan_of(followed)
        self._scan_hour = None if scan is None else scan.hour
        return starts

    def begins_at_beginning(self, now_ms: int) -> None:
        """The session has not seen the source, and the request asks for all of it."""
        self._scan_hour = now_ms // HOUR_MS

    @property
    def _is_of_table(self) -> bool:
        """Whether the topic is a table's, which the source may be declared over as a stream."""
        return any(
            each.kind == "TABLE" and self._topic in (each.topic, topic_of(each))
            for each in self.snapshot.sources
        )

    def _check_committed(self, committed: Committed) -> None:
        """All of progress was read after the request had arrived."""
        snapshot = self.snapshot
        wanted = wanted_of(self.before, self.source, snapshot.cluster_id, snapshot.sources)
        newest = committed.newest()
        if wanted.mark is None:
            return
        if newest is None:
            raise TokenRefused(f"{FORGED_OR_LOST} {self.source.name} has no committed batch.")
        stamp = Stamp(newest.commit.batch, newest.commit.lease_epoch)
        verdict = wanted.verdict(stamp, is_current=True)
        if verdict is not SessionVerdict.COVERED:
            raise TokenRefused(f"{FORGED_OR_LOST} {wanted.why(stamp, verdict)}")

    def token(self, positions: Mapping[int, int], committed: Committed | None, now_ms: int) -> str:
        """Covers all that was shown before these positions, and the token of the request. `now_ms`:
        of the wall clock."""
        if not self.has_batches:
            seen = {TopicKey(self._topic, self.topic_id): {**positions}}
            return self.before.merged(SessionToken(streamed=seen)).text()
        assert committed is not None
        generation, reached = self.source.generation, committed.reached(positions)
        newest = None if reached is None else SeenBatch(generation, *reached)
        if self._scan_hour is not None and has_each_change(committed, positions, now_ms):
            self._scan_hour = None
        scan = None if self._scan_hour is None else PushScan.of(positions, self._scan_hour)
        followed = FollowedTable(generation, {**positions}, newest, scan=scan)
        table = TableKey(self.snapshot.cluster_id, self.source.table_id or "")
        return self.before.merged(SessionToken(followed={table: followed})).text()

    def check_room(self, first: str) -> None:
        """Raises BadRequest if a later token could be too long to be sent back. A query that goes
        on at another node has the room that it was given as it began."""
        chars_max = TOKEN_CHARS_MAX if self._goes_on else FIRST_CHARS_MAX
        if len(first) > chars_max:
            raise BadRequest(
                f"the session token would have {len(first)} characters, {chars_max} at most as the"
                f" query begins: {self.source.name} has {self.source.partitions} partitions;"
                " start a new session, or use continuation tokens instead"
            )

    @property
    def _goes_on(self) -> bool:
        """Whether the token has positions of a push query on this source. One of reads has none."""
        if not self.has_batches:
            return names_topic(self.before, self._topic)
        table = TableKey(self.snapshot.cluster_id, self.source.table_id or "")
        followed = self.before.followed.get(table)
        return followed is not None and bool(followed.positions)
