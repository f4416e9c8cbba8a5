"""What pure code knows of a schema registry: schemas by id and by subject.

An id means one schema forever; a subject has versions, of which the newest has an id. Source:
Confluent's Schema Registry API. Not here: its client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

from standpipe.errors import StandpipeError, StatementError

#: what a registry calls the language of a schema
SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
#: format of a source -> kind of the schemas that its records name
KINDS: Final[Mapping[str, SchemaKind]] = {"AVRO": "AVRO", "JSON_SR": "JSON"}


class RegisteredSchema(NamedTuple):
    """A schema as a registry has it. `has_references`: its text names types of other subjects."""

    schema_id: int
    kind: str
    text: str
    has_references: bool = False


class SchemaRegistryUnavailable(StandpipeError):
    """The schema registry does not answer, or not as one. Reads of tables continue; statements and
    queries on streams that need a schema wait."""

    status = 503
    code = 50315
    retry_after_s = 1


class SchemaRegistryMissing(StatementError):
    """A format needs a schema registry, and none is configured: `ksql.schema.registry.url`."""

    status = 428
    code = 42801


class BadSchema(ValueError):
    """A text that is no schema of its kind, or one beyond what is read here."""


class SchemaRefused(Exception):
    """The registry rejects a schema: as none, or as not compatible with those of its subject."""


class UnknownSchema(LookupError):
    """The registry answers that it has no such schema or subject, or shows it to others only."""


class Schemas(Protocol):
    """A registry. Every call may block, and raises SchemaRegistryUnavailable."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with that id. Raises UnknownSchema."""
        ...

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject. Raises UnknownSchema."""
        ...

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        """The id of a schema under a subject, of which it becomes a version if it is none yet.
        `asks`: in any case, as the subject may have been deleted since it was last registered.
        Raises SchemaRefused if the registry rejects it."""
        ...


def subject_of(topic: str, *, is_key: bool) -> str:
    """The subject of a topic's keys or values (Confluent's TopicNameStrategy)."""
    return f"{topic}-{'key' if is_key else 'value'}"
