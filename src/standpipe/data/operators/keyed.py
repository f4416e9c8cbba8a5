"""Operators with state, one key at a time: what Spark SQL cannot express (`model.SparkStep`).

    operator(state, rows, options) -> (state, rows)

A state is text, or None if there is none; rows are dicts by column. Rows of tables and streams are
text here (JSON that Spark wrote and will read), so nothing in them is lost or reinterpreted.
Operators emit the net changes of a batch, not each intermediate step.

| operator | one key is | in | out |
|---|---|---|---|
| CHANGES | a table's key | `__LIVE`, `__ROW` | `__SIGN` -1: row before, +1: row now |
| MEMBERS | a group | `__SIGN`, `__ID`, `__ROW` | all rows of the group; `__MEMBER` false: none |
| SESSIONS | a group | `__ROW` | rows of changed sessions; `__MEMBER` false: it is gone |
| LOOKUP | a join key | `__SIDE` 0 event, 1 table; `__LIVE` | events with the table's row |
| FOREIGN | a foreign key | `__SIDE` 0 left changes, 1 right | left rows, each with its right |
| STREAMS | a join key | `__SIDE` | pairs within the window, and events without a partner |

All have `__ORDER`, the arrival order, and `__ROWTIME` in ms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from standpipe.data.operators import sessions

Row = dict[str, Any]


class Result(NamedTuple):
    """`wakes_ms`: event time by which the key must be processed again at the latest."""

    state: str | None
    rows: list[Row]
    wakes_ms: int | None = None


Operator = Callable[[str | None, Sequence[Row], Mapping[str, int], int], Result]


def changes(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """A table's changes: the previous rows, and the current row.

    Rows that came and went within the batch count as previous rows: a group that contained only
    them exists from then on, and is empty (ksqlDB).
    """
    del options, watermark_ms
    *passing, newest = sorted(rows, key=lambda row: row["__ORDER"])
    common = {name: newest[name] for name in ("__ORDER", "__ROWTIME")}
    now = newest["__ROW"] if newest["__LIVE"] else None
    common["__STAYS"] = now is not None
    before = dict.fromkeys([state, *(row["__ROW"] for row in passing if row["__LIVE"])])
    found = [*((-1, row) for row in before), (1, now)]
    out = [{**common, "__SIGN": sign, "__ROW": row} for sign, row in found if row is not None]
    return Result(now, out)


def members(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """All rows of a group whenever one of them changed."""
    del options, watermark_ms
    known: dict[str, Any] = json.loads(state) if state else {"time": -1, "rows": {}}
    kept: dict[str, str] = known["rows"]
    # removals come first: a row may have left and come back
    for row in sorted(rows, key=lambda row: (row["__ORDER"], row["__SIGN"])):
        kept.pop(row["__ID"], None)
        if row["__SIGN"] > 0:
            kept[row["__ID"]] = row["__ROW"]
    at_ms = max(known["time"], *(row["__ROWTIME"] for row in rows))
    common = {"__ROWTIME": at_ms}
    out: list[Row] = [{**common, "__MEMBER": True, "__ROW": row} for row in kept.values()]
    if not kept:
        out.append({**common, "__MEMBER": False, "__ROW": None})
    return Result(_text({"time": at_ms, "rows": kept}), out)


def session_windows(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """Session windows. State: the events of sessions still open.

    `options`: gap_ms, is_final; grace_ms and retention_ms if rows have the stream time at them
    (`__T`), as in plans of newer releases: an event that is late by it is left out.
    """
    if options.get("is_final"):
        return _final_sessions(state, rows, options, watermark_ms)
    gap_ms = options["gap_ms"]
    kept = [(at_ms, (order, row)) for at_ms, order, row in json.loads(state or "[]")]
    known = sessions.merge((), kept, gap_ms).sessions
    known = tuple(each for each in known if each.end_ms + gap_ms >= watermark_ms)
    arrived = sorted(rows, key=lambda row: row["__ORDER"])
    events = [(row["__ROWTIME"], (row["__ORDER"], row["__ROW"])) for row in arrived]
    lateness = _lateness(rows, options)
    merged = sessions.merge(known, events, gap_ms, lateness)
    out: list[Row] = []
    for session in merged.changed:
        bounds = {"WINDOWSTART": session.start_ms, "WINDOWEND": session.end_ms}
        for at_ms, (_, row) in session.events:
            out.append({**bounds, "__ROWTIME": at_ms, "__MEMBER": True, "__ROW": row})
    for start_ms, end_ms in merged.gone:
        bounds = {"WINDOWSTART": start_ms, "WINDOWEND": end_ms}
        newest = max(at_ms for at_ms, _ in events)
        out.append({**bounds, "__ROWTIME": newest, "__MEMBER": False, "__ROW": None})
    newest_ms = _newest_ms(rows, lateness)
    kept_on = [each for each in merged.sessions if not _is_expired(each, newest_ms, lateness)]
    left = [(at_ms, *event) for each in kept_on for at_ms, event in each.events]
    if not left:
        return Result(None, out)
    wakes_ms = min(each.end_ms for each in kept_on) + gap_ms + 1
    return Result(_text(left), out, wakes_ms)


def _lateness(rows: Sequence[Row], options: Mapping[str, int]) -> sessions.Lateness | None:
    if "grace_ms" not in options:
        return None
    times: dict[int, int] = {row["__ORDER"]: row["__T"] for row in rows}
    return sessions.Lateness(
        lambda event: times.get(event[0]),
        gap_ms=options["gap_ms"],
        grace_ms=options["grace_ms"],
        retention_ms=options["retention_ms"],
    )


def _newest_ms(rows: Sequence[Row], lateness: sessions.Lateness | None) -> int | None:
    """The stream time at the end of the rows; None: not known."""
    return None if lateness is None else max((row["__T"] for row in rows), default=None)


def _is_expired(
    session: sessions.Session, newest_ms: int | None, lateness: sessions.Lateness | None
) -> bool:
    """The state has no expired session: it would be joined again when the sessions are made from
    its events, although nothing may join it."""
    if lateness is None or newest_ms is None:
        return False
    return lateness.is_expired(session, newest_ms)


def _final_sessions(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """EMIT FINAL: a session is emitted once, when the watermark is more than a gap past its end.
    An event that could only begin a session that is already over is late, and dropped."""
    gap_ms = options["gap_ms"]
    kept = [(at_ms, (order, row)) for at_ms, order, row in json.loads(state or "[]")]
    events = [
        (row["__ROWTIME"], (row["__ORDER"], row["__ROW"]))
        for row in sorted(rows, key=lambda row: row["__ORDER"])
        if row["__ROWTIME"] + gap_ms >= watermark_ms
    ]
    out: list[Row] = []
    left: list[tuple[int, int, str]] = []
    ends: list[int] = []
    lateness = _lateness(rows, options)
    newest_ms = _newest_ms(rows, lateness)
    for session in sessions.merge((), [*kept, *events], gap_ms, lateness).sessions:
        is_expired = _is_expired(session, newest_ms, lateness)
        is_over = session.end_ms + gap_ms < watermark_ms or is_expired
        bounds = {"WINDOWSTART": session.start_ms, "WINDOWEND": session.end_ms}
        for at_ms, (order, row) in session.events:
            if is_over:
                out.append({**bounds, "__ROWTIME": at_ms, "__MEMBER": True, "__ROW": row})
            else:
                left.append((at_ms, order, row))
        if not is_over:
            ends.append(session.end_ms)
    return Result(_text(left), out, min(ends) + gap_ms + 1) if left else Result(None, out)


def lookup(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """Events of a stream, each with the row that a table had at the event's time.

    Within a batch, time decides; at the same instant the table comes first. Events do not see a row
    that arrives in a later batch (as in ksqlDB).
    """
    del options, watermark_ms
    out: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["__ROWTIME"], -row["__SIDE"], row["__ORDER"])):
        if row["__SIDE"] == 1:
            state = row["__ROW"] if row["__LIVE"] else None
        else:
            out.append({"__ORDER": row["__ORDER"], "__LEFT": row["__ROW"], "__RIGHT": state})
    return Result(state, out)


def foreign(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """Rows of a table with the row of another that one of their columns names.

    A left row that `__STAYS`, under this foreign key or another, is emitted by the key that has it
    now: the old key emits nothing. A `__LOOSE` row names no key, so no state is kept for it.
    ROWTIME is that of the later of the two rows; if the right row was deleted, when that happened.
    """
    del options, watermark_ms
    known: dict[str, Any] = json.loads(state) if state else {"right": None, "lefts": {}}
    lefts: dict[str, str] = known["lefts"]
    put: dict[str, Row] = {}
    gone: dict[str, Row] = {}
    newest: Row | None = None
    for row in sorted(rows, key=lambda row: (row["__ORDER"], row["__SIGN"])):
        if row["__SIDE"] == 1:
            newest = row
        else:
            (put if row["__SIGN"] > 0 else gone)[row["__ID"]] = row
    for identity in gone:
        lefts.pop(identity, None)
    for identity, row in put.items():
        lefts[identity] = row["__ROW"]
    loose = [identity for identity, row in put.items() if row["__LOOSE"]]
    if newest is not None:
        known["right"] = newest["__ROW"] if newest["__LIVE"] else None
        known["right_ms"] = newest["__ROWTIME"] if newest["__LIVE"] else -1
    shown = lefts if newest is not None else {identity: lefts[identity] for identity in put}
    right_ms = known.get("right_ms", -1) if newest is None else newest["__ROWTIME"]
    out = [
        _joined(put.get(identity, newest), identity, left, known["right"], at_least_ms=right_ms)
        for identity, left in shown.items()
    ]
    for identity, row in gone.items():
        if identity not in put and not row["__STAYS"]:
            out.append(_joined(row, identity, None, None))
    for identity in loose:
        del lefts[identity]
    return Result(_text(known) if lefts or known["right"] is not None else None, out)


def _joined(
    cause: Row | None, identity: str, left: str | None, right: str | None, *, at_least_ms: int = -1
) -> Row:
    assert cause is not None
    times = {"__ORDER": cause["__ORDER"], "__ROWTIME": max(cause["__ROWTIME"], at_least_ms)}
    return {**times, "__ID": identity, "__LEFT": left, "__RIGHT": right}


def streams(
    state: str | None, rows: Sequence[Row], options: Mapping[str, int], watermark_ms: int
) -> Result:
    """Pairs of events within a window, each pair once, and events without a partner.

    `options`: before_ms, after_ms (the right event's distance from the left one), keeps_left and
    keeps_right (1: emit an event of this side without a partner), and grace_ms: -1 emits it at
    once (ksqlDB without GRACE PERIOD), else when no partner can arrive any more.
    """
    before_ms, after_ms, grace_ms = (options[n] for n in ("before_ms", "after_ms", "grace_ms"))
    is_eager = grace_ms < 0
    keeps = (options["keeps_left"], options["keeps_right"])
    #: per side: [at_ms, order, row, whether it has a partner]
    known: tuple[list[list[Any]], list[list[Any]]] = tuple(json.loads(state or "[[], []]"))
    out: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["__ROWTIME"], row["__ORDER"])):
        side, at_ms = row["__SIDE"], row["__ROWTIME"]
        low, high = (before_ms, after_ms) if side == 0 else (after_ms, before_ms)
        partners = [each for each in known[1 - side] if at_ms - low <= each[0] <= at_ms + high]
        for each in partners:
            each[3] = True
            out.append(_pair(row["__ORDER"], side, row["__ROW"], each[2], max(at_ms, each[0])))
        if not partners and keeps[side] and is_eager:
            out.append(_pair(row["__ORDER"], side, row["__ROW"], None, at_ms))
        known[side].append([at_ms, row["__ORDER"], row["__ROW"], bool(partners)])
    return _expired(known, out, options, watermark_ms)


def _expired(
    known: tuple[list[list[Any]], list[list[Any]]],
    out: list[Row],
    options: Mapping[str, int],
    watermark_ms: int,
) -> Result:
    """Drops events for which no partner can arrive any more; emits those that never had one."""
    reach = (options["after_ms"], options["before_ms"])
    keeps = (options["keeps_left"], options["keeps_right"])
    left: list[list[list[Any]]] = []
    for side in (0, 1):
        over = [each for each in known[side] if each[0] + reach[side] < watermark_ms]
        if options["grace_ms"] >= 0 and keeps[side]:
            for at_ms, order, row, has_partner in over:
                if not has_partner:
                    out.append(_pair(order, side, row, None, at_ms))
        left.append([each for each in known[side] if each not in over])
    instants = [each[0] + reach[side] + 1 for side in (0, 1) for each in left[side]]
    if not instants:
        return Result(None, out)
    return Result(_text(left), out, min(instants))


def _pair(order: int, side: int, own: str, other: str | None, at_ms: int) -> Row:
    left, right = (own, other) if side == 0 else (other, own)
    return {"__ORDER": order, "__ROWTIME": at_ms, "__LEFT": left, "__RIGHT": right}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


#: operator -> what it does, columns in, columns out ("b": boolean, "i": integer, "s": text)
OPERATORS: Final[dict[str, tuple[Operator, dict[str, str]]]] = {
    "CHANGES": (
        changes,
        {"__ORDER": "i", "__ROWTIME": "i", "__SIGN": "i", "__STAYS": "b", "__ROW": "s"},
    ),
    "MEMBERS": (members, {"__ROWTIME": "i", "__MEMBER": "b", "__ROW": "s"}),
    "SESSIONS": (
        session_windows,
        {"WINDOWSTART": "i", "WINDOWEND": "i", "__ROWTIME": "i", "__MEMBER": "b", "__ROW": "s"},
    ),
    "LOOKUP": (lookup, {"__ORDER": "i", "__LEFT": "s", "__RIGHT": "s"}),
    "FOREIGN": (
        foreign,
        {"__ORDER": "i", "__ROWTIME": "i", "__ID": "s", "__LEFT": "s", "__RIGHT": "s"},
    ),
    "STREAMS": (streams, {"__ORDER": "i", "__ROWTIME": "i", "__LEFT": "s", "__RIGHT": "s"}),
}
#: operators that drop state by event time
TIMED: Final = frozenset({"SESSIONS", "STREAMS"})
