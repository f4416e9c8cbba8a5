"""Lookups of one key by statements with conditions or columns: as short a way as for one literal.

What `node.worker.pull.known.frames` does for a whole row by one literal, this does for rows that
are filtered, cut or computed, with up to 16 literals that differ between requests. A *statement* is
the body of a request with one byte for each literal. When the fast path has answered a body,
`learn` keeps what is the same for all bodies of its statement: the template of its plan, and
conditions and columns as C reads them. `answer` then reads no JSON and no SQL.

    known_statement        statement, partition and store key of the key, all literals
    KnownPart              as for one literal
    one LMDB read          the row, and the number of its transaction; of windows, `lookup` by the
                           plan of these literals
    shown                  the row, if the conditions hold; what it leaves is computed by the plan
                           of these literals, as the other steps compute it

Whether a statement may be known is checked once, with other literals in each place
(`_mean_their_literals`). Not known are LIMIT, lists of keys, and literals of other kinds that
differ: 1.5 is a part of the statement.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from standpipe.adapters.store.reader import View
from standpipe.data.encoding import native
from standpipe.data.query.literal_lookup import LARGE_BYTES, MESSAGE_BYTES_MAX, LiteralPlace
from standpipe.data.query.pull import lookup, windows_of
from standpipe.data.query.statement_lookup import (
    KnownStatement,
    cut_all,
    known_statement,
    places_in,
    program_of,
    row_of_plan,
    whole,
)
from standpipe.errors import StandpipeError
from standpipe.node.worker.pull.forward_headers import RequestFormat
from standpipe.node.worker.pull.known.frames import kind_of_rows
from standpipe.node.worker.pull.known.parts import (
    KnownFrame,
    KnownPart,
    KnownParts,
    kind_of_key,
)
from standpipe.node.worker.request.answer import render_rows
from standpipe.node.worker.request.answer_pieces import is_large
from standpipe.node.worker.request.body import Lookup, parse_lookup
from standpipe.node.worker.request.cluster_view import ClusterView
from standpipe.sql.lookup.plan_cache import bytes_of
from standpipe.sql.lookup.template import PullTemplate
from standpipe.sql.plans import PullPlan

#: Statements of a listener, and messages of them; when there are more, all are dropped.
STATEMENTS_MAX: Final = 256
STATEMENT_MESSAGES_MAX: Final = 1_024
#: What their plans may take; when it is more, all are dropped.
STATEMENTS_BYTES_MAX: Final = 32 * 1024 * 1024
#: stands for a row while a layout is cut between two: no JSON has it
_ROW: Final = b"\0"
#: what is put into all places of a statement, the texts and the numbers, to see whether it passes
#: them on; first with the number of the place
OTHERS: Final = (("Zz {}", "7{}"), ("", "0"), ("7", "2147483648"))


@dataclass(slots=True)
class StatementFrame(KnownFrame):
    """What all bodies of a statement have in common."""

    template: PullTemplate | None = None
    #: for `shown`; None: rows are computed by Python
    program: bytes | None = None
    #: whether each literal is a text
    are_texts: tuple[bool, ...] = ()
    #: the column of the key is one
    is_text: bool = False
    #: what stands between two rows of an answer
    between: bytes = b""
    #: windows have their whole key in the store, and are shown as they are there
    are_stored: bool = False

    def plan_of(self, literals: Sequence[bytes]) -> PullPlan:
        """Raises StatementError."""
        assert self.template is not None
        values = [
            each.decode() if is_text else int(each)
            for each, is_text in zip(literals, self.are_texts, strict=True)
        ]
        return self.template.bind(values)


#: by bytes with marks for their literals; None: they always take the other steps
Statements = dict[bytes, KnownStatement[StatementFrame] | None]


@dataclass
class KnownStatements(KnownParts):
    """The statements of one listener."""

    _statements: Statements = field(
        default_factory=dict[bytes, KnownStatement[StatementFrame] | None]
    )
    #: the last body that was asked for has a statement that is not known
    is_new: bool = False
    #: by message with marks for its literals
    messages: Statements = field(default_factory=dict[bytes, KnownStatement[StatementFrame] | None])
    _plans_bytes: int = 0

    def __post_init__(self) -> None:
        # without a call in between, as in `KnownFrames`
        self._known = native.compiled("known_statement") or known_statement
        self._shown = native.compiled("shown") or native.shown

    def __len__(self) -> int:
        return len(self._statements)

    def answer(
        self, token: RequestFormat, body: bytes, view: ClusterView, now_s: float
    ) -> bytes | None:
        """As `KnownFrames.answer`."""
        self.is_new = False
        return self.look_up(self._statements, token.head, body, view, now_s)

    def look_up(
        self, known: Statements, mark: bytes, message: bytes, view: ClusterView, now_s: float
    ) -> bytes | None:
        """As `KnownFrames.look_up`. Raises NotReady, DamagedRow, StatementError, NotComputable."""
        if view is not self._view:
            self._adopt(view)
        found = self._known(known, mark, message)
        if found is None:
            return None
        frame, number, key, literals = found
        part = self._part(frame, number, view, int(time.time() * 1000))
        if part is None:
            return None
        if frame.plan.source.window is not None:
            return self._windows(frame, part, number, key, literals)
        stored, meta = part.store.read(key, now_s)
        if part.meta is not meta and not self._describe(frame, part, meta):
            return None
        if stored is None:
            return self._without_row(frame, part)
        if len(stored) > LARGE_BYTES:
            return None
        row: bytes | bool | None = None
        if frame.program is not None:
            row = self._shown(key, stored, frame.is_text, frame.program, literals)
        if row is None:
            row = row_of_plan(frame.plan_of(literals), stored, number)
        return whole(part.around, row) if isinstance(row, bytes) else self._without_row(frame, part)

    def _windows(
        self,
        frame: StatementFrame,
        part: KnownPart,
        number: int,
        prefix: bytes,
        literals: Sequence[bytes],
    ) -> bytes | None:
        """The response with the windows of a key. `prefix`: of their keys in the store. Raises as
        `look_up`, and UnfitKey."""
        plan, store = frame.plan_of(literals), part.store
        with store.begin() as instant:
            if frame.are_stored:
                rows = windows_of(plan, View(instant), plan.keys[0], prefix)
            else:
                rows = lookup(plan, View(instant), number)
            meta = store.meta_of(instant)
        if part.meta is not meta and not self._describe(frame, part, meta):
            return None
        if not rows:
            return self._without_row(frame, part)
        return None if is_large(rows) else whole(part.around, frame.between.join(rows))

    def note(self, token: RequestFormat, body: bytes) -> bool:
        """`answer` did not know a body, and others will answer it: whether `is_new`. True: it has
        a statement that is known, and only this body could not be answered by it."""
        mark = cut_all(token.head, body) if len(body) <= MESSAGE_BYTES_MAX else None
        if mark is None:
            return False
        if mark not in self._statements:
            self.is_new = self._is_met_again(mark)
        return self._statements.get(mark) is not None

    def learn(
        self, token: RequestFormat, body: bytes, query: Lookup, view: ClusterView, plan: PullPlan
    ) -> bool:
        """A body, whose statement `is_new`, was answered by its plan: keep its statement, if other
        literals in it would be answered alike. True: it is kept. Else keep that they would not."""
        mark, places = cut_all(token.head, body), places_in(body)
        if mark is None or not places:
            return False
        if len(self._statements) >= STATEMENTS_MAX:
            self.forget()
        self._statements[mark] = None
        found = view.plans.literals_of(query.text, query.properties)
        kind = _kind_of(plan)
        if kind is None or found is None or kind_of_rows(plan) is not None:
            return False
        template, slices = found
        place = template.key_place
        if place is None or not _mean_their_literals(body, query, places, slices):
            return False
        is_windowed = plan.source.window is not None
        plan_bytes = bytes_of(len(query.text), plan)
        if self._plans_bytes + plan_bytes > STATEMENTS_BYTES_MAX:
            self.forget()
        self._plans_bytes += plan_bytes
        frame = StatementFrame(
            plan=plan,
            bounds=self.routes.bounds(query.bounds, plan.source),
            token=token,
            is_snapshot=query.is_snapshot,
            template=template,
            program=program_of(template) if native.IS_COMPILED and not is_windowed else None,
            are_texts=tuple(each.is_text for each in places),
            is_text=plan.source.key_columns[0].type == "STRING",
        )
        two = render_rows(token.form, plan, (_ROW, _ROW), 0)
        frame.between = two.split(_ROW)[1]
        frame.are_stored = _are_stored(plan)
        is_negated = template.slots[place].negated
        self._statements[mark] = KnownStatement(
            0, kind, plan.source.partitions, place, is_negated, frame
        )
        return True

    def learn_message(self, token: RequestFormat, message: bytes, head_bytes: int) -> bool:
        """Keep a message with marks for its literals, if its body has a known statement. True: it
        is kept.

        A head with a quote is not kept, so no JSON string begins in it, and no literal is cut out
        of it: a message that has equal marks has an equal head.
        """
        head = message[:head_bytes]
        if len(message) > MESSAGE_BYTES_MAX or b"'" in head or b'"' in head:
            return False
        of_body, of_message = cut_all(token.head, message[head_bytes:]), cut_all(b"", message)
        known = self._statements.get(of_body) if of_body else None
        if known is None or of_message is None:
            return False
        if len(self.messages) >= STATEMENT_MESSAGES_MAX:
            self.messages.clear()
        self.messages[of_message] = known._replace(size=len(message))
        return True

    def forget(self) -> None:
        """Drop all statements; they are learnt again."""
        self._statements.clear()
        self.messages.clear()
        self._parts_bytes = self._plans_bytes = 0

    def _frames_known(self) -> Iterable[KnownFrame]:
        return [known.meaning for known in self._statements.values() if known is not None]


def _are_stored(plan: PullPlan) -> bool:
    """Whether windows need not be computed. A session leaves less room for the key."""
    window = plan.source.window
    is_computed = plan.where is not None or plan.cells is not None
    return window is not None and window.kind != "SESSION" and not is_computed


def _kind_of(plan: PullPlan) -> int | None:
    """The kind of its key, if one get finds what the row is made of, or one walk its windows; None:
    it takes more."""
    is_one_get = not (
        plan.is_scan
        or plan.is_merged
        or plan.has_costly_rows
        or plan.limit is not None
        or len(plan.keys) != 1
    )
    return kind_of_key(plan) if is_one_get else None


def _mean_their_literals(
    body: bytes, query: Lookup, places: Sequence[LiteralPlace], slices: Sequence[slice]
) -> bool:
    """Whether the literals of a body are those that its statement has in the same order, as they
    are; so they are in all bodies of its statement. All are changed at once: one by one, a body of
    16 literals and many properties would be parsed for 10 ms."""
    own = [body[each.begin : each.end].decode() for each in places]
    if b"sessionVariables" in body:  # ${a} in a text means something
        return False
    if [query.text[at] for at in slices] != own:
        return False
    in_body = [slice(each.begin, each.end) for each in places]
    shown = body.decode("latin-1")  # a character for each byte
    try:
        for text, number in OTHERS:
            literals = [
                (text if each.is_text else number).format(place)
                for place, each in enumerate(places)
            ]
            other = parse_lookup(_with(shown, in_body, literals).encode("latin-1"))
            if other != replace(query, text=_with(query.text, slices, literals)):
                return False
    except StandpipeError:
        return False
    return True


def _with(text: str, places: Iterable[slice], others: Iterable[str]) -> str:
    """A text with others in these places."""
    pieces, at = list[str](), 0
    for place, other in zip(places, others, strict=True):
        pieces += (text[at : place.start], other)
        at = place.stop
    return "".join((*pieces, text[at:]))
