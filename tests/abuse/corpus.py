"""Costly requests: ten kinds of fifty, each at most 100 KB, the same for the same seed.

    for asked in corpus(): post(asked.path, asked.body)

A shape makes SQL of a size; a kind has several shapes. Sizes lie just below the limit that stops
the shape, at parts of it and beyond it: what is refused at once costs nothing, so most of the
corpus has to pass. They ask for the table and the stream of SETUP, whose text column is long.
Not here: who sends them, and what is measured meanwhile (`tests.abuse.__main__`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BODY_BYTES_MAX = 100_000
PER_KIND = 50
SETUP = """
CREATE STREAM ABUSE_EVENTS (ID STRING KEY, N BIGINT, T STRING, A ARRAY<INTEGER>)
  WITH (KAFKA_TOPIC='abuse_events', VALUE_FORMAT='JSON', PARTITIONS=4);
CREATE TABLE ABUSED AS SELECT ID, COUNT(*) AS C, LATEST_BY_OFFSET(N) AS N,
  LATEST_BY_OFFSET(T) AS T, LATEST_BY_OFFSET(A) AS A FROM ABUSE_EVENTS GROUP BY ID EMIT CHANGES;
"""
#: parts of a shape's limit: below it more often than beyond it
SHARES = (0.97, 0.05, 0.5, 1.05, 0.97, 0.2, 0.9, 20.0)

Make = Callable[[int], str]


@dataclass(frozen=True)
class Costly:
    """One request; `path` is its endpoint."""

    kind: str
    path: str
    body: bytes
    #: shape and size, for a report
    name: str


@dataclass(frozen=True)
class Shape:
    """SQL of a size, and the size at which a limit of the server lies."""

    make: Make
    limit: int
    is_statement: bool = False  # for POST /ksql
    variables: Callable[[int], Mapping[str, str]] = lambda n: {}
    properties: Callable[[int], Mapping[str, Any]] = lambda n: {}


def where(condition: Make, limit: int) -> Shape:
    """A lookup whose row also has to match a condition."""
    return Shape(lambda n: f"SELECT ID, C FROM ABUSED WHERE ID = 'k1' AND ({condition(n)});", limit)


def scan(condition: Make, limit: int) -> Shape:
    """The condition at each row of the table."""
    return Shape(lambda n: f"SELECT ID, C FROM ABUSED WHERE {condition(n)};", limit)


def column(expression: Make, limit: int) -> Shape:
    """A lookup that shows an expression."""
    return Shape(lambda n: f"SELECT {expression(n)} AS X FROM ABUSED WHERE ID = 'k1';", limit)


def each(expression: Make, limit: int) -> Shape:
    """The expression shown of each row of the table."""
    return Shape(lambda n: f"SELECT {expression(n)} AS X FROM ABUSED;", limit)


def push(rest: Make, limit: int) -> Shape:
    """A push query, which stays until the client goes."""
    return Shape(lambda n: f"SELECT {rest(n)} EMIT CHANGES LIMIT 3;", limit)


def statements(make: Make, limit: int) -> Shape:
    """Statements of POST /ksql."""
    return Shape(make, limit, is_statement=True)


def numbers(n: int, start: int = 0) -> str:
    return ", ".join(map(str, range(start, start + n)))


def texts(n: int) -> str:
    return ", ".join(f"'t{number}'" for number in range(n))


def nested(call: str, inner: str, n: int) -> str:
    """`call` has one `{}`, which holds the next level."""
    before, after = call.split("{}")
    return before * n + inner + after * n


def nested_lambdas(n: int) -> str:
    """Their parameters have names of their own, or they would be refused for that."""
    inner = "1"
    for at in range(n):
        inner = f"TRANSFORM(A, x{at} => REDUCE(A, x{at}, (s{at}, y{at}) => s{at} + {inner}))"
    return inner


def doubled(name: str, n: int) -> dict[str, str]:
    """Variables that each name the one before twice."""
    return {f"{name}{i}": f"${{{name}{i - 1}}}${{{name}{i - 1}}}" for i in range(1, n)} | {
        f"{name}0": "x" * 64
    }


def many_regular_expressions() -> Iterator[str]:
    """Patterns that a backtracking engine does not get through."""
    yield from ("(a+)+b", "(a|a)*b", "(.*)*b", "(a|aa)+b", "([a-z]+)*1", "(x+x+)+y", ".*.*.*.*=")


SHAPES: dict[str, Sequence[Shape]] = {
    "nesting": (
        where(lambda n: "(" * n + "C = 1" + ")" * n, 118),
        where(lambda n: "NOT " * n + "C = 1", 116),
        column(lambda n: nested("ABS({})", "C", n), 100),
        column(lambda n: nested("CASE WHEN C > 0 THEN {} ELSE 1 END", "2", n), 100),
        column(lambda n: nested("ARRAY[{}]", "1", n), 100),
        column(lambda n: nested("STRUCT(X := {})", "1", n), 100),
        column(nested_lambdas, 40),
        column(lambda n: "CAST(NULL AS " + nested("ARRAY<{}>", "INTEGER", n) + ")", 100),
        scan(lambda n: nested("COALESCE({}, 0)", "C", n) + " >= 0", 100),
        column(lambda n: "-" * 1 + " -" * n + "1", 100),
    ),
    "lists": (
        where(lambda n: f"C IN ({numbers(n)})", 2_400),
        where(lambda n: f"T IN ({texts(n)}) OR T IN ({texts(n)})", 1_200),
        where(lambda n: " OR ".join(f"C = {i}" for i in range(n)), 1_200),
        where(lambda n: " AND ".join(f"C <> {i + 5}" for i in range(n)), 1_200),
        Shape(lambda n: f"SELECT * FROM ABUSED WHERE ID IN ({texts(n)});", 999),
        scan(lambda n: f"N IN ({numbers(n, 10**9)})", 2_400),
        scan(lambda n: " OR ".join(f"N = {i + 10**9}" for i in range(n)), 1_200),
        Shape(lambda n: f"SELECT {', '.join('C' for _ in range(n))} FROM ABUSED;", 2_400),
        each(lambda n: f"ARRAY[{numbers(n)}]", 2_400),
        scan(lambda n: f"ARRAY_CONTAINS(ARRAY[{numbers(n)}], CAST(N AS INTEGER))", 2_400),
        where(lambda n: " AND ".join(f"N BETWEEN {-i} AND {i + 10**9}" for i in range(n)), 700),
    ),
    "patterns": (
        where(lambda n: f"T LIKE '{'%a' * n}%b'", 20_000),
        scan(lambda n: f"T LIKE '{'%_' * n}b'", 20_000),
        scan(lambda n: " OR ".join(f"T LIKE '%a%b%{i}'" for i in range(n)), 900),
        where(lambda n: f"T LIKE '{'_' * n}%'", 60_000),
        where(lambda n: f"REPLACE(T, 'x', 'a') LIKE '{'%aa' * n}%ab' ESCAPE '!'", 15_000),
        *(
            scan(lambda n, e=e: f"REGEXP_EXTRACT('{e}', LPAD(T, {n}, 'a')) = 'z'", 150_000)
            for e in many_regular_expressions()
        ),
        scan(lambda n: f"REGEXP_REPLACE(T, '(?:a?){{{n}}}a{{{n}}}', 'b') = 'z'", 330),
        column(lambda n: f"REGEXP_SPLIT_TO_ARRAY(LPAD(T, 4000, 'a'), '(a{{{n}}}){{{n}}}')", 30),
        column(lambda n: f"REGEXP_EXTRACT_ALL('{'(x|' * n}y{')' * n}', T)", 40),
        scan(lambda n: f"REGEXP_EXTRACT_ALL('a.*b|a', LPAD(T, {n}, 'a'))[1] = 'z'", 600),
        scan(lambda n: f"REGEXP_REPLACE(LPAD(T, {n}, 'a '), ' ', 'b') = 'z'", 5_000),
    ),
    "strings": (
        column(lambda n: f"LPAD(T, {n}, 'ab')", 4_000_000),
        each(lambda n: f"RPAD(T, {n}, 'ab')", 4_000_000),
        column(lambda n: nested("REPLACE({}, 'x', 'xx')", "T", n), 60),
        column(lambda n: nested("REPLACE({}, '', 'yy')", "T", n), 60),
        column(lambda n: "CONCAT(" + ", ".join(["T"] * n) + ")", 2_400),
        each(lambda n: f"LEN(LPAD(T, {n}, 'z'))", 4_000_000),
        scan(lambda n: f"INSTR(LPAD(T, {n}, 'a'), 'aaaaaaaaab') = 3", 2_000_000),
        column(lambda n: f"'{'x' * n}'", 65_000),
        column(lambda n: f"SPLIT(LPAD(T, {n}, ','), ',')", 4_000_000),
        column(lambda n: f"EXTRACTJSONFIELD('{'[' * n + ']' * n}', '$.a')", 30_000),
        column(lambda n: f"JSON_KEYS('{json.dumps({str(i): i for i in range(n)})}')", 4_000),
        each(lambda n: f"INITCAP(UCASE(REPLACE(LPAD(T, {n}, 'a b'), 'a', 'c')))", 1_000_000),
        each(lambda n: f"URL_ENCODE_PARAM(LPAD(T, {n}, '%'))", 1_000_000),
        each(lambda n: f"MD5(MASK(LPAD(T, {n}, 'a')))", 1_000_000),
    ),
    "numbers": (
        column(lambda n: "9" * n, 60_000),
        column(lambda n: f"CAST('{'9' * n}' AS DECIMAL(38, 2))", 60_000),
        column(lambda n: nested("POWER({}, 10)", "10.0", n), 100),
        column(lambda n: " * ".join(["99999999999999999999.99"] * n), 1_000),
        each(lambda n: " + ".join(f"C * {i}" for i in range(n)), 900),
        each(lambda n: f"GENERATE_SERIES(1, {n})", 4_000_000),
        column(lambda n: f"ARRAY_SORT(ARRAY_DISTINCT(GENERATE_SERIES(1, {n})))", 1_000_000),
        each(lambda n: f"REDUCE(GENERATE_SERIES(1, {n}), 0, (s, x) => s + x * x)", 1_000_000),
        column(
            lambda n: (
                f"TRANSFORM(GENERATE_SERIES(1, {n}), x => "
                f"REDUCE(GENERATE_SERIES(1, {n}), 0, (s, y) => s + x * y))"
            ),
            2_000,
        ),
        column(lambda n: f"ROUND(CAST(C AS DECIMAL(38, 10)), {n})", 2_000_000_000),
        each(lambda n: f"FORMAT_TIMESTAMP(FROM_UNIXTIME(N), '{'yyyy' * n}')", 10_000),
        each(lambda n: f"PARSE_DATE(T, LPAD('', {n}, '['))", 1_000_000),
        each(lambda n: f"ARRAY_UNION(GENERATE_SERIES(1, {n}), A)", 1_000_000),
        each(lambda n: f"ARRAY_EXCEPT(GENERATE_SERIES(1, {n}), GENERATE_SERIES(5, {n}))", 200_000),
    ),
    "variables": (
        Shape(
            lambda n: f"SELECT '{'${v}' * n}' AS X FROM ABUSED WHERE ID = 'k1';",
            1_000,
            variables=lambda n: {"v": "y" * 60},
        ),
        Shape(
            lambda n: f"SELECT '${{w{n - 1}}}' AS X FROM ABUSED WHERE ID = 'k1';",
            12,
            variables=lambda n: doubled("w", n),
        ),
        Shape(
            lambda n: "SELECT ID FROM ABUSED WHERE ID = '${v1}';",
            3_000,
            variables=lambda n: {f"v{i}": "z" * 12 for i in range(n)},
        ),
        statements(
            lambda n: (
                "DEFINE a0 = 'xx';"
                + "".join(f"DEFINE a{i} = '${{a{i - 1}}}${{a{i - 1}}}';" for i in range(1, n))
                + "SHOW VARIABLES;"
            ),
            15,
        ),
        statements(
            lambda n: (
                "".join(f"DEFINE b{i} = '{'q' * 300}';" for i in range(n)) + "SHOW VARIABLES;"
            ),
            190,
        ),
        Shape(
            lambda n: "SELECT ID FROM ABUSED WHERE ID = '${x}';",
            60_000,
            variables=lambda n: {"x": "$" * n},
        ),
        Shape(lambda n: "SELECT ID FROM ABUSED WHERE T = '" + "${" * n + "';", 30_000),
        Shape(lambda n: "SELECT ${x} " + "/* " * n, 21_000, variables=lambda n: {"x": "1"}),
    ),
    "many statements": (
        *(
            statements(lambda n, one=one: one * n, 198)
            for one in (
                "SHOW FUNCTIONS;",
                "SHOW QUERIES EXTENDED;",
                "DESCRIBE ABUSED EXTENDED;",
                "SHOW PROPERTIES;",
                "DESCRIBE FUNCTION CONCAT;",
                "SHOW TABLES EXTENDED;",
                "EXPLAIN SELECT * FROM ABUSED WHERE ID = 'k1';",
                "EXPLAIN ASSIGNMENT;",
                "SHOW TYPES;",
                "DROP TYPE IF EXISTS NONE_OF_THEM;",
                "SHOW TOPICS EXTENDED;",
                "SET 'ksql.query.pull.table.scan.enabled' = 'true';",
            )
        ),
        statements(lambda n: ";" * n, 5_000),
        statements(lambda n: "/* " + "comment " * n + "*/ SHOW TABLES;", 8_000),
        statements(
            lambda n: "".join(
                f"INSERT INTO ABUSE_EVENTS (ID, N) VALUES ('i{i}', {i});" for i in range(n)
            ),
            198,
        ),
        statements(lambda n: f"EXPLAIN SELECT ID FROM ABUSED WHERE C IN ({numbers(n)});", 2_400),
        statements(
            lambda n: f"INSERT INTO ABUSE_EVENTS (ID, A) VALUES ('i', ARRAY[{numbers(n)}]);", 2_400
        ),
    ),
    "scans": (
        scan(lambda n: " OR ".join(f"N + {i} = C * {i + 7}" for i in range(n)), 600),
        scan(lambda n: f"LEN(T) + {n} < 0", 1_000),
        Shape(lambda n: f"SELECT * FROM ABUSED LIMIT {n};", 50_000),
        Shape(lambda n: f"SELECT ID, T FROM ABUSED ORDER BY ID LIMIT {n};", 50_000),
        Shape(lambda n: f"SELECT COUNT(*) FROM ABUSED WHERE N % {n} = 1;", 10_000),
        each(lambda n: f"TRANSFORM(A, x => x * {n})", 1_000),
        each(
            lambda n: "CASE " + " ".join(f"WHEN C = {i + 9} THEN {i}" for i in range(n)) + " END",
            700,
        ),
        scan(lambda n: f"ID BETWEEN 'k' AND 'k{n}'", 1_000),
        each(lambda n: "CONCAT(" + ", ".join(["T"] * n) + ")", 300),
        scan(lambda n: " AND ".join(f"REPLACE(T, '{i}', 'x') <> 'y'" for i in range(n)), 500),
        each(lambda n: ", ".join(f"N * {i} AS X{i}" for i in range(n)) + ", 1", 700),
    ),
    "streams": (
        push(lambda n: f"* FROM ABUSED WHERE C IN ({numbers(n)})", 2_400),
        push(lambda n: f"LPAD(T, {n}, 'x') AS X FROM ABUSE_EVENTS", 4_000_000),
        push(lambda n: f"* FROM ABUSE_EVENTS WHERE T LIKE '{'%a' * n}%b'", 20_000),
        Shape(lambda n: f"SELECT * FROM ABUSE_EVENTS LIMIT {n};", 50_000),
        Shape(lambda n: f"SELECT ID FROM ABUSE_EVENTS WHERE N IN ({numbers(n)});", 2_400),
        Shape(lambda n: f"SELECT RPAD(T, {n}, 'x') AS X FROM ABUSE_EVENTS;", 1_000_000),
        Shape(lambda n: f"PRINT 'abuse_events' FROM BEGINNING LIMIT {n};", 50_000),
        push(lambda n: " + ".join(f"N * {i}" for i in range(n)) + " AS X FROM ABUSE_EVENTS", 900),
    ),
}


def corpus(seed: int = 0, per_kind: int = PER_KIND) -> list[Costly]:
    """All kinds, mixed; the same for the same arguments."""
    chance = random.Random(seed)
    made = [asked for kind in (*SHAPES, "requests") for asked in _of(kind, per_kind, chance)]
    chance.shuffle(made)
    return made


def _of(kind: str, count: int, chance: random.Random) -> Iterator[Costly]:
    for number in range(count):
        share = SHARES[number // len(SHAPES.get(kind, ODD)) % len(SHARES)]
        share *= chance.uniform(0.98, 1.0)
        if kind == "requests":
            path, body = ODD[number % len(ODD)](max(1, int(share * 1_000)))
            yield Costly(kind, path, body[:BODY_BYTES_MAX], f"{number % len(ODD)} x {share:.2f}")
            continue
        index = number % len(SHAPES[kind])
        shape = SHAPES[kind][index]
        size = max(1, int(shape.limit * share))
        while len(body := _body(shape, size)) > BODY_BYTES_MAX:
            size = size * 3 // 4
        path = "/ksql" if shape.is_statement else chance.choice(("/query", "/query-stream"))
        body = _body(shape, size, path)
        yield Costly(kind, path, body, f"{index} x {size}")


def _body(shape: Shape, size: int, path: str = "/query-stream") -> bytes:
    """The request's JSON, as its endpoint wants it."""
    sql = shape.make(size)
    text, properties = (
        ("sql", "properties") if path == "/query-stream" else ("ksql", "streamsProperties")
    )
    return json.dumps({
        text: sql,
        properties: dict(shape.properties(size)),
        "sessionVariables": dict(shape.variables(size)),
    }).encode()  # fmt: skip


