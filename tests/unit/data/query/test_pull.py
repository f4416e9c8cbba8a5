"""Key lookups over a store in memory, as tables."""

from __future__ import annotations

from bisect import bisect_left
from decimal import Decimal

import msgspec
import pytest
from tests.unit.data.rows import HOUR_MS, session, table, tumbling

from standpipe.data.encoding.store_keys import full_store_key, partition_of, store_key, windowed_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import pull, scan
from standpipe.data.query.partition_keys import keys_by_partition
from standpipe.data.replica.stage import RowCodec
from standpipe.model import Column, Source
from standpipe.sql.plans import PullPlan


class SortedStore:
    """`data.query.pull.ReadView` over a sorted list."""

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self._pairs = sorted(rows.items())

    def get(self, key: bytes, /) -> bytes | None:
        return dict(self._pairs).get(key)

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        at = bisect_left(self._pairs, (low, b""))
        return [pair for pair in self._pairs[at:] if pair[0] < high][:limit]


def plan(source: Source, *keys: tuple[object, ...], **more: object) -> PullPlan:
    columns: dict[str, object] = {"schema": "", "column_names": (), "column_types": ()}
    return PullPlan(source=source, keys=keys, **{**columns, **more})  # type: ignore[arg-type]


TABLE = table()
PLAIN = SortedStore(
    {store_key((key,), ("STRING",)): pack_row(b"[%d]" % n, 100 + n) for n, key in enumerate("abc")}
)


@pytest.mark.parametrize(
    ("keys", "more", "rows", "why"),
    [
        (("b",), {}, [b'["b",1]'], "spliced"),
        (("x",), {}, [], "a missing key has no row"),
        ((None,), {}, [], "null equals nothing"),
        (("c", "a", "x"), {}, [b'["c",2]', b'["a",0]'], "in the order asked"),
        (("a", "b", "c"), {"limit": 2}, [b'["a",0]', b'["b",1]'], ""),
        (("a",), {"limit": 0}, [], ""),
        (("b",), {"projection": (1,)}, [b"[1]"], "a value column"),
        (("b",), {"projection": (1, 0, 0)}, [b'[1,"b","b"]'], "reordered, repeated"),
        (("b",), {"projection": (2,)}, [b"[101]"], "ROWTIME stands behind the full row"),
        (("b",), {"projection": ()}, [b"[]"], ""),
    ],
)
def test_plain_lookups(
    keys: tuple[str | None, ...], more: dict[str, object], rows: list[bytes], why: str
) -> None:
    assert pull.lookup(plan(TABLE, *[(key,) for key in keys], **more), PLAIN, 0) == rows, why


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("STRING", 'q"\n', b'"q\\"\\n"'),
        ("INTEGER", -5, b"-5"),
        ("BIGINT", 2**62, b"4611686018427387904"),
        ("DOUBLE", 0.1, b"0.1"),
        ("BOOLEAN", True, b"true"),
        ("BYTES", b"hi", b'"aGk="'),
        ("DECIMAL(6, 2)", Decimal("2.50"), b"2.50"),
    ],
)
def test_key_columns_are_shown_as_json(type_: str, value: object, cell: bytes) -> None:
    column = Column(name="K", type=type_, is_key=True)
    source = msgspec.structs.replace(TABLE, columns=(column,))
    store = SortedStore({store_key((value,), (type_,)): pack_row(b"[]", 0)})
    assert pull.lookup(plan(source, (value,)), store, 0) == [b"[" + cell + b"]"]


def test_several_key_columns() -> None:
    columns = tuple(Column(name=name, type="STRING", is_key=True) for name in "KL")
    source = msgspec.structs.replace(TABLE, columns=(*columns, TABLE.columns[1]), key_format="JSON")
    rows = {store_key(("a", "b"), ("STRING", "STRING")): pack_row(b"[1]", 0)}
    assert pull.lookup(plan(source, ("a", "b")), SortedStore(rows), 0) == [b'["a","b",1]']


def test_a_partition_answers_for_its_own_keys_only() -> None:
    source = table(partitions=4)
    keys = [("a",), ("b",), ("c",)]
    found = {p: pull.lookup(plan(source, *keys), PLAIN, p) for p in range(4)}
    for key in "abc":
        home = partition_of(key.encode(), 4)
        assert [p for p, rows in found.items() if any(key.encode() in row for row in rows)] == [
            home
        ]
    everywhere = {partition_of(key.encode(), 4) for key in "abc"}
    assert pull.partitions(plan(source, *keys, (None,))) == tuple(sorted(everywhere))


