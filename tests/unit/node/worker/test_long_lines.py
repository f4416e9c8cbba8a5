"""Lines that are read beside the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.adapters.files.turn_page import TurnWriter, digest_of, page_of, read_turns
from standpipe.errors import TextRefused
from standpipe.node.worker.long_lines import INLINE_BYTES_MAX, LongLines
from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker_report import RefusedText, WorkersReport, WorkersReportReader

LINE = b'{"ID":"\xff"}'


class At(Clock):
    def boot_ms(self) -> int:
        return 1_000


@pytest.mark.parametrize(("size", "is_long"), [(INLINE_BYTES_MAX, False), (16_385, True)])
def test_long_lines_have_more_than_16_kib(size: int, is_long: bool) -> None:
    assert LongLines().is_long(bytes(size)) is is_long


def test_long_lines_are_in_hand(tmp_path: Path) -> None:
    path = page_of(tmp_path, 0)
    lines = LongLines(in_hand=TextsInHand(TurnWriter(path)))

    def made() -> tuple[bytes, ...]:
        seen = read_turns(path)
        assert seen is not None
        return seen.in_threads

    named = digest_of(LINE.decode("utf-8", "surrogateescape"))
    assert asyncio.run(lines.read(LINE, made)) == (named,)
    assert made() == ()


def test_long_lines_over_which_a_worker_ended_are_refused(tmp_path: Path) -> None:
    digest = digest_of(LINE.decode("utf-8", "surrogateescape"))
    refused = (RefusedText(digest=digest, until_boot_ms=61_000),)
    published.write(tmp_path / "workers", WorkersReport(refused=refused))
    in_hand = TextsInHand(None, WorkersReportReader(tmp_path / "workers"), At())
    lines = LongLines(in_hand=in_hand)
    with pytest.raises(TextRefused):
        asyncio.run(lines.read(LINE, lambda: 1))
    assert asyncio.run(lines.read(LINE + b" ", lambda: 1)) == 1
