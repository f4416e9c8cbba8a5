"""What a node said comes out as it went in, and whole."""

from __future__ import annotations

import io
import json

import pytest

from standpipe.freshness import Freshness
from standpipe.local.cli.consoles import data_console
from standpipe.local.cli.sql_output import LiveOutput, print_entity, print_pull
from standpipe.local.client.rest_client import PullAnswer

#: what rich takes for a style, for the end of one that never began, and for pictures
TEXTS = ("[urgent] call back", "[/etc/motd]", "10:100:5", "sms:key:1", "a:new:b")
FRESH = Freshness(served_by="", role="", state="")


class Terminal(io.StringIO):
    """A file that a person watches."""

    def isatty(self) -> bool:
        return True


FILES = pytest.mark.parametrize("file_of", [io.StringIO, Terminal])


@pytest.fixture(autouse=True)
def without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.parametrize("text", TEXTS)
@FILES
def test_texts_are_no_markup(file_of: type[io.StringIO], text: str) -> None:
    file = file_of()
    console = data_console(file)
    answer = PullAnswer((text,), ("STRING",), ((text,), ([True, text],)), FRESH)
    print_pull(console, answer, as_json=False)
    print_entity(console, {"topics": [{"name": text}]}, as_json=False)
    print_entity(console, {"sourceDescription": {"name": text, "fields": []}}, as_json=False)
    print_entity(console, {"commandStatus": {}, "warnings": [text]}, as_json=False)
    LiveOutput(console, "PRINT", as_json=False).line(text)
    assert file.getvalue().count(text) == 7


@FILES
def test_json_is_what_a_node_said(file_of: type[io.StringIO]) -> None:
    file = file_of()
    row = dict(zip("ABCDE", TEXTS, strict=True))
    answer = PullAnswer(tuple(row), ("STRING",) * 5, (tuple(row.values()),), FRESH)
    print_pull(data_console(file), answer, as_json=True)
    assert json.loads(file.getvalue()) == row


def test_a_terminal_has_a_width() -> None:
    assert data_console(Terminal()).width < 1000


def test_nothing_is_cut_in_a_pipe() -> None:
    file = io.StringIO()
    names = tuple(f"COLUMN_{number}" for number in range(12))
    wide = tuple("k" * 300 + name for name in names)
    answer = PullAnswer(names, ("STRING",) * 11 + ("BIGINT",), (wide, ("a",) * 12), FRESH)
    print_pull(data_console(file), answer, as_json=False)
    print_entity(data_console(file), {"topics": [{"name": wide[0]}]}, as_json=False)
    head, _, first, second, *_ = lines = file.getvalue().splitlines()
    assert head.split() == list(names)
    assert first == "  ".join(wide)
    assert second.split() == ["a"] * 12
    assert len(second) == 12 * 100 + 11 * 2, "it is not as wide as the first"
    assert any(line.strip() == wide[0] for line in lines[4:])


def test_a_line_of_print_is_written_as_it_is() -> None:
    file = io.StringIO()
    LiveOutput(data_console(file), "PRINT", as_json=False).line("key: a\tb, value: c  ")
    assert file.getvalue() == "key: a\tb, value: c  \n"
