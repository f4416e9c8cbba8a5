"""A log that strangers can write to: what is left out, what is told, and who uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from standpipe.adapters import paced_log
from standpipe.adapters.http import sealed_server
from standpipe.adapters.http.sealed_server import SealedProtocol
from standpipe.adapters.paced_log import AT_ONCE, EVERY_S, PacedLog
from standpipe.adapters.raft import wire
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.model import NodeId


def test_few_at_once_then_few_and_none_is_forgotten() -> None:
    now_s = [0.0]
    log = PacedLog(lambda: now_s[0])
    with capture_logs() as lines:
        for _ in range(AT_ONCE + 30):
            log.warning("refused", why="x")
        assert len(lines) == AT_ONCE
        now_s[0] += EVERY_S
        for _ in range(2):
            log.warning("refused", why="y")
        now_s[0] += EVERY_S * AT_ONCE * 2
        log.warning("refused", why="z")
    told = [(line["why"], line.get("untold")) for line in lines[AT_ONCE:]]
    assert told == [("y", 30), ("z", 1)]


class Transport:
    """As far as a refusal uses it."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def get_extra_info(self, _: str) -> Any:
        return ("127.0.0.1", 1)


def refused_as_sealed(data: bytes) -> None:
    anything: Any = None
    protocol = SealedProtocol(PeerIdentity("secret", NodeId("a")), anything, set(), anything)
    transport: Any = Transport()
    protocol.transport = transport
    protocol.data_received(data)
    assert transport.is_aborted


def refused_by_the_quorum(data: bytes) -> None:
    anything: Any = None
    protocol = wire.Accepted(anything)
    transport: Any = Transport()
    protocol.transport = transport
    protocol.data_received(data)
    assert transport.is_aborted


@pytest.mark.parametrize("refused", [refused_as_sealed, refused_by_the_quorum])
def test_refused_strangers_do_not_wash_out_the_log(
    refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had a line of 260 bytes; 16 MB are kept."""
    for module in (sealed_server, wire):
        monkeypatch.setattr(module, "_refusals", paced_log.PacedLog())

    async def story() -> None:
        with capture_logs() as lines:
            for _ in range(500):
                refused(b"\xff" * 64)
        assert len(lines) <= AT_ONCE + 10

    asyncio.run(story())
