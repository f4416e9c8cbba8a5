"""Session tokens: what a client has seen and written, so that no later answer is older. Pure.

A token names, for each table that was read, the generation and the newest batch of its query, with
the lease epoch that batch was committed under. A batch covers all partitions of its table, so two
numbers stand for all of them. For each topic that was written it has the offset after the last
record of each partition, and Kafka's id of the topic, if the writer knew it. Of what push queries
have shown, it has the offset of the next record of each partition. The form on the wire is
ksqlDB's, JSON in base64:

    {"version":0,"offsetVector":{
        "sp:<cluster>:<table id>:<generation>":{"-1":batch,"-2":epoch},
        "<topic>@<topic id>":{"<partition>":offset},
        "at:<cluster>:<table id>:<generation>":{"-1":batch,"-2":epoch,"-3":batch,"-4":epoch,
                                                "-5":scan,"<partition>":offset},
        "at:<topic>@<topic id>":{"<partition>":offset}}}

ksqlDB's clients merge tokens by the maximum of each number, and so does `merged`: it is
commutative, associative and idempotent, and what it returns covers each of its arguments. A token
is no secret and grants nothing: a forged one can only make its own reads wait, or be refused.

A push query begins behind the batch that a token's reads have shown. Where the parts of an answer
were of several batches, "-3" and "-4" name the oldest, and of what a push query has shown, "-1" and
"-2" name the newest: reads may not be older than that. "-5" says that the positions are those of a
query from the beginning, which has yet to come to where each change is shown: `PushScan`.

Nodes make and check tokens, clients merge them. Releases before the one that wrote topics into them
refuse those that name one, and those before push queries had sessions refuse "at:". Source:
ksqlDB's consistency tokens, which it never released (docs/sources.md). Not here: whether a replica
covers one (`control/routing/session.py`, for what was written `data/commit/written_offsets.py`),
where a push query begins (`data/query/push_start.py`).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Final, NamedTuple, TypeVar

import msgspec

from standpipe.errors import TokenRefused
from standpipe.session_scan import PushScan

VERSION: Final = 0
#: of a token's text; longer ones are refused before they are read
TOKEN_CHARS_MAX: Final = 65_536
#: tables and topics that one token names; with more, the client should start a new session
TABLES_MAX: Final = 256
#: of a topic, as many as a Kafka cluster has
PARTITION_MAX: Final = 2**31 - 1
_BATCH, _EPOCH = "-1", "-2"
_WHOLE_BATCH, _WHOLE_EPOCH = "-3", "-4"
_SCAN: Final = "-5"
_NUMBER_MAX: Final = 2**63 - 1

_TABLE: Final = re.compile(
    r"(sp|at):([0-9A-Za-z_-]{0,64}):([0-9A-Za-z_]{1,255}):([1-9][0-9]{0,17})"
)
_TOPIC: Final = re.compile(r"(at:)?([0-9A-Za-z._-]{1,249})(?:@([0-9A-Za-z+/_=-]{1,64}))?")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")

#: The properties of a request. The first is ksqlDB's: the token, "" for the first read.
TOKEN_PROPERTY: Final = "request.ksql.query.pull.consistency.token"  # noqa: S105 a property's name
#: ksqlDB's too: true asks for tokens
ENABLE_PROPERTY: Final = "ksql.query.pull.consistency.token.enabled"
#: ours: a level of LEVELS
LEVEL_PROPERTY: Final = "standpipe.read.consistency"
EVENTUAL: Final = "eventual"
SESSION: Final = "session"
SNAPSHOT: Final = "snapshot"
LINEARIZABLE: Final = "linearizable"
LEVELS: Final = (EVENTUAL, SESSION, SNAPSHOT, LINEARIZABLE)
PROPERTIES: Final = frozenset({TOKEN_PROPERTY, ENABLE_PROPERTY, LEVEL_PROPERTY})


class TableKey(NamedTuple):
    """A table of a cluster. Table ids are never reused."""

    cluster: str
    table_id: str


class TopicKey(NamedTuple):
    """A topic that was written. `topic_id`: Kafka's, which is never reused; "": not known."""

    topic: str
    topic_id: str = ""


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
class FollowedTable:
    """How far a session has followed one generation of a table, for a push query to go on.

    `positions`: {partition: offset of the next record}, behind all that push queries have shown.
    `newest`: the newest batch of which they have shown something; None: they have shown nothing.
    `whole`: the newest batch up to which reads have shown all that they were about; None: no read.
    `scan`: the positions are those of a query from the beginning; None: of any other.
    """

    generation: int
    positions: Mapping[int, int] = field(default_factory=dict[int, int])
    newest: SeenBatch | None = None
    whole: SeenBatch | None = None
    scan: PushScan | None = None

    def merged(self, other: FollowedTable) -> FollowedTable:
        """How far both have: a newer generation is another place, whatever was followed before."""
        if self.generation != other.generation:
            return self if self.generation > other.generation else other
        positions = _maxima(self.positions, other.positions)
        scan = max((each for each in (self.scan, other.scan) if each is not None), default=None)
        return FollowedTable(
            self.generation,
            positions,
            _later(self.newest, other.newest),
            _later(self.whole, other.whole),
            None if scan is None else scan.at(positions),
        )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
