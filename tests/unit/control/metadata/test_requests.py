"""A request is applied once, however late its copies arrive; or its sender hears that nobody knows.

The model: senders who know the log up to some index, copies that are delivered in any order, twice,
or after the outcomes of newer requests have pushed theirs out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standpipe.control.metadata import requests
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog, from_bytes, to_bytes
from standpipe.control.metadata.commands import FoundCluster, SetFeatureLevel, StartPipeline
from standpipe.control.metadata.feature_levels import FORGOTTEN_REQUESTS, NEWEST
from standpipe.control.metadata.requests import REQUESTS_MAX, check_not_forgotten
from standpipe.errors import OutcomeUnknown
from standpipe.model import LogIndex

KEPT = 3


def founded(level: int = NEWEST) -> Catalog:
    return apply(EMPTY, LogIndex(1), FoundCluster(cluster_id="c", feature_level=level))


def started(catalog: Catalog, request_id: str) -> Catalog:
    command = StartPipeline(pipeline_id="p", request_id=request_id)
    return apply(catalog, LogIndex(catalog.index + 1), command)


def test_memory_of_requests_is_bounded_and_forgets_the_oldest() -> None:
    catalog = founded()
    for number in range(REQUESTS_MAX):
        catalog = started(catalog, f"r{number}")
    assert catalog.forgotten_index == 0, "none is forgotten"
    oldest = [outcome.index for outcome in catalog.applied_requests.values()]
    for number in range(3):
        catalog = started(catalog, f"s{number}")
    assert len(catalog.applied_requests) == REQUESTS_MAX
    assert next(iter(catalog.applied_requests)) == "r3"
    assert catalog.forgotten_index == oldest[2]


@pytest.mark.parametrize(
    ("known_index", "is_sure", "why"),
    [
        (7, True, "a copy would have been applied after 7, and none of those is forgotten"),
        (8, True, ""),
        (6, False, "what was forgotten at 7 may be its own outcome"),
        (0, False, "nor does a sender know who knows nothing"),
        (None, True, "its sender is of a release that does not say"),
    ],
)
def test_a_request_is_new_or_nobody_knows(known_index: int | None, is_sure: bool, why: str) -> None:
    known = None if known_index is None else LogIndex(known_index)
    if is_sure:
        check_not_forgotten(known, LogIndex(7))
        return
    with pytest.raises(OutcomeUnknown, match=rf"up to {known_index}, .* up to 7 are forgotten"):
        check_not_forgotten(known, LogIndex(7))


def test_an_older_node_may_read_the_catalog_until_the_level_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would drop the index from its snapshot, and two leaders would judge differently."""
    monkeypatch.setattr(requests, "REQUESTS_MAX", KEPT)
    catalog = founded(FORGOTTEN_REQUESTS - 1)
    for number in range(2 * KEPT):
        catalog = started(catalog, f"r{number}")
    assert catalog.forgotten_index == 0
    raised = SetFeatureLevel(level=FORGOTTEN_REQUESTS)
    catalog = apply(catalog, LogIndex(catalog.index + 1), raised)
    catalog = started(catalog, "one more")
    assert catalog.forgotten_index > 0


@dataclass
class Senders:
    """A leader and those who send to it. `copies`: what was sent once, each for good."""

    is_checked: bool
    catalog: Catalog = field(default_factory=founded)
    copies: list[tuple[str, LogIndex]] = field(default_factory=list[tuple[str, LogIndex]])
    executed: Counter[str] = field(default_factory=Counter[str])
    refused: set[str] = field(default_factory=set[str])

    def send(self, behind: int) -> None:
        """A new request; its sender is that many commands behind."""
        known = LogIndex(max(0, self.catalog.index - behind))
        self.copies.append((f"r{len(self.copies)}", known))

    def deliver(self, which: int) -> None:
        """To a leader that was elected just now and has loaded a snapshot."""
        if not self.copies:
            return
        request_id, known = self.copies[which % len(self.copies)]
        self.catalog = from_bytes(to_bytes(self.catalog))
        if request_id in self.catalog.applied_requests:
            return
        try:
            check_not_forgotten(known if self.is_checked else None, self.catalog.forgotten_index)
        except OutcomeUnknown:
            self.refused.add(request_id)
            return
        before = self.catalog.pipeline_epoch
        self.catalog = started(self.catalog, request_id)
        self.executed[request_id] += self.catalog.pipeline_epoch - before


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2 * KEPT)),
        st.tuples(st.just("deliver"), st.integers(0, 40)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=300)
@given(steps)
def test_no_order_of_copies_executes_a_request_twice(story: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "REQUESTS_MAX", KEPT)
        senders = Senders(is_checked=True)
        for step, number in story:
            getattr(senders, step)(number)
        assert max(senders.executed.values(), default=0) <= 1
        senders.send(0)
        senders.deliver(len(senders.copies) - 1)
        newest = senders.copies[-1][0]
        assert senders.executed[newest] == 1, "who knows the newest index is never refused"


def test_without_the_check_the_model_finds_a_request_that_is_executed_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "REQUESTS_MAX", KEPT)

    def story(*, is_checked: bool) -> Senders:
        senders = Senders(is_checked=is_checked)
        for _ in range(KEPT + 1):
            senders.send(0)
        for which in (*range(KEPT + 1), 0):
            senders.deliver(which)
        return senders

    assert story(is_checked=False).executed["r0"] == 2
    checked = story(is_checked=True)
    assert checked.executed["r0"] == 1
    assert checked.refused == {"r0"}
