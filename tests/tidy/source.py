"""What the tidy tests look at: the package's modules and functions, read with `ast`."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType

from standpipe.local.docgen.errors import tree_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "standpipe"
PURE = ("sql", "control", "data")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """`control/raft/core.py`."""
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    """Folder of a module below the package; empty at its top."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def pure_modules() -> list[Path]:
    """Modules that must not know the world."""
    top = [
        PACKAGE / f"{name}.py"
        for name in (
            "model",
            "model_liveness",
            "errors",
            "freshness",
            "session_scan",
            "session_token",
        )
    ]
    core = PACKAGE / "client" / "core"
    return [path for path in modules() if package_of(path) in PURE or core in path.parents] + top


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the package."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module; a walk takes as long as the parser does."""
    return tuple(ast.walk(tree_of(path)))


@cache
def statements_of(path: Path) -> tuple[ast.AST, ...]:
    """Every statement of a module, with what has statements of its own: a twentieth of its nodes.

    They are what functions, classes and imports are found among.
    """
    return tuple(statements_in(tree_of(path)))


def statements_in(tree: ast.AST, inside: type | UnionType = ast.AST) -> Iterator[ast.AST]:
    """Every statement, handler and case below a node, in some order. `inside`: what is entered."""
    left = [tree]
    while left:
        node = left.pop()
        if not isinstance(node, inside):
            continue
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            found = getattr(node, name, ())
            if isinstance(found, list):  # of a lambda and of `a if b else c`, an expression
                yield from found
                left += found


def imported_roots(path: Path) -> set[str]:
    """First names of everything that is imported, anywhere in the module."""
    found: set[str] = set()
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@cache
def functions() -> tuple[tuple[str, FunctionNode], ...]:
    """Every function and method as (`module:line name`, node)."""
    return tuple(
        (f"{name_of(path)}:{node.lineno} {node.name}", node)
        for path in modules()
        for node in statements_of(path)
        if isinstance(node, FunctionNode)
    )


def length_of(node: FunctionNode) -> int:
    """Lines of a function from its `def`, its docstring left out."""
    body = node.body
    doc = body[0]
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
        lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return lines


@cache
def tracked_files() -> tuple[Path, ...]:
    """Files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return tuple(path for path in paths if path.is_file())
