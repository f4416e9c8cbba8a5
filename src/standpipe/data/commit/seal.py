"""Authenticates the records of the progress topic by a MAC; readers ignore all others.

A client that can write to the progress topic could decide what replicas show: one fence of a high
lease epoch would void all later commits of a table, with a lag of zero. So pipelines seal records
under a key that is derived from the cluster's secret, and readers ignore a record

    FORGED      whose MAC does not fit,
    UNSIGNED    without a MAC,
    UNREADABLE  that is not a progress record.

These go by the record alone, so all readers agree, whenever they read. A MAC covers topic, key and
value, so a record is valid nowhere else.

Not covered: repeating an old sealed record (the pipeline notices a foreign fence, and a record of
an older epoch is void), deleting the topic, and tombstones, which the broker obeys on its own.

Rejected: believing what is unsigned until a query's first sealed record. Its id can be known before
(it is the statement's and an index of the log), and one forged record there, a fence of a high
lease epoch or an end beyond all offsets, would void all that follows. Only a development version
wrote records without a MAC: its tables are created again. Also rejected: a field of the value (a
MAC over text that contains itself needs a canonical form).
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple

from standpipe.data.commit.progress import parse
from standpipe.model import Progress

HEADER_MAC: Final = "sp-mac"
#: half of SHA-256: RFC 2104, section 5
MAC_BYTES: Final = 16

Headers = Sequence[tuple[str, bytes | None]]


class Ignored(Enum):
    """Why a record is ignored: see the top of this module."""

    FORGED = "FORGED"
    UNSIGNED = "UNSIGNED"
    UNREADABLE = "UNREADABLE"


class ProgressSeal:
    """Makes and checks the MACs of one progress topic. Without a secret, it makes none and checks
    none: for tests and simulations."""

    def __init__(self, secret: str = "", topic: str = "") -> None:
        purpose = b"standpipe progress records\0" + topic.encode()
        self._key = hmac.digest(secret.encode(), purpose, sha256) if secret else b""

    @property
    def checks(self) -> bool:
        """Whether there is a secret."""
        return bool(self._key)

    def headers(self, key: bytes, value: bytes) -> list[tuple[str, bytes | None]]:
        """The headers of a record that this cluster writes."""
        return [(HEADER_MAC, self._mac(key, value))] if self._key else []

    def fits(self, key: bytes, value: bytes, mac: bytes) -> bool:
        """Whether the MAC is that of the record."""
        return hmac.compare_digest(self._mac(key, value), mac)

    def _mac(self, key: bytes, value: bytes) -> bytes:
        length = len(key).to_bytes(4, "big")  # else key and value could be cut elsewhere
        return hmac.digest(self._key, length + key + value, sha256)[:MAC_BYTES]


NO_SEAL: Final = ProgressSeal()


class ProgressReader:
    """Reads the records of a progress topic in order, from its beginning."""

    def __init__(self, seal: ProgressSeal) -> None:
        self._seal = seal
        #: number of ignored records for each reason
        self.ignored: Counter[Ignored] = Counter()
        #: why the newest record was ignored; None: it was not
        self.newest_ignored: Ignored | None = None

    def read(self, key: bytes | None, value: bytes, headers: Headers | None) -> Progress | None:
        """The record; None if it is ignored. Not for tombstones."""
        found = self._judged(key or b"", value, headers or ())
        self.newest_ignored = None if isinstance(found, Progress) else found
        if isinstance(found, Progress):
            return found
        self.ignored[found] += 1
        return None

    def _judged(self, key: bytes, value: bytes, headers: Headers) -> Progress | Ignored:
        mac = next((mac for name, mac in headers if name == HEADER_MAC), None)
        if self._seal.checks and mac is not None and not self._seal.fits(key, value, mac):
            return Ignored.FORGED
        try:
            progress = parse(value)
        except ValueError:
            return Ignored.UNREADABLE
        return Ignored.UNSIGNED if self._seal.checks and mac is None else progress


def said(ignored: Counter[Ignored]) -> dict[str, int]:
    """The counts for a log entry."""
    return {reason.value: count for reason, count in ignored.items()}


class Left(NamedTuple):
    """What remains of a progress topic once compaction has applied its tombstones."""

    records: list[Progress]
    #: keys of the records that readers ignore
    ignored: list[bytes]


def left_of(rows: Iterable[tuple[bytes, bytes | None, Headers]], reader: ProgressReader) -> Left:
    """What remains of a topic's (key, value, headers)s.

    A key occurs once (`progress_key`), so one tombstone for it is enough: a pipeline that pruned by
    what the topic still holds would rewrite all tombstones each time until compaction runs.
    """
    left: dict[bytes, Progress] = {}
    ignored: dict[bytes, None] = {}
    for key, value, headers in rows:
        if value is None:
            left.pop(key, None)
            ignored.pop(key, None)
        elif (record := reader.read(key, value, headers)) is not None:
            left[key] = record
        else:
            ignored[key] = None
    return Left(list(left.values()), [key for key in ignored if key not in left])
