"""One read at level `session`: the token that came with it, and the checks of the rows.

    SessionTokens.of       what a token wants of a table: parsed once for each text
    check                  this node's rows, by the meta of their transaction
    check_answer           rows that a peer gave, which has checked them itself
    is_due                 whether a page says that the rows should be looked at again
    KnownToken.token       of the answer: all that was seen before, and these rows

The node that was asked routes, the node that has the rows enforces: each reads the token in the
client's own body, which a forward carries. A target of an older release ignores it, and does not
say the lease epoch of its rows: such an answer is refused. One of a release that knows sessions,
and not what they write, refuses the token.

Rows cover what the session wrote, or saw on a topic, from the first batch on of which the tailer
says so. That batch is remembered with the token: the tailer soon tells of newer ones only, which
the rows may not have reached.

Not here: what covers a token (`control.routing.session`, `data.commit.written_offsets`), waiting
(`node.worker.pull.session_waits`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from standpipe.control.routing.session import SessionVerdict, Stamp, Wanted, token_after, wanted_of
from standpipe.data.commit.written_offsets import Lacking, first_covering, lacking
from standpipe.data.replica.positions import StoreMeta
from standpipe.freshness import Freshness
from standpipe.model import NO_BATCH, ReplicaStatus, Snapshot, Source
from standpipe.node.covered_files import CoveredFiles
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.session_token import SessionToken

#: tokens that a worker remembers, and how long their texts may be
KNOWN_MAX: Final = 256
KNOWN_CHARS_MAX: Final = 4_096
NO_SESSIONS: Final = "Level session: the peer's release does not know session tokens."


@dataclass
class KnownToken:
    """A token as a read of one table needs it."""

    before: SessionToken
    wanted: Wanted
    source: Source
    cluster: str
    #: what the tailer says of this node's tables
    files: CoveredFiles
    #: the oldest batch that is known to cover what the session wrote
    _covered_from: Stamp | None = None
    #: the rows that were read last and cover it, and the token after them
    _after: tuple[StoreMeta, str] | None = None

    def covers(self, rows: StoreMeta) -> bool:
        """Whether the rows cover it, as far as their stamp tells."""
        stamp = Stamp(rows.batch, rows.lease_epoch)
        is_seen = self.wanted.verdict(stamp, is_current=False) is SessionVerdict.COVERED
        return is_seen and self.has_writes(stamp)

    def has_writes(self, stamp: Stamp) -> bool:
        """Whether rows of this batch, which is one, have all that the session wrote."""
        writes, known = self.before.offsets, self._covered_from
        if not writes or (known is not None and _is_after(stamp, known)):
            return True
        batch = first_covering(writes, self.files.of(self.table))
        if batch is None:
            return False
        found = Stamp(batch.batch, batch.lease_epoch)
        if known is None or _is_after(known, found):
            self._covered_from = found
        return _is_after(stamp, found)

    @property
    def table(self) -> tuple[str, int]:
        """The table that is read, and its generation."""
        return self.source.table_id or "", self.source.generation

    def token(self, stamps: Sequence[Stamp]) -> str:
        """Of an answer whose parts have these stamps."""
        return token_after(self.before, self.source, self.cluster, stamps).text()

    def token_if_covered(self, rows: StoreMeta) -> str | None:
        """Of an answer with these rows; None: they do not cover it. Judged once for each batch: a
        store's reader gives the same object until its rows change."""
        if self._after is not None and self._after[0] is rows:
            return self._after[1]
        if not self.covers(rows):
            return None
        text = self.token((Stamp(rows.batch, rows.lease_epoch),))
        self._after = (rows, text)
        return text


#: of a token: its text; table, generation, cluster; since when the same queries lead to the table
_Place = tuple[str, str, int, str, int]


@dataclass
class SessionTokens:
    """The tokens that a worker has read last: many clients carry equal ones."""

    _known: dict[_Place, KnownToken] = field(default_factory=dict[_Place, KnownToken])

    def of(
        self,
        text: str,
        source: Source,
        cluster: str,
        files: CoveredFiles,
        others: Iterable[Source] = (),
        *,
        way: int = 0,
    ) -> KnownToken:
        """What a token wants of a table. `others`: all that the map has. `way`: of
        `CoveredFiles.way`. Raises TokenRefused; NoReplica for an older map."""
        place = (text, source.table_id or "", source.generation, cluster, way)
        known = self._known.get(place)
        if known is None:
            token = SessionToken.parse(text)
            wanted = wanted_of(token, source, cluster, others)
            known = KnownToken(token, wanted, source, cluster, files)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            if len(text) <= KNOWN_CHARS_MAX:
                self._known[place] = known
        return known

    def by_map(
        self, text: str, source: Source, snapshot: Snapshot, files: CoveredFiles
    ) -> KnownToken:
        """As `of`, by this worker's map. Only a token that names writes asks for the way: to find
        it costs a look at the whole catalog for each entry of the log."""
        cluster, others = snapshot.cluster_id, snapshot.sources
        known = self.of(text, source, cluster, files, others)
        if not known.before.offsets:
            return known
        return self.of(text, source, cluster, files, others, way=files.way(snapshot, source))


