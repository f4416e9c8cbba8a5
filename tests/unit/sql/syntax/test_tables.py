"""Tables that are saved and restored parse like those that were built."""

from __future__ import annotations

import json

import pytest
from lark import Lark
from tests import grammar_tables

from standpipe.sql.syntax import parser, tables
from standpipe.sql.syntax.parser import _callbacks

TEXTS = (
    "SELECT ID, ROWTIME FROM T WHERE ID IN ('a', 'b') AND N > 1.5e3 LIMIT 3;",
    "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 DAY) GROUP BY ID;",
    "INSERT INTO S (ID, A) VALUES ('it''s', ARRAY[1, MAP('a' := 1)['a']]);",
    "SELECT TRANSFORM(A, x => x + 1) FROM T WHERE ID = 'k' ORDER BY ID;",
)


@pytest.fixture(scope="module")
def built() -> Lark:
    """Built once for all of these tests, and not what `tests/grammar_tables.py` keeps."""
    return grammar_tables.build_again(_callbacks())


@pytest.fixture(scope="module")
def saved(built: Lark) -> bytes:
    return tables.dump(built)


@pytest.fixture(scope="module")
def restored(saved: bytes) -> Lark | None:
    return tables.restore(saved, _callbacks())


@pytest.mark.parametrize("text", TEXTS)
def test_restored_tables_give_the_same_statements(
    built: Lark, restored: Lark | None, text: str
) -> None:
    assert restored is not None
    assert restored.parse(text) == built.parse(text)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"", "no file"),
        (lambda data: data[: len(data) // 2], "a file that was cut"),
        (lambda data: b"\x80\x04K\x01.", "a pickle, as earlier versions saved"),
        (lambda data: b"[]", "JSON of something else"),
        (lambda data: json.dumps({**json.loads(data), "of": "x"}).encode(), "another grammar's"),
        (lambda data: json.dumps({**json.loads(data), "memo": {}}).encode(), "parts are missing"),
    ],
)
def test_other_files_are_not_used(saved: bytes, change: object, why: str) -> None:
    assert tables.restore(change(saved), _callbacks()) is None, why  # type: ignore[operator]


def test_warm_up_returns_what_the_next_one_can_use(
    built: Lark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "build", lambda callbacks: built)
    made = parser.warm_up(b"damaged")
    assert tables.restore(made, _callbacks()) is not None
    assert parser.warm_up(made) is made
    assert parser.parse(TEXTS[0])
