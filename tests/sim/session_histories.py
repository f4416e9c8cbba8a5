"""Histories of reads in sessions over a table of registers, and their judge.

Every batch writes some keys, and a key's value is the number of the batch that wrote it. A session
has *witnessed* batch b once an answer of it showed a value b. Read level `session` promises: a read
that begins after that shows every key as of batch b or later. That is monotonic reads for one key,
and the same across keys, as a batch covers all partitions of its table.

The judge knows the writes and the reads, and nothing of tokens, replicas or generations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: a key that no batch has written yet shows no row
NO_VALUE = -1


@dataclass(frozen=True)
class SessionAnswer:
    """One answered read. Times are of one clock; `values`: what it showed of each key asked for."""

    session: str
    begin: float
    end: float
    values: Mapping[str, int]
    where: str = ""


@dataclass
class Writes:
    """Which batches wrote each key, in order."""

    of: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, batch: int, keys: Iterable[str]) -> None:
        """A batch, after all before it."""
        for key in keys:
            self.of.setdefault(key, []).append(batch)

    def has(self, key: str, batch: int) -> bool:
        """Whether that batch wrote the key."""
        written = self.of.get(key, [])
        at = bisect_left(written, batch)
        return at < len(written) and written[at] == batch

    def value_at(self, key: str, batch: int) -> int:
        """What a replica at that batch shows."""
        written = self.of.get(key, [])
        at = bisect_right(written, batch)
        return written[at - 1] if at else NO_VALUE


def violations(writes: Writes, answers: Iterable[SessionAnswer]) -> list[str]:
    """Answers that are older than what their session had witnessed before they began, and values
    that nobody wrote."""
    found: list[str] = []
    by_session: dict[str, list[SessionAnswer]] = {}
    for answer in answers:
        by_session.setdefault(answer.session, []).append(answer)
    for listed in by_session.values():
        found += _of_session(writes, listed)
    return found


def _of_session(writes: Writes, answers: list[SessionAnswer]) -> list[str]:
    found: list[str] = []
    ended = sorted(answers, key=lambda one: one.end)
    witnessed, next_one = NO_VALUE, 0
    for answer in sorted(answers, key=lambda one: one.begin):
        while next_one < len(ended) and ended[next_one].end <= answer.begin:
            witnessed = max(witnessed, *ended[next_one].values.values())
            next_one += 1
        for key, value in answer.values.items():
            if value != NO_VALUE and not writes.has(key, value):
                found.append(f"{answer.session}: {key} = {value}, which no batch wrote")
            least = writes.value_at(key, witnessed)
            if value < least:
                found.append(
                    f"{answer.session}: witnessed batch {witnessed}, then read {key} = {value} "
                    f"at {answer.where}, at least {least} was due"
                )
    return found
