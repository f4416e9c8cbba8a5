"""Benchmarks run seldom: what they import is there, and their results are complete and small."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from bench import picture, readme

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


def test_the_page_of_benchmarks_is_up_to_date() -> None:
    assert (BENCH / "README.md").read_text() == readme.page(), "run `make docs`"


def test_each_result_is_on_the_page_and_has_a_picture() -> None:
    rows = {row.name for row in readme.ROWS}
    kept = {path.name for path in readme.RESULTS.iterdir()}
    assert kept == {f"{name}.{kind}" for name in rows for kind in ("json", "png")}


def test_each_question_has_a_picture_even_before_its_answer_is_there() -> None:
    assert {row.name for row in readme.ALL_ROWS} == picture.PICTURES.keys()


def test_results_are_summaries() -> None:
    """Raw runs belong into out/bench."""
    sizes = {path.name: path.stat().st_size for path in readme.RESULTS.iterdir()}
    assert {name: size for name, size in sizes.items() if size > 60_000} == {}
    texts = {name: size for name, size in sizes.items() if name.endswith(".json")}
    assert {name: size for name, size in texts.items() if size > 12_000} == {}
