"""The replica of this node at one instant: what was judged, and the rows that it was judged for.

The page is read first, then the rows with the meta of their transaction, which labels them. A page
that may not decide about these rows (`data.replica.positions.may_judge`) is a refusal: its next
version follows within milliseconds.

Not here: the verdict (`control.routing.route`), the fast path (`node.worker.pull.fast_path`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from standpipe.adapters.store.reader import HeldView
from standpipe.control.routing.route import Verdict
from standpipe.data.replica.positions import StoreMeta, may_judge
from standpipe.model import ReplicaStatus
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.refusals import readable
from standpipe.node.worker.pull.route_cache import CachedRoute
from standpipe.node.worker.request.cluster_view import LocalReplica

UNFIT_PAGE: Final = "Replica's rows are not those that its status describes: it is being changed."
NOT_OWNER: Final = "NOT_OWNER: no replica of this partition is assigned to this host."


class ReadInstant(NamedTuple):
    """The same instant on two clocks."""

    boot_ms: int
    unix_ms: int


class Judged(NamedTuple):
    """A replica that may be read. `rows`: what was recorded with the rows that were read; `at`:
    when they were, which for a scan is long before its end."""

    status: ReplicaStatus
    verdict: Verdict
    rows: StoreMeta
    at: ReadInstant


@dataclass(frozen=True)
class LocalRead:
    """A read of this node's replica. `route`: decides again, if anything has changed."""

    replica: LocalReplica
    route: Callable[[], CachedRoute]
    #: raises ForwardRefused for rows that are too old now, of a replica with this page
    check: Callable[[ReplicaStatus, StoreMeta], ReadInstant]

    def page(self) -> tuple[ReplicaStatus, Verdict]:
        """The status of the replica and the verdict on it, before its rows are read. Raises
        ForwardRefused if it may not be read."""
        route = self.route()
        verdict = verdict_here(route)
        return readable(route.status, verdict), verdict

    def begin_scan(self) -> tuple[Judged, HeldView]:
        """A view of the newest rows, for the caller to close. Raises ForwardRefused, NotReady."""
        page = self.page()
        view = self.replica.store.instant()
        try:
            return self.judged(page, view.meta()), view
        except BaseException:
            view.close()
            del view  # the traceback would keep its transaction's slot (`OwnRows._looked_up`)
            raise

    def judged(self, page: tuple[ReplicaStatus, Verdict], rows: StoreMeta) -> Judged:
        """The page, with the meta of the instant that was read after it. Raises ForwardRefused if
        the page may not decide about its rows, or they are too old."""
        if not may_judge(page[0], rows):
            raise ForwardRefused(UNFIT_PAGE)
        return Judged(*page, rows, self.check(page[0], rows))


def verdict_here(route: CachedRoute) -> Verdict:
    """The verdict on the local replica. Raises ForwardRefused if there is none."""
    here = next((verdict for verdict in route.verdicts if verdict.is_local), None)
    if here is None:
        raise ForwardRefused(NOT_OWNER, is_not_owner=True)
    return here
