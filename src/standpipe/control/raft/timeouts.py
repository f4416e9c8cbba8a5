"""The quorum's time-outs and limits.

Not here: what happens when one expires (`core`, `leader`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: back-off doublings before pre-votes for a lost leader: bounds it to two votes with their fsyncs
LOST_DOUBLINGS: Final = 2


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Time-outs and limits; unit ms unless the name says otherwise.

    Kafka's defaults are 1000 (election), 2000 (fetch), 500 (wait), 2000 (request), chosen for a
    controller.  Ours are chosen so that a leader is replaced within a second.
    """

    election_ms: int = 300
    """How long a vote may take; up to once more is drawn on top of it for each attempt."""
    backoff_ms_min: int = 50
    """The bound of the random pause after the first lost election; it doubles with each loss."""
    backoff_ms_max: int = 500
    """The bound that doubling does not pass."""
    fetch_ms: int = 600
    """Without a good fetch for this long, plus up to 1/4 of it at random, a follower asks for
    pre-votes (`Timeouts.fetch_due_ms`)."""
    wait_ms: int = 150
    """How long a leader keeps a fetch without new entries."""
    request_ms: int = 400
    """How long a request waits for its answer, beyond `wait_ms` for a fetch."""
    retry_ms: int = 20
    """The pause after an answer that refuses, or a connection that fails."""
    change_ms: int = 10_000
    """How long a change of voters, a transfer or a shutdown may take."""
    read_ms: int = 3_000
    """How long a linearizable read waits before it fails."""
    forget_ms: int = 300_000
    """After how long a silent observer is no longer described."""
    entries_max: int = 512
    """Entries per fetch answer."""
    answer_bytes_max: int = 1 << 20
    """Commands in one fetch answer together; the first comes in any case."""
    entry_bytes_max: int = 1 << 20
    """Largest command that is accepted."""
    chunk_bytes_max: int = 1 << 18
    """Largest piece of a snapshot."""

    @classmethod
    def in_proportion(cls, fetch_ms: int, **others: int) -> "RaftSettings":
        """Our defaults scaled to another `fetch_ms`, with `others` as given.

        Time-outs of changes and reads stay the same, since those of their callers do
        (`node.controller.leader_proxy`, `node.worker.statements.read_index`).
        """
        ours = cls()

        def scaled(ms: int) -> int:
            return ms * fetch_ms // ours.fetch_ms

        return cls(
            election_ms=scaled(ours.election_ms),
            backoff_ms_min=scaled(ours.backoff_ms_min),
            backoff_ms_max=scaled(ours.backoff_ms_max),
            fetch_ms=fetch_ms,
            wait_ms=scaled(ours.wait_ms),
            request_ms=scaled(ours.request_ms),
            **others,
        )

    def __post_init__(self) -> None:
        assert self.wait_ms < self.fetch_ms, (
            "a parked fetch must return before the follower gives up"
        )
        assert self.backoff_ms_min <= self.backoff_ms_max
        # A leader gives up after its followers: else one late fetch would make it resign.
        assert self.check_ms > self.fetch_ms + self.fetch_ms // 4

    @property
    def check_ms(self) -> int:
        """How long a leader leads without fetches from a majority (check-quorum): 1.5 x fetch."""
        return self.fetch_ms * 3 // 2

    @property
    def begin_ms(self) -> int:
        """How often a leader contacts voters that do not fetch: fetch / 2 (KIP-595)."""
        return self.fetch_ms // 2


class Timeouts:
    """Draws the instant at which a role's time-out expires.  Unit: ms of the event's clock."""

    def __init__(self, settings: RaftSettings, draw: Callable[[], float]) -> None:
        """`draw` returns numbers in [0, 1)."""
        self._settings = settings
        self._draw = draw

    def election_due_ms(self, now_ms: int) -> int:
        """When an undecided election ends, and when a replica without a leader asks for votes."""
        election_ms = self._settings.election_ms
        return now_ms + election_ms + int(self._draw() * election_ms)

    def fetch_due_ms(self, now_ms: int) -> int:
        """When a follower gives up on its leader.

        Up to a quarter of jitter: followers whose parked fetches were answered together would
        otherwise give up together and split the vote (Kafka has no jitter here).
        """
        fetch_ms = self._settings.fetch_ms
        return now_ms + fetch_ms + int(self._draw() * fetch_ms / 4)

    def lost_due_ms(self, now_ms: int, timer_ms: int | None) -> int:
        """When to ask for pre-votes after the leader's process is gone: soon, but apart from other
        followers, which noticed it at the same time; never later than the fetch time-out.

        Kafka waits for the fetch time-out.  If only this follower cannot reach the leader, the
        others refuse its pre-vote, which costs them nothing (KIP-650).
        """
        due_ms = self.backoff_due_ms(now_ms, LOST_DOUBLINGS)
        return due_ms if timer_ms is None else min(due_ms, timer_ms)

    def backoff_due_ms(self, now_ms: int, doublings: int) -> int:
        """Random, exponential, bounded; at least half the bound, so that ranks differ (KIP-595)."""
        settings = self._settings
        bound = min(settings.backoff_ms_max, settings.backoff_ms_min << min(doublings, 16))
        return now_ms + bound // 2 + int(self._draw() * bound / 2)
