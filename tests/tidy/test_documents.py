"""Documents can be read: references lead somewhere, lines fit, tables are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.tidy.references import dangling
from tests.tidy.source import PACKAGE, ROOT, tracked_files

LINE_MAX = 100
BARE_LINK = re.compile(r"^(?:- )?<?https?://\S+>?$")
WORDS_MAX = 40


def documents() -> list[Path]:
    """docs/*.md, README, CONTRIBUTING, and each DESIGN.md beside the code."""
    return [
        path
        for path in tracked_files()
        if path.suffix == ".md"
        and (path.parent in (ROOT, ROOT / "docs") or path.name == "DESIGN.md")
    ]


def sources() -> list[Path]:
    """Modules whose comments and docstrings name files: src, tests and bench."""
    roots = ("src/", "tests/", "bench/")
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).as_posix().startswith(roots)
        and path.parent != ROOT / "tests" / "tidy"
    ]


def test_every_reference_of_a_document_leads_somewhere() -> None:
    assert [each for path in documents() for each in dangling(path)] == []


def test_every_reference_of_a_comment_leads_somewhere() -> None:
    assert [each for path in sources() for each in dangling(path)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `control/raft/core.py` and `control/raft`", []),
        ("see control/raft/no_such.py", ["control/raft/no_such.py"]),
        ("see `no_such.py`", ["no_such.py"]),
        ("`control.raft.timeouts.RaftSettings` and `control.raft.timeouts`", []),
        ("`control.raft.timeouts.NoSuch`", ["control.raft.timeouts.NoSuch"]),
        ("standpipe.data.nowhere", ["standpipe.data.nowhere"]),
        ("`standpipe.node.gone.after.ms` is a key", []),
        ("`sql/spark/*.py`, `sql/spork/*.py`", ["sql/spork/*.py"]),
        ("[here](glossary.md), [there](no_such_page.html)", ["no_such_page.html"]),
        ('docs/INTERFACES.md, "Kafka topics"', []),
        ('docs/INTERFACES.md, "No such heading"', ['INTERFACES.md "No such heading"']),
        ("as DESIGN section 3 says", ["DESIGN"]),
        ("the conformance surface", ["conformance surface"]),
    ],
)
def test_what_is_dangling(text: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "page.md"
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: text if path == page else read(path))
    assert list(dangling(page)) == [f"docs/page.md: {one}" for one in found]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from standpipe.control.raft import timeouts, core", []),
        ("from standpipe.control.raft import clocks", ["standpipe.control.raft.clocks"]),
    ],
)
def test_what_a_program_in_a_string_imports(
    line: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ROOT / "tests" / "module.py"
    text = f'PROGRAM = """\nimport sys\n{line}\n"""\n'
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: text if path == module else read(path))
    assert list(dangling(module)) == [f"tests/module.py: {one}" for one in found]


def test_no_line_of_a_document_is_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number} {len(line)}"
        for path in documents()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LINE_MAX and not BARE_LINK.match(line)
    ]
    assert long == []


def broken_tables(text: str) -> list[int]:
    """Numbers of blank lines that cut a table in two: the rows below have no head of their own."""
    lines = [*text.splitlines(), "", ""]
    return [
        i + 1
        for i in range(1, len(lines) - 2)
        if not lines[i].strip()
        and lines[i - 1].startswith("|")
        and lines[i + 1].startswith("|")
        and not re.match(r"\|[ :-]*-", lines[i + 2])
    ]


def test_no_table_is_cut_by_a_blank_line() -> None:
    cut = {path.name: found for path in documents() if (found := broken_tables(path.read_text()))}
    assert cut == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("| a |\n|---|\n| 1 |\n\n| 2 |\n", [4]),
        ("| a |\n|---|\n| 1 |\n\n| b |\n|---|\n", []),
        ("| a |\n|---|\n| 1 |\n\ntext\n", []),
    ],
    ids=["cut", "two tables", "its end"],
)
def test_what_a_cut_table_is(text: str, numbers: list[int]) -> None:
    assert broken_tables(text) == numbers


def test_the_glossary_is_short() -> None:
    words = re.findall(r"^- \*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 20 <= len(words) <= WORDS_MAX


def test_the_map_of_the_packages_is_whole() -> None:
    """CONTRIBUTING names every package of src, two levels deep."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = (
        path.parent.relative_to(PACKAGE).as_posix()
        for pattern in ("*/__init__.py", "*/*/__init__.py")
        for path in PACKAGE.glob(pattern)
    )
    assert [name for name in found if f"`{name}/" not in text] == []
