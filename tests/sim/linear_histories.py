"""Histories of linearizable reads over a table of registers, and their judge.

Every batch writes some keys, and a key's value is the number of the batch that wrote it. One writer
and growing values make it easy to judge: a read is wrong if and only if a key is older than it was
in the newest batch that

- was committed, and acknowledged, before the read began, or
- another read had shown before it began,

or shows what nobody wrote. The judge knows the writes, the acknowledgements and the reads, and
nothing of barriers, replicas or generations. Reads within a bound on the replica lag are judged in
the same way, but for what was committed within the bound, or shown by other reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
