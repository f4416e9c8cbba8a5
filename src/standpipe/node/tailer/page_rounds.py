"""Publishes the status pages of a tailer's replicas, in rounds.

Not here: when a round is due (`data/replica/page_pace.py`), the page of a batch that was applied
just now (`node/tailer/replica.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from standpipe.adapters.clock import Clock
from standpipe.data.replica.page_pace import PagePace, Round
from standpipe.node.tailer.progress import ProgressFollower
from standpipe.node.tailer.replica import TailedReplica


class PageRounds:
    """Of one tailer."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._pace = clock, PagePace()

    def turn(
        self,
        replicas: Collection[TailedReplica],
        progress: ProgressFollower,
        sources: Callable[[], Mapping[str, int]],
    ) -> None:
        """Publish what is due. All targets of `progress` were handed to the replicas. `sources`:
        {query: as of `TailedReplica.note_sources`}."""
        began_ms = self._clock.monotonic_ms()
        due = self._pace.next(began_ms, progress.barrier_end)
        if due is Round.NONE:
            return
        covered = sources() if due is Round.ALL else dict[str, int]()
        for replica in replicas:
            replica.note_progress(progress.position, progress.topic_id)
            if due is Round.ALL:
                replica.note_sources(covered.get(replica.holding.query_id, 0))
                replica.write_page()
            elif replica.is_awaited(progress.barrier_end):
                replica.write_page()
        told = [one.told_progress for one in replicas if one.machine.state.answers]
        least = min(told, default=progress.barrier_end)
        self._pace.ended(due, began_ms, self._clock.monotonic_ms(), least)
