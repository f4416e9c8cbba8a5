"""docs/hardening.md names modules and tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.tidy.source import PACKAGE, ROOT

PAGE = ROOT / "docs" / "hardening.md"
KIND = re.compile(r"^- \*\*([^*]+)\*\*: [^`]+\. `([\w/]+\.py)` (.+)$")
TESTS = re.compile(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)\.")
LINES_MAX = 120


def kinds() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(kind, module, [(file of tests, test)]) of each item."""
    found: list[tuple[str, str, list[tuple[str, str]]]] = []
    for line in PAGE.read_text().replace("\n  ", " ").splitlines():
        if line.startswith("- "):
            item = KIND.match(line)
            assert item, f"no kind with its module and its tests: {line}"
            named = TESTS.findall(item[3])
            assert TESTS.sub("", item[3]).strip() == "", f"not all of it can be read: {line}"
            tests = [(file, name) for file, names in named for name in re.findall(r"\w+", names)]
            found.append((item[1], item[2], tests))
    return found


@cache
def functions(path: Path) -> set[str]:
    """Functions of a module of tests; empty if it is not there."""
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text())
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_kind_has_a_module_and_tests_that_are_there() -> None:
    found = kinds()
    assert len(found) >= 25
    gone = [f"{kind}: {module}" for kind, module, _ in found if not (PACKAGE / module).is_file()]
    for kind, _, tests in found:
        assert tests, f"{kind} has no test"
        gone += [
            f"{kind}: {file} {name}"
            for file, name in tests
            if not name.startswith("test_")
            or name not in functions(ROOT / "tests" / file.removeprefix("tests/"))
        ]
    assert gone == []


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= LINES_MAX
