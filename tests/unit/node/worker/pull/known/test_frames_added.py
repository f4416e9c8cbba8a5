"""Whole rows of a table that got columns in place: narrow ones, wide ones, and ones that are wider
than this node knows."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace as changed
from tests.examples import examples
from tests.unit.node.worker.pull.known.test_frames import Nodes, by_frame, same_id
from tests.unit.node.worker.pull.known.test_lists import by_list
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, in_list, listed, run
from tests.unit.node.workers import PARTITIONS, USERS, Worker, body_of, page, peer_format

from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query.literal_lookup import END, Around
from standpipe.data.query.pull import partition_of_key
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import BatchId, Column, LeaseEpoch, Offset, Source
from standpipe.node.worker.pull.fast_path import LookupFastPath
from standpipe.node.worker.request.head import Form

ACCEPT = {"accept": Form.LINES.value.decode()}
FORM = peer_format(ACCEPT)
NAMES = ("N", "M", "L")
CELLS = ("1", "-7", "null", '"]"', '"é"', '{"a":[null]}', "[]", "1.5", '"\\u0061"')
KEYS = [f"k{number}" for number in range(60)]


def grown(added: int) -> Source:
    """USERS, which began with the columns ID and N."""
    more = tuple(Column(name=name, type="STRING") for name in NAMES[1 : 1 + added])
    source = changed(USERS, columns=(*USERS.columns, *more))
    return changed(source, columns_first=1) if added else source


def hold(node: Worker, added: int, draw: random.Random) -> dict[str, list[str]]:
    """Rows of writers that knew more columns than this node, or fewer. Their cells, by key."""
    source = grown(added)
    node.publish(["a", "b"], {n: ["a"] for n in range(PARTITIONS)}, epoch=2, source=source)
    node.replicas.close()  # a process opens a store once
    rows: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(PARTITIONS)}
    written: dict[str, list[str]] = {}
    for key in KEYS:
        cells = draw.choices(CELLS, k=draw.randint(1, len(NAMES)))
        stored = pack_row(f"[{','.join(cells)}]".encode(), 5, b"", len(cells) - 1)
        rows[partition_of_key(source, (key,))].append((store_key((key,), ("STRING",)), stored))
        written[key] = cells
    for number, pairs in rows.items():
        identity = StoreIdentity(table_id="T1", generation=1, partition=number)
        writer = StoreWriter(store_path(node.paths.state, identity.replica_id), identity)
        meta = StoreMeta(
            identity=identity,
            position=Offset(100),
            batch=BatchId(7),
            lease_epoch=LeaseEpoch(1),
            source_instant_ms=2**45,
        )
        writer.apply(pairs, [], meta)
        writer.close()
    return written


async def sent(node: Worker, path: LookupFastPath, text: str) -> list[str]:
    """What the slow path sends, the fast path, and what it has learnt; "": left to another."""
    body = body_of(text)
    slow = await by_slow_path(node, FORM, ACCEPT, body)
    shortest = by_list(path, Form.LINES, body) if " IN " in text else by_frame(path, FORM, body)
    return [same_id(each) for each in (slow, path.answer(FORM, body), shortest)]


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("added", [0, 1, 2])
def test_all_ways_send_the_same(tmp_path: Path, added: int, is_compiled: bool) -> None:
    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(added)
        written = hold(node, added, draw)
        path = node.fast_path()
        one, many = "SELECT * FROM USERS WHERE ID = '{}';", in_list("k1", "k2")
        for text in (one.format("k1"), many) * 3:
            await sent(node, path, text)
        for _ in range(examples(60)):
            keys = draw.sample(KEYS, 4)
            for text in (one.format(keys[0]), in_list(*keys)):
                slow, fast, shortest = await sent(node, path, text)
                assert slow == fast == shortest, text
                for key in keys if " IN " in text else keys[:1]:
                    shown = [*written[key], *["null"] * added][: 1 + added]
                    row = f'["{key}",{",".join(shown)}]'
                    assert row in slow, "with null for what its writer did not know"
            columns = ", ".join(["ID", *reversed(NAMES[: 1 + added])])
            text = f"SELECT {columns} FROM USERS WHERE ID IN ({listed(*keys)});"
            slow, fast, _ = await sent(node, path, text)
            assert slow == fast
            assert msgspec.json.encode(keys[0]).decode() in slow

    with contextlib.nullcontext() if is_compiled else mock.patch.object(native, "_native", None):
        run(tmp_path, story)


@pytest.mark.skipif(not native.IS_COMPILED, reason="nothing was compiled")
def test_rows_of_any_known_width_take_the_compiled_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what this node has not heard of is left to Python."""
    left: set[str] = set()
    in_c = native.response

    def noted(around: Around, key: bytes, stored: bytes, added: int) -> bytes | None:
        made = in_c(around, key, stored, added)
        if made is None:
            left.add(key.removesuffix(END).decode())
        return made

    monkeypatch.setattr(native, "response", noted)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        written = hold(node, 1, random.Random(5))
        path = node.fast_path()
        for key in ("k1", "k1", *KEYS):
            await sent(node, path, f"SELECT * FROM USERS WHERE ID = '{key}';")
        assert left == {key for key, cells in written.items() if len(cells) > 2}
        assert len(left) < len(KEYS) // 2

    run(tmp_path, story)


def test_a_column_is_seen_as_soon_as_it_is_heard_of(tmp_path: Path) -> None:
    """What was learnt with fewer columns is not used any more."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        placed = {number: ["a"] for number in range(PARTITIONS)}
        hold(node, 0, random.Random(1))
        for number in range(PARTITIONS):
            node.hold(number, page(), more={"k1": pack_row(b"[5,6]", 5, b"", 1)})
        path, text = node.fast_path(), "SELECT * FROM USERS WHERE ID = 'k1';"
        for added, row in ((0, b'["k1",5]'), (1, b'["k1",5,6]'), (2, b'["k1",5,6,null]')):
            node.publish(["a", "b"], placed, epoch=3 + added, source=grown(added))
            for _ in range(3):
                assert row in (await by_slow_path(node, FORM, ACCEPT, body_of(text)))
                assert row in (path.answer(FORM, body_of(text)) or b"")
            assert row in (by_frame(path, FORM, body_of(text)) or b"")

    run(tmp_path, story)
