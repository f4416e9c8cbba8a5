"""What became of requests, so that one that is asked again is applied once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.control.metadata.commands import Receipt
from standpipe.model import LeaseEpoch, LogIndex, Record

#: Requests that are remembered; the oldest are forgotten.
REQUESTS_MAX: Final = 1024


class AppliedRequest(Record, frozen=True, kw_only=True):
    """What became of a request. `refusal` is not empty if the command did not fit.

    `lease_epoch`: what a StartPipeline was given, so that it is told the same again.
    """

    index: LogIndex
    receipt: Receipt | None = None
    refusal: str = ""
    lease_epoch: LeaseEpoch = LeaseEpoch(0)


def remember(
    memory: Mapping[str, AppliedRequest], request_id: str, outcome: AppliedRequest
) -> dict[str, AppliedRequest]:
    """The memory with one more, oldest first, at most REQUESTS_MAX."""
    requests = {**memory, request_id: outcome}
    for forgotten in list(requests)[: max(0, len(requests) - REQUESTS_MAX)]:
        del requests[forgotten]
    return requests
