"""Tests, benchmarks and examples import only what is there.

`make check` collects no end-to-end test, and pyright reads src/ alone: without this, a function of
ours that is renamed breaks a test half an hour into `make test`.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import TypeGuard

from tests.tidy.source import ROOT, statements_in, tracked_files

from standpipe.local.docgen.errors import tree_of

#: packages of this repository, and where they are
HOMES = {"standpipe": ROOT / "src", "tests": ROOT, "bench": ROOT, "examples": ROOT}
READERS = ("tests", "bench", "examples")
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
#: statements outside of functions and classes are the module's own, also inside of these
BRANCHES = ast.Module | ast.If | ast.Try | ast.ExceptHandler | ast.With | ast.For | ast.While
#: a whole statement; to parse all of these files would take half a minute
IMPORT = re.compile(
    rf"^ *from (?:{'|'.join(HOMES)})(?:\.[\w.]+)? import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE
)


@cache
def file_of(module: str) -> Path | None:
    """The file of a module or package of ours; None: it is not there."""
    path = HOMES[module.partition(".")[0]].joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), path if path.is_dir() else None)


@cache
def names_in(path: Path) -> frozenset[str] | None:
    """What a module defines outside of functions and classes. None: nobody can tell
    (`__getattr__`, `from … import *`)."""
    if path.is_dir():
        return frozenset()
    found: set[str] = set()
    for node in statements_in(tree_of(path), inside=BRANCHES):
        if isinstance(node, DEFINITIONS):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        else:
            found |= {
                each.id for part in assigned_by(node) for each in ast.walk(part) if is_set(each)
            }
    return None if found & {"__getattr__", "*"} else frozenset(found)


def assigned_by(node: ast.AST) -> list[ast.AST]:
    """Parts of a statement that name what it assigns."""
    match node:
        case ast.Assign():
            return [*node.targets]
        case ast.AnnAssign() | ast.AugAssign() | ast.For():
            return [node.target]
        case ast.With():
            return [each.optional_vars for each in node.items if each.optional_vars]
    return []


def is_set(node: ast.AST) -> TypeGuard[ast.Name]:
    """Whether it is a name that gets a value."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def has(module: str, name: str) -> bool:
    path = file_of(module)
    if path is None:
        return False
    names = names_in(path)
    return names is None or name in names or file_of(f"{module}.{name}") is not None


def missing_in(text: str) -> list[str]:
    """What a module imports from ours although it is not there."""
    return [
        f"{node.module}.{each.name}"
        for found in IMPORT.finditer(text)
        for node in ast.parse(found[0].strip()).body
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
        if not has(node.module, each.name)
    ]


def test_what_is_imported_is_there() -> None:
    files = [
        path
        for path in tracked_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in READERS
    ]
    assert len(files) > 500, "the search finds them"
    found = {str(path.relative_to(ROOT)): missing_in(path.read_text()) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_name_that_is_gone_is_found() -> None:
    lines = ("from tests import report, gone", "def f():", "    from tests.report import (", "git,")
    assert missing_in("\n".join([*lines, "Gone,", ")"])) == ["tests.gone", "tests.report.Gone"]
