"""Lookups of the windows of a key: known statements send what the other steps send, or nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from tests.examples import examples
from tests.unit.data.rows import HOUR_MS, session, tumbling
from tests.unit.node.worker.pull.known.test_frames import Nodes, same_id
from tests.unit.node.worker.pull.known.test_frames_messages import both_send_the_same, message
from tests.unit.node.worker.pull.known.test_statements import ACCEPT, FORM, sent_alike
from tests.unit.node.worker.pull.test_fast_many import by_slow_path, run
from tests.unit.node.workers import PARTITIONS, USERS, Worker, body_of

from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import pull, scan
from standpipe.data.query.pull import partition_of_key
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import StandpipeError
from standpipe.model import BatchId, LeaseEpoch, Offset, Source

KEYS = [*(f"k{number}" for number in range(12)), "é", 'q"', "long" * 150]
HOURS = 30
#: of a window, in places of conditions
TIMES = (0, HOUR_MS, 3 * HOUR_MS, 3 * HOUR_MS + 1, 29 * HOUR_MS, 10**12, 7, 2**63 - 1)
CONDITIONS = (
    *("WINDOWSTART >= {t}", "WINDOWSTART < {t}", "WINDOWSTART = {t}", "WINDOWEND <= {t}"),
    *("WINDOWEND > {t}", "WINDOWSTART BETWEEN {t} AND {t}", "{t} < WINDOWSTART"),
    *("WINDOWSTART >= '{d}'", "WINDOWSTART < '{d}'", "WINDOWSTART >= -{t}", "N > {t}", "N <= 5"),
)
DATES = ("1970-01-01T03:00:00", "1970-01-01", "1970-01-02T00:00", "no date", "")
SHOWN = ("*", "*", "*", "N", "WINDOWSTART, N", "ID, WINDOWEND, ROWTIME", "N + 1")


def source_of(*, is_session: bool) -> Source:
    return changed(USERS, window=session(gap_ms=5000) if is_session else tumbling())


def hold_windows(node: Worker, *, is_session: bool = False) -> None:
    """A windowed table in place of the other one; not all keys have all hours."""
    source, draw = source_of(is_session=is_session), random.Random(1)
    placed = {number: ["a", "b"] for number in range(PARTITIONS)}
    node.publish(["a", "b"], placed, epoch=2, source=source)
    node.replicas.close()  # a process opens a store once
    rows: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for key in KEYS:
        for hour in range(HOURS):
            if draw.random() < 0.2:
                continue
            window_ms = (hour * HOUR_MS, hour * HOUR_MS + draw.randrange(HOUR_MS))
            at = store_key((key,), ("STRING",), *window_ms[: 1 + is_session])
            full = b"" if len(key) < 100 else key.encode() + b"\0\1" + at[-8 * (1 + is_session) :]
            stored = pack_row(draw.choice([b"[%d]" % hour, b"[null]"]), 5 + hour, full)
            rows[partition_of_key(source, (key,))].append((at, stored))
    for partition, pairs in rows.items():
        identity = StoreIdentity(table_id="T1", generation=1, partition=partition)
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


def filled(draw: random.Random, text: str) -> str:
    """The text with a literal for each place."""
    for mark, choice in (("{t}", TIMES), ("{d}", DATES), ("{k}", (*KEYS[:-2], "nobody"))):
        while mark in text:
            text = text.replace(mark, str(draw.choice(choice)), 1)
    return text


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("is_session", [False, True])
def test_all_ways_send_the_same(
    tmp_path: Path, is_session: bool, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random statements, learnt with some literals and met with others."""
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(f"{is_session}")
        hold_windows(node, is_session=is_session)
        path, taken, shown = node.fast_path(), 0, 0
        for _ in range(examples(30)):
            conditions = ["ID = '{k}'", *draw.choices(CONDITIONS, k=draw.choice([0, 1, 2, 2]))]
            draw.shuffle(conditions)
            statement = f"SELECT {draw.choice(SHOWN)} FROM USERS WHERE {' AND '.join(conditions)};"
            for _ in range(5):
                sent, is_taken = await sent_alike(node, path, body_of(filled(draw, statement)))
                taken += is_taken
                shown += is_taken and sent.count("[") > 3
        assert taken > examples(30), "the known statements were taken"
        assert shown > examples(30) // 4, "their rows, too"

    run(tmp_path, story)


