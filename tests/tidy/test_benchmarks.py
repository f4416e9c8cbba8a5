"""Benchmarks run seldom: that what they import is still there shows with every check."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize("path", sorted(BENCH.rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("standpipe"):
            module = importlib.import_module(node.module or "")
            absent = [
                alias.name
                for alias in node.names
                if not hasattr(module, alias.name) and not _is_module(f"{node.module}.{alias.name}")
            ]
            assert not absent, f"{node.module} has no {absent}"


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
