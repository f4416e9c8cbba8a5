r"""What an answer is made of: its layout, and headers that say how fresh its rows are. Pure.

| form | first | each row | end |
|---|---|---|---|
| ARRAY | `[{"header":{queryId,schema}}` | `,\n{"row":{"columns":[…]}}` | `]` |
| LINES | `{queryId,columnNames,columnTypes}\n` | `[…]\n` | |
| OBJECTS | `[{queryId,columnNames,columnTypes}` | `,\n[…]` | `]` |

An unknown number is left out, never 0: a missing header says that no node knows. A lag in records
counts against the largest committed end that any node reported: the replica's own, what peers
reported to this node, and, for a forward, what its sender knows. A sender that knows more than the
target did adds the difference.

Source: ksqlDB's REST API for the layouts; KLIP-12 for the lag. Not here: push queries
(`node.worker.push.encoding`), errors (`node.worker.responses`), the record of
freshness and its reader (`freshness.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from standpipe.control.liveness.lag import offset_lag
from standpipe.data.query.scan import ROW_BYTES, rows_bytes
from standpipe.data.replica.positions import StoreMeta, replica_lag_ms, source_lag_ms
from standpipe.freshness import (
    END_HEADER,
    LEASE_EPOCH_HEADER,
    REPLICA_LAG_HEADER,
    SOURCE_LAG_HEADER,
    Freshness,
    parse_headers,
)
from standpipe.model import UNLABELLED, Offset, ReplicaStatus
from standpipe.node.worker.request.head import Form
from standpipe.sql.plans import PullPlan

_LAG: Final = rb"%b: [0-9]+\r\n"
_REPLICA_LAG, _SOURCE_LAG = _LAG % REPLICA_LAG_HEADER.encode(), _LAG % SOURCE_LAG_HEADER.encode()
_are_lags: Final = re.compile(b"(?:%b)?(?:%b)?" % (_REPLICA_LAG, _SOURCE_LAG)).fullmatch
_find_lags: Final = re.compile(b"%b(?:%b)?|%b" % (_REPLICA_LAG, _SOURCE_LAG, _SOURCE_LAG)).search
#: no end is smaller than NO_END
_NONE: Final = Offset(-2)


def render_rows(
    form: Form,
    plan: PullPlan,
    rows: Sequence[bytes],
    at_ms: int,
    final_message: str = "",
    *,
    token: str | None = None,
) -> bytes:
    """The body of an answer: header, then one JSON array per row of `rows`.

    `at_ms` (Unix) makes the query id, as in ksqlDB. `final_message`: for streams, in form ARRAY.
    `token`: of the session that asked; None: none did.
    """
    if token is not None:
        whole = render_rows(form, plan, rows, at_ms)
        return (whole if form is Form.LINES else whole[:-1]) + token_tail(form, token)
    if form is Form.ARRAY:
        schema = plan.schema.replace("\\", "\\\\").replace('"', '\\"')
        head = f'[{{"header":{{"queryId":"query_{at_ms}","schema":"{schema}"}}}}'.encode()
        tail = b"]"
        if final_message:
            tail = b',\n{"finalMessage":"%b"}]' % final_message.encode()
        if not rows:
            return head + tail
        columns = b'}},\n{"row":{"columns":'.join(rows)
        return b'%b,\n{"row":{"columns":%b}}%b' % (head, columns, tail)
    names = msgspec.json.encode(plan.column_names)
    types = msgspec.json.encode(plan.column_types)
    head = b'{"queryId":"query_%d","columnNames":%b,"columnTypes":%b}' % (at_ms, names, types)
    if form is Form.LINES:
        return b"\n".join((head, *rows, b""))
    return b"[%b]" % b",\n".join((head, *rows))


def token_tail(form: Form, token: str) -> bytes:
    """A session's token and the end of its answer, in ksqlDB's shape of each layout."""
    item = b'{"consistencyToken":"%b"}' % token.encode()
    if form is Form.LINES:
        return item + b"\n"
    return b',\n{"consistencyToken":%b}]' % item if form is Form.ARRAY else b",\n%b]" % item


class ArrivingRows:
    """The rows of an answer in the LINES form, taken apart piece by piece as a peer sends them.

    So they are in memory once. `hold` charges the answer that they are for, before they are kept,
    and may raise. As a context manager, it charges what `rows_bytes` says in the end; or nothing,
    if the block fails, since the rows are then dropped.
    """

    def __init__(self, hold: Callable[[int], None] = lambda more_bytes: None) -> None:
        self.rows: list[bytes] = []
        self._hold, self._held_bytes = hold, 0
        #: pieces of the line that has not ended
        self._begun: list[bytes] = []
        self._has_header = False

    def take(self, piece: bytes) -> None:
        """The next bytes of the answer. Raises what `hold` raises."""
        begun, *lines = piece.split(b"\n")
        more_bytes = len(piece) + ROW_BYTES * len(lines)
        self._hold(more_bytes)
        self._held_bytes += more_bytes
        self._begun.append(begun)
        if not lines:
            return
        ended = [b"".join(self._begun), *lines[:-1]]
        self._begun = [lines[-1]]
        self.rows += ended if self._has_header else ended[1:]
        self._has_header = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rows.clear()  # the error refers to them by its traceback
            self._begun.clear()
        self._hold(rows_bytes(self.rows) - self._held_bytes)


# -------------------------------------------------------------------------------- freshness


def freshness_of(
    status: ReplicaStatus,
    rows: StoreMeta | None = None,
    *,
    reported_end: Offset,
    served_by: str,
    role: str,
    boot_ms: int,
    unix_ms: int,
) -> Freshness:
    """Freshness of a replica's answer at an instant, given on both clocks.

    `rows`: the meta in the transaction that the rows were read in, which may be newer than the
    page; None: no rows, the page alone. `reported_end`: the largest committed end that others
    reported; NO_END: none.
    """
    shown = status if rows is None else rows
    return Freshness(
        served_by=served_by,
        role=role,
        state=status.state.name,
        offset_lag=offset_lag((status.committed_end, reported_end), shown.position),
        replica_lag_ms=replica_lag_ms(status, boot_ms),
        source_lag_ms=source_lag_ms(
            status, shown.source_instant_ms, now_ms=unix_ms, now_boot_ms=boot_ms
        ),
        batch=None if shown.batch in UNLABELLED else shown.batch,
    )


def header_lines(fresh: Freshness) -> bytes:
    """Header lines of a response, each closed by CRLF."""
    lines = [
        f"standpipe-served-by: {fresh.served_by}\r\n",
        f"standpipe-role: {fresh.role}\r\n",
        f"standpipe-state: {fresh.state}\r\n",
    ]
    if fresh.offset_lag is not None:
        lines.append(f"standpipe-offset-lag: {fresh.offset_lag}\r\n")
    if fresh.replica_lag_ms is not None:
        lines.append(f"{REPLICA_LAG_HEADER}: {fresh.replica_lag_ms}\r\n")
    if fresh.source_lag_ms is not None:
        lines.append(f"{SOURCE_LAG_HEADER}: {fresh.source_lag_ms}\r\n")
    if fresh.batch is not None:
        lines.append(f"standpipe-batch: {fresh.batch}\r\n")
    if fresh.committed_end is not None:
        lines.append(f"{END_HEADER}: {fresh.committed_end}\r\n")
    if fresh.lease_epoch is not None:
        lines.append(f"{LEASE_EPOCH_HEADER}: {fresh.lease_epoch}\r\n")
    return "".join(lines).encode()


def headers(fresh: Freshness) -> list[tuple[bytes, bytes]]:
    """The same as pairs, for ASGI."""
    lines = header_lines(fresh).split(b"\r\n")[:-1]
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def against(fresh: Freshness, known_end: Offset | None) -> Freshness:
    """A peer's answer corrected by what this node knows, which may be more. Its lag may come out
    too large, as the peer does not send its position, but never too small.

    `known_end`: the largest committed end that this node knows; None: none.
    """
    lag, end = fresh.offset_lag, fresh.committed_end
    if lag is not None and end is not None and known_end is not None:
        lag += max(0, known_end - end)
    return msgspec.structs.replace(fresh, offset_lag=lag, committed_end=None)


@dataclass(slots=True)
class PeerLabels:
    """The freshness headers for clients, from those of a peer's answers. Until the peer's rows or
    the end change, one answer differs from the next in its lags in ms only, which stay as they are:
    to lay out all of them for each ms would take longer than the rest of a forward."""

    #: the peer's, before the lags and from there on
    said_front: bytes = b""
    said_rest: bytes = b""
    #: the end that this node knew
    end: Offset = _NONE
    #: a client's, around the same lags
    front: bytes = b""
    rest: bytes = b""

    def of(self, said: bytes, end: Offset) -> bytes:
        """Those for a client. `said`: the peer's; `end`: the furthest that this node knows."""
        begin, rest_at = len(self.said_front), len(said) - len(self.said_rest)
        if (
            end == self.end
            and begin <= rest_at
            and said.startswith(self.said_front)
            and said.endswith(self.said_rest)
            and _are_lags(said, begin, rest_at)
        ):
            return self.front + said[begin:rest_at] + self.rest
        label = label_of(said, end)
        self.said_front, lags, self.said_rest = _around_lags(said)
        self.front, same, self.rest = _around_lags(label)
        self.end = end if lags == same else _NONE
        return label


