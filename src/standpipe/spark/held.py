"""The lease of one table in this process, and the connection to the nodes that renews it.

Not here: how it is waited for (`standby.py`), what ends when it is over (`query.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from standpipe.pipeline.commit.fence_watch import FenceWatch, foreign_fence, is_foreign
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.run.control_client import Follower
from standpipe.pipeline.run.reconcile import PipelineRegistration
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.errors import ServeEnded
from standpipe.spark.lease import why_over


@dataclass(frozen=True)
class HeldLease:
    """The lease of a table, of which this process is the holder."""

    follower: Follower
    me: PipelineRegistration
    wanted: WantedQuery

    def why_over(self) -> ServeEnded | None:
        """Why the process must stop to write the table, as the catalog says; None: it may go on."""
        return why_over(self.follower.catalog, self.wanted, self.me)

    def foreign_fence(self, fences: FenceWatch) -> QueryFailed | None:
        """The failure if no lease explains a fence of the table's query; None: there is none."""
        ours, follower = self.wanted.lease_epoch, self.follower
        seen, confirmed = fences.newest(self.wanted.query_id), follower.confirmed
        index = follower.catalog.index
        if not is_foreign(seen, ours, ours, confirmed=confirmed, catalog_index=index):
            return None
        assert seen is not None
        how = self.wanted.resolution("FOREIGN_FENCE")
        return foreign_fence(seen, ours, resolution=how)

    def begin_to_give_back(self) -> None:
        """As `give_back`, without waiting for the end."""
        self.follower.begin_to_close()

    def give_back(self) -> None:
        """Report once more, and let a standby take over at once."""
        self.follower.close()
