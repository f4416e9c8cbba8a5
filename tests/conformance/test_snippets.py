"""tests/conformance/snippets.py: which text of a file is a statement, and on which line."""

from __future__ import annotations

import pytest
from tests.conformance.snippets import statements

MARKDOWN = """\
# Title; with a semicolon
SELECT 1 FROM not_a_block;
```sql
SHOW TABLES;
-- a comment; with a semicolon
SELECT A -> B
  FROM S;
+---+
| A |
what is printed; here
LIST STREAMS
```
```json
{"SELECT": ";"}
```
~~~
DROP TABLE T;
~~~
"""


def found(path: str, text: str) -> list[tuple[int, str]]:
    """(line, text) of what is not blank."""
    kept = statements(path, text)
    assert kept.count("\n") == text.count("\n"), "each stays on its line"
    return [(at, line) for at, line in enumerate(kept.split("\n"), 1) if line.strip()]


def test_blocks_of_markdown() -> None:
    assert found("doc/README.md", MARKDOWN) == [
        (4, "SHOW TABLES;"),
        (5, "-- a comment; with a semicolon"),
        (6, "SELECT A -> B"),
        (7, "  FROM S;"),
        (17, "DROP TABLE T;"),
    ]


@pytest.mark.parametrize(
    ("block", "expected", "why"),
    [
        ("ksql> SHOW TABLES;\n\n T;\n", ["SHOW TABLES;"], "what is not typed is output"),
        ("ksql> SELECT *\n>FROM S;\nA;", ["SELECT *", "FROM S;"], "the prompt for more lines"),
        ("SELECT *\n> FROM S;", ["SELECT *", "FROM S;"], "only that prompt is left"),
        ("CREATE S STRUCT<A INT\n>;", ["CREATE S STRUCT<A INT", ";"], "or so it seems"),
        ("SELECT * \\\n FROM S;", ["SELECT * ", " FROM S;"], "a line goes on"),
        ("SET CLI WRAP ON\nSHOW TYPES;", ["SHOW TYPES;"], "a setting of the CLI"),
        ("docker exec ksql;", [], "no statement"),
        ("SHOW TABLES", [], "it does not end"),
        ("SHOW \\G;\nSELECT 1;", ["SHOW \\G;", "SELECT 1;"], "who knows: it is judged"),
    ],
)
def test_what_is_typed(block: str, expected: list[str], why: str) -> None:
    assert [line for _, line in found("a.md", f"```\n{block}\n```")] == expected, why


def test_a_type_that_ends_on_a_line_of_its_own() -> None:
    text = "```\nCREATE STREAM S (A STRUCT<\nB INT\n>\n) WITH (FORMAT='JSON');\n```"
    assert [line for _, line in found("a.md", text)] == text.split("\n")[1:-1]


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("a.sql", "# no comment;\nSHOW TABLES;", [1, 2]),
        ("a.adoc", "[source,sql]\n----\nSHOW TABLES;\n----\nSHOW TABLES;\n", [3]),
        ("a.sh", "ksql http://x <<EOF\nSHOW TABLES;\nEOF\nSHOW TYPES;\n", [2]),
        ("a.sh", "psql <<EOF\nSELECT 1;\nEOF\n", []),
        ("a.sh", "docker exec c ksql <<- 'END' | cat\nSHOW TABLES;\n  END\n", [2]),
    ],
)
def test_other_files(path: str, text: str, lines: list[int]) -> None:
    assert [line for line, _ in found(path, text)] == lines
