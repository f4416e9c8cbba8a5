"""HTTP/1.1 requests by hand, for benchmarks: as bytes, and their answers over kept connections."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import NamedTuple

KSQL = "application/vnd.ksql.v1+json"


class Answer(NamedTuple):
    """A whole answer, with the names of its headers in lower case."""

    status: int
    head: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.head) + len(self.body)


def query_body(text: str, properties: Mapping[str, object] | None = None) -> bytes:
    """The body of POST /query."""
    return json.dumps({"ksql": text, "streamsProperties": properties or {}}).encode()


def post(body: bytes, path: str = "/query", headers: Mapping[str, str] | None = None) -> bytes:
    """A whole POST request; its connection is kept."""
    lines = {"host": "127.0.0.1", "content-type": KSQL, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """A whole GET request."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one whole answer, which ends by its length or is in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    pieces: list[bytes] = []
    if b"\r\ntransfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        pieces.append(await reader.readexactly(int(length)))
    return Answer(int(head.split(b" ", 2)[1]), head, b"".join(pieces))


async def asked(port: int, request: bytes, *, tls: bool = False) -> Answer:
    """The answer to one request, over a connection of its own."""
    context = _unverified() if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=2**20)
    try:
        writer.write(request)
        return await read_answer(reader)
    finally:
        writer.close()


def ask(port: int, request: bytes, *, tls: bool = False) -> Answer:
    """`asked` outside a loop."""
    return asyncio.run(asked(port, request, tls=tls))


def _unverified() -> ssl.SSLContext:
    """The certificate of the tests is nobody's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
