"""Purity, and where things stand."""

import ast
from pathlib import Path

import pytest
from tests.tidy.source import ROOT, imported_roots, modules, name_of, pure_modules, tree_of

WORLD_NAMES = (
    "aiohttp asyncio confluent_kafka http httpx2 lmdb logging multiprocessing os pyspark random "
    "select shutil signal socket starlette structlog subprocess sys tempfile threading time "
    "urllib uvicorn uvloop"
)
WORLD = set(WORLD_NAMES.split())


@pytest.mark.parametrize("path", pure_modules(), ids=name_of)
def test_pure_module_imports_no_world(path: Path) -> None:
    assert imported_roots(path) & WORLD == set()


@pytest.mark.parametrize("name", ["utils", "util", "common", "helpers", "misc"])
def test_no_room_for_leftovers(name: str) -> None:
    assert [name_of(path) for path in modules() if path.stem == name] == []


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_module_says_what_it_is(path: Path) -> None:
    """Every module with code opens with a docstring."""
    tree = tree_of(path)
    assert not tree.body or ast.get_docstring(tree), "no docstring at the top"


#: tests of several modules together, with the names they have in the issues
STORIES = {"control/test_assignor_scenarios.py"}


def test_every_unit_test_has_its_module() -> None:
    """tests/unit mirrors src: test_x.py, or test_x_<what>.py, stands where x.py stands."""
    unit = ROOT / "tests" / "unit"
    lost: list[str] = []
    for test in unit.rglob("test_*.py"):
        folder = ROOT / "src" / "standpipe" / test.parent.relative_to(unit)
        stems = {path.stem for path in folder.glob("*.py")}
        name = test.stem.removeprefix("test_")
        if test.relative_to(unit).as_posix() in STORIES:
            continue
        if not any(name == stem or name.startswith(f"{stem}_") for stem in stems):
            lost.append(test.relative_to(ROOT).as_posix())
    assert lost == []