#: {topic: {partition: offset}}
_Offsets = Mapping[TopicKey, Mapping[int, int]]


@dataclass(frozen=True)
class SessionToken:
    """What a session has seen and written. Empty: nothing yet."""

    marks: Mapping[TableKey, SeenBatch] = field(default_factory=dict[TableKey, SeenBatch])
    #: {topic: {partition: offset after the last record that was written}}
    writes: _Offsets = field(default_factory=dict[TopicKey, Mapping[int, int]])
    #: where it differs from what `marks` say alone
    followed: Mapping[TableKey, FollowedTable] = field(
        default_factory=dict[TableKey, FollowedTable]
    )
    #: {topic: {partition: offset of the next record}} of push queries on topics
    streamed: _Offsets = field(default_factory=dict[TopicKey, Mapping[int, int]])

    def merged(self, *others: SessionToken) -> SessionToken:
        """The least token that covers this one and all others."""
        tokens = (self, *others)
        marks = _joined([each.marks for each in tokens], SeenBatch.merged)
        writes = _joined([each.writes for each in tokens], _maxima)
        streamed = _joined([each.streamed for each in tokens], _maxima)
        return SessionToken(marks, writes, _followed(tokens, marks), streamed)

    @cached_property
    def seen(self) -> Mapping[TableKey, SeenBatch]:
        """The batches that reads may not be older than: what reads and push queries have shown."""
        newest = {
            table: each.newest for table, each in self.followed.items() if each.newest is not None
        }
        return _joined([self.marks, newest], SeenBatch.merged)

    @cached_property
    def offsets(self) -> _Offsets:
        """What tables downstream must have read: what was written, and what push queries on topics
        have shown."""
        return _joined([self.writes, self.streamed], _maxima)

    def for_reads(self) -> SessionToken:
        """What reads may not be older than, of all that push queries have shown. It leaves another
        token's places at which push queries go on as they are."""
        newest = {
            table: FollowedTable(each.generation, newest=each.newest)
            for table, each in self.followed.items()
            if each.newest is not None
        }
        return SessionToken(writes=self.streamed, followed=newest)

    def followed_of(self, table: TableKey) -> FollowedTable | None:
        """How far it has followed a table; None: it has seen nothing of it."""
        followed, mark = self.followed.get(table), self.marks.get(table)
        if mark is None or (followed is not None and followed.generation >= mark.generation):
            return followed
        return FollowedTable(mark.generation, whole=mark)

    def covers(self, other: SessionToken) -> bool:
        """Whether all that the other has seen and written was seen and written here."""
        return self.merged(other) == self

    def text(self) -> str:
        """As clients carry it; "" if it is empty. Equal tokens have equal texts."""
        vector = {
            f"sp:{_named(table)}:{mark.generation}": {_BATCH: mark.batch, _EPOCH: mark.epoch}
            for table, mark in sorted(self.marks.items())
        }
        for table in sorted(self.followed):
            followed = self.followed[table]
            vector[f"at:{_named(table)}:{followed.generation}"] = _numbers(followed)
        for prefix, topics in (("", self.writes), ("at:", self.streamed)):
            for key, ends in sorted(topics.items()):
                name = f"{key.topic}@{key.topic_id}" if key.topic_id else key.topic
                vector[prefix + name] = {str(each): ends[each] for each in sorted(ends)}
        if not vector:
            return ""
        wire = msgspec.json.encode(_Wire(version=VERSION, offsetVector=vector))
        # blanks instead of padding: the fast path looks for a key behind the last equals sign
        return b64encode(wire + b" " * (-len(wire) % 3)).decode()

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
                f"the session token names {len(wire.offsetVector)} tables and topics, {TABLES_MAX} "
                f"at most: {ANEW}"
            )
        return _token_of(wire.offsetVector)


