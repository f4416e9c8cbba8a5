"""Purity, and where things stand."""

import ast

from tests.tidy.source import ROOT, imported_roots, modules, name_of, pure_modules, tree_of

WORLD_NAMES = (
    "aiohttp asyncio confluent_kafka http httpx2 lmdb logging multiprocessing os pyspark random "
    "select shutil signal socket starlette structlog subprocess sys tempfile threading time "
    "urllib uvicorn uvloop"
)
WORLD = set(WORLD_NAMES.split())


NO_NAMES = ("utils", "util", "common", "helpers", "misc")


def test_pure_modules_import_no_world() -> None:
    found = {name_of(path): imported_roots(path) & WORLD for path in pure_modules()}
    assert len(found) > 100, "they are found"
    assert {name: roots for name, roots in found.items() if roots} == {}


def test_no_module_for_leftovers() -> None:
    assert [name_of(path) for path in modules() if path.stem in NO_NAMES] == []


def test_every_module_says_what_it_is() -> None:
    """A module with code opens with a docstring."""
    trees = {name_of(path): tree_of(path) for path in modules()}
    assert len(trees) > 200, "they are found"
    silent = [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


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
