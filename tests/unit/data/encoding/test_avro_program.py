"""Programs stay small, whatever a schema is: its types may multiply, or refer to each other."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from standpipe.data.encoding import avro_program
from standpipe.data.encoding.avro_program import NOWHERE, AvroProgram
from standpipe.model import Column
from standpipe.sql.schemas import avro
from standpipe.sql.schemas.avro import BadSchema


def record(name: str, **fields: Any) -> dict[str, Any]:
    named = [{"name": field, "type": of} for field, of in fields.items()]
    return {"type": "record", "name": name, "fields": named}


def program(schema: Any, *columns: tuple[str, str], wraps: bool = True) -> AvroProgram:
    given = [Column(name=name, type=of) for name, of in columns]
    return avro_program.program_of_cells(avro.parse(json.dumps(schema)), given, wraps=wraps)


def test_fields_have_the_places_of_their_columns() -> None:
    """The column Id has its exact field; what no column has is passed over."""
    made = program(
        record("R", old="string", id="int", Id="int", note="string"),
        *(("Id", "BIGINT"), ("NOTE", "STRING"), ("NEW", "INTEGER")),
    )
    assert made.steps[0].names == ("Id", "NOTE", "NEW")
    assert [place for place, _ in made.steps[0].parts] == [NOWHERE, NOWHERE, 0, 1]
    kept = [made.steps[number].is_kept for _, number in made.steps[0].parts]
    assert kept == [False, False, True, True]
    assert msgspec.json.decode(made.text(), type=AvroProgram) == made


def levels(count: int, names: tuple[str, ...]) -> dict[str, Any]:
    """A record whose fields of these names are all of the next level's record, and so on."""
    last: Any = record("L0", x="int")
    first: dict[str, Any] = {"l0": last}
    for level in range(1, count):
        first[f"l{level}"] = record(f"L{level}", **dict.fromkeys(names, f"L{level - 1}"))
    return record("R", **first)


def test_types_that_multiply_are_steps_once() -> None:
    """Passed over, and as a column: three fields have its name in some case."""
    names = ("ab", "Ab", "aB")
    assert len(program(levels(40, names), ("V", "INTEGER")).steps) < 100
    target = "INTEGER"
    for _ in range(39):
        target = f"STRUCT<`AB` {target}>" if target != "INTEGER" else "STRUCT<`X` INTEGER>"
    made = program(levels(40, names), ("L38", target))
    assert len(made.steps) < 200
    assert len(made.text()) < 20_000


def test_names_in_a_long_chain_need_no_stack() -> None:
    made = program(levels(5000, ("a",)), ("V", "INTEGER"))
    assert len(made.steps) == 5002
    text = avro_program.program_of_text(avro.parse(json.dumps(levels(5000, ("a",)))))
    assert len(text.steps) == 5002


def test_a_type_may_contain_itself() -> None:
    made = program(record("R", v="int", next=["null", "R"]), ("V", "INTEGER"))
    (_, next_) = made.steps[0].parts[1]
    (_, inner) = made.steps[next_].parts[1]
    assert (NOWHERE, next_) in made.steps[inner].parts


@pytest.mark.parametrize(
    ("schema", "column", "message"),
    [
        (record("R", **{f"f{n}": "int" for n in range(20_001)}), ("V", "INTEGER"), "20000 steps"),
        (record("R", v=["null", *(record(f"B{n}") for n in range(10_010))]),
         ("V", "STRUCT<`X` INTEGER>"), "20000 steps"),
        (record("R", v={"type": "enum", "name": "E", "symbols": ["S" * 500_000]}), ("V", "STRING"),
         "500000 characters"),
        (record("R", v={"type": "bytes", "logicalType": "decimal", "precision": 10**9,
                        "scale": 10**9}), ("V", "DECIMAL(4, 2)"), "more than 1000 digits"),
        (record("R", v={"type": "map", "values": "int"}), ("V", "MAP<INTEGER, INTEGER>"),
         "Cannot deserialize type map"),
    ],
)  # fmt: skip
def test_a_schema_beyond_the_bounds(schema: Any, column: tuple[str, str], message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        program(schema, column).text()


def test_what_is_passed_over_has_no_texts() -> None:
    """The symbols of an enum that no column has stay out, and a decimal is its bytes."""
    kind = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9}
    made = program(record("R", e=kind, m=money), ("V", "INTEGER"))
    assert [(each.size, each.names, each.form) for each in made.steps[1:]] == [
        (2, (), ""),
        (0, (), ""),
    ]
