"""The shape of src/: small folders, no import cycle, one meaning per class name, docstrings."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.tidy.source import (
    PACKAGE,
    FunctionNode,
    modules,
    name_of,
    statements_of,
    tree_of,
)

ENTRIES_MAX = 22
DOCSTRING_SHARE_MIN = 0.95
#: names that two classes may share -> why
SHARED_NAMES = {
    "CreateSource": "the statement, and the command of the log that it becomes",
    "CreateType": "the statement, and the command of the log that it becomes",
    "DropSource": "the statement, and the command of the log that it becomes",
    "Error": "PEP 249's name of a base class, and an error code of the quorum",
    "DropType": "the statement, and the command of the log that it becomes",
}


def folders() -> list[Path]:
    return sorted({PACKAGE, *(path.parent for path in modules())})


def test_a_folder_can_be_seen_at_once() -> None:
    """Files and folders but `__init__.py`, and but what is built or cached."""

    def entries(folder: Path) -> int:
        kept = [each for each in folder.iterdir() if each.suffix != ".so"]
        return len([each for each in kept if each.name not in ("__pycache__", "__init__.py")])

    assert {str(f): n for f in folders() if (n := entries(f)) > ENTRIES_MAX} == {}


def test_a_class_name_has_one_meaning() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in statements_of(path):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(name_of(path))
    twice = {name: at for name, at in where.items() if len(at) > 1}
    assert {name: at for name, at in twice.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(twice), "an exception that is no longer needed"


def public(body: list[ast.stmt]) -> Iterator[FunctionNode | ast.ClassDef]:
    """Public classes, functions and methods; not overloads nor overrides, whose base says it."""
    for node in body:
        if not isinstance(node, FunctionNode | ast.ClassDef) or node.name.startswith("_"):
            continue
        marks = {ast.unparse(each).rsplit(".", 1)[-1] for each in node.decorator_list}
        if marks & {"overload", "override"}:
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from public(node.body)


def test_public_names_are_explained() -> None:
    bare: list[str] = []
    count = 0
    for path in modules():
        for node in public(tree_of(path).body):
            count += 1
            if ast.get_docstring(node) is None:
                bare.append(f"{name_of(path)}:{node.lineno} {node.name}")
    assert len(bare) <= count * (1 - DOCSTRING_SHARE_MIN), bare


@cache
def imports() -> dict[str, set[str]]:
    """Module → modules of the package that it imports, type-only and late imports included."""
    known = {dotted(path): path for path in modules()}
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        named: set[str] = set()
        for node in statements_of(path):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= inner & known.keys() or {node.module}
        found[name] = (named & known.keys()) - {name}
    return found


def dotted(path: Path) -> str:
    """`standpipe.control.raft.core`; of a package, its name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cycle_of(graph: Mapping[str, set[str]]) -> list[str]:
    """One cycle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def packages(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same between folders: `standpipe.control.raft` → `standpipe.control.metadata`.

    Of a folder with folders in it, each module stands for itself: `sql/analyzer.py` is above what
    it calls in `sql/ddl`, and `sql/plans.py` below.
    """
    nested = {path.parent for path in folders()}
    inside = {
        dotted(path): dotted(path if path.parent in nested else path.parent / "__init__.py")
        for path in modules()
    }
    merged: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        merged[inside[name]] |= {inside[target] for target in targets} - {inside[name]}
    return merged


def test_no_import_cycle_between_modules() -> None:
    assert cycle_of(imports()) == []


def test_no_import_cycle_between_packages() -> None:
    assert cycle_of(packages(imports())) == []


@pytest.mark.parametrize(
    ("graph", "has_cycle"),
    [({"a": {"b"}, "b": {"c"}}, False), ({"a": {"b"}, "b": {"a"}}, True)],
    ids=["a line", "a circle"],
)
def test_what_a_cycle_is(graph: dict[str, set[str]], has_cycle: bool) -> None:
    assert bool(cycle_of(graph)) is has_cycle
