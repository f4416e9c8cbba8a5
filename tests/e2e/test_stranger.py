"""Somebody else has a node's old address: what it is told, and what it can do with it.

Three controls; one is killed, and a listener of ours takes its internal port. The others keep
dialling it for beats, and so do an operator's command and a blocking client. No Kafka. The same for
the quorum's wire is in `tests/unit/adapters/raft/test_wire.py`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.control_cluster import SECRET, ControlCluster, until

from standpipe.adapters.http.peer_client import PathFailed
from standpipe.adapters.http.sync_client import SyncClient
from standpipe.adapters.raft import wire
from standpipe.adapters.sealed import handshake
from standpipe.adapters.sealed.handshake import PeerIdentity
from standpipe.local.client.internal_client import InternalClient, QuorumRefused

GREETING_BYTES_MAX = 400
DIALS = 12


def keeps_silent(_: bytes) -> bytes:
    return b""


def is_a_web_server(_: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def reflects(heard: bytes) -> bytes:
    """Our own bytes, as they are and without what they open with."""
    for magic in (handshake.MAGIC, wire.MAGIC):
        if heard.startswith(magic):
            return heard[len(magic) :] + heard
    return heard


def makes_noise(_: bytes) -> bytes:
    return b"\x00\x00\x00\x40" + os.urandom(64) + b"\x00\x00\x00\x20" + os.urandom(32)


@dataclass
class Stranger:
    """Listens on an address, says `answer` of what it heard, and keeps everything."""

    listener: socket.socket
    answer: Callable[[bytes], bytes]
    dials: list[bytes] = field(default_factory=list[bytes])

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                line = self.listener.accept()[0]
                threading.Thread(target=self._hear, args=(line,), daemon=True).start()

    def _hear(self, line: socket.socket) -> None:
        heard = b""
        with line, suppress(OSError):
            line.settimeout(5)
            heard = line.recv(65536)
            line.sendall(self.answer(heard))
            while data := line.recv(65536):
                heard += data
        if heard:
            self.dials.append(heard)


@contextmanager
def stranger_at(address: str, answer: Callable[[bytes], bytes]) -> Iterator[Stranger]:
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        stranger = Stranger(listener, answer)
        thread = threading.Thread(target=stranger.serve)
        thread.start()
        try:
            yield stranger
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlCluster]:
    made = ControlCluster(tmp_path_factory.mktemp("stranger"))
    try:
        made.start(*made.names)
        made.until_members(3, *made.names)
        made.until_voters(*made.names)
        made.kill(made.names[-1])
        yield made
    finally:
        made.close()


def replayed(address: str, recorded: bytes) -> bytes:
    """What a real node answers to bytes that the stranger got."""
    host, _, port = address.rpartition(":")
    heard = b""
    with socket.create_connection((host, int(port)), 20) as line, suppress(OSError):
        line.sendall(recorded)
        line.sendall(b"GET /describe HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        line.shutdown(socket.SHUT_WR)
        while data := line.recv(65536):
            heard += data
    return heard


@pytest.mark.parametrize("answer", [keeps_silent, is_a_web_server, reflects, makes_noise])
def test_a_stranger_on_an_old_address_learns_nothing_of_use(
    cluster: ControlCluster, answer: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    *alive, dead = cluster.names
    address = cluster.configs[dead].internal
    index = (cluster.describe(alive[0]) or {})["last_index"]
    with stranger_at(address, answer) as stranger:
        with pytest.raises(QuorumRefused):
            InternalClient([address], SECRET).ask("POST", "/nodes/drain", b'{"node_id": "x"}')
        with (
            SyncClient(timeout_s=20, identity=PeerIdentity(SECRET)) as client,
            pytest.raises(PathFailed),
        ):
            client.request("POST", address, "/execute", body=b'{"ksql": "DROP"}')
        until("many dials", lambda: len(stranger.dials) >= DIALS)
        dials = list(stranger.dials)
    kinds = {heard[:15] for heard in dials}
    assert handshake.MAGIC[:15] in kinds
    assert kinds <= {handshake.MAGIC[:15], wire.MAGIC[:15]}, "the quorum may dial it too"
    for heard in dials:
        assert SECRET.encode() not in heard
        assert len(heard) < GREETING_BYTES_MAX, "a greeting, and no request"
        for word in (b"HTTP", b"/heartbeat", b"/execute", b"drain"):
            assert word not in heard
    for heard in dials[-DIALS:]:
        for node in alive:
            said = replayed(cluster.configs[node].internal, heard)
            assert b"node_id" not in said
            assert b" 200 " not in said
    for node in alive:
        assert (cluster.describe(node) or {})["last_index"] == index, "nothing was done"


def test_an_operator_with_another_secret_is_told_so(cluster: ControlCluster) -> None:
    address = cluster.configs[cluster.names[0]].internal
    with pytest.raises(QuorumRefused, match="secret of this cluster") as refused:
        InternalClient([address], "guessed").ask("GET", "/describe")
    assert "--secret-file" in refused.value.next_step