def _around_lags(lines: bytes) -> tuple[bytes, bytes, bytes]:
    """Header lines before the lags in ms, the lags, and what follows. Without lags: all, and none,
    and none."""
    found = _find_lags(lines)
    begin, end = found.span() if found else (len(lines), len(lines))
    return lines[:begin], lines[begin:end], lines[end:]


def label_of(said: bytes, end: Offset) -> bytes:
    """The freshness headers for a client, from the head of a peer's answer."""
    lines = (line.partition(": ") for line in said.decode("latin-1").split("\r\n"))
    fresh = parse_headers({name: value for name, _, value in lines})
    return header_lines(against(fresh, end if end >= 0 else None))


def oldest(parts: Iterable[Freshness]) -> Freshness:
    """Freshness of an answer gathered from several: as stale as its stalest part.

    A lag that one part does not know is unknown for the whole.
    """
    listed = list(parts)
    first = listed[0]
    if len(listed) == 1 or (first.committed_end is None and listed.count(first) == len(listed)):
        return first
    served_by = ", ".join(dict.fromkeys(part.served_by for part in listed))
    roles = {part.role for part in listed}
    states = {part.state for part in listed}
    batches = [part.batch for part in listed]
    known = [batch for batch in batches if batch is not None]
    return Freshness(
        served_by=served_by,
        role=roles.pop() if len(roles) == 1 else "mixed",
        state="RUNNING" if states == {"RUNNING"} else min(states - {"RUNNING"}),
        offset_lag=_largest([part.offset_lag for part in listed]),
        replica_lag_ms=_largest([part.replica_lag_ms for part in listed]),
        source_lag_ms=_largest([part.source_lag_ms for part in listed]),
        batch=min(known) if len(known) == len(batches) else None,
    )


def _largest(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def describe(
    status: ReplicaStatus | None, *, reported_end: Offset, boot_ms: int, unix_ms: int
) -> dict[str, object]:
    """A status page as JSON, at an instant on both clocks; what is unknown is null.

    `reported_end`: as of `freshness_of`. `committedEnd` is what the replica knows itself.
    """
    if status is None:
        return {"state": "ABSENT"}
    source_lag = source_lag_ms(
        status, status.source_instant_ms, now_ms=unix_ms, now_boot_ms=boot_ms
    )
    return {
        "state": status.state.name,
        "position": status.position,
        "committedEnd": None if status.committed_end < 0 else status.committed_end,
        "logEnd": None if status.log_end < 0 else status.log_end,
        "offsetLag": offset_lag((status.committed_end, reported_end), status.position),
        "replicaLagMs": replica_lag_ms(status, boot_ms),
        "sourceLagMs": source_lag,
        "batch": None if status.batch in UNLABELLED else status.batch,
        "rows": status.rows,
        "foreignRecords": status.foreign_records,
        "watermarkMs": status.watermark_ms,
    }
