"""Histories of reads at level `snapshot` over a table of registers, and their judge.

Every batch writes some keys, and a key's value is the number of the batch that wrote it. A key
shows a value from the batch that wrote it until the next one that does, so an answer is the fold of
one batch if and only if these spans of all keys that it showed have a batch in common.

The judge knows the writes and the reads, and nothing of rounds, stamps or replicas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from .session_histories import NO_VALUE, SessionAnswer, Writes

#: after the newest batch of all
_END: Final = 2**62


def snapshot_violations(writes: Writes, answers: Iterable[SessionAnswer]) -> list[str]:
    """Answers that are of no one batch, or show what nobody wrote."""
    found: list[str] = []
    for answer in answers:
        unwritten = [
            f"{answer.session}: {key} = {value}, which no batch wrote"
            for key, value in answer.values.items()
            if value != NO_VALUE and not writes.has(key, value)
        ]
        found += unwritten or _mixed(writes, answer)
    return found


def _mixed(writes: Writes, answer: SessionAnswer) -> list[str]:
    """What contradicts itself in an answer: one item, or none."""
    spans = {key: _span(writes, key, value) for key, value in answer.values.items()}
    if not spans:
        return []
    newest = max(spans, key=lambda key: spans[key][0])
    oldest = min(spans, key=lambda key: spans[key][1])
    since, end = spans[newest][0], spans[oldest][1]
    if since < end:
        return []
    told = f"{newest} as of batch {since} or later, and {oldest} as of one before batch {end}"
    return [f"{answer.session}: one answer to {answer.where} has {told}"]


def _span(writes: Writes, key: str, value: int) -> tuple[int, int]:
    """The batches that show a value of a key: from the first on, and before the second."""
    written = writes.of.get(key, [])
    following = bisect_right(written, value)
    return (value, written[following] if following < len(written) else _END)
