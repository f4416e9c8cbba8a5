"""A response around its row, as of any instant. Pure.

    head, freshness headers │ begin of the body, with the query's id │ row │ end of the body
              two lags, in ms                       Unix ms

Everything else in it stays while status, meta and reported end do. So `of` has it laid out once, by
`node.worker.request.answer`, and cuts it where these numbers stand; `at` puts in those of an
instant. The first lookup of each ms in a partition would otherwise pay the whole layout.

Not here: when it has to be laid out again (`node.worker.pull.known.frames`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from msgspec.structs import replace

from standpipe.data.query.literal_lookup import Around
from standpipe.data.replica.positions import StoreMeta, replica_lag_ms, source_lag_ms
from standpipe.freshness import REPLICA_LAG_HEADER, SOURCE_LAG_HEADER, Freshness
from standpipe.model import ReplicaStatus
from standpipe.node.worker.request.answer import header_lines, render_rows
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

#: stands for the row while a layout is cut around it: no JSON has it
_ROW: Final = b"\0"
#: stands for the time in a query's id, which comes before the names in each layout
_AT_MS: Final = 1_111_111_111_111
_AT: Final = b"%d" % _AT_MS
_REPLICA_LAG: Final = REPLICA_LAG_HEADER.encode() + b": %d\r\n"
_SOURCE_LAG: Final = SOURCE_LAG_HEADER.encode() + b": %d\r\n"


@dataclass(frozen=True, slots=True)
class DatedResponse:
    """It holds while `status`, the meta of the rows and the reported end do."""

    status: ReplicaStatus
    #: of the meta, for `source_lag_ms`
    instant_ms: int
    #: up to the length of the body
    head: bytes
    #: from there to the lags, to the time in the query's id, and to the row
    before_lags: bytes
    before_time: bytes
    before_row: bytes
    after_row: bytes
    #: what the body has besides its row and the digits of the time
    fixed_bytes: int
    #: the row's key
    is_text: bool

    @classmethod
    def of(
        cls,
        head: bytes,
        form: Form,
        plan: PullPlan,
        *,
        status: ReplicaStatus,
        meta: StoreMeta,
        fresh: Freshness,
        token: str | None = None,
    ) -> Self:
        """Of an answer with one row. `head`: up to the headers; `fresh`: with lags of any instant,
        made of `status` and `meta`; `token`: of the session that asked."""
        front = Freshness(
            served_by=fresh.served_by,
            role=fresh.role,
            state=fresh.state,
            offset_lag=fresh.offset_lag,
        )
        to_lags = header_lines(front)
        lines = header_lines(replace(fresh, replica_lag_ms=None, source_lag_ms=None))
        begin, _, end = render_rows(form, plan, (_ROW,), _AT_MS, token=token).partition(_ROW)
        to_time, _, to_row = begin.partition(_AT)
        return cls(
            status=status,
            instant_ms=meta.source_instant_ms,
            head=b"%bcontent-length: " % head,
            before_lags=b"\r\n%b" % to_lags,
            before_time=b"%b\r\n%b" % (lines.removeprefix(to_lags), to_time),
            before_row=to_row,
            after_row=end,
            fixed_bytes=len(begin) - len(_AT) + len(end),
            is_text=plan.source.key_columns[0].type == "STRING",
        )

    def lags(self, boot_ms: int, unix_ms: int) -> tuple[int | None, int | None]:
        """Replica lag and source lag as of an instant, given on both clocks; None: not known."""
        status = self.status
        source = source_lag_ms(status, self.instant_ms, now_ms=unix_ms, now_boot_ms=boot_ms)
        return replica_lag_ms(status, boot_ms), source

    def at(self, boot_ms: int, unix_ms: int) -> Around:
        """As of an instant, given on both clocks."""
        replica, source = self.lags(boot_ms, unix_ms)
        time = b"%d" % unix_ms
        middle = b"%b%b%b%b%b%b" % (
            self.before_lags,
            b"" if replica is None else _REPLICA_LAG % replica,
            b"" if source is None else _SOURCE_LAG % source,
            self.before_time,
            time,
            self.before_row,
        )
        return Around(self.head, middle, self.after_row, self.fixed_bytes + len(time), self.is_text)
