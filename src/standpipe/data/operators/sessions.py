"""Session windows of one key: which events belong together (ksqlDB's SESSION windows).

A session ends with its last event; both bounds are inclusive. An event within the gap of a session
extends it, and an event between two sessions merges them. Events are opaque to this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True, slots=True)
class Lateness:
    """What is late at an event, by the stream time there (Kafka Streams' session windows).

    `time_of`: the caller's data of an event -> stream time in ms, None if it is not known.
    """

    time_of: Callable[[Any], int | None]
    gap_ms: int
    grace_ms: int
    retention_ms: int

    def is_kept(self, session: Session, at_ms: int, event: Any) -> bool:
        """Whether an event at this instant may still join the session: it is not expired."""
        stream_ms = self.time_of(event)
        if stream_ms is None or at_ms >= stream_ms:
            return True  # it is not behind: what it can reach is not expired
        return not self.is_expired(session, stream_ms)

    def is_expired(self, session: Session, stream_ms: int) -> bool:
        """Whether no event can join the session any longer, now and later."""
        return session.end_ms <= stream_ms - self.retention_ms

    def is_closed(self, session: Session, event: Any) -> bool:
        """Whether the session that the event would make is over already: the event is late."""
        stream_ms = self.time_of(event)
        return stream_ms is not None and session.end_ms < stream_ms - self.grace_ms - self.gap_ms


def merge(
    sessions: Sequence[Session],
    events: Sequence[tuple[int, Any]],
    gap_ms: int,
    lateness: Lateness | None = None,
) -> Merged:
    """Add events, in order of arrival, to the sessions of their key. Late ones are left out.

    Bounds are a key: a new session replaces an expired one that has the same.
    """
    now = list(sessions)
    touched: set[tuple[int, int]] = set()
    for at_ms, event in events:
        near = [
            s
            for s in now
            if s.start_ms - gap_ms <= at_ms <= s.end_ms + gap_ms
            and (lateness is None or lateness.is_kept(s, at_ms, event))
        ]
        joined = Session(
            min([at_ms, *(s.start_ms for s in near)]),
            max([at_ms, *(s.end_ms for s in near)]),
            (*(kept for s in near for kept in s.events), (at_ms, event)),
        )
        if lateness is not None and lateness.is_closed(joined, event):
            continue
        now = [s for s in now if s not in near and s.bounds != joined.bounds] + [joined]
        touched -= {s.bounds for s in near}
        touched.add(joined.bounds)
    now.sort(key=lambda session: session.start_ms)
    bounds = {session.bounds for session in now}
    return Merged(
        sessions=tuple(now),
        changed=tuple(session for session in now if session.bounds in touched),
        gone=tuple(s.bounds for s in sessions if s.bounds not in bounds),
    )
