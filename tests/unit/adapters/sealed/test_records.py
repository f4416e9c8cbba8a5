"""What was sealed comes out as it went in, or the connection ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from standpipe.adapters.sealed.records import RECORD_BYTES_MAX, Opener, SealBroken, Sealer

KEY, OTHER = b"k" * 32, b"o" * 32
SAID = [b"GET / HTTP/1.1\r\n\r\n", b"", b"x" * 1000]


def sealed(key: bytes = KEY) -> list[bytes]:
    sealer = Sealer(key)
    return [sealer.seal(data) for data in SAID]


@pytest.mark.parametrize("size", [1, 3, 21, 10_000])
def test_in_whatever_pieces_it_arrives(size: int) -> None:
    opener, stream, opened = Opener(KEY), b"".join(sealed()), b""
    for at in range(0, len(stream), size):
        opened += opener.open(stream[at : at + size])
    assert opened == b"".join(SAID)


@pytest.mark.parametrize(
    ("count", "records"),
    [
        (RECORD_BYTES_MAX - 1, 1),
        (RECORD_BYTES_MAX, 1),
        (RECORD_BYTES_MAX + 1, 2),
        (5 * RECORD_BYTES_MAX, 5),
    ],
)
def test_a_large_write_is_several_records(count: int, records: int) -> None:
    data = bytes(range(256)) * (count // 256 + 1)
    stream = Sealer(KEY).seal(data[:count])
    assert len(stream) == count + 20 * records
    assert Opener(KEY).open(stream) == data[:count]


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


@pytest.mark.parametrize(
    ("arrives", "why"),
    [
        (lambda one: [one[0], one[0]], "repeated"),
        (lambda one: [one[1], one[0]], "reordered"),
        (lambda one: one[1:], "the first is lost"),
        (lambda one: [one[0], one[2]], "one in the middle is lost"),
        (lambda one: [flipped(one[0], 4)], "its tag is changed"),
        (lambda one: [flipped(one[0], 20)], "its first byte is changed"),
        (lambda one: [flipped(one[2], -1 % len(one[2]))], "its last byte is changed"),
        (lambda one: [flipped(one[2], 3) + b"12345"], "its length is changed"),
        (lambda _: sealed(OTHER), "of another connection, or the other direction"),
        (lambda _: [(1 << 31).to_bytes(4, "big") + b"x" * 16], "nobody makes one so long"),
    ],
)
def test_anything_else_is_refused(
    arrives: Callable[[list[bytes]], Sequence[bytes]], why: str
) -> None:
    opener, refused = Opener(KEY), False
    for record in arrives(sealed()):
        try:
            opener.open(record)
        except SealBroken:
            refused = True
            break
    assert refused, why


def test_a_record_of_the_longest_kind_and_one_byte_more() -> None:
    longest = Sealer(KEY).seal(b"x" * RECORD_BYTES_MAX)
    assert len(Opener(KEY).open(longest)) == RECORD_BYTES_MAX
    longer = (RECORD_BYTES_MAX + 1).to_bytes(4, "big")
    with pytest.raises(SealBroken, match="a record of"):
        Opener(KEY).open(longer + b"t" * 16)  # before its data is waited for
