"""Keys and errors: declared once, documented, and numbered by ksqlDB's rule."""

import ast
import re

from tests.tidy.source import PACKAGE, ROOT, nodes_of

from standpipe.config import registry
from standpipe.local.docgen import config as config_doc
from standpipe.local.docgen import errors, metrics, sql, states
from standpipe.local.docgen.errors import ErrorEntry
from standpipe.pipeline import failures
from standpipe.sql.syntax import ast_statements
from standpipe.sql.syntax.ast import Query, Statement

TREE = ast.parse((ROOT / "src/standpipe/errors.py").read_text())
TREE_LINE = re.compile(r"^(?P<indent>(?:[│├└ ][─ ]{2} )*)(?P<name>[A-Z]\w+) +(?P<code>\d{5}|E-\S+)")


def test_config_page_is_up_to_date() -> None:
    assert (ROOT / "docs/config.md").read_text() == config_doc.page(), "run `make docs`"


def test_error_page_is_up_to_date() -> None:
    assert (ROOT / "docs/errors.md").read_text() == errors.page(), "run `make docs`"


def test_every_default_is_within_the_bounds() -> None:
    assert len(registry.KEYS) > 40, "they are found"
    for key in registry.KEYS.values():
        assert key.parse(key.default) == key.default, key.name


def test_every_key_says_what_it_is() -> None:
    keys = registry.KEYS.values()
    assert [key.name for key in keys if not key.doc.endswith(".")] == []
    with_unit = [key for key in keys if key.name.endswith((".ms", ".bytes"))]
    assert [key.name for key in with_unit if key.unit not in ("ms", "bytes", "count")] == []


def test_the_page_of_sql_is_up_to_date() -> None:
    assert (ROOT / "docs/sql.md").read_text() == sql.page(), "run `make docs`"


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == metrics.page(), "run `make docs`"


def test_the_page_of_states_is_up_to_date() -> None:
    assert (ROOT / "docs/states.md").read_text() == states.page(), "run `make docs`"


def test_every_statement_of_the_grammar_is_on_the_page_of_sql() -> None:
    made = {
        each
        for each in vars(ast_statements).values()
        if isinstance(each, type) and issubclass(each, Statement) and each is not Statement
    }
    assert made | {Query} == set(sql.STATEMENTS)


def code_fits(entry: ErrorEntry) -> bool:
    """`code // 100 == status`; an error of start-up has a name instead."""
    if entry.status is None:
        return entry.code.startswith("E-")
    return int(entry.code) // 100 == entry.status


def test_every_error_has_a_meaning_and_a_code_that_fits_its_status() -> None:
    entries = errors.entries()
    assert len(entries) > 30, "they are found"
    assert [entry.name for entry in entries if not entry.meaning] == []
    assert [entry.name for entry in entries if not code_fits(entry)] == []


def test_the_tree_at_the_top_of_errors_is_complete() -> None:
    """Each class once, under its base, with its code."""
    drawn: set[tuple[str, str, str]] = set()
    bases = ["Exception"]
    for line in filter(None, (ast.get_docstring(TREE) or "").splitlines()):
        if found := TREE_LINE.match(line):
            depth = len(found["indent"]) // 4
            del bases[depth + 1 :]
            drawn.add((found["name"], bases[-1], found["code"]))
            bases.append(found["name"])
    assert drawn == {(entry.name, entry.base, entry.code) for entry in errors.entries()}


def test_names_of_start_up_errors_differ() -> None:
    """One name, one class, so that a search for it finds one cause."""
    names = [entry.code for entry in errors.entries() if entry.code.startswith("E-")]
    assert len(names) == len(set(names))


def test_every_reason_that_a_query_fails_for_is_documented() -> None:
    raised = {
        node.args[0].value
        for path in (ROOT / "src/standpipe/pipeline").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("QueryFailed", "NotYet")
        and isinstance(node.args[0], ast.Constant)
    }
    assert "PLAN_UNREADABLE" in raised, "they are found"
    known = {reason for _, reason in failures._KNOWN}
    others = {"NO_PROGRESS", "THROTTLED", "ACCESS_DENIED", "SCHEMA_REGISTRY_UNAVAILABLE"}
    assert raised | known | others == set(failures.REASONS)


def test_each_reason_of_a_served_query_is_on_the_page_of_errors() -> None:
    """Those that the code names; others come from `failures.REASONS`."""
    paths = (PACKAGE / "spark").glob("*.py")
    found = {
        node.args[0].value
        for path in paths
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "ServeEnded"
        and isinstance(node.args[0], ast.Constant)
    }
    assert found == set(errors.reasons_of_served())
