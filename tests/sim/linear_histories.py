"""Histories of linearizable reads over a table of registers, and their judge.

Every batch writes some keys, and a key's value is the number of the batch that wrote it. One writer
and growing values make it easy to judge: a read is wrong if and only if a key is older than it was
in the newest batch that

- was committed, and acknowledged, before the read began, or
- another read had shown before it began,

or shows what nobody wrote. The judge knows the writes, the acknowledgements and the reads, and
nothing of barriers, replicas or generations. Reads within a bound on the replica lag are judged in
the same way, but for what was committed within the bound, or shown by other reads.

`register_lines` is for porcupine, which knows none of this: it takes each key for a register of its
own, so that one key's value says nothing of another's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from .session_histories import NO_VALUE, SessionAnswer, Writes


def linear_violations(
    writes: Writes, committed: Sequence[tuple[float, int]], answers: Iterable[SessionAnswer]
) -> list[str]:
    """Answers that lack something. `committed`: (instant, batch) of acknowledgements, on the clock
    of the answers; `SessionAnswer.session` names the reader, and counts for nothing."""
    listed = list(answers)
    shown = [(one.end, value) for one in listed for value in one.values.values()]
    return _lacking(writes, [*committed, *shown], listed, "was committed")


def bounded_violations(
    writes: Writes,
    committed: Sequence[tuple[float, int]],
    answers: Iterable[SessionAnswer],
    bound_s: float,
) -> list[str]:
    """Answers that lack what was committed, and acknowledged, so long before they began."""
    due = [(at + bound_s, batch) for at, batch in committed]
    return _lacking(writes, due, answers, f"was committed {bound_s:g} s before")


def register_lines(
    writes: Writes,
    begun: Sequence[tuple[int, int]],
    committed: Sequence[tuple[int, int]],
    answers: Iterable[SessionAnswer],
) -> list[bytes]:
    """The history for tools/porcupine. `begun`: as `committed`, but of when a batch was first
    appended: until then nobody can read it."""
    ops: list[dict[str, object]] = []
    starts, ends = _Covering(begun), _Covering(committed)
    for key, batches in writes.of.items():
        for batch in batches:
            start_ns = starts.at(batch)
            if start_ns is not None:
                times = {"start_ns": start_ns, "end_ns": ends.at(batch) or 0}
                ops.append({"kind": "write", "key": key, "value": batch, **times})
    for answer in answers:
        times = {"start_ns": int(answer.begin), "end_ns": int(answer.end)}
        for key, value in answer.values.items():
            ops.append({"kind": "read", "key": key, "value": value, **times})
    # each is a client of its own: a reader asks for several keys at once
    return [msgspec.json.encode({"client": number, **one}) for number, one in enumerate(ops)]


class _Covering:
    """When a batch was first covered."""

    def __init__(self, seen: Sequence[tuple[int, int]]) -> None:
        self._at = [at for at, _ in sorted(seen)]
        self._covered = [*accumulate((batch for _, batch in sorted(seen)), max)]

    def at(self, batch: int) -> int | None:
        """The instant; None: it never was."""
        place = bisect_left(self._covered, batch)
        return self._at[place] if place < len(self._at) else None


def _lacking(
    writes: Writes, due: Iterable[tuple[float, int]], answers: Iterable[SessionAnswer], what: str
) -> list[str]:
    """`due`: (instant, batch): a read that begins then, or later, has the batch."""
    found: list[str] = []
    known = sorted(due)
    newest, next_one = NO_VALUE, 0
    for answer in sorted(answers, key=lambda one: one.begin):
        while next_one < len(known) and known[next_one][0] <= answer.begin:
            newest = max(newest, known[next_one][1])
            next_one += 1
        for key, value in answer.values.items():
            if value != NO_VALUE and not writes.has(key, value):
                found.append(f"{answer.session}: {key} = {value}, which no batch wrote")
            least = writes.value_at(key, newest)
            if value < least:
                found.append(
                    f"{answer.session}: batch {newest} {what}, then it read {key} = {value} "
                    f"at {answer.where}, at least {least} was due"
                )
    return found
