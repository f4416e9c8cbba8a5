"""Requests that were applied: a statement that is sent twice is applied once.

The catalog remembers the outcomes of the newest requests. A copy of an older one would look like a
new request, so a request says up to which index of the log its sender knew the catalog before it
made the id: no copy of it was applied up to there. If an outcome from after that index is
forgotten, it may be the outcome of this request: the leader refuses it.

    log       ──────●────────────────●───────────────────────►
              known_index      forgotten_index   outcomes that are remembered
                    └─ a copy may have been applied here ─┘

Not here: who sends a request twice (`node.controller.leader_proxy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.control.metadata.commands import Receipt
from standpipe.errors import OutcomeUnknown
from standpipe.model import LeaseEpoch, LogIndex, Record

#: Requests remembered; older ones are forgotten.
REQUESTS_MAX: Final = 1024
#: Bytes of the statements and answers of remembered requests, from feature level TOPIC_IDS on.
REQUEST_BYTES_MAX: Final = 1 << 20


class AppliedRequest(Record, frozen=True, kw_only=True):
    """The outcome of a request, so that a retried request is applied once.

    `refusal` is not empty if the command was rejected. `lease_epoch`: what a StartPipeline was
    granted, so that a retry gets the same answer.
    """

    index: LogIndex
    receipt: Receipt | None = None
    refusal: str = ""
    lease_epoch: LeaseEpoch = LeaseEpoch(0)

    @property
    def text_bytes(self) -> int:
        """Bytes of its texts, at most."""
        receipt = self.receipt
        texts = (self.refusal, *((receipt.statement, receipt.message) if receipt else ()))
        return sum(len(text.encode()) for text in texts)


def remember(
    outcomes: Mapping[str, AppliedRequest],
    request_id: str,
    outcome: AppliedRequest,
    *,
    bytes_max: int | None = None,
) -> tuple[dict[str, AppliedRequest], LogIndex]:
    """The outcomes plus this one, oldest first: at most REQUESTS_MAX, and of `bytes_max` bytes of
    text (None: no limit). The newest always stays. Also the newest index that is forgotten by it;
    0: none is."""
    requests = {**outcomes, request_id: outcome}
    excess = len(requests) - REQUESTS_MAX
    if bytes_max is not None:
        excess = max(excess, _excess(list(requests.values()), bytes_max))
    forgotten = LogIndex(0)
    for oldest in list(requests)[: max(0, excess)]:
        forgotten = requests.pop(oldest).index
    return requests, forgotten


def _excess(outcomes: list[AppliedRequest], bytes_max: int) -> int:
    """How many of the oldest must go."""
    room = bytes_max
    for kept, outcome in enumerate(reversed(outcomes)):
        room -= outcome.text_bytes
        if room < 0:
            return len(outcomes) - max(kept, 1)
    return 0


def check_not_forgotten(known_index: LogIndex | None, forgotten_index: LogIndex) -> None:
    """Whether a request that is not remembered is surely a new one; `known_index` None: its sender
    is of a release that does not say. Raises OutcomeUnknown."""
    if known_index is not None and known_index < forgotten_index:
        raise OutcomeUnknown(
            f"the request arrived too late: its sender knew the log up to {known_index}, and the "
            f"outcomes of requests up to {forgotten_index} are forgotten, so it may have been "
            "executed before. Look whether it was; if not, send it again"
        )
