"""What a client can do, each as an operation (`client/core/exchange.py`). Pure.

    get          the table's map, the key's partition, its holders; then one attempt
    get_many     one statement per holder and 256 keys, all at once; at level `snapshot` only one
    query        any node, which forwards where it must
    execute      statements; sent once, as they may change something
    insert       INSERT statements of many rows a request; sent once

Not here: the short way of most lookups (`client/core/short_way.py`), push queries
(`client/core/push.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, cast

import msgspec

from standpipe.client.core.answers import ServerRefused, entities_of, rows_of, served_by
from standpipe.client.core.attempts import Ask, Attempt, alone, gather
from standpipe.client.core.exchange import (
    LINES,
    Clock,
    HttpAnswer,
    HttpRequest,
    Operation,
    Outcome,
    Pause,
    SendAll,
)
from standpipe.client.core.literals import UnfitParameter, bound, without_texts
from standpipe.client.core.map_asks import describe, described, json_of, route, routed
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.rows import Row, RowSet
from standpipe.client.core.session import ClientSession, has_insert, kept, token_of, without_token
from standpipe.client.core.settings import Settings
from standpipe.client.core.statements import (
    batches,
    insert_text,
    is_repeatable,
    lookups,
    one_lookup,
    rows_of_keys,
    wanted_keys,
)
from standpipe.client.core.tables import SourceShape, TableMap, members_of_status
from standpipe.errors import BadRequest, StandpipeError, StatementError
from standpipe.session_token import SNAPSHOT
from standpipe.sql.types.names import folded

#: a map that proved old is read again, but not more often than this
MAP_AGE_S_MIN: Final = 1.0
MEMBERS_AGE_S_MAX: Final = 60.0
LOOKUP_PATH: Final = "/query-stream"

_ENDLESS: Final = re.compile(r"\bEMIT\s+CHANGES\b|^\s*PRINT\b", re.IGNORECASE)

_Steps = Generator[SendAll | Pause, Any, Any]


class First(msgspec.Struct, frozen=True):
    """The first request of a lookup that began on the short way, to a holder in `table`."""

    request: HttpRequest
    deadline_s: float
    table: TableMap


@dataclass
class Operations:
    """The operations of one client. `clock`: monotonic seconds. Raises TokenRefused."""

    nodes: Nodes
    clock: Clock
    settings: Settings = field(default_factory=Settings)
    _tables: dict[str, TableMap] = field(default_factory=dict[str, TableMap])
    #: of these tables, and of what was inserted into
    _shapes: dict[str, SourceShape] = field(default_factory=dict[str, SourceShape])
    #: when the members were asked for; None: never
    _members_s: float | None = None
    _has_strangers: bool = False

    def __post_init__(self) -> None:
        token = self.settings.session
        #: None: reads are at level `eventual`
        self.session = None if token is None else ClientSession(token)

    # ------------------------------------------------------------------------ reads

    def get(
        self,
        table: str,
        key: Mapping[str, object],
        timeout_s: float | None = None,
        begun: tuple[First, Outcome] | None = None,
    ) -> Operation[Row | None]:
        """The row of a key; None: there is none. Raises UnfitParameter if it has several.

        `begun`: its first request was sent, with this outcome.
        """
        rows: RowSet = yield from self.lookup(table, key, timeout_s, begun)
        if len(rows.tuples) > 1:
            raise UnfitParameter(
                f"the key has {len(rows)} windows: give WINDOWSTART, too, or use query()"
            )
        return rows[0] if rows.tuples else None

    def lookup(
        self,
        table: str,
        key: Mapping[str, object],
        timeout_s: float | None = None,
        begun: tuple[First, Outcome] | None = None,
    ) -> Operation[RowSet]:
        """The rows of a key: of a windowed table, one for each window."""
        deadline_s = self._deadline(timeout_s) if begun is None else begun[0].deadline_s
        is_known = begun is not None or folded(table) in self._shapes
        try:
            if begun is not None:
                return (yield from self._go_on(key, *begun))
            return (yield from self._lookup(table, key, deadline_s))
        except (StatementError, UnfitParameter):
            if not is_known:
                raise
            self._forget(table)  # the table may have been created again, with other columns
        return (yield from self._lookup(table, key, deadline_s))

    def _lookup(self, table: str, key: Mapping[str, object], deadline_s: float) -> _Steps:
        found = self.usable_map(folded(table), self.clock())
        if found is None:
            found = yield from self._map(table, deadline_s)
        attempt = self._attempt(found, key, deadline_s)
        yield from alone(attempt, self.clock)
        return self._rows(attempt, found)

    def _go_on(self, key: Mapping[str, object], first: First, outcome: Outcome) -> _Steps:
        """What `_lookup` does after the first request of its attempt."""
        attempt = self._attempt(first.table, key, first.deadline_s)
        attempt.took(first.request, outcome, self.clock())
        yield from alone(attempt, self.clock)
        return self._rows(attempt, first.table)

    def _attempt(self, found: TableMap, key: Mapping[str, object], deadline_s: float) -> Attempt:
        values, where = found.shape.key_of(key)
        return self._read(f"{found.select}{where};", found.holders_of(values), deadline_s)

    def get_many(
        self, table: str, keys: Iterable[object], timeout_s: float | None = None
    ) -> Operation[list[Row | None]]:
        """The rows of many keys, in their order; None for a key without a row.

        `keys`: dicts as for `get`, or, if the key is one column, its values. Raises UnfitParameter
        for a windowed table. At level `snapshot`, 1,000 keys at most: else BadRequest.
        """
        deadline_s = self._deadline(timeout_s)
        if not isinstance(keys, Collection):
            keys = list(keys)  # they may be read twice
        ask = partial(self._get_many, table, keys, deadline_s)
        return (yield from self._as_it_is_now(table, ask))

    def _get_many(self, table: str, keys: Iterable[object], deadline_s: float) -> _Steps:
        found: TableMap = yield from self._map(table, deadline_s)
        shape = found.shape
        if shape.is_windowed:
            raise UnfitParameter(f"{shape.name} is windowed: a key has many rows, use query()")
        wanted = wanted_keys(shape, keys)
        asked, patience_s = lookups(found, wanted), self.settings.patience_s
        if self.settings.consistency == SNAPSHOT:  # a node may wait for parts that are behind
            asked = one_lookup(found, wanted)
            patience_s = max(patience_s, (deadline_s - self.clock()) / 2)
        attempts = [self._read(text, holders, deadline_s, patience_s) for text, holders in asked]
        yield from gather(attempts, self.clock)
        answers = [self._rows(attempt, found) for attempt in attempts]
        return rows_of_keys(shape, wanted, answers)

    def query(
        self, text: str, parameters: Sequence[object] = (), timeout_s: float | None = None
    ) -> Operation[RowSet]:
        """The rows of a pull query, with `parameters` for its `?`."""
        if _is_endless(text):
            raise BadRequest("its answer has no end: use stream()")
        deadline_s = self._deadline(timeout_s)
        yield from self._members(deadline_s)
        # a scan takes its time: half of what is left for one node, so that a second can answer
        patience_s = max(self.settings.patience_s, (deadline_s - self.clock()) / 2)
        attempt = self._read(bound(text, parameters), (), deadline_s, patience_s)
        yield from alone(attempt, self.clock)
        return self._rows(attempt, None)

    def _read(
        self,
        text: str,
        holders: Sequence[str],
        deadline_s: float,
        patience_s: float | None = None,
    ) -> Attempt:
        patience_s = self.settings.patience_s if patience_s is None else patience_s
        properties: dict[str, object] = {}
        if self.session is not None:
            properties = self.session.properties()
        may_wait = self.settings.may_wait
        if may_wait:  # a node that waits for its replica is not silent
            patience_s = max(patience_s, (deadline_s - self.clock()) / 2)
        body = self.settings.read_body(text, properties)
        ask = Ask(LOOKUP_PATH, body, LINES, text, patience_s, may_wait=may_wait)
        return Attempt(self.nodes, ask, deadline_s, holders)

    def _rows(self, attempt: Attempt, table: TableMap | None) -> RowSet:
        assert attempt.answer is not None
        if self.settings.finds_members:
            self._judge(attempt.address, served_by(attempt.answer), table)
        rows = rows_of(attempt.answer, attempt.ask.statement)  # an answer that failed has no token
        if self.session is not None:
            token = token_of(attempt.answer)
            if token is None:
                raise ServerRefused(f"{attempt.address} answered without a session token")
            self.session.saw(token)
        return rows

    def _judge(self, asked: str, node_id: str, table: TableMap | None) -> None:
        """Notice what an answer says about the map: it came from another node than was asked."""
        if not node_id or "," in node_id:
            return
        address = self.nodes.address_of(node_id)
        if address is None:
            self._has_strangers = True
        elif table is not None and address != asked and asked in self.nodes.members.values():
            table.is_old = self.clock() - table.read_s >= MAP_AGE_S_MIN

    def join(self, token: str) -> None:
        """The session goes on from this token, too. Raises TokenRefused, and ValueError without a
        session."""
        kept(self.session).saw(token)

    # --------------------------------------------------------------------- statements

    def execute(
        self,
        text: str,
        parameters: Sequence[object] = (),
        timeout_s: float | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> Operation[list[dict[str, Any]]]:
        """Run statements: one entity per statement that has an answer.

        Raises AnswerLost if it was sent and no answer came.
        """
        deadline_s = self._deadline(timeout_s)
        yield from self._members(deadline_s)
        whole = bound(text, parameters)
        session = self.session if has_insert(whole) else None
        return (yield from self._execute(whole, deadline_s, session, properties))

    def _execute(
        self,
        text: str,
        deadline_s: float,
        session: ClientSession | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> _Steps:
        """`session`: what the statements insert becomes part of it."""
        given = {**(properties or {}), **(session.properties() if session else {})}
        body = msgspec.json.encode({"ksql": text, "streamsProperties": given})
        is_read, patience_s = is_repeatable(text), self.settings.patience_s
        if is_read:  # it may ask Kafka, or show much: half of the time, as a query
            patience_s = max(patience_s, (deadline_s - self.clock()) / 2)
        ask = Ask("/ksql", body, statement=text, patience_s=patience_s, is_repeatable=is_read)
        answer: HttpAnswer = yield from self._answer(ask, deadline_s)
        entities, token = without_token(entities_of(answer))
        if session is not None:
            if token is None:
                raise ServerRefused("the rows are written, but no session token was answered")
            session.saw(token)
        return entities

    def insert(
        self,
        source: str,
        rows: Mapping[str, object] | Iterable[Mapping[str, object]],
        timeout_s: float | None = None,
    ) -> Operation[int]:
        """Insert one row or many; how many. Rows before one that is refused are written, and the
        error has a note of how many are sure to be; the session may not know them. Raises
        AnswerLost as `execute` does."""
        deadline_s = self._deadline(timeout_s)
        yield from self._members(deadline_s)
        if isinstance(rows, Mapping):
            rows = (cast("Mapping[str, object]", rows),)
        make = partial(self._insert_texts, source, list(rows), deadline_s)
        texts: list[str] = yield from self._as_it_is_now(source, make)
        written = 0
        for batch in batches(texts):
            try:
                yield from self._execute("\n".join(batch), deadline_s, self.session)
            except StandpipeError as error:
                if isinstance(error, StatementError):  # maybe by its columns, which the next asks
                    self._forget(source)
                error.add_note(f"{written} of {len(texts)} rows are written, perhaps more")
                raise
            written += len(batch)
        return written

    def _insert_texts(
        self, source: str, rows: Sequence[Mapping[str, object]], deadline_s: float
    ) -> _Steps:
        shape = yield from self._shape(source, deadline_s)
        return [insert_text(shape, row) for row in rows]

    # ---------------------------------------------------------------------- the map

    def usable_map(self, name: str, now_s: float) -> TableMap | None:
        """What is known of a table; None: it, or the members, are to be read first."""
        found = self._tables.get(name)
        if found is None or found.is_old or self._members_due(now_s):
            return None
        return found

    def _map(self, table: str, deadline_s: float) -> Generator[Any, Any, TableMap]:
        """What is known of a table, read if it is not known or old."""
        yield from self._members(deadline_s)
        name = folded(table)
        found = self._tables.get(name)
        if found is not None and not found.is_old:
            return found
        shape = yield from self._shape(table, deadline_s)
        answer = yield from self._answer(route(name, self.settings.patience_s), deadline_s)
        holders = routed(answer) if self.settings.finds_members else ()
        found = TableMap(shape, holders, self.clock())
        self._tables[name] = found
        return found

    def _shape(self, source: str, deadline_s: float) -> Generator[Any, Any, SourceShape]:
        name = folded(source)
        shape = self._shapes.get(name)
        if shape is None:
            ask = describe(name, self.settings.patience_s)
            shape = described((yield from self._answer(ask, deadline_s)))
            self._shapes[name] = shape
        return shape

    def _as_it_is_now(self, source: str, run: Callable[[], _Steps]) -> _Steps:
        """What `run` makes of a source; if it fails by what was known of it, once more, since it
        may have been altered, or created again."""
        is_known = folded(source) in self._shapes
        try:
            return (yield from run())
        except (StatementError, UnfitParameter):
            if not is_known:
                raise
            self._forget(source)
        return (yield from run())

    def _forget(self, table: str) -> None:
        self._tables.pop(folded(table), None)
        self._shapes.pop(folded(table), None)

    def _members_due(self, now_s: float) -> bool:
        if not self.settings.finds_members:
            return False
        if self._members_s is None:
            return True
        age_s = now_s - self._members_s
        return age_s > (MAP_AGE_S_MIN if self._has_strangers else MEMBERS_AGE_S_MAX)

    def _members(self, deadline_s: float) -> _Steps:
        """Ask for the cluster's members, at first and from time to time."""
        if not self._members_due(self.clock()):
            return
        is_first = self._members_s is None
        self._members_s = self.clock()
        ask = Ask("/clusterStatus", patience_s=self.settings.patience_s)
        try:
            answer = yield from self._answer(ask, deadline_s)
            self.nodes.learn(members_of_status(json_of(answer)))
            self._has_strangers = False
        except StandpipeError:
            if is_first:
                self._members_s = None
                raise

    def _answer(self, ask: Ask, deadline_s: float) -> Generator[Any, Any, HttpAnswer]:
        attempt = Attempt(self.nodes, ask, deadline_s)
        yield from alone(attempt, self.clock)
        assert attempt.answer is not None
        return attempt.answer

    def _deadline(self, timeout_s: float | None) -> float:
        return self.clock() + (self.settings.timeout_s if timeout_s is None else timeout_s)


@lru_cache(maxsize=512)
def _is_endless(text: str) -> bool:
    return _ENDLESS.search(without_texts(text)) is not None
