"""Session tokens: what a client has seen, so that no later answer is older. Pure.

A token names, for each table that was read, the generation and the newest batch of its query, with
the lease epoch that batch was committed under. A batch covers all partitions of its table, so two
numbers stand for all of them. The form on the wire is ksqlDB's, JSON in base64:

    {"version":0,"offsetVector":{"sp:<cluster>:<table id>:<generation>":{"-1":batch,"-2":epoch}}}

ksqlDB's clients merge tokens by the maximum of each number, and so does `merged`: it is
commutative, associative and idempotent, and what it returns covers each of its arguments. A token
is no secret and grants nothing: a forged one can only make its own reads wait, or be refused.

Nodes make and check tokens, clients merge them. Source: ksqlDB's consistency tokens, which it never
released (docs/sources.md). Not here: whether a replica covers one (`control/routing/session.py`).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from standpipe.errors import TokenRefused

VERSION: Final = 0
#: of a token's text; longer ones are refused before they are read
TOKEN_CHARS_MAX: Final = 65_536
#: tables that one token names; with more, the client should start a new session
TABLES_MAX: Final = 256
_BATCH, _EPOCH = "-1", "-2"
_NUMBER_MAX: Final = 2**63 - 1

_TABLE: Final = re.compile(r"sp:([0-9A-Za-z_-]{0,64}):([0-9A-Za-z_]{1,255}):([1-9][0-9]{0,17})")

#: The properties of a request. The first is ksqlDB's: the token, "" for the first read.
TOKEN_PROPERTY: Final = "request.ksql.query.pull.consistency.token"  # noqa: S105 a property's name
#: ksqlDB's too: true asks for tokens
ENABLE_PROPERTY: Final = "ksql.query.pull.consistency.token.enabled"
#: ours: a level of LEVELS
LEVEL_PROPERTY: Final = "standpipe.read.consistency"
LEVELS: Final = ("eventual", "session")
PROPERTIES: Final = frozenset({TOKEN_PROPERTY, ENABLE_PROPERTY, LEVEL_PROPERTY})


class TableKey(NamedTuple):
    """A table of a cluster. Table ids are never reused."""

    cluster: str
    table_id: str


class SeenBatch(NamedTuple):
    """A batch of one generation of a table, and the lease epoch that it was committed under."""

    generation: int
    batch: int
    epoch: int

    def merged(self, other: SeenBatch) -> SeenBatch:
        """The least mark that covers both: a newer generation covers all of an older one."""
        if self.generation != other.generation:
            return max(self, other)
        return SeenBatch(
            self.generation, max(self.batch, other.batch), max(self.epoch, other.epoch)
        )


@dataclass(frozen=True)
class SessionToken:
    """What a session has seen. Empty: nothing yet."""

    marks: Mapping[TableKey, SeenBatch] = field(default_factory=dict[TableKey, SeenBatch])

    def merged(self, *others: SessionToken) -> SessionToken:
        """The least token that covers this one and all others."""
        marks = dict(self.marks)
        for other in others:
            for table, mark in other.marks.items():
                known = marks.get(table)
                marks[table] = mark if known is None else known.merged(mark)
        return SessionToken(marks)

    def covers(self, other: SessionToken) -> bool:
        """Whether all that the other has seen was seen here."""
        return self.merged(other).marks == self.marks

    def text(self) -> str:
        """As clients carry it; "" if it is empty. Equal tokens have equal texts."""
        if not self.marks:
            return ""
        vector = {
            f"sp:{table.cluster}:{table.table_id}:{mark.generation}": {
                _BATCH: mark.batch,
                _EPOCH: mark.epoch,
            }
            for table, mark in sorted(self.marks.items())
        }
        return b64encode(msgspec.json.encode(_Wire(version=VERSION, offsetVector=vector))).decode()

    @classmethod
    def parse(cls, text: str) -> SessionToken:
        """The token of a text. Raises TokenRefused that says what is wrong with it."""
        if not text:
            return cls()
        if len(text) > TOKEN_CHARS_MAX:
            raise TokenRefused(
                f"the session token has {len(text)} characters, {TOKEN_CHARS_MAX} at most: {ANEW}"
            )
        try:
            wire = _decode(b64decode(text, validate=True))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise TokenRefused(f"the session token cannot be read: {error}. {RETURN}") from error
        if wire.version != VERSION:
            raise TokenRefused(
                f"the session token has version {wire.version}, this node knows {VERSION}: ask a "
                f"node of the release that made it, or {ANEW}"
            )
        if len(wire.offsetVector) > TABLES_MAX:
            raise TokenRefused(
                f"the session token names {len(wire.offsetVector)} tables, {TABLES_MAX} at most: "
                f"{ANEW}"
            )
        return cls().merged(*(_entry(name, seen) for name, seen in wire.offsetVector.items()))


RETURN: Final = "Send back the text of an answer unchanged."
ANEW: Final = "start a new session with an empty token."


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    offsetVector: dict[str, dict[str, int]]  # noqa: N815 ksqlDB's name


_decode: Final = msgspec.json.Decoder(_Wire).decode


def _entry(name: str, seen: Mapping[str, int]) -> SessionToken:
    found = _TABLE.fullmatch(name)
    if found is None:
        raise TokenRefused(
            f"the session token names {name[:80]!r}, which is no table of Standpipe: offsets of "
            f"topics are not supported. {RETURN}"
        )
    is_right = set(seen) == {_BATCH, _EPOCH}
    if not is_right or not all(0 <= number <= _NUMBER_MAX for number in seen.values()):
        raise TokenRefused(f"the session token's numbers of {name} are not valid. {RETURN}")
    mark = SeenBatch(int(found[3]), seen[_BATCH], seen[_EPOCH])
    return SessionToken({TableKey(found[1], found[2]): mark})


def merged(texts: Iterable[str]) -> str:
    """The text of the token that covers all of the texts. Raises TokenRefused."""
    return SessionToken().merged(*map(SessionToken.parse, texts)).text()