RETURN: Final = "Send back the text of an answer unchanged."
ANEW: Final = "start a new session with an empty token."
#: before the reason why no rows will ever cover a token
FORGED_OR_LOST: Final = f"The session token is forged, or Kafka has lost what it stands for: {ANEW}"


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    offsetVector: dict[str, dict[str, int]]  # noqa: N815 ksqlDB's name


_decode: Final = msgspec.json.Decoder(_Wire).decode


def _token_of(vector: Mapping[str, Mapping[str, int]]) -> SessionToken:
    """An entry says what it says whatever others do: they are not tokens to be merged."""
    found = [_entry(name, numbers) for name, numbers in vector.items()]
    token = SessionToken(
        _joined([each.marks for each in found], SeenBatch.merged),
        _joined([each.writes for each in found], _maxima),
        _joined([each.followed for each in found], FollowedTable.merged),
        _joined([each.streamed for each in found], _maxima),
    )
    return token.merged() if token.followed else token


def _entry(name: str, numbers: Mapping[str, int]) -> SessionToken:
    table, topic = _TABLE.fullmatch(name), _TOPIC.fullmatch(name)
    if table is None and topic is None:
        raise TokenRefused(
            f"the session token names {name[:80]!r}, which is neither a table of Standpipe nor a "
            f"topic. {RETURN}"
        )
    if not all(0 <= number <= _NUMBER_MAX for number in numbers.values()):
        raise _invalid(name)
    if table is None:
        assert topic is not None
        key, ends = TopicKey(topic[2], topic[3] or ""), _partitions(name, numbers)
        return SessionToken(streamed={key: ends}) if topic[1] else SessionToken(writes={key: ends})
    place, generation = TableKey(table[2], table[3]), int(table[4])
    if table[1] == "at":
        return SessionToken(followed={place: _followed_table(name, generation, numbers)})
    if set(numbers) != {_BATCH, _EPOCH}:
        raise _invalid(name)
    return SessionToken({place: SeenBatch(generation, numbers[_BATCH], numbers[_EPOCH])})


def _followed_table(name: str, generation: int, numbers: Mapping[str, int]) -> FollowedTable:
    pairs = ((_BATCH, _EPOCH), (_WHOLE_BATCH, _WHOLE_EPOCH))
    if not numbers or any((one in numbers) != (two in numbers) for one, two in pairs):
        raise _invalid(name)
    newest, whole = (
        SeenBatch(generation, numbers[one], numbers[two]) if one in numbers else None
        for one, two in pairs
    )
    rest = {each: at for each, at in numbers.items() if not each.startswith("-")}
    named = 2 * ((newest is not None) + (whole is not None)) + (_SCAN in numbers)
    if len(rest) + named < len(numbers) or (_SCAN in numbers and not rest):
        raise _invalid(name)
    positions = _partitions(name, rest) if rest else {}
    scan = PushScan.from_wire(numbers[_SCAN]).at(positions) if _SCAN in numbers else None
    return FollowedTable(generation, positions, newest, whole, scan)


