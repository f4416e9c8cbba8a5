"""Bugs put into direct tables on purpose: the simulation must catch each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.data.rows import DictStore

from standpipe.data.commit.topic_identity import LASTED_MS, TopicChecker
from standpipe.data.replica.direct import DirectMachine
from standpipe.data.replica.direct_stage import DirectStage
from standpipe.data.replica.events import ApplyBatch, EndTold, RebuildStore
from standpipe.model import OF_LOG, ReplicaState

from . import direct_replica
from .runner import Plant, replacing


def ignore_gaps() -> list[Plant]:
    """Offsets that are missing mean nothing."""

    def make(judge: Any) -> Any:
        def whole(self: Any, fetch: Any) -> None:
            was = self._is_torn, self._gap_end, self._whole_at
            judge(self, fetch)
            if not fetch.is_end:
                self._is_torn, self._gap_end, self._whole_at = was

        return whole

    return [replacing(DirectMachine, "_judge", make)]


def end_from_before_the_gap() -> list[Plant]:
    """The end that was told last counts, whenever Kafka was asked."""

    def make(judge: Any) -> Any:
        def early(self: Any, fetch: Any) -> None:
            judge(self, fetch)
            if self._is_torn and self._whole_at is None and self._told_end >= 0:
                self._whole_at = self._told_end

        return early

    return [replacing(DirectMachine, "_judge", make)]


def answer_while_it_is_made() -> list[Plant]:
    """A new store has a label from its first row on."""

    def make(init: Any) -> Any:
        def whole(self: Any, *args: Any, **more: Any) -> None:
            init(self, *args, **more)
            self._is_torn = False

        return whole

    return [replacing(DirectMachine, "__init__", make)]


def forget_the_gap_when_it_stops() -> list[Plant]:
    """A store that stopped in a gap, and has rows, is taken for whole."""

    def make(init: Any) -> Any:
        def whole(self: Any, codec: Any, meta: Any, *args: Any, **more: Any) -> None:
            init(self, codec, meta, *args, **more)
            self._is_torn = meta.position == 0

        return whole

    return [replacing(DirectMachine, "__init__", make)]


def label_what_could_not_be_held() -> list[Plant]:
    """Rows after a gap have a label, whether or not they were held back."""

    def make(transaction: Any) -> Any:
        def labelled(self: Any) -> Any:
            if self.meta.batch == OF_LOG:
                self._is_torn = False
            return transaction(self)

        return labelled

    return [replacing(DirectMachine, "_transaction", make)]


def trust_the_name() -> list[Plant]:
    """Whatever topic has the name is the topic."""
    return [(TopicChecker, "heard", lambda self, topic_id, at_ms: None)]


def forget_the_id() -> list[Plant]:
    """The store does not keep the topic's id: who begins again takes the next topic for it."""

    def make(init: Any) -> Any:
        def blank(self: Any, codec: Any, meta: Any, *args: Any, **more: Any) -> None:
            init(self, codec, meta, *args, **more)
            self._topic_id, self._topic = "", TopicChecker()

        return blank

    return [replacing(DirectMachine, "__init__", make)]


def versions_of_the_store_alone() -> list[Plant]:
    """A record is not held against what is staged before it."""

    def make(take: Any) -> Any:
        def forgetful(self: Any, change: Any, *, is_versioned: bool) -> None:
            there = self.versions.get(change.key)
            take(self, change, is_versioned=is_versioned)
            self.versions[change.key] = there

        return forgetful

    return [replacing(DirectStage, "_take", make)]


def ignore_versions() -> list[Plant]:
    """The last record counts."""

    def make(take: Any) -> Any:
        return lambda self, change, *, is_versioned: take(self, change, is_versioned=False)

    return [replacing(DirectStage, "_take", make)]


def skip_deletions() -> list[Plant]:
    """A null value is no change."""

    def make(puts_and_deletes: Any) -> Any:
        return lambda self: (puts_and_deletes(self)[0], [])

    return [replacing(DirectStage, "puts_and_deletes", make)]


def position_before_the_rows() -> list[Plant]:
    """The position is kept by itself, a transaction before its rows."""

    def early(self: Any, order: ApplyBatch) -> None:
        late = getattr(self, "late", ((), ()))
        self.late = (order.puts, order.deletes)
        for key in late[1]:
            self.rows.pop(key, None)
        self.rows |= dict(late[0])
        self.meta = order.meta

    return [(DictStore, "apply", early)]


def resume_an_old_store() -> list[Plant]:
    """A store is resumed however long it was away."""
    never: Any = lambda *_, **__: None  # noqa: E731
    return [
        (direct_replica, "must_rebuild", never),
        (direct_replica, "must_reopen", lambda silent_ms, tombstones_ms: False),
    ]


def build_again_from_what_was_cut_off() -> list[Plant]:
    """Records that are gone were always deleted by retention."""

    def judge(self: Any, event: Any) -> Any:
        if not isinstance(event, EndTold):
            return []
        self.state = ReplicaState.BOOTSTRAP
        return [RebuildStore("gone")]

    return [(DirectMachine, "_judge_loss", judge)]


def confirm_what_is_staged() -> list[Plant]:
    """Rows that are held back count as applied."""

    def caught_up(self: Any) -> bool:
        return self.state is ReplicaState.RUNNING

    def confirm(self: Any, told: EndTold) -> None:
        if self.machine.is_caught_up and self.machine._judged >= told.end:
            self.confirmed_ms = told.asked_ms
            self.world.confirmed(self)

    return [
        (DirectMachine, "is_caught_up", property(caught_up)),
        (direct_replica.DirectReplica, "_confirm", confirm),
    ]


def compare_an_old_answer_with_the_position() -> list[Plant]:
    """What was read after Kafka was asked counts as read before."""

    def make(hear: Any) -> Any:
        def late(self: Any, event: EndTold) -> None:
            since_ms = self._back_since_ms
            hear(self, event)
            if event.end < self.meta.position:
                self._back_since_ms = event.asked_ms if since_ms is None else since_ms
                if event.asked_ms - self._back_since_ms >= LASTED_MS:
                    self._lost = "it ends below the position"

        return late

    return [replacing(DirectMachine, "_hear_end", make)]


def follow_what_has_the_name() -> list[Plant]:
    """A new store takes the topic that it finds, whichever the table was made for."""

    def make(begin: Any) -> Any:
        def nameless(self: Any, *given: Any, topic_id: str = "", **more: Any) -> None:
            begin(self, *given, **more)

        return nameless

    return [replacing(DirectMachine, "__init__", make)]


DIRECT_PLANTS: tuple[Callable[[], list[Plant]], ...] = (
    ignore_gaps,
    end_from_before_the_gap,
    answer_while_it_is_made,
    forget_the_gap_when_it_stops,
    label_what_could_not_be_held,
    trust_the_name,
    forget_the_id,
    follow_what_has_the_name,
    versions_of_the_store_alone,
    ignore_versions,
    skip_deletions,
    position_before_the_rows,
    resume_an_old_store,
    build_again_from_what_was_cut_off,
    confirm_what_is_staged,
    compare_an_old_answer_with_the_position,
)