@pytest.mark.parametrize(("limit", "read"), [(None, 128), (300, 128), (64, 64), (1, 64), (0, 64)])
def test_rows_are_charged_before_more_are_read(limit: int | None, read: int) -> None:
    """A charge that is refused ends the lookup, and so does a limit that is reached."""
    keys = [(f"k{number}",) for number in range(300)]
    store = CountedStore({store_key(key, ("STRING",)): pack_row(b"[1]", 0) for key in keys})
    charged: list[list[bytes]] = []

    def charge(more: list[bytes]) -> None:
        charged.append(more)
        if len(charged) == 2:
            raise BufferError

    asked = plan(TABLE, *keys, limit=limit)
    try:
        rows = pull.lookup_keys(asked, store, keys_by_partition(asked)[0], charge)
    except BufferError:
        rows = [b""] * 300
    assert len(rows) == min(limit if limit is not None else 300, 300)
    assert store.got == read


class CountedStore(SortedStore):
    """Counts what was asked for."""

    got = 0
    scanned_bytes = 0

    def get(self, key: bytes, /) -> bytes | None:
        self.got += 1
        return super().get(key)

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        pairs = super().scan(low, high, limit)
        self.scanned_bytes += sum(len(value) for _, value in pairs)
        return pairs


# ---------------------------------------------------------------------------------- windows

WINDOWED = table(window=tumbling())
HOURS = SortedStore(
    {
        store_key((key,), ("STRING",), hour * HOUR_MS): pack_row(b"[%d]" % hour, hour)
        for key in ("a", "a\0", "b")
        for hour in range(5)
    }
)


@pytest.mark.parametrize(
    ("bounds", "hours", "why"),
    [
        ({}, [0, 1, 2, 3, 4], "all, ascending"),
        ({"window_start_low_ms": 2 * HOUR_MS}, [2, 3, 4], "inclusive"),
        ({"window_start_low_ms": 2 * HOUR_MS + 1}, [3, 4], ""),
        ({"window_start_high_ms": 2 * HOUR_MS}, [0, 1, 2], "inclusive"),
        ({"window_start_high_ms": 2 * HOUR_MS - 1}, [0, 1], ""),
        ({"window_start_low_ms": HOUR_MS, "window_start_high_ms": HOUR_MS}, [1], "one window"),
        ({"window_end_low_ms": 4 * HOUR_MS}, [3, 4], "bounds on the end"),
        ({"window_end_high_ms": 2 * HOUR_MS}, [0, 1], ""),
        ({"window_end_high_ms": 3 * HOUR_MS, "window_start_low_ms": HOUR_MS}, [1, 2], "both"),
        ({"window_start_low_ms": 3 * HOUR_MS, "window_start_high_ms": 0}, [], "nothing between"),
        ({"window_start_low_ms": -HOUR_MS}, [0, 1, 2, 3, 4], "before 1970"),
        ({"limit": 2}, [0, 1], ""),
    ],
)
@pytest.mark.parametrize("step_rows", [None, 1, 2, 128])
def test_windows(
    bounds: dict[str, int],
    hours: list[int],
    why: str,
    step_rows: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, and by a scan of the key's part of the store."""
    types = ("STRING", "BIGINT", "BIGINT", "BIGINT")
    asked = plan(WINDOWED, ("a",), column_types=types, **bounds)
    if step_rows is None:
        rows = pull.lookup(asked, HOURS, 0)
    else:
        monkeypatch.setattr(scan, "STEP_ROWS", step_rows)
        made = scan.Scan(asked, pull.key_ranges(asked, 0))
        while not made.is_over:
            made.step(HOURS)
        rows = made.rows()
    start = [b'["a",%d,%d,%d]' % (h * HOUR_MS, (h + 1) * HOUR_MS, h) for h in hours]
    assert rows == start, why


@pytest.mark.parametrize(
    ("name", "changes"),
    [("WINDOWS_MAX", {}), ("DECODED_WINDOWS_MAX", {"where": lambda _: True})],
)
def test_a_key_with_many_windows_is_left_to_a_scan(
    name: str, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a week of seconds took longer than a worker may stand still."""
    monkeypatch.setattr(pull, name, 5)
    few = plan(WINDOWED, ("a",), column_types=("STRING",) * 4, **changes)
    assert len(pull.lookup(few, HOURS, 0)) == 5
    monkeypatch.setattr(pull, name, 4)
    with pytest.raises(pull.TooManyWindows):
        pull.lookup(few, HOURS, 0)
    wanted = msgspec.structs.replace(few, window_start_low_ms=1)
    assert len(pull.lookup(wanted, HOURS, 0)) == 4, "only those that it wants count"


@pytest.mark.parametrize(
    ("name", "changes"),
    [("WINDOWS_MAX", {}), ("DECODED_WINDOWS_MAX", {"where": lambda _: True})],
)
def test_the_windows_of_all_keys_count(
    name: str, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand keys with some windows each stopped a worker as one with many did."""
    keys = (("a",), ("nobody",), ("b",))
    asked = plan(WINDOWED, *keys, column_types=("STRING",) * 4, **changes)
    monkeypatch.setattr(pull, name, 10)
    assert len(pull.lookup(asked, HOURS, 0)) == 10
    monkeypatch.setattr(pull, name, 9)
    with pytest.raises(pull.TooManyWindows):
        pull.lookup(asked, HOURS, 0)


@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
@pytest.mark.parametrize("changes", [{}, {"where": lambda _: True}])
def test_large_windows_are_left_to_a_scan(
    keys: tuple[str, ...], changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand of a megabyte would fill a worker's memory before they are counted."""
    row_bytes = len(pack_row(b"[0]", 0))
    all_bytes = 5 * len(keys) * row_bytes
    asked = plan(WINDOWED, *((key,) for key in keys), column_types=("STRING",) * 4, **changes)
    monkeypatch.setattr(pull, "CHUNK_WINDOWS", 2)
    monkeypatch.setattr(pull, "WINDOWS_BYTES_MAX", all_bytes)
    assert len(pull.lookup(asked, HOURS, 0)) == 5 * len(keys)
    for bytes_max in (all_bytes - 1, 2 * row_bytes - 1):
        store = CountedStore(dict(HOURS._pairs))
        monkeypatch.setattr(pull, "WINDOWS_BYTES_MAX", bytes_max)
        with pytest.raises(pull.TooManyWindows):
            pull.lookup(asked, store, 0)
        assert store.scanned_bytes <= bytes_max + 2 * row_bytes, "one chunk more"


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 6])
def test_windows_are_read_in_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "CHUNK_WINDOWS", chunk)
    rows = [
        [b'["%b",%d,%d,%d]' % (key, h * HOUR_MS, (h + 1) * HOUR_MS, h) for h in range(5)]
        for key in (b"a", b"b")
    ]
    assert pull.lookup(plan(WINDOWED, ("a",)), HOURS, 0) == rows[0]
    assert pull.lookup(plan(WINDOWED, ("b",), ("a",)), HOURS, 0) == rows[1] + rows[0]
    upto = plan(WINDOWED, ("a",), window_start_high_ms=2 * HOUR_MS)
    assert pull.lookup(upto, HOURS, 0) == rows[0][:3]


