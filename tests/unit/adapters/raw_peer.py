"""A peer without manners, at the socket."""

from __future__ import annotations

import asyncio
import contextlib

from standpipe.adapters.raft.wire import MAGIC


async def is_hung_up_on(address: str) -> bool:
    """Whether who dials the quorum at an address gets nothing but the end of the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(MAGIC)
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                return await reader.read() == b""
        return True
    finally:
        writer.close()
