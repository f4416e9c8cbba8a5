"""docs/where.md leads to what is there, and so do the tables of files in the DESIGN.md.

Each module has the names that an item gives, and each package has an item.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.source import PACKAGE, ROOT, modules, name_of, tree_of

from standpipe.pipeline import failures

#: packages that decide nothing that a reader of the documentation could ask about -> why
WITHOUT_AN_ITEM = {
    "local/demo": "a program that shows the product, with a check of its own",
    "local/docgen": "makes pages of docs/ from what other packages decide",
}

ITEM = re.compile(r"^- (?P<question>[^`]+\?) `(?P<module>[^`]+)`: (?P<names>`.+`)$")


def items() -> Iterator[tuple[str, str, list[str]]]:
    """(question, module, names) of each item."""
    text = (ROOT / "docs" / "where.md").read_text()
    for line in text.replace("\n  ", " ").splitlines():
        if line.startswith("- "):
            found = ITEM.match(line)
            assert found, f"no question with its place: {line}"
            yield found["question"], found["module"], re.findall(r"`([^`]+)`", found["names"])


@cache
def defined(path: Path) -> set[str]:
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

    return set(names(tree_of(path).body))


def test_each_place_is_there() -> None:
    gone: list[str] = []
    for question, module, names in items():
        path = PACKAGE / module
        there = defined(path) if path.is_file() else set[str]()
        gone += [f"{question} {module} {name}" for name in names if name not in there]
    assert gone == []


def test_a_question_is_there_once() -> None:
    questions = [question for question, _, _ in items()]
    assert len(questions) > 60
    assert sorted(set(questions)) == sorted(questions)


def has_functions(path: Path) -> bool:
    """Whether a module may decide anything."""
    return re.search(r"^ *(?:async )?def ", path.read_text(), re.MULTILINE) is not None


def folder(path: Path) -> str:
    """Of a module, below the package."""
    return path.parent.relative_to(PACKAGE).as_posix()


def test_each_package_has_an_item() -> None:
    there = {Path(module).parent.as_posix() for _, module, _ in items()}
    wanted = {folder(path) for path in modules() if has_functions(path)} - {"."}
    assert sorted(wanted - there - WITHOUT_AN_ITEM.keys()) == []
    assert sorted(there & WITHOUT_AN_ITEM.keys()) == []


#: a table of files: its rows
FILES = re.compile(r"^\| (?:folder, )?file \| .*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)


def named_in(design: Path) -> set[str]:
    """File names, and folders as `x/`, in the first column of the tables of files."""
    tables = FILES.findall(design.read_text())
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_each_design_lists_the_files_of_its_package() -> None:
    """With those of packages inside, unless they have a DESIGN.md of their own."""
    designs = sorted(PACKAGE.rglob("DESIGN.md"))
    assert len(designs) > 12, "they are found"
    lost: list[str] = []
    for path in modules():
        if not has_functions(path):
            continue
        near = next((each for each in path.parents if each / "DESIGN.md" in designs), None)
        if near is None or path.stem.startswith("__"):
            continue
        named = named_in(near / "DESIGN.md")
        folders = {f"{each.as_posix()}/" for each in path.relative_to(near).parents}
        is_named = path.name in {Path(each).name for each in named}
        if not is_named and folders.isdisjoint(named):
            lost.append(name_of(path))
    assert lost == []


def test_each_reason_of_a_query_leads_to_where_it_is_decided() -> None:
    """A user has the reason, such as TOPIC_CHANGED, from SHOW QUERIES, and searches for it."""
    asked = " ".join(question for question, _, _ in items())
    assert [reason for reason in failures.REASONS if reason not in asked] == []
