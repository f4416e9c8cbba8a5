"""Benchmarks run seldom: that what they import is still there shows with every check."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_what_the_benchmarks_import_is_there() -> None:
    paths = sorted(BENCH.rglob("*.py"))
    assert len(paths) > 10, "they are found"
    assert [missing for path in paths for missing in _missing(path)] == []


def _missing(path: Path) -> list[str]:
    """`benchmark: module.name` of everything imported from the package that is not there."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("standpipe"):
            module = importlib.import_module(node.module or "")
            found += [
                f"{path.name}: {node.module}.{alias.name}"
                for alias in node.names
                if not hasattr(module, alias.name) and not _is_module(f"{node.module}.{alias.name}")
            ]
    return found


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
