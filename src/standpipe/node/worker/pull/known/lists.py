"""Lookups of many keys by one list of texts: their bodies are known but for the list.

What `node.worker.pull.known.frames` does for one literal, this does for whole rows by
`K IN ('a', 'b', …)`, whatever its length.

    known_list             frame, and the keys in the store by partition
    KnownPart              as for one literal
    one transaction of each partition, in their order
    spliced                checks and splices the rows of a partition
    _Together              freshness headers and layout of these partitions together, made again
                           when a cause has changed

It answers as `node.worker.pull.fast_many` does, or leaves the request to it: what is unusual, an
answer so large that it is sent in pieces, a key that is named twice, a list of numbers.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from standpipe.data.encoding import native
from standpipe.data.query.list_lookup import (
    LIST_BYTES_MAX,
    KnownList,
    cut_list,
    known_list,
    list_in,
)
from standpipe.data.query.literal_lookup import KINDS
from standpipe.data.query.pull import CHUNK_KEYS, spliced_rows
from standpipe.data.replica.positions import StoreMeta, may_judge
from standpipe.errors import StandpipeError
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.known.frames import TEXTS, kind_of_rows
from standpipe.node.worker.pull.known.parts import KnownFrame, KnownPart, KnownParts
from standpipe.node.worker.pull.snapshot_read import is_one_batch
from standpipe.node.worker.request.answer import freshness_of, header_lines, oldest, render_rows
from standpipe.node.worker.request.answer_pieces import PIECE_BYTES
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.sql.declarations.added_columns import count_added
from standpipe.sql.plans import PullPlan

#: Frames of a listener; when there are more, all are dropped.
LISTS_MAX: Final = 64
#: Sets of partitions of a frame, of 1 KiB each; when there are more, all are dropped.
TOGETHER_MAX: Final = 16
#: stands for a row while a layout is cut around it: no JSON has it
_ROW: Final = b"\0"


@dataclass(slots=True)
class _Together:
    """Some partitions as one answer: what is laid out around its rows, and what that came from."""

    at_ms: int
    head: bytes
    label: bytes
    begin: bytes
    between: bytes
    end: bytes
    #: status, route and meta of each partition
    causes: Sequence[object] = ()


@dataclass(slots=True)
class ListFrame(KnownFrame):
    """What all bodies with a list have in common."""

    #: how many columns its table got in place
    added: int = 0
    #: by the numbers of the partitions
    together: dict[tuple[int, ...], _Together] = field(
        default_factory=dict[tuple[int, ...], _Together]
    )

    def leave_map(self) -> None:
        """Keep nothing that refers to a map of the cluster."""
        super(ListFrame, self).leave_map()  # slots make the class twice, and super() has the first
        self.together.clear()


#: by bodies with marks for their lists; None: they always take the other steps
Lists = dict[bytes, KnownList[ListFrame] | None]


@dataclass
class KnownLists(KnownParts):
    """The lists of one listener."""

    _lists: Lists = field(default_factory=dict[bytes, KnownList[ListFrame] | None])
    #: the last body that was asked for has a frame that is not known
    is_new: bool = False
    #: an answer is one at level `snapshot`
    count_snapshot: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._known = native.compiled("known_list") or known_list

    def __len__(self) -> int:
        return len(self._lists)

    def answer(
        self, token: RequestFormat, body: bytes, view: ClusterView, now_s: float
    ) -> bytes | None:
        """The response to a body of a known frame; None: find it by the other steps.

        `now_s`: of the monotonic clock. Raises NotReady, DamagedRow.
        """
        self.is_new = False
        if view is not self._view:
            self._adopt(view)
        found = self._known(self._lists, token.head, body)
        if found is None:
            return None
        frame, keys = found
        now_ms = int(time.time() * 1000)
        parts: list[tuple[KnownPart, Sequence[bytes]]] = []
        numbers = tuple(sorted(keys))
        for number in numbers:  # verdicts on all, before any row is read
            part = self._part(frame, number, view, now_ms)
            if part is None:
                return None
            parts.append((part, keys[number]))
        rows, metas, causes = list[bytes](), list[StoreMeta](), list[object]()
        added = frame.added
        for part, wanted in parts:
            meta = _take(part, wanted, rows, added)
            if meta is None:
                return None
            metas.append(meta)
            causes += (part.status, part.route, meta)
        if frame.is_snapshot and not is_one_batch(metas):
            return None
        together = frame.together.get(numbers)
        if together is None or together.at_ms != now_ms or not _are_same(together.causes, causes):
            together = self._laid_out(frame, [part for part, _ in parts], metas, now_ms)
            if together is None:
                return None
            together.causes = causes
            if len(frame.together) >= TOGETHER_MAX and numbers not in frame.together:
                frame.together.clear()
            frame.together[numbers] = together
        if frame.is_snapshot:
            self.count_snapshot()
        return _response(frame, together, rows)

    def note(self, token: RequestFormat, body: bytes) -> bool:
        """`answer` did not know a body, and others will answer it: whether `is_new`. True: it has a
        list, so it has neither one literal nor a statement."""
        mark = cut_list(token.head, body) if len(body) <= LIST_BYTES_MAX else None
        self.is_new = mark is not None and mark not in self._lists and self._is_met_again(mark)
        return mark is not None

    def learn(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> None:
        """A body, whose frame `is_new`, was answered by its plan: keep its frame, if other lists in
        it would be answered by it, too; else keep that they would not."""
        mark = cut_list(token.head, body)
        if mark is None:
            return
        if len(self._lists) >= LISTS_MAX:
            self.forget()
        self._lists[mark] = None
        if kind_of_rows(plan) != KINDS["STRING"]:
            return
        is_any = view.plans.has_any_keys(query.text, query.properties)
        if not is_any or not _means_its_list(body, query):
            return
        bounds = self.routes.bounds(query.bounds, plan.source)
        frame = ListFrame(
            plan=plan,
            bounds=bounds,
            token=token,
            is_snapshot=query.is_snapshot,
            added=count_added(plan.source),
        )
        self._lists[mark] = KnownList(plan.source.partitions, frame)

    def forget(self) -> None:
        """Drop all frames; they are learnt again."""
        self._lists.clear()
        self._parts_bytes = 0

    def _frames_known(self) -> Iterable[KnownFrame]:
        return [known.meaning for known in self._lists.values() if known is not None]

    def _laid_out(
        self, frame: ListFrame, parts: Sequence[KnownPart], metas: Sequence[StoreMeta], now_ms: int
    ) -> _Together | None:
        """Without its causes. None: a page may not decide about its rows, or they are too old."""
        boot_ms = self.clock.boot_ms()
        each_fresh = [
            freshness_of(
                part.status,
                meta,
                reported_end=part.route.reported_end,
                served_by=self.node_id,
                role=here.role.lower(),
                boot_ms=boot_ms,
                unix_ms=now_ms,
            )
            for part, meta in zip(parts, metas, strict=True)
            if may_judge(part.status, meta) and (here := part.route.first_here(is_forward=False))
        ]
        if len(each_fresh) < len(parts):
            return None
        fresh, bounds = oldest(each_fresh), frame.bounds
        if bounds.is_time_bounded and bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
            return None
        laid = render_rows(frame.token.form, frame.plan, (_ROW, _ROW), now_ms)
        begin, between, end = laid.split(_ROW)
        head, label = b"%bcontent-length: " % frame.token.head, header_lines(fresh)
        return _Together(now_ms, head, label, begin, between, end)


def _are_same(some: Iterable[object], others: Iterable[object]) -> bool:
    """Whether they are the same objects: equal ones are compared at length, as a route refers to
    the whole map."""
    return all(map(operator.is_, some, others))


def _take(
    part: KnownPart, keys: Sequence[bytes], rows: list[bytes], added: int
) -> StoreMeta | None:
    """Append the rows of a partition; what was recorded with them. None: one is unusual, or all are
    too large. Raises NotReady, DamagedRow."""
    store = part.store
    with store.begin() as instant:
        for at in range(0, len(keys), CHUNK_KEYS):
            wanted = keys[at : at + CHUNK_KEYS]
            found = spliced_rows(wanted, list(map(instant.get, wanted)), added)
            if found is None:
                return None
            rows += found
            if sum(map(len, rows)) > PIECE_BYTES:
                return None
        return store.meta_of(instant)


def _response(frame: ListFrame, together: _Together, rows: Sequence[bytes]) -> bytes:
    if rows:
        body = together.between.join(rows)
        body = b"%b%b%b" % (together.begin, body, together.end)
    else:
        body = render_rows(frame.token.form, frame.plan, (), together.at_ms)
    return b"%b%d\r\n%b\r\n%b" % (together.head, len(body), together.label, body)


def _means_its_list(body: bytes, query: Lookup) -> bool:
    """Whether the list of a body is that of its statement, as it is; so it is in all bodies of its
    frame."""
    found, text = list_in(body), query.text
    if found is None:
        return False
    head, separator, tail, items = found
    if b"\\" in head + tail or b"sessionVariables" in head + tail:
        return False  # a quote may be written in another way, and ${a} in the text mean something
    begin, end = text.find("'") + 1, text.rfind("'")
    try:
        for listed in (items, *([each.encode(), b"a", b"b"] for each in TEXTS), [b"a", b"b"]):
            between = b"'%b'" % separator
            other = parse_lookup(head + between.join(listed) + tail)
            inner = between.join(listed).decode()
            if other != replace(query, text=text[:begin] + inner + text[end:]):
                return False
    except StandpipeError:
        return False
    return True
