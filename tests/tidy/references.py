"""References to files and modules of this repository, as documents and comments name them.

`dangling(path)` finds in one file what names a path, a module or a heading that is not there, and
mentions of documents that no reader of the repository has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.source import PACKAGE, ROOT, tracked_files

from standpipe.config import registry

PACKAGES = tuple(
    sorted(each.name for each in PACKAGE.iterdir() if (each / "__init__.py").is_file())
)
FIRST = "|".join((*PACKAGES, "src", "tests", "docs", "bench"))

#: a path of the repository: starts in one of its folders, ends in a file name or a slash
PATH = re.compile(
    rf"(?<![\w./<>$-])((?:{FIRST})/[\w./*-]*(?:\.(?:py|pyi|md|c|lark|json|png|toml|xml|txt)\b|/))"
)
#: what stands in back-ticks is meant as a path even without an ending: `control/raft`
TICKED_PATH = re.compile(rf"`((?:{FIRST})/[\w./*-]+)`")
#: a file without its folder: `core.py`
FILE = re.compile(r"(?<![\w./*<-])([A-Za-z_][\w-]*\.(?:py|pyi|md|lark))\b")
#: `control.raft.core`, `control.raft.timeouts.RaftSettings`, `standpipe.model`; `spark.jars` is one
#: of Spark's settings
MODULE = re.compile(rf"`(?!spark\.)((?:standpipe\.)?(?:{'|'.join(PACKAGES)})(?:\.\w+)+)[`(]")
DOTTED = re.compile(rf"(?<![\w./-])(standpipe\.(?:{'|'.join(PACKAGES)})(?:\.\w+)*)")
#: a line of a program in a string, which a child process runs
PROGRAM = re.compile(r'"""(.*?)"""|^ *"(from standpipe.*)$', re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^ *from (standpipe[\w.]*) import ([\w, ]+)", re.MULTILINE)
#: files of a running node, not of the repository
RUNTIME_FILES = (".json", ".pid", ".mdb", ".log")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
#: docs/X.md, "Heading" and docs/X.md ("Heading")
HEADING = re.compile(r"docs/([\w-]+\.md)`?,? \(?\"([^\"]+)\"")

#: documents that were at hand when this was written, and are not in the repository
ABSENT = re.compile(
    r"DESIGN(?!\.md)|conformance surface|shared/|(?<!librdkafka's )\b[Ii]ssue (?:\d+\b|\*|\")"
    r"|\b(?:performance|read-levels|sql-notes|facts-kafka|users|REVIEW)\.md"
    r"|\b[Tt]he article\b(?!('s)? (?:in|of) docs/sources\.md)"
)

#: (file, what it names) -> why that is right
ALLOWED = {
    ("tests/assignor/scenarios.py", "expect_eval.py"): "stands beside the scenarios",
    ("docs/sources.md", "The article"): "the heading of its section, which names it in full",
    ("CONTRIBUTING.md", "shared/"): "says what `$STANDPIPE_SHARED` holds and who has it",
}


@cache
def _names(under: tuple[str, ...]) -> frozenset[str]:
    """Names of all files below some folders that git tracks."""
    files = (path.relative_to(ROOT).as_posix() for path in tracked_files())
    return frozenset(path.rsplit("/", 1)[-1] for path in files if path.startswith(under))


def prose(path: Path) -> str:
    """What a reader reads: all of a document, docstrings and comments of a module."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    found = re.findall(r'"""(.*?)"""', text, re.DOTALL)
    return "\n".join([*found, *re.findall(r"^[^\"'\n]*#(.*)$", text, re.MULTILINE)])


def imports_in_strings(path: Path) -> Iterator[str]:
    """What programs in a module's strings import from the package."""
    if path.suffix != ".py" or path.is_relative_to(PACKAGE):
        return
    for found in PROGRAM.findall(path.read_text()):
        for module, names in IMPORT.findall("".join(found)):
            yield from (f"{module}.{name.split()[0]}" for name in names.split(","))


def dangling(path: Path) -> Iterator[str]:
    """Every reference of one file that leads nowhere, as it stands there."""
    where = path.relative_to(ROOT).as_posix()
    text = prose(path)
    named = {one for pattern in (PATH, TICKED_PATH) for one in pattern.findall(text)}
    lost = {one for one in named if not _is_path(one, path.parent)}
    near = _names(("src/", "docs/") if where.startswith("src/") else ("",))
    lost |= {one for one in FILE.findall(text) if one not in near}
    modules = {*MODULE.findall(text), *DOTTED.findall(path.read_text())}
    modules = {one for one in modules if not one.endswith(RUNTIME_FILES)}
    lost |= {one for one in modules if not _is_module(one)}
    lost |= {one for one in imports_in_strings(path) if not _is_module(one)}
    if path.suffix == ".md":
        links = (one for one in LINK.findall(text) if "://" not in one)
        lost |= {one for one in links if not (path.parent / one).exists()}
    lost |= {f'{doc} "{title}"' for doc, title in HEADING.findall(text) if not _has(doc, title)}
    lost |= {match.group() for match in ABSENT.finditer(text)}
    yield from (f"{where}: {one}" for one in sorted(lost) if (where, one) not in ALLOWED)


@cache
def _is_path(named: str, folder: Path) -> bool:
    named = named.rstrip(".")
    bases = [ROOT, PACKAGE, *(each for each in (folder, *folder.parents) if each != ROOT.parent)]
    if "*" in named:
        return any(next(base.glob(named), None) for base in bases[:2])
    return any((base / named).exists() for base in bases if base.is_relative_to(ROOT))


@cache
def _is_module(named: str) -> bool:
    """A module of the package, a name that one defines, or a configuration key."""
    if any(key.startswith(named) for key in registry.KEYS):
        return True
    at = PACKAGE
    parts = named.removeprefix("standpipe.").split(".")
    for i, part in enumerate(parts):
        if (at / part).is_dir():
            at = at / part
        elif (at / f"{part}.py").is_file():
            rest = parts[i + 1 :]
            return not rest or _defines(at / f"{part}.py", rest[0])
        else:
            return (at / f"{part}.pyi").is_file() or _defines(at / "__init__.py", part)
    return True


def _defines(module: Path, name: str) -> bool:
    text = module.read_text() if module.is_file() else ""
    is_defined, is_exported = rf"^(?:(?:async )?def |class )?{name}\b", rf'^__all__ = .*"{name}"'
    return bool(re.search(f"{is_defined}|{is_exported}", text, re.MULTILINE))


@cache
def _has(document: str, title: str) -> bool:
    """A heading, or bold words, of a page in docs."""
    page = ROOT / "docs" / document
    text = page.read_text() if page.is_file() else ""
    titles = re.findall(r"^#+ (.*)$|\*\*([^*\n]+)\*\*", text, re.MULTILINE)
    return any(title.lower() in "".join(each).lower() for each in titles)