def test_windows_can_be_projected() -> None:
    found = pull.lookup(
        plan(WINDOWED, ("b",), projection=(3, 2, 1, 0, 4), window_start_low_ms=4 * HOUR_MS),
        HOURS,
        0,
    )
    assert found == [b'[4,%d,%d,"b",4]' % (5 * HOUR_MS, 4 * HOUR_MS)]
    assert pull.lookup(plan(WINDOWED, (None,)), HOURS, 0) == []


SESSIONS = table(window=session(gap_ms=5000))
EVENTS = SortedStore(
    {
        store_key((key,), ("STRING",), start, end): pack_row(b"[%d]" % (end - start), end)
        for key in ("a", "b")
        for start, end in ((5100, 7400), (19000, 19000))
    }
)


@pytest.mark.parametrize(
    ("bounds", "starts", "why"),
    [
        ({}, [5100, 19000], "all, ascending"),
        ({"window_start_low_ms": 10, "window_start_high_ms": 199_999}, [5100, 19000], ""),
        ({"window_start_low_ms": 5100, "window_start_high_ms": 18_999}, [5100], "inclusive"),
        ({"window_start_low_ms": 5101, "window_start_high_ms": 19_000}, [19_000], ""),
        ({"window_end_low_ms": 7401}, [19_000], "its own end, not start and gap"),
        ({"window_end_high_ms": 7400}, [5100], "inclusive"),
        ({"window_end_high_ms": 7399}, [], ""),
    ],
)
def test_sessions_end_with_their_last_event(
    bounds: dict[str, int], starts: list[int], why: str
) -> None:
    shown = {5100: b'["a",5100,7400,2300]', 19_000: b'["a",19000,19000,0]'}
    wanted = [shown[start] for start in starts]
    assert pull.lookup(plan(SESSIONS, ("a",), **bounds), EVENTS, 0) == wanted, why
    types = ("STRING", "BIGINT", "BIGINT", "BIGINT")
    decoded = plan(SESSIONS, ("a",), where=lambda _: True, column_types=types, **bounds)
    assert pull.lookup(decoded, EVENTS, 0) == wanted, f"decoded: {why}"


