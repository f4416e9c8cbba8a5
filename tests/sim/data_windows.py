"""What a simulated table's keys are: plain, or of windows that expire.

A windowed world has events of the newest window and of the one before it, so none is late; that a
late one is dropped is Spark's matter. Its rules are written out here once more, without the code
that is under test.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.unit.data.rows import key_of

from standpipe.data.commit.expiry import Expiry
from standpipe.data.encoding.kafka_keys import split_windowed_key, windowed_key
from standpipe.data.encoding.store_keys import parse_store_key, store_key
from standpipe.model import Window

WINDOW_MS = 10_000
#: an event may be of the window before the newest; results are kept for as long as they may change
WINDOW = Window(
    kind="TUMBLING",
    size_ms=WINDOW_MS,
    advance_ms=WINDOW_MS,
    grace_ms=WINDOW_MS,
    retention_ms=2 * WINDOW_MS,
)

Events = Sequence[tuple[str, int]]


class PlainKeys:
    """An event's name is its row's key."""

    window: Window | None = None
    expiry: Expiry | None = None

    def name_at(self, name: str, now_ms: int, chance: random.Random) -> str:
        """The name of an event that happens now."""
        return name

    def raw(self, name: str) -> bytes:
        """Its key in Kafka."""
        return name.encode()

    def stored(self, raw: bytes) -> bytes:
        """Its key in a store."""
        return key_of(raw.decode())

    def raw_of_stored(self, stored: bytes) -> bytes:
        (key, *_), _ = parse_store_key(stored, ("STRING",), 0)
        return str(key).encode()

    def without_window(self, raw: bytes) -> bytes:
        """What says in which partition it lies."""
        return raw

    def watermark_ms(self, events: Events) -> int:
        """After those events."""
        return 0

    def is_expired(self, stored: bytes, watermark_ms: int) -> bool:
        return False


class WindowedKeys(PlainKeys):
    """An event's name is `key@start`, in ms."""

    window = WINDOW
    expiry = Expiry.of(WINDOW)

    def name_at(self, name: str, now_ms: int, chance: random.Random) -> str:
        newest = now_ms // WINDOW_MS * WINDOW_MS
        return f"{name}@{newest - WINDOW_MS * (chance.random() < 0.3)}"

    def raw(self, name: str) -> bytes:
        return windowed_key(name.split("@", maxsplit=1)[0].encode(), _start_ms(name))

    def stored(self, raw: bytes) -> bytes:
        key, start_ms = split_windowed_key(raw)
        return store_key((key.decode(),), ("STRING",), start_ms)

    def raw_of_stored(self, stored: bytes) -> bytes:
        (key, *_), (start_ms,) = parse_store_key(stored, ("STRING",), 1)
        return windowed_key(str(key).encode(), start_ms)

    def without_window(self, raw: bytes) -> bytes:
        return split_windowed_key(raw)[0]

    def watermark_ms(self, events: Events) -> int:
        return max((_start_ms(name) - WINDOW_MS for name, _ in events), default=0)

    def is_expired(self, stored: bytes, watermark_ms: int) -> bool:
        _, (start_ms,) = parse_store_key(stored, ("STRING",), 1)
        return watermark_ms > 0 and start_ms + WINDOW_MS <= watermark_ms


def _start_ms(name: str) -> int:
    return int(name.split("@")[1])
