"""Session windows of one key: which events belong together (ksqlDB's SESSION windows).

A session ends with its last event; both bounds are inclusive. An event within the gap of a session
extends it, and an event between two sessions merges them. Events are opaque to this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """`events`: (instant in ms, the caller's data), in order of arrival."""

    start_ms: int
    end_ms: int
    events: tuple[tuple[int, Any], ...]

    @property
    def bounds(self) -> tuple[int, int]:
        return (self.start_ms, self.end_ms)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a batch of events did to the sessions of a key."""

    sessions: tuple[Session, ...]  # all current sessions
    changed: tuple[Session, ...]  # of these, the new ones and those with new events
    gone: tuple[tuple[int, int], ...]  # bounds that no session has any more


def merge(sessions: Sequence[Session], events: Sequence[tuple[int, Any]], gap_ms: int) -> Merged:
    """Add events, in order of arrival, to the sessions of their key."""
    now = list(sessions)
    touched: set[tuple[int, int]] = set()
    for at_ms, event in events:
        near = [s for s in now if s.start_ms - gap_ms <= at_ms <= s.end_ms + gap_ms]
        joined = Session(
            min([at_ms, *(s.start_ms for s in near)]),
            max([at_ms, *(s.end_ms for s in near)]),
            (*(kept for s in near for kept in s.events), (at_ms, event)),
        )
        now = [s for s in now if s not in near] + [joined]
        touched -= {s.bounds for s in near}
        touched.add(joined.bounds)
    now.sort(key=lambda session: session.start_ms)
    bounds = {session.bounds for session in now}
    return Merged(
        sessions=tuple(now),
        changed=tuple(session for session in now if session.bounds in touched),
        gone=tuple(s.bounds for s in sessions if s.bounds not in bounds),
    )
