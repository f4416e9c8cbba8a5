"""A slow or lossy cable: frames between a host and the bridge pass through this process.

    relay = slow(host, delay_ms=200)        # what the host sends arrives 200 ms later
    relay = slow(host, loss=0.3)            # three of ten frames vanish, in both directions

The kernels that this runs on have no netem. The bridge's end of the host's cable is taken out of
the bridge; a TAP device takes its place there, and the relay carries frames between the two. Offers
of the cards to compute checksums later are turned off first, for frames leave as they are read.

As a program: `python -m tests.hosts.relay PORT TAP DELAY_MS LOSS` (inside `network.enter`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from tests.hosts.network import Host

FRAME_BYTES_MAX = 65_536
_ETH_P_ALL = 3
_TUNSETIFF, _IFF_TAP_NO_PI = 0x400454CA, 0x0002 | 0x1000
_SIOCETHTOOL = 0x8946
#: ETHTOOL_STXCSUM, _SSG, _STSO, _SGSO, _SGRO
_OFFLOADS = (0x17, 0x19, 0x1F, 0x24, 0x2C)


def turn_off_offloads(device: str) -> None:
    """In the network namespace of the caller."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


@dataclass
class Relay:
    """A running relay; `stop` plugs the host in again."""

    host: Host
    process: subprocess.Popen[bytes]

    @property
    def is_there(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        _ip("link", "set", self.host.port, "master", "br0")


def slow(host: Host, *, delay_ms: int = 0, loss: float = 0.0) -> Relay:
    """From now on. Returns when frames pass through the relay."""
    here = [sys.executable, "-m", __name__]
    subprocess.run(host.command([*here, "offloads", host.device]), check=True)
    turn_off_offloads(host.port)
    tap = f"slow{host.number}"
    command = [*here, host.port, tap, str(delay_ms), str(loss)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # the device is there
    _ip("link", "set", tap, "up")
    _ip("link", "set", host.port, "nomaster")
    _ip("link", "set", tap, "master", "br0")
    return Relay(host, process)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _carry(port: str, tap: str, delay_ms: int, loss: float) -> None:
    """Frames from the host wait for `delay_ms`; of either direction a share is lost."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", tap.encode(), _IFF_TAP_NO_PI))
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    cable.bind((port, 0))
    print("ready", flush=True)
    numbers, waiting = count(), list[tuple[float, int, bytes]]()
    chance = random.Random(1)
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
        readable, _, _ = select.select([device, cable], [], [], wait_s)
        if device in readable:
            frame = os.read(device, FRAME_BYTES_MAX)
            if chance.random() >= loss:
                _try(cable.send, frame)
        if cable in readable:
            frame, address = cable.recvfrom(FRAME_BYTES_MAX)
            is_ours = address[2] == socket.PACKET_OUTGOING
            if not is_ours and chance.random() >= loss:
                due_s = time.monotonic() + delay_ms / 1000
                heapq.heappush(waiting, (due_s, next(numbers), frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _try(partial(os.write, device), heapq.heappop(waiting)[2])


def _try(send: Callable[[bytes], int], frame: bytes) -> None:
    """A queue that is full, or a device that is down, loses a frame, as a cable does."""
    with contextlib.suppress(OSError):
        send(frame)


if __name__ == "__main__":
    if sys.argv[1] == "offloads":
        turn_off_offloads(sys.argv[2])
    else:
        _carry(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