#: requests whose JSON is the odd thing about them
ODD: Sequence[Callable[[int], tuple[str, bytes]]] = (
    lambda n: ("/query", b'{"ksql": ' + b"[" * 40 * n + b"]" * 40 * n + b"}"),
    lambda n: ("/ksql", b'{"ksql": "SHOW TABLES;", "streamsProperties": '
               + json.dumps({f"p{i}": "x" for i in range(4 * n)}).encode() + b"}"),
    lambda n: ("/query-stream", b'{"sql": "' + b"\\u00e9" * 12 * n + b'"}'),
    lambda n: ("/query", b'{"ksql": ' + b"9" * 90 * n + b"}"),
    lambda n: ("/query", b'{"ksql": "SELECT * FROM ABUSED WHERE ID = \'k1\';", '
               + b", ".join(b'"sessionVariables": {}' for _ in range(3 * n)) + b"}"),
    lambda n: ("/query-stream", json.dumps({
        "sql": "SELECT * FROM ABUSED WHERE ID = 'k" + "9" * 60 * n + "';"}).encode()),
    lambda n: ("/ksql", b'{"ksql": "SHOW TABLES;"' + b" " * 90 * n + b"}"),
    lambda n: ("/query", b"\x00" * 90 * n),
)  # fmt: skip
