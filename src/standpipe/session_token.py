"""Session tokens: what a client has seen and written, so that no later answer is older. Pure.

A token names, for each table that was read, the generation and the newest batch of its query, with
the lease epoch that batch was committed under. A batch covers all partitions of its table, so two
numbers stand for all of them. For each topic that was written it has the offset after the last
record of each partition, and Kafka's id of the topic, if the writer knew it. The form on the wire
is ksqlDB's, JSON in base64:

    {"version":0,"offsetVector":{
        "sp:<cluster>:<table id>:<generation>":{"-1":batch,"-2":epoch},
        "<topic>@<topic id>":{"<partition>":offset}}}

ksqlDB's clients merge tokens by the maximum of each number, and so does `merged`: it is
commutative, associative and idempotent, and what it returns covers each of its arguments. A token
is no secret and grants nothing: a forged one can only make its own reads wait, or be refused.

Nodes make and check tokens, clients merge them. Releases before the one that wrote topics into them
refuse those that name one. Source: ksqlDB's consistency tokens, which it never released
(docs/sources.md). Not here: whether a replica covers one (`control/routing/session.py`, for what
was written `data/commit/written_offsets.py`).
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
#: tables and topics that one token names; with more, the client should start a new session
TABLES_MAX: Final = 256
#: of a topic, as many as a Kafka cluster has
PARTITION_MAX: Final = 2**31 - 1
_BATCH, _EPOCH = "-1", "-2"
_NUMBER_MAX: Final = 2**63 - 1

_TABLE: Final = re.compile(r"sp:([0-9A-Za-z_-]{0,64}):([0-9A-Za-z_]{1,255}):([1-9][0-9]{0,17})")
_TOPIC: Final = re.compile(r"([0-9A-Za-z._-]{1,249})(?:@([0-9A-Za-z+/_=-]{1,64}))?")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")

#: The properties of a request. The first is ksqlDB's: the token, "" for the first read.
TOKEN_PROPERTY: Final = "request.ksql.query.pull.consistency.token"  # noqa: S105 a property's name
#: ksqlDB's too: true asks for tokens
ENABLE_PROPERTY: Final = "ksql.query.pull.consistency.token.enabled"
#: ours: a level of LEVELS
LEVEL_PROPERTY: Final = "standpipe.read.consistency"
EVENTUAL: Final = "eventual"
SNAPSHOT: Final = "snapshot"
LINEARIZABLE: Final = "linearizable"
LEVELS: Final = (EVENTUAL, "session", SNAPSHOT, LINEARIZABLE)
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
class SessionToken:
    """What a session has seen and written. Empty: nothing yet."""

    marks: Mapping[TableKey, SeenBatch] = field(default_factory=dict[TableKey, SeenBatch])
    #: {topic: {partition: offset after the last record that was written}}
    writes: Mapping[TopicKey, Mapping[int, int]] = field(
        default_factory=dict[TopicKey, Mapping[int, int]]
    )

    def merged(self, *others: SessionToken) -> SessionToken:
        """The least token that covers this one and all others."""
        marks, writes = dict(self.marks), dict(self.writes)
        for other in others:
            for table, mark in other.marks.items():
                known = marks.get(table)
                marks[table] = mark if known is None else known.merged(mark)
            for topic, ends in other.writes.items():
                written = writes.get(topic, {})
                more = {each: max(end, written.get(each, 0)) for each, end in ends.items()}
                writes[topic] = {**written, **more}
        return SessionToken(marks, writes)

    def covers(self, other: SessionToken) -> bool:
        """Whether all that the other has seen and written was seen and written here."""
        return self.merged(other) == self

    def text(self) -> str:
        """As clients carry it; "" if it is empty. Equal tokens have equal texts."""
        if not self.marks and not self.writes:
            return ""
        vector = {
            f"sp:{table.cluster}:{table.table_id}:{mark.generation}": {
                _BATCH: mark.batch,
                _EPOCH: mark.epoch,
            }
            for table, mark in sorted(self.marks.items())
        }
        for key, ends in sorted(self.writes.items()):
            name = f"{key.topic}@{key.topic_id}" if key.topic_id else key.topic
            vector[name] = {str(partition): ends[partition] for partition in sorted(ends)}
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
                f"the session token names {len(wire.offsetVector)} tables and topics, {TABLES_MAX} "
                f"at most: {ANEW}"
            )
        return cls().merged(*(_entry(name, seen) for name, seen in wire.offsetVector.items()))


RETURN: Final = "Send back the text of an answer unchanged."
ANEW: Final = "start a new session with an empty token."


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    offsetVector: dict[str, dict[str, int]]  # noqa: N815 ksqlDB's name


_decode: Final = msgspec.json.Decoder(_Wire).decode


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
        return _written(TopicKey(topic[1], topic[2] or ""), numbers)
    if set(numbers) != {_BATCH, _EPOCH}:
        raise _invalid(name)
    mark = SeenBatch(int(table[3]), numbers[_BATCH], numbers[_EPOCH])
    return SessionToken({TableKey(table[1], table[2]): mark})


def _written(key: TopicKey, numbers: Mapping[str, int]) -> SessionToken:
    partitions = [int(each) for each in numbers if _PARTITION.fullmatch(each)]
    if not numbers or len(partitions) < len(numbers) or max(partitions) > PARTITION_MAX:
        raise _invalid(key.topic)
    return SessionToken(writes={key: dict(zip(partitions, numbers.values(), strict=True))})


def _invalid(name: str) -> TokenRefused:
    return TokenRefused(f"the session token's numbers of {name[:80]} are not valid. {RETURN}")


def written_token(topic: str, offsets: Mapping[int, int], topic_id: str = "") -> SessionToken:
    """The token of a writer to whom Kafka has acknowledged a record of each partition: `offsets`
    has, for each, the offset of the last one. Raises ValueError for what is no topic, partition or
    offset."""
    ends = {partition: offset + 1 for partition, offset in offsets.items()}
    named = _TOPIC.fullmatch(f"{topic}@{topic_id}" if topic_id else topic)
    if named is None or named[1] != topic:
        raise ValueError(f"{topic!r} is no topic")
    for partition, end in ends.items():
        if not (0 <= partition <= PARTITION_MAX and 0 < end <= _NUMBER_MAX):
            raise ValueError(f"{topic} has no offset {end - 1} of partition {partition}")
    return SessionToken(writes={TopicKey(topic, topic_id): ends} if ends else {})


def merged(texts: Iterable[str]) -> str:
    """The text of the token that covers all of the texts. Raises TokenRefused."""
    return SessionToken().merged(*map(SessionToken.parse, texts)).text()