# ------------------------------------------------------------------------- long keys, damage


@pytest.mark.parametrize("window_start_ms", [None, 7 * HOUR_MS])
def test_long_keys_are_found_and_never_confused(window_start_ms: int | None) -> None:
    source = TABLE if window_start_ms is None else WINDOWED
    window_ms = () if window_start_ms is None else (window_start_ms,)
    long, other = "x" * 600, "x" * 601
    codec = RowCodec.of(source, 0)
    raw = long.encode()
    key, full = codec.to_store_key(
        raw if window_start_ms is None else windowed_key(raw, window_start_ms)
    )
    assert full == full_store_key((long,), ("STRING",), *window_ms)
    store = SortedStore({key: pack_row(b"[1]", 0, full)})
    assert len(pull.lookup(plan(source, (long,)), store, 0)) == 1
    assert pull.lookup(plan(source, (other,)), store, 0) == []
    collided = SortedStore({key: pack_row(b"[1]", 0, full + b"!")})
    assert pull.lookup(plan(source, (long,)), collided, 0) == [], "the full key decides"


def test_damage_is_an_error_never_a_row() -> None:
    key = store_key(("a",), ("STRING",))
    store = SortedStore({key: pack_row(b"[1]", 0)[:-1] + b"}"})
    with pytest.raises(DamagedRow):
        pull.lookup(plan(TABLE, ("a",)), store, 0)


def test_rows_from_before_a_column_was_added() -> None:
    """And of a column that this node has not heard of."""
    columns = (*TABLE.columns, Column(name="M", type="BIGINT"))
    source = msgspec.structs.replace(TABLE, columns=columns, columns_first=1)
    stored = {"a": b"[0]", "b": b"[1,7]", "c": b"[2,8,9]"}
    store = SortedStore(
        {
            store_key((key,), ("STRING",)): pack_row(row, 5, b"", added)
            for added, (key, row) in enumerate(stored.items())
        }
    )
    before = plan(TABLE, ("c",))
    (partition,) = pull.partitions(before)
    assert pull.lookup(before, store, partition) == [b'["c",2]'], "it has heard of neither"
    whole = {"a": b'["a",0,null]', "b": b'["b",1,7]', "c": b'["c",2,8]'}
    for key, row in whole.items():
        one = plan(source, (key,))
        (partition,) = pull.partitions(one)
        assert pull.lookup(one, store, partition) == [row]
        projected = plan(source, (key,), projection=(2,))
        assert pull.lookup(projected, store, partition) == [b"[%b]" % row.split(b",")[2][:-1]]
    many = plan(source, *((key,) for key in whole))
    found = [row for each in pull.partitions(many) for row in pull.lookup(many, store, each)]
    assert sorted(found) == sorted(whole.values())
    types = ("STRING", "BIGINT", "BIGINT", "BIGINT")
    scan = plan(source, is_scan=True, column_types=types)
    assert sorted(pull.lookup(scan, store, 0)) == sorted(whole.values())
    before = plan(TABLE, is_scan=True, column_types=types[:2])
    rows = [b'["a",0]', b'["b",1]', b'["c",2]']
    assert sorted(pull.lookup(before, store, 0)) == rows, "it has heard of neither column"


def test_windows_from_before_a_column_was_added() -> None:
    columns = (*WINDOWED.columns, Column(name="M", type="BIGINT"))
    source = msgspec.structs.replace(WINDOWED, columns=columns, columns_first=1)
    rows = ((b"[1]", 0), (b"[2,7]", 1), (b"[3,8,9]", 2))
    store = SortedStore(
        {
            store_key(("a",), ("STRING",), hour * HOUR_MS): pack_row(row, 5, b"", added)
            for hour, (row, added) in enumerate(rows)
        }
    )
    shown = [
        f'["a",{hour * HOUR_MS},{(hour + 1) * HOUR_MS},{cells}]'.encode()
        for hour, cells in enumerate(("1,null", "2,7", "3,8"))
    ]
    assert pull.lookup(plan(source, ("a",)), store, 0) == shown
