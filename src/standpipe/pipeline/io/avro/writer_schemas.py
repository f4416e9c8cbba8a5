"""Under which schemas the records of a batch were written: looked up before the batch runs.

The driver asks the registry; executors get programs with the plan of the batch and ask nobody. A
schema that the registry does not know makes its records bad. It is asked for again in each batch,
since producers register schemas all the time. While the registry is away no batch runs that needs a
schema which is not known yet: no record is left out for that. A registry that is slow is asked for
ASK_S_MAX by one try of a batch; the next try asks for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Literal, NamedTuple

from standpipe.data.encoding.avro_program import program_of_cells
from standpipe.data.encoding.framed_values import parsed
from standpipe.model import Column, SparkInput
from standpipe.pipeline.io.avro.kept_answers import KEPT_MAX, KeptAnswers, Offsets
from standpipe.sql.declarations.properties import READ_BY_SCHEMA
from standpipe.sql.schemas.avro import BadSchema
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaRegistryUnavailable,
    Schemas,
    UnknownSchema,
)

#: new ids that one batch asks for, those of most records first. A producer may write any number of
#: ids that nobody registered; records under further ones are bad in this batch
ASKED_MAX: Final = 1000
#: for how long one try of a batch begins requests: a query is then retried, and says why, before it
#: counts as stalled (`run/watch/stall.py`: 20 s), and can be stopped
ASK_S_MAX: Final = 10.0
#: requests at a time
_ASKERS: Final = 8
#: the answer for a schema for which there was no time
_LATE: Final = "late"
#: characters of programs that a batch has, of its schemas in the order of their ids
PROGRAMS_CHARS_MAX: Final = 16_000_000


class AvroPart(NamedTuple):
    """The keys or the values of a source, if they are in AVRO."""

    name: str  # key or value: Kafka's column
    columns: tuple[Column, ...]
    #: a record with a field for each column, else that of the only column
    wraps: bool

    @property
    def column(self) -> str:
        """The column that has the part as a struct."""
        return "__avro_key" if self.name == "key" else "__avro_value"


def parts_of(source: SparkInput) -> tuple[AvroPart, ...]:
    """Those of a source that are read as AVRO."""
    keys = tuple(column for column in source.columns if column.is_key)
    values = tuple(each for each in source.columns if not each.is_key and each.header is None)
    wraps = source.wrap_single_value or len(values) != 1
    parts = (
        (source.key_format, AvroPart("key", keys, len(keys) != 1)),
        (source.value_format, AvroPart("value", values, wraps)),
    )
    return tuple(part for format_, part in parts if format_ in READ_BY_SCHEMA and part.columns)


#: of each part: schema's id -> `AvroProgram.text`
Programs = tuple[Mapping[int, str], ...]
#: ids that a batch's records name, beside the given ones, those of most records first
Unseen = Callable[[Collection[int]], Sequence[int]]


class WriterSchemas:
    """The schemas of one source, as far as they are known."""

    def __init__(
        self,
        parts: Sequence[AvroPart],
        schemas: Schemas,
        kept: KeptAnswers | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept`: None: nothing is replayed. Raises OSError."""
        self._parts, self._schemas, self._kept, self._now_s = parts, schemas, kept, now_s
        #: id -> a program of each part, or None where the schema does not fit
        self._known: dict[int, tuple[str | None, ...]] = {}
        #: those that a restart knows as well
        self._kept_ids: set[int] = set()
        for schema in kept.schemas() if kept else ():
            self._known[schema.schema_id] = self._compiled(schema)
            self._kept_ids.add(schema.schema_id)

    def of_batch(self, starts: Offsets, ends: Offsets, unseen: Unseen) -> Programs:
        """The programs for a batch; records under other schemas are bad.

        Raises SchemaRegistryUnavailable if it is not known whether a schema exists, and OSError.
        """
        before = self._kept.known_in(starts, ends) if self._kept else None
        if before is not None:
            self._know_again([each for each in before if each not in self._known])
            return self._programs(before)
        if self._chars() > PROGRAMS_CHARS_MAX:
            self._known = {}  # most are of other batches
        new = unseen(self._known.keys())
        self._ask_for(starts, ends, new[:ASKED_MAX])
        fitting = self._fitting()
        all_fit = fitting.issuperset([*new, *self._known])
        if self._kept and not (all_fit and self._kept_ids.issuperset(fitting)):
            self._kept.keep_known(starts, ends, fitting)
        return self._programs(fitting)

    def _know_again(self, schema_ids: Sequence[int]) -> None:
        """Ask for schemas that were known before."""
        late, _ = self._ask(schema_ids)
        _check_time(len(schema_ids), late)
        if gone := [each for each in schema_ids if each not in self._known]:
            raise SchemaRegistryUnavailable(
                f"the schema registry has no schema {gone[0]} any more, under which a batch was"
                " read that must be read again: restore it there"
            )

    def _ask_for(self, starts: Offsets, ends: Offsets, schema_ids: Sequence[int]) -> None:
        """Ask for those that an earlier try of this batch has not found to be unknown."""
        unknown = self._kept.unknown_in(starts, ends) if self._kept else []
        wanted = [each for each in schema_ids if each not in unknown]
        late, absent = self._ask(wanted)
        if late and self._kept:
            self._kept.keep_unknown(starts, ends, [*unknown, *absent])
        _check_time(len(wanted), late)

    def _ask(self, schema_ids: Sequence[int]) -> tuple[int, list[int]]:
        """For how many there was no time, and which the registry does not know."""
        if not schema_ids:
            return 0, []
        until_s = self._now_s() + ASK_S_MAX
        with ThreadPoolExecutor(min(_ASKERS, len(schema_ids))) as askers:
            answers = list(askers.map(partial(self._asked, until_s), schema_ids))
        for schema in answers:
            if not isinstance(schema, RegisteredSchema):
                continue
            if self._kept and len(self._kept_ids | {schema.schema_id}) <= KEPT_MAX:
                self._kept.keep(schema)
                self._kept_ids.add(schema.schema_id)
            self._known[schema.schema_id] = self._compiled(schema)
        pairs = zip(schema_ids, answers, strict=True)
        return answers.count(_LATE), [each for each, answer in pairs if answer is None]

    def _asked(self, until_s: float, schema_id: int) -> RegisteredSchema | Literal["late"] | None:
        """None: the registry does not know it."""
        if self._kept and schema_id in self._kept_ids and (kept := self._kept.schema(schema_id)):
            return kept
        if self._now_s() >= until_s:
            return _LATE
        try:
            return self._schemas.by_id(schema_id)
        except UnknownSchema:
            return None

    def _compiled(self, schema: RegisteredSchema) -> tuple[str | None, ...]:
        return tuple(_program(schema, part) for part in self._parts)

    def _chars(self) -> int:
        return sum(len(text or "") for texts in self._known.values() for text in texts)

    def _fitting(self) -> set[int]:
        """The known schemas whose programs a batch may have."""
        found: set[int] = set()
        chars = 0
        for schema_id in sorted(self._known):
            chars += sum(len(text or "") for text in self._known[schema_id])
            if chars <= PROGRAMS_CHARS_MAX:
                found.add(schema_id)
        return found

    def _programs(self, schema_ids: Collection[int]) -> Programs:
        return tuple(
            {each: text for each in schema_ids if (text := self._known[each][number]) is not None}
            for number in range(len(self._parts))
        )


def _check_time(asked: int, late: int) -> None:
    """Raises SchemaRegistryUnavailable if there was no time for some of the schemas."""
    if late:
        raise SchemaRegistryUnavailable(
            f"Schema registry: it is slow: {asked - late} of {asked} schemas that a batch names"
            f" were answered within {ASK_S_MAX:.0f} s; the rest is asked for again"
        )


def _program(schema: RegisteredSchema, part: AvroPart) -> str | None:
    """None: the schema is none, or does not fit the columns."""
    try:
        return program_of_cells(parsed(schema), part.columns, wraps=part.wraps).text()
    except BadSchema:
        return None
