import pytest

from standpipe.model import Column
from standpipe.pipeline.io.type_mapping import spellings, spellings_of, wire_schema


@pytest.mark.parametrize(
    ("name", "looked_for", "why"),
    [
        ("TAILNUM", ("TAILNUM", "tailnum"), "unquoted in SQL: exact is upper"),
        ("tailNum", ("tailNum", "TAILNUM", "tailnum"), "quoted in SQL: exact first"),
        ("1", ("1",), "no letters"),
    ],
)
def test_spellings(name: str, looked_for: tuple[str, ...], why: str) -> None:
    assert spellings(name) == looked_for, why


@pytest.mark.parametrize(
    ("type_", "spark", "why"),
    [
        ("INTEGER", "int", ""),
        ("BIGINT", "bigint", ""),
        ("DECIMAL(6, 2)", "decimal(6,2)", ""),
        ("BYTES", "binary", "base64 text in JSON, on both sides"),
        ("TIMESTAMP", "bigint", "a topic holds ms"),
        ("DATE", "int", "a topic holds days"),
        ("ARRAY<TIMESTAMP>", "array<bigint>", "also inside"),
        ("MAP<STRING, DOUBLE>", "map<string,double>", ""),
        ("STRUCT<A INT>", "struct<A:int,a:int>", "fields in any case too"),
    ],
)
def test_wire_schema(type_: str, spark: str, why: str) -> None:
    schema = wire_schema([Column(name="1", type=type_)], any_case=True)
    assert schema["1"].dataType.simpleString() == spark, why


def test_one_spelling_where_fields_have_no_names() -> None:
    schema = wire_schema([Column(name="A", type="INT")], any_case=False)
    assert schema.fieldNames() == ["A"]


@pytest.mark.parametrize(
    ("names", "looked_for"),
    [
        (["A", "B"], [("A", "a"), ("B", "b")]),
        (["v", "V"], [("v",), ("V",)]),
        (["V", "v"], [("V",), ("v",)]),
        (["Vv", "VV"], [("Vv", "vv"), ("VV",)]),
        (["vV", "Vv"], [("vV", "VV", "vv"), ("Vv",)]),
    ],
)
def test_spellings_of_an_object_are_different(
    names: list[str], looked_for: list[tuple[str, ...]]
) -> None:
    # Spark refused the schema as ambiguous: each query over such a stream failed
    assert [*spellings_of(names).values()] == looked_for
    schema = wire_schema([Column(name=name, type="INT") for name in names], any_case=True)
    assert len(set(schema.fieldNames())) == len(schema)
