"""A schema registry in memory: `tests/e2e/test_schema_registry.py` asks it and a real one alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from standpipe.sql.schemas import avro
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaKind,
    SchemaRefused,
    SchemaRegistryUnavailable,
    UnknownSchema,
)


@dataclass
class KnownSchemas:
    """Subject -> its versions, oldest first. `is_down`: it does not answer."""

    subjects: dict[str, list[RegisteredSchema]] = field(
        default_factory=dict[str, list[RegisteredSchema]]
    )
    is_down: bool = False
    _count: int = 0
    #: as our client remembers them
    _ids: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self._check_up()
        for versions in self.subjects.values():
            for each in versions:
                if each.schema_id == schema_id:
                    return each
        raise UnknownSchema(f"no schema {schema_id}")

    def latest(self, subject: str) -> RegisteredSchema:
        self._check_up()
        if subject not in self.subjects:
            raise UnknownSchema(f"no subject {subject}")
        return self.subjects[subject][-1]

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        self._check_up()
        if not asks and (subject, text) in self._ids:
            return self._ids[subject, text]
        if kind == "AVRO":
            try:
                avro.parse(text)
            except avro.BadSchema as error:
                raise SchemaRefused(str(error)) from error
        versions = self.subjects.setdefault(subject, [])
        for each in versions:
            if (each.kind, each.text) == (kind, text):
                return each.schema_id
        self._count += 1
        self._ids[subject, text] = self._count
        versions.append(RegisteredSchema(self._count, kind, text))
        return self._count

    def _check_up(self) -> None:
        if self.is_down:
            raise SchemaRegistryUnavailable("it is down")
