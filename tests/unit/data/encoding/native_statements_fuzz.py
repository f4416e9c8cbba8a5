"""Random statements and rows into the compiled lookup: what it answers must be what Python does.

`native_fuzz` runs it, too, with a build that has sanitizers.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Final
from unittest import mock

import msgspec
from tests.unit.data.encoding.native_keys_fuzz import damaged
from tests.unit.data.rows import table

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import list_lookup, statement_lookup
from standpipe.data.query.statement_lookup import KnownStatement, program_of, row_of_plan
from standpipe.model import Column
from standpipe.sql.context import Context
from standpipe.sql.lookup.plan import compile_pull
from standpipe.sql.lookup.template import PullTemplate
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast import Query

PIECES: Final = (
    *(b'"', b'"', b'"', b"'", b"'", b"''", b"'a'", b"'a'", b" 7", b" 42 ", b"-7", b" -0"),
    *(b"0", b"=", b"(", b",", b".5", b"e3", b"x", b"\xc3\xa9", b"\\", b"\0", b"\1", b"\n"),
    *(b" 9223372036854775807", b" 9223372036854775808", b" 2147483648", b"a" * 250),
)
LIST_PIECES: Final = (
    *(b"'", b",", b"','", b"','", b"', '", b"a','b", b"a", b"N7", b" ", b'"', b"\\", b"\0", b"\1"),
    *(b"\xc3\xa9", b"x" * 250, b"'a','b'", b"',,'"),
)
TABLE: Final = msgspec.structs.replace(
    table(),
    columns=(
        Column(name="ID", type="STRING", is_key=True),
        Column(name="N", type="BIGINT"),
        Column(name="S", type="STRING"),
        Column(name="B", type="BOOLEAN"),
        Column(name="D", type="DOUBLE"),
    ),
    partitions=1,
)
CELLS: Final = (
    (b"1", b"5", b"-5", b"0", b"-0", b"null", b"1e2", b"05", b"5.0", b"9" * 18, b"9" * 19, b'"5"'),
    (b'"a"', b'""', b'"b"', b"null", b'"\xc3\xa9"', b'"\\n"', b'"\\u0061"', b"5", b'"a', b'"aa"'),
    (b"true", b"false", b"null", b'"true"', b"[]"),
    (b"1.5", b"null", b"1e3", b"1", b'{"a": 1}', b'{"a":1}', b"9" * 40),
)
COLUMNS: Final = ("*", "N", "ID", "S, N, ROWTIME", "B, ID", "D", "N, N AS N2")


@cache
def template_of(shown: str, condition: str, added: int = 0) -> PullTemplate:
    """Of a lookup with one condition more. `added`: how many of the columns were added in place."""
    table_ = msgspec.structs.replace(TABLE, columns_first=len(CELLS) - added) if added else TABLE
    more = f" AND {condition}" if condition else ""
    query = parser.parse(f"SELECT {shown} FROM {TABLE.name} WHERE ID = 'k'{more};")[0]
    assert isinstance(query, Query)
    return compile_pull(query, {TABLE.name: table_}, Context(properties={}))


def statement_alike(body: bytes, other: bytes) -> bool:
    """Whether `other` is known once `body` was. Asserts that Python cuts and knows the same."""
    found = statement_lookup.cut_all(b"mark", body)
    assert native.cut_all(b"mark", body) == found
    places = statement_lookup.places_in(body)
    with mock.patch.object(native, "_native", None):
        assert statement_lookup.cut_all(b"mark", body) == found
    if found is None or not places:
        assert not places
        return False
    is_known = False
    for place, at in enumerate(places):
        for kind in (0,) if at.is_text else (1, 2):
            entry = KnownStatement(len(body), kind, 4, place, kind == 2, "its meaning")
            known = {found: entry}
            for message in (body, other, body.replace(b"7", b"8"), body.replace(b"'a'", b"'b'")):
                by_c = native.known_statement(known, b"mark", message)
                assert statement_lookup.known_statement(known, b"mark", message) == by_c
                with mock.patch.object(native, "_native", None):
                    slow = statement_lookup.known_statement(known, b"mark", message)
                assert slow == by_c
                is_known |= by_c is not None
    return is_known


def list_alike(body: bytes, other: bytes) -> bool:
    """Whether `other` is known once `body` was. Asserts that Python cuts and knows the same."""
    found = list_lookup.cut_list(b"mark", body)
    assert native.cut_list(b"mark", body) == found
    with mock.patch.object(native, "_native", None):
        assert list_lookup.cut_list(b"mark", body) == found
    if found is None:
        return False
    known = {found: list_lookup.KnownList(3, "its meaning")}
    is_known = False
    for message in (body, other, body.replace(b"','", b"','N8','")):
        by_c = native.known_list(known, b"mark", message)
        with mock.patch.object(native, "_native", None):
            assert list_lookup.known_list(known, b"mark", message) == by_c
        is_known |= by_c is not None
    return is_known


def text_shown_alike(
    shown: str,
    condition: str,
    cells: tuple[bytes, ...],
    number: bytes,
    text: bytes,
    *,
    own: int = 0,
    added: int = 0,
) -> bool:
    """Whether the row was shown or refused by C, with these literals in the condition. `own`: how
    many columns it has of the `added` ones."""
    first = len(CELLS) - added
    stored = pack_row(b"[%b]" % b",".join(cells[: first + own]), 5, b"", own)
    return shown_alike(template_of(shown, condition, added), stored, number, text)


def shown_alike(template: PullTemplate, stored: bytes, number: bytes, text: bytes) -> bool:
    """Whether C showed the row, or found that its conditions do not hold. Asserts that the plan
    with these literals has the same row."""
    program = program_of(template)
    if program is None:
        return False
    conditions = {each.place: each.compared for each in template.conditions or ()}
    literals = tuple(
        {"STRING": text, "BIGINT": number}.get(conditions.get(place, ""), b"k")
        for place in range(len(template.slots))
    )
    found = native.shown(store_key(("k",), ("STRING",)), stored, True, program, literals)
    if found is None:
        return False
    values = [
        int(each) if conditions.get(place) == "BIGINT" else each.decode()
        for place, each in enumerate(literals)
    ]
    try:
        row = row_of_plan(template.bind(values), stored, 0)
    except DamagedRow:
        raise AssertionError("C showed a damaged row") from None
    assert found == (False if row is None else row), (stored, literals)
    return True


def run(seed: int, count: int) -> tuple[int, int]:
    """How many rows were taken and how many refused; asserts that all were alike."""
    chance = random.Random(seed)
    taken = 0
    for _ in range(count):
        body, other = (b"".join(chance.choices(PIECES, k=chance.randint(0, 9))) for _ in "12")
        statement_alike(b'{"a":"' + body + b'"}', b'{"a":"' + other + b'"}')
        body, other = (b"".join(chance.choices(LIST_PIECES, k=chance.randint(0, 9))) for _ in "12")
        list_alike(b"'" + body + b"'", b"'" + other + b"'")
        condition = chance.choice(["", "N > 3", "S <> 'a' AND N <= -3", "S < 'b' AND ROWTIME > 3"])
        added = chance.choice([0, 0, 1, 2, 3, 4])
        own = chance.randint(0, added)
        template = template_of(chance.choice(COLUMNS), condition, added)
        cells = [each[0] if chance.random() < 0.6 else chance.choice(each) for each in CELLS]
        columns = len(cells) - added + own - chance.choice([0, 0, 0, 1])
        stored = pack_row(b"[%b]" % b",".join(cells[:columns]), 5, b"", own)
        number, text = chance.choice([b"3", b"7", b"9" * 18]), chance.choice([b"a", b"", b"zz"])
        taken += shown_alike(template, stored, number, text)
        assert not shown_alike(template, damaged(chance, stored), number, text)
    return taken, count - taken
