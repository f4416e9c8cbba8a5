"""Bugs put in on purpose: the net must catch each of them, or it has a hole.

Each plant replaces one method for as long as it is applied; `src` knows nothing of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from standpipe.control.raft import votes
from standpipe.control.raft.core import Raft
from standpipe.control.raft.events import ElectionState, PersistElection, Recovered
from standpipe.control.raft.followers import Followers
from standpipe.control.raft.leader import Leadership
from standpipe.control.raft.log import LogView
from standpipe.control.raft.majority import LeaderEpoch, LogOffset

from . import runner
from .disk import SimDisk
from .node import SimNode
from .raft import run_seed
from .runner import Plant, replacing


def ack_before_fsync() -> list[Plant]:
    """A write counts as flushed when it is ordered."""

    def make(wrote: Any) -> Any:
        def hasty(log: LogView) -> int:
            number = wrote(log)
            log.flushed(number)
            return number

        return hasty

    return [replacing(LogView, "wrote", make)]


def skip_the_epoch_check() -> list[Plant]:
    """A leader of an older epoch is followed when it says that it leads."""

    def make(on_begin_quorum: Any) -> Any:
        def lax(raft: Raft, sender: Any, asked: Any) -> None:
            epoch = max(asked.epoch, raft.epoch)
            on_begin_quorum(raft, sender, dataclasses.replace(asked, epoch=epoch))

        return lax

    return [replacing(Raft, "_on_begin_quorum", make)]


def _recovering(change: Callable[[Recovered], Recovered]) -> list[Plant]:
    def make(recover: Any) -> Any:
        return lambda disk: change(recover(disk))

    return [replacing(SimDisk, "recover", make)]


def vote_twice_after_restart() -> list[Plant]:
    """The election file keeps the epoch and forgets the vote."""

    def forget(found: Recovered) -> Recovered:
        if found.election is None:
            return found
        election = dataclasses.replace(found.election, voted=None)
        return dataclasses.replace(found, election=election)

    return _recovering(forget)


def lose_the_vote_file() -> list[Plant]:
    """A missing election file is taken for that of a new replica."""

    def lose(found: Recovered) -> Recovered:
        last = found.entries[-1].epoch if found.entries else found.snapshot.epoch
        return dataclasses.replace(found, election=ElectionState(last))

    return _recovering(lose)


def read_without_confirming() -> list[Plant]:
    """ReadOffset is answered at once, as KIP-650's text has it."""
    return [(Followers, "round", lambda followers, newest: newest)]


def read_confirmed_by_any_fetch() -> list[Plant]:
    """A fetch that arrives after the read counts, whenever it was sent."""

    def make(fetch: Any) -> Any:
        def lax(leadership: Leadership, asked: Any, sender: Any, now_ms: int) -> Any:
            asked = dataclasses.replace(asked, round=leadership.rounds.round)
            return fetch(leadership, asked, sender, now_ms)

        return lax

    return [replacing(Leadership, "fetch", make)]


def read_before_own_commit() -> list[Plant]:
    """A new leader answers reads with the high watermark that it knew as a follower."""

    def note(leadership: Leadership, reader: Any, request: int) -> None:
        leadership.rounds.note(reader, request, leadership._log.high_watermark)

    return [(Leadership, "note_read", note)]


def count_a_non_voter() -> list[Plant]:
    """Observers' fetches count towards the high watermark."""

    def flushed_end(followers: Followers) -> int:
        keys = {*followers._progress, *followers._log.voters.keys}
        ends = sorted((followers.flushed_end_of(key) for key in keys), reverse=True)
        return ends[followers._log.voters.majority - 1]

    return [(Followers, "flushed_end", flushed_end)]


def truncate_committed_data() -> list[Plant]:
    """A diverging follower drops its whole log."""

    def make(truncate: Any) -> Any:
        def reckless(log: LogView, end_offset: int) -> None:
            mark, log.high_watermark = log.high_watermark, LogOffset(0)
            truncate(log, end_offset)
            log.high_watermark = mark

        return reckless

    return [
        replacing(LogView, "truncate", make),
        (LogView, "truncation_for", lambda log, _: log.start.end_offset),
    ]


def pre_vote_bumps_the_epoch() -> list[Plant]:
    """Asking for pre-votes raises the epoch, as asking for votes does."""

    def make(seek: Any) -> Any:
        def eager(raft: Raft) -> None:
            raft.state.remember(ElectionState(LeaderEpoch(raft.epoch + 1)))
            seek(raft)

        return eager

    return [replacing(Raft, "_seek_election", make)]


def lead_without_a_majority() -> list[Plant]:
    """Check-quorum never strikes."""
    return [(Followers, "has_lost_quorum", lambda followers, now_ms: False)]


def apply_before_commit() -> list[Plant]:
    """The state machine gets entries as they are appended."""

    def make(apply: Any) -> Any:
        def hasty(raft: Raft) -> None:
            raft.log.commit(raft.log.end)
            apply(raft)

        return hasty

    return [replacing(Raft, "_apply", make)]


def forget_the_snapshots_epoch() -> list[Plant]:
    """A snapshot that was downloaded is installed without the epoch of its last entry."""

    def make(install: Any) -> Any:
        return lambda log, snapshot: install(
            log, dataclasses.replace(snapshot, epoch=LeaderEpoch(0))
        )

    return [replacing(LogView, "install", make)]


def reuse_an_old_incarnation() -> list[Plant]:
    """A replaced disk keeps the identity of the one before."""
    return [(SimNode, "next_key", lambda node: node.key)]


def commit_entries_of_older_epochs() -> list[Plant]:
    """A majority commits whatever it holds, of whichever epoch (Raft figure 8)."""

    def commit_offset(leadership: Leadership) -> int | None:
        end = leadership.followers.flushed_end()
        return LogOffset(end) if end > 0 else None

    return [(Leadership, "commit_offset", commit_offset)]


def vote_for_a_shorter_log() -> list[Plant]:
    """Votes do not compare logs."""
    return [
        (votes, name, tuple(r for r in rules if r is not votes.log_is_behind))
        for name, rules in (
            ("VOTE_RULES", votes.VOTE_RULES),
            ("PRE_VOTE_RULES", votes.PRE_VOTE_RULES),
        )
    ]


def persist_nothing_of_elections() -> list[Plant]:
    """Epochs and votes live in memory only."""

    def make(handle: Any) -> Any:
        def careless(raft: Raft, event: Any) -> Any:
            orders = handle(raft, event)
            return [order for order in orders if not isinstance(order, PersistElection)]

        return careless

    return [replacing(Raft, "handle", make)]


PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    ack_before_fsync,
    skip_the_epoch_check,
    vote_twice_after_restart,
    read_without_confirming,
    count_a_non_voter,
    truncate_committed_data,
    pre_vote_bumps_the_epoch,
    lead_without_a_majority,
    apply_before_commit,
    forget_the_snapshots_epoch,
    reuse_an_old_incarnation,
    lose_the_vote_file,
    read_confirmed_by_any_fetch,
    read_before_own_commit,
    commit_entries_of_older_epochs,
    vote_for_a_shorter_log,
    persist_nothing_of_elections,
)


def catch(plant: Callable[[], list[Plant]], seeds: int) -> tuple[int | None, str]:
    return runner.catch(plant, run_seed, range(seeds))
