"""docs/where.md leads to what is there: each module has the names that an item gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import PACKAGE, ROOT

ITEM = re.compile(r"^- (?P<question>[^`]+\?) `(?P<module>[^`]+)`: (?P<names>`.+`)$")


def items() -> Iterator[tuple[str, str, list[str]]]:
    """(question, module, names) of each item."""
    text = (ROOT / "docs" / "where.md").read_text()
    for line in text.replace("\n  ", " ").splitlines():
        if line.startswith("- "):
            found = ITEM.match(line)
            assert found, f"no question with its place: {line}"
            yield found["question"], found["module"], re.findall(r"`([^`]+)`", found["names"])


def defined(tree: ast.Module) -> set[str]:
    """Names of a module, and those of its classes as Class.name."""

    def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))

    return set(names(tree.body))


def test_each_place_is_there() -> None:
    gone: list[str] = []
    for question, module, names in items():
        path = PACKAGE / module
        there = defined(ast.parse(path.read_text())) if path.is_file() else set[str]()
        gone += [f"{question} {module} {name}" for name in names if name not in there]
    assert gone == []


def test_a_question_is_there_once() -> None:
    questions = [question for question, _, _ in items()]
    assert len(questions) > 60
    assert sorted(set(questions)) == sorted(questions)
