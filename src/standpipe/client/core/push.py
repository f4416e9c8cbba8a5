"""A push query that outlives nodes: each change once, in the order in which it came. Pure.

The client requests continuation tokens (docs/INTERFACES.md, "Push queries"). It keeps rows until
the token after them has arrived, and then delivers them. If the connection breaks, it drops the
rows that it kept, and another node continues at the last token: no row is lost or delivered twice.
In a session, the tokens are the session's. Reads may not be older than a row that the caller has,
so the session knows of the rows before they are delivered; that another push query may begin behind
them, it learns once all are. The query itself goes on from the last token of its own: reads of the
session may have seen what it has yet to show.

| item of the answer | what follows |
|---|---|
| header, row | kept |
| token | the rows before it are delivered |
| final message of a node that stops | another node continues |
| any other final message, or none with a whole answer | the rest is delivered; the query ends |
| error | raised, after the rest was delivered; in a session, what no token covers is dropped |
| the connection breaks | another node continues, at once, then after growing pauses |
| 429, or 503 with Retry-After | the same; this one is left alone until then |
| nothing, for several times as long as the node said it would be silent at most | the same |

A LIMIT counts the delivered rows, also across nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import msgspec

from standpipe.client.core.answers import (
    again_after,
    columns_of_schema,
    error_code,
    error_of,
    error_of_answer,
)
from standpipe.client.core.attempts import NodesUnreachable
from standpipe.client.core.exchange import (
    ARRAY,
    SILENT,
    Clock,
    HandOver,
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    OpenStream,
    Operation,
    Pause,
    ReadStream,
)
from standpipe.client.core.literals import bound
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations
from standpipe.client.core.rows import Columns, Row
from standpipe.client.core.session import ClientSession, kept
from standpipe.data.encoding.answer_values import CellReader, reader_of
from standpipe.errors import TextRefused
from standpipe.session_token import LEVEL_PROPERTY, SESSION, TOKEN_PROPERTY, SessionToken

TOKENS: Final = "ksql.query.push.v2.continuation.tokens.enabled"
TOKEN: Final = "request.ksql.query.push.continuation.token"  # noqa: S105 a property's name
RESET: Final = "auto.offset.reset"
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0
OPEN_S_MAX: Final = 15.0
#: an answer that lasted longer resets the pauses when it breaks
LASTED_S: Final = 5.0
#: says, in ms, how often a token comes at least: a node sends one even if nothing changes
TOKEN_INTERVAL_HEADER: Final = "standpipe-token-interval-ms"  # noqa: S105 a name
#: intervals without a word after which a node counts as gone: it may be paused or hang
SILENT_INTERVALS: Final = 4
#: as many times as long at most, if the nodes were silent before: one row may take them long
SILENT_FACTOR_MAX: Final = 16

#: how a node begins its last words when it stops (`node/worker/push/push_query.py`)
_LEAVING: Final = "Query ended: the node"
_LIMIT: Final = re.compile(r"(\bLIMIT\s+)(\d+)(\s*;?\s*)$", re.IGNORECASE)
_decoder: Final = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


class _Broken(Exception):
    """The connection is gone, or the node is about to be."""


@dataclass
class PushReader:
    """Items of one push query, over as many answers as it takes.

    `patience_s`: for how long no node may answer with a token before the query fails; such an
    answer that breaks has been one until then.
    """

    nodes: Nodes
    clock: Clock
    text: str
    properties: Mapping[str, object]
    patience_s: float
    #: where the next answer continues; empty: where the properties say
    token: str = ""
    #: that its rows become part of; None: of none
    session: ClientSession | None = None
    #: rows handed over
    count: int = 0
    _waiting: list[Row] = field(default_factory=list[Row])
    _columns: Columns = field(default_factory=lambda: Columns((), ()))
    _values: CellReader = field(default_factory=lambda: reader_of(()))
    #: since the last row, or an answer that lasted
    _failures: int = 0
    #: when a node was last known to answer
    _heard_s: float = 0.0
    #: a token has come in this answer
    _has_continued: bool = False
    #: how much longer than usual a node may be silent
    _silent_factor: int = 1

    def run(self) -> Operation[None]:
        """The query until it ends. Raises what ends it: see the table above."""
        self._heard_s = self.clock()
        if self.session is not None and self.properties.get(RESET) != "earliest":
            self.token = self.session.token
        while True:
            try:
                yield from self._answer()
            except _Broken as broken:
                self._waiting.clear()
                if self._is_limit_reached():
                    return
                yield Pause(self._pause(str(broken)))
            else:
                return

    def _answer(self) -> Operation[None]:
        """One answer, to its end. Raises _Broken."""
        address = yield from self._free_node()
        self.nodes.chosen(address, self.clock())
        head = yield OpenStream(self._request(address))
        self._check_head(address, head)
        self._has_continued, begun_s = False, self.clock()
        try:
            yield from self._items(address, interval_s_of(head))
        except _Broken:
            now_s = self.clock()
            if self._has_continued:
                self._heard_s = now_s  # it may say nothing while nothing changes
            if now_s - begun_s > LASTED_S:
                self._failures = 0
            raise

    def _free_node(self) -> Operation[str]:
        """The next node to ask: one that does not want to be left alone. Waits for the first, and
        raises NodesUnreachable if that would take too long."""
        while True:
            now_s = self.clock()
            order = self.nodes.order((), now_s)
            address = min(order, key=lambda each: max(self.nodes.busy_until(each), now_s))
            wait_s = self.nodes.busy_until(address) - now_s
            if wait_s <= 0:
                return address
            if now_s + wait_s > self._heard_s + self.patience_s:
                raise self._unreachable(f"{address} wants no request for {wait_s:.1f} s")
            yield Pause(min(wait_s, PAUSE_S_MAX))

    def _items(self, address: str, interval_s: float | None) -> Operation[None]:
        """What follows the head of an answer, to its end. Raises _Broken."""
        rest = b""
        while True:
            within_s = interval_s and interval_s * SILENT_INTERVALS * self._silent_factor
            data: bytes | NoAnswer = yield ReadStream(within_s)
            if isinstance(data, NoAnswer):
                reason = data.reason
                if data is SILENT:
                    reason = f"silent for {within_s:g} s"
                    self._silent_factor = min(2 * self._silent_factor, SILENT_FACTOR_MAX)
                self.nodes.failed(address, self.clock())
                raise _Broken(f"{address}: {reason}")
            *lines, rest = (rest + data).split(b"\n")
            for line in lines if data else [rest]:
                if item := _item(line):
                    is_over = yield from self._take(item)
                    if is_over:
                        return
            if not data:  # an older node, which ends without a word
                yield from self._hand_over_rest()
                return

    def _request(self, address: str) -> HttpRequest:
        properties = {RESET: "latest", **self.properties}
        if self.session is not None:
            properties |= {LEVEL_PROPERTY: SESSION, TOKEN_PROPERTY: self.token}
        else:
            properties[TOKENS] = "true"
            if self.token:
                properties[TOKEN] = self.token
        body = {"ksql": self._text(), "streamsProperties": properties}
        return HttpRequest(address, "/query", OPEN_S_MAX, msgspec.json.encode(body), ARRAY)

    def _text(self) -> str:
        """The statement, whose LIMIT counts what is still to come."""
        return _LIMIT.sub(lambda m: f"{m[1]}{max(int(m[2]) - self.count, 0)}{m[3]}", self.text)

    def _is_limit_reached(self) -> bool:
        limit = _LIMIT.search(self.text)
        return limit is not None and self.count >= int(limit[2])

    def _check_head(self, address: str, head: HttpAnswer | NoAnswer) -> None:
        if isinstance(head, NoAnswer):
            self.nodes.failed(address, self.clock())
            raise _Broken(f"{address}: {head.reason}")
        self.nodes.answered(address, self.clock())
        if head.status == 200:
            return
        error = error_of_answer(head, self.text)
        if head.status not in (429, 503) or error_code(head) == TextRefused.code:
            raise error
        self.nodes.hold(address, self.clock() + (again_after(head) or PAUSE_S_MIN))
        self.nodes.failed(address, self.clock())
        raise _Broken(f"{address}: {error}")

    def _take(self, item: Mapping[str, Any]) -> Operation[bool]:
        """One item; whether it is the last. Raises _Broken, and errors of the answer."""
        if "row" in item:
            row = item["row"]
            values = self._values.values(row["columns"])
            is_deleted = bool(row.get("tombstone"))
            self._waiting.append(Row(self._columns, values, is_deleted=is_deleted))
        elif "header" in item:
            self._columns = columns_of_schema(item["header"]["schema"])
            self._values = reader_of(self._columns.types)
        elif "continuationToken" in item:
            self.token, self._has_continued = item["continuationToken"]["continuationToken"], True
            yield from self._hand_over()
        elif "consistencyToken" in item and self.session is not None:
            self.token, self._has_continued = item["consistencyToken"]["consistencyToken"], True
            self.session.saw(SessionToken.parse(self.token).for_reads().text())
            yield from self._hand_over()
            self.session.saw(self.token)
        elif "finalMessage" in item:
            if item["finalMessage"].startswith(_LEAVING):
                raise _Broken(item["finalMessage"])
            yield from self._hand_over_rest()
            return True
        elif "errorMessage" in item:
            yield from self._hand_over_rest()
            raise error_of(item, self.text)
        return False

    def _hand_over_rest(self) -> Operation[None]:
        """Rows that no token covers, as the answer ends. A session does not know them, so a read of
        it could be older."""
        if self.session is None:
            yield from self._hand_over()

    def _hand_over(self) -> Operation[None]:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._failures, self._silent_factor = 0, 1
        for row in waiting:
            self.count += 1
            yield HandOver(row)

    def _pause(self, why: str) -> float:
        """Seconds to wait before the next try. Raises NodesUnreachable."""
        if self.clock() - self._heard_s > self.patience_s:
            raise self._unreachable(why)
        self._failures += 1
        if self._failures <= len(self.nodes.addresses):
            return 0.0
        return min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(self._failures, 10))

    def _unreachable(self, why: str) -> NodesUnreachable:
        return NodesUnreachable(
            f"no node continued the push query within {self.patience_s:g} s; last: {why}"
        )


def push_reader(
    of: Operations,
    text: str,
    parameters: Sequence[object],
    patience_s: float,
    *,
    from_beginning: bool = False,
    in_session: bool = False,
) -> PushReader:
    """A push query of a client. Raises ValueError if it is to be part of a session and there is
    none."""
    return PushReader(
        of.nodes,
        of.clock,
        bound(text, parameters),
        {RESET: "earliest"} if from_beginning else {},
        patience_s,
        session=kept(of.session) if in_session else None,
    )


def interval_s_of(head: HttpAnswer) -> float | None:
    """How often a token comes at least, in seconds; None: an older node does not say it."""
    said = head.headers.get(TOKEN_INTERVAL_HEADER, "")
    return int(said) / 1000 if said.isascii() and said.isdigit() and int(said) > 0 else None


def _item(line: bytes) -> dict[str, Any]:
    """An item without its place in the array; empty: the line has none."""
    text = line.strip().removeprefix(b"[")
    text = text.removesuffix(b",")
    if text.endswith(b"]") and not text.startswith(b"]"):
        text = text[:-1]
    if text in (b"", b"]"):
        return {}
    return _decoder.decode(text)