def _partitions(name: str, numbers: Mapping[str, int]) -> dict[int, int]:
    partitions = [int(each) for each in numbers if _PARTITION.fullmatch(each)]
    if not numbers or len(partitions) < len(numbers) or max(partitions) > PARTITION_MAX:
        raise _invalid(name)
    return dict(zip(partitions, numbers.values(), strict=True))


def _numbers(followed: FollowedTable) -> dict[str, int]:
    found: dict[str, int] = {}
    if followed.newest is not None:
        found |= {_BATCH: followed.newest.batch, _EPOCH: followed.newest.epoch}
    if followed.whole is not None:
        found |= {_WHOLE_BATCH: followed.whole.batch, _WHOLE_EPOCH: followed.whole.epoch}
    if followed.scan is not None:
        found[_SCAN] = followed.scan.wire
    positions = followed.positions
    return found | {str(partition): positions[partition] for partition in sorted(positions)}


def _named(table: TableKey) -> str:
    return f"{table.cluster}:{table.table_id}"


def _followed(
    tokens: Sequence[SessionToken], marks: dict[TableKey, SeenBatch]
) -> dict[TableKey, FollowedTable]:
    """How far all of the tokens together have followed each table. What their joined marks say by
    themselves is left out. `marks` get what was shown of generations that are not followed any
    more: a query over the newer one may have shown nothing yet, and no read may be older."""
    found: dict[TableKey, FollowedTable] = {}
    if not any(token.followed for token in tokens):
        return found
    for table in {table for token in tokens for table in token.followed}:
        each = [token.followed_of(table) for token in tokens]
        followed = reduce(FollowedTable.merged, [one for one in each if one is not None])
        for one in each:
            if one and one.newest and one.generation < followed.generation:
                marks[table] = one.newest.merged(marks.get(table, one.newest))
        mark = marks.get(table)
        if mark is None or followed != FollowedTable(mark.generation, whole=mark):
            found[table] = followed
    return found


def _joined(
    maps: Iterable[Mapping[_Key, _Value]], join: Callable[[_Value, _Value], _Value]
) -> dict[_Key, _Value]:
    found: dict[_Key, _Value] = {}
    for each in maps:
        if not found:  # as a rule: one of them says something
            found = {**each}
            continue
        for key, value in each.items():
            found[key] = join(found[key], value) if key in found else value
    return found


def _maxima(one: Mapping[int, int], two: Mapping[int, int]) -> Mapping[int, int]:
    return {**one, **{key: max(value, one.get(key, 0)) for key, value in two.items()}}


def _later(one: SeenBatch | None, two: SeenBatch | None) -> SeenBatch | None:
    return one.merged(two) if one is not None and two is not None else one or two


def _invalid(name: str) -> TokenRefused:
    return TokenRefused(f"the session token's numbers of {name[:80]} are not valid. {RETURN}")


def written_token(topic: str, offsets: Mapping[int, int], topic_id: str = "") -> SessionToken:
    """The token of a writer to whom Kafka has acknowledged a record of each partition: `offsets`
    has, for each, the offset of the last one. Raises ValueError for what is no topic, partition or
    offset."""
    ends = {partition: offset + 1 for partition, offset in offsets.items()}
    named = _TOPIC.fullmatch(f"{topic}@{topic_id}" if topic_id else topic)
    if named is None or named[1] or named[2] != topic:
        raise ValueError(f"{topic!r} is no topic")
    for partition, end in ends.items():
        if not (0 <= partition <= PARTITION_MAX and 0 < end <= _NUMBER_MAX):
            raise ValueError(f"{topic} has no offset {end - 1} of partition {partition}")
    return SessionToken(writes={TopicKey(topic, topic_id): ends} if ends else {})


def merged(texts: Iterable[str]) -> str:
    """The text of the token that covers all of the texts. Raises TokenRefused."""
    return SessionToken().merged(*map(SessionToken.parse, texts)).text()
