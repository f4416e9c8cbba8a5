"""Bugs put into read level `snapshot` on purpose: the judge must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from standpipe.control.routing import snapshot
from standpipe.control.routing.session import Stamp
from standpipe.freshness import Freshness
from standpipe.node.worker.pull import fast_path, forward_checks, snapshot_read
from standpipe.node.worker.pull.forward import PartitionAnswer
from standpipe.node.worker.pull.known import lists
from standpipe.node.worker.pull.snapshot_read import SnapshotRead

from . import snapshot_world
from .runner import Plant, replacing
from .snapshot_world import SnapshotReplica, SnapshotWorld


def parts_not_compared() -> list[Plant]:
    """The first answers are taken, whatever they are of."""
    return [(snapshot_read, "next_round", lambda _: None)]


def rounds_end_with_what_is_there() -> list[Plant]:
    """After the last round, parts that differ are an answer."""

    def make(found: Any) -> Any:
        calls = [0]

        def patient(had: Sequence[Stamp]) -> Any:
            calls[0] += 1
            return None if calls[0] % snapshot.ROUNDS_MAX == 0 else found(had)

        return patient

    return [replacing(snapshot_read, "next_round", make)]


def second_round_trusted() -> list[Plant]:
    """What comes back is taken for the wanted batch, though it may be a later one."""

    def make(round_of: Any) -> Any:
        async def trusting(ask: Any, partitions: Any, *rest: Any) -> Any:
            async def asked(places: Any, wanted: Any, left_ms: int) -> Any:
                parts = await ask(places, wanted, left_ms)
                if wanted is None:
                    return parts
                return [replace(part, stamps=(wanted,)) for part in parts]

            return await round_of(asked, partitions, *rest)

        return trusting

    return [replacing(snapshot_world, "of_one_batch", make)]


def first_parts_only_compared() -> list[Plant]:
    """A part is compared with the next one, and the last two are forgotten."""
    return [replacing(snapshot_read, "next_round", lambda found: lambda had: found(had[:2]))]


def lease_epoch_ignored() -> list[Plant]:
    """Batch 7 is batch 7, no matter who committed it."""

    def make(found: Any) -> Any:
        def lax(had: Sequence[Stamp]) -> Any:
            return found([Stamp(one.batch, 0) for one in had])

        return lax

    return [
        replacing(snapshot_read, "next_round", make),
        (fast_path, "stamp_in", lambda rows: Stamp(rows.batch, 0)),
        (snapshot, "_age", lambda stamp: (0, stamp.batch)),
    ]


def rows_of_no_batch_accepted() -> list[Plant]:
    """After a gap, two parts without a batch seem to agree."""
    return [
        (snapshot, "_is_none", lambda _: False),
        (SnapshotRead, "check_answer", lambda *_: None),
    ]


def rows_of_no_batch_on_the_fast_path() -> list[Plant]:
    """There only the stamps are compared."""

    def equal(metas: Sequence[Any], _: object = None) -> bool:
        return len({(one.batch, one.lease_epoch) for one in metas}) == 1

    return [(module, "is_one_batch", equal) for module in (fast_path, lists)]


def fast_path_does_not_compare() -> list[Plant]:
    """It answers what is here."""
    return [(module, "is_one_batch", lambda *_: True) for module in (fast_path, lists)]


def stamp_from_the_page() -> list[Plant]:
    """It was read before the rows, and may be older."""

    def make(taken: Any) -> Any:
        def paged(self: SnapshotWorld, replica: SnapshotReplica, read: Any) -> Any:
            meta, rows = taken(self, replica, read)
            page = replica.page
            assert page is not None
            return replace(meta, batch=page.batch, lease_epoch=page.lease_epoch), rows

        return paged

    return [replacing(SnapshotWorld, "taken", make)]


def meta_of_a_later_transaction() -> list[Plant]:
    """The rows are read, and then what is recorded with them."""

    def make(taken: Any) -> Any:
        def later(self: SnapshotWorld, replica: SnapshotReplica, read: Any) -> Any:
            _, rows = taken(self, replica, read)
            self.step()
            return replica.meta(), rows

        return later

    return [replacing(SnapshotWorld, "taken", make)]


def scan_goes_on_in_a_newer_view() -> list[Plant]:
    """It had to give its view back, and does not begin again."""
    return [(SnapshotWorld, "is_same_view", lambda *_: True)]


def stamp_of_the_loser() -> list[Plant]:
    """A hedge's winner gives the rows, its loser the stamp."""

    def mixed(_: SnapshotWorld, winner: PartitionAnswer, loser: PartitionAnswer) -> PartitionAnswer:
        return replace(winner, stamps=loser.stamps)

    return [(SnapshotWorld, "outcome", mixed)]


def rows_kept_with_the_newer_stamp() -> list[Plant]:
    """A part is asked again, and only its stamp is replaced."""

    def make(round_of: Any) -> Any:
        async def stale(ask: Any, partitions: Any, *rest: Any) -> Any:
            before: dict[int, PartitionAnswer] = {}

            async def asked(places: Any, wanted: Any, left_ms: int) -> Any:
                parts = await ask(places, wanted, left_ms)
                for place, part in zip(places, parts, strict=True):
                    before.setdefault(place, part)
                kept = [before[place].rows for place in places]
                return [replace(part, rows=rows) for part, rows in zip(parts, kept, strict=True)]

            return await round_of(asked, partitions, *rest)

        return stale

    return [replacing(snapshot_world, "of_one_batch", make)]


def answer_of_an_older_release_believed() -> list[Plant]:
    """It says no lease epoch, so the wanted batch is assumed."""

    def believed(self: SnapshotRead, fresh: Freshness) -> None:
        del self, fresh

    def assumed(fresh: Freshness) -> Stamp:
        return Stamp(fresh.batch or 0, fresh.lease_epoch or 1)

    return [(SnapshotRead, "check_answer", believed), (snapshot_world, "stamp_of", assumed)]


def generation_ignored() -> list[Plant]:
    """The target answers from the table that it has under that name."""
    return [(forward_checks, "check", lambda *_: None)]


SNAPSHOT_PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    parts_not_compared,
    rounds_end_with_what_is_there,
    second_round_trusted,
    first_parts_only_compared,
    lease_epoch_ignored,
    rows_of_no_batch_accepted,
    rows_of_no_batch_on_the_fast_path,
    fast_path_does_not_compare,
    stamp_from_the_page,
    meta_of_a_later_transaction,
    scan_goes_on_in_a_newer_view,
    stamp_of_the_loser,
    rows_kept_with_the_newer_stamp,
    answer_of_an_older_release_believed,
    generation_ignored,
)