@dataclass(frozen=True)
class SessionRead:
    """`arrived_boot_ms`: when this node got the read, on its boot clock."""

    known: KnownToken
    arrived_boot_ms: int

    @property
    def wanted(self) -> Wanted:
        """Of the table that is read."""
        return self.known.wanted

    @property
    def waits_for(self) -> Hashable:
        """Equal for reads of which only the arrival may differ: not what they want of the table,
        nor what their sessions wrote."""
        writes = self.known.before.offsets
        return self.wanted, frozenset((key, *ends.items()) for key, ends in writes.items())

    def check(self, page: ReplicaStatus, rows: StoreMeta, now_boot_ms: int) -> None:
        """Raises ForwardRefused if the rows do not cover the token.

        `page` was read before the rows, so Kafka's confirmation in it is true of them, too.
        """
        stamp = Stamp(rows.batch, rows.lease_epoch)
        is_page_older = rows.batch >= page.batch and rows.lease_epoch >= page.lease_epoch
        is_current = is_page_older and self._is_confirmed(page, now_boot_ms)
        self._refuse(stamp, self.wanted.verdict(stamp, is_current=is_current))
        lack = self._lacking(stamp, now_boot_ms)
        if lack is not None:
            verdict = SessionVerdict.BEYOND if lack.is_final else SessionVerdict.BEHIND
            raise ForwardRefused(f"Level session: {lack.why}", session=verdict)

    def is_due(self, page: ReplicaStatus | None, now_boot_ms: int) -> bool:
        """Whether rows of this page's batch would end the wait, one way or the other."""
        if page is None or not page.state.answers:
            return True  # for the reader to say why
        stamp = Stamp(page.batch, page.lease_epoch)
        is_current = self._is_confirmed(page, now_boot_ms)
        verdict = self.wanted.verdict(stamp, is_current=is_current)
        if verdict is not SessionVerdict.COVERED:
            return verdict is not SessionVerdict.BEHIND
        lack = self._lacking(stamp, now_boot_ms)
        return lack is None or lack.is_final

    def _lacking(self, stamp: Stamp, now_boot_ms: int) -> Lacking | None:
        """What the session wrote and rows of this batch lack, as far as is known."""
        known = self.known
        if known.has_writes(stamp):
            return None
        told = known.files.ends_after(self.arrived_boot_ms, now_boot_ms)
        return lacking(known.before.offsets, known.files.of(known.table), *stamp, told)

    def check_answer(self, fresh: Freshness) -> None:
        """Raises ForwardRefused if a peer's answer does not say that its rows cover the token."""
        if fresh.batch is None or fresh.lease_epoch is None:
            raise ForwardRefused(NO_SESSIONS)
        stamp = Stamp(fresh.batch, fresh.lease_epoch)
        if not self.wanted.after_switch:  # that one only the target can judge
            self._refuse(stamp, self.wanted.verdict(stamp, is_current=False))

    def _is_confirmed(self, page: ReplicaStatus, now_boot_ms: int) -> bool:
        """Whether it was at the committed end at an instant after the read arrived. A page of an
        earlier boot of the machine may have any instant."""
        is_after = self.arrived_boot_ms < page.confirmed_boot_ms <= now_boot_ms
        return is_after and page.batch != NO_BATCH

    def _refuse(self, stamp: Stamp, verdict: SessionVerdict) -> None:
        if verdict is not SessionVerdict.COVERED:
            raise ForwardRefused(self.wanted.why(stamp, verdict), session=verdict)


def _is_after(one: Stamp, other: Stamp) -> bool:
    """Whether rows of one batch have all of the other."""
    return one.batch >= other.batch and one.epoch >= other.epoch


def stamp_of(fresh: Freshness) -> Stamp:
    """Of a part of an answer that `SessionRead` has checked."""
    batch = NO_BATCH if fresh.batch is None else fresh.batch
    return Stamp(batch, fresh.lease_epoch or 0)