@pytest.mark.parametrize("is_session", [False, True])
def test_a_key_of_many_windows_is_read_in_steps(
    tmp_path: Path, is_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, a week of seconds kept a worker for longer than it may stand still. The shorter ways
    leave them to the slow path, which scans, and sends the same."""

    async def story(nodes: Nodes) -> None:
        node, draw = nodes["a"], random.Random(f"{is_session}")
        hold_windows(node, is_session=is_session)
        path, left = node.fast_path(), 0
        for _ in range(examples(30)):
            keys = draw.choice(["ID = '{k}'", "ID = '{k}'", "ID IN ('{k}', '{k}', '{k}')"])
            conditions = [keys, *draw.choices(CONDITIONS, k=draw.choice([0, 1, 2, 2]))]
            end = draw.choice(["", "", " LIMIT 3", " ORDER BY ID LIMIT 4"])
            shown = draw.choice(SHOWN)
            statement = f"SELECT {shown} FROM USERS WHERE {' AND '.join(conditions)}{end};"
            body = body_of(filled(draw, statement))
            whole = await sent(node, body)
            for _ in range(2):
                path.answer(FORM, body)  # it is learnt
            with monkeypatch.context() as few:
                few.setattr(pull, "WINDOWS_MAX", draw.choice([2, 2_000]))
                few.setattr(pull, "DECODED_WINDOWS_MAX", 1)
                few.setattr(pull, "WINDOWS_BYTES_MAX", draw.choice([40, 1_000_000]))
                few.setattr(pull, "CHUNK_WINDOWS", draw.choice([1, 2, 3, 128]))
                few.setattr(scan, "STEP_ROWS", draw.choice([1, 2, 128]))
                assert await sent(node, body) == whole, body
                shorter = path.answer(FORM, body)
                left += shorter is None
                assert same_id(shorter) in (whole, ""), body
                assert dict(node.metrics.counts["standpipe_pull_fast_path_faults"]) == {}
        assert left > examples(30) // 2, "there were such keys"

    run(tmp_path, story)


async def sent(node: Worker, body: bytes) -> str:
    """What the slow path sends, or its error."""
    try:
        return same_id(await by_slow_path(node, FORM, ACCEPT, body))
    except StandpipeError as error:
        return f"{error}"


@pytest.mark.parametrize(
    ("key", "why"),
    [("k1", None), ("nobody", None), ("long" * 150, "longer than a literal may be")],
)
def test_the_windows_of_a_day(tmp_path: Path, key: str, why: str | None) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_windows(node)
        path = node.fast_path()
        text = "SELECT * FROM USERS WHERE ID = '{}' AND WINDOWSTART >= {} AND WINDOWSTART < {};"
        for hour in (0, 1, 2):
            await sent_alike(node, path, body_of(text.format("k0", hour, hour + 24 * HOUR_MS)))
        body = body_of(text.format(key, 3 * HOUR_MS, 27 * HOUR_MS))
        sent, is_known = await sent_alike(node, path, body)
        assert is_known is (why is None), why
        if key != "nobody":
            rows = [json.loads(line) for line in sent.splitlines() if line.startswith("[")]
            assert len(rows) > 12
            assert all(row[2] == row[1] + HOUR_MS for row in rows)
            assert {row[0] for row in rows} == {key}

    run(tmp_path, story)


def test_a_whole_message_of_windows_is_known(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        hold_windows(node)
        text = f"SELECT * FROM USERS WHERE ID = '{{}}' AND WINDOWSTART < {5 * HOUR_MS};"
        node.slow_path.map.view.plans.plan(text, {})
        told = [message("Host: a\r\n", body_of(text.format(key))) for key in KEYS[:4]]
        _, short = await both_send_the_same(node, [*told, *told])
        assert short >= len(told)

    run(tmp_path, story)
