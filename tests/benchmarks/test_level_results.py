"""The results of the long proofs of read levels fit their rows on the page and their pictures."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from bench import levels
from bench.load.wrk import Run
from bench.picture import PICTURES
from bench.readme import ALL_ROWS
from tests import report
from tests.e2e import idle_lag, level_readers, read_levels, slow_standby, writes_read_back
from tests.e2e.burst_reads import BurstAnswer, NodeGone
from tests.e2e.counted_keys import KEYS, as_batches
from tests.e2e.level_readers import CONTROL, LEVELS, Truth, row_violations
from tests.e2e.test_session_writes import TABLES, History, ReadBack
from tests.sim.session_histories import NO_VALUE, SessionAnswer

from standpipe.client import ServerRefused

HEAD = {"question": "?", "date": "d", "commit": "c", "machine": {"cores": 2}}
ANSWERS = 1_000_000


def _of_levels() -> Mapping[str, Any]:
    run = Run(1000, 0, 100, 200, 10, 400)
    rounds = [dict.fromkeys([*levels.CASES, "beside_waiters"], run)] * 5
    result = {
        "goals": {**levels.GOALS, "beside_waiters": 0.9},
        "ratio_median": levels.medians(rounds),
        "runs": [{case: one.as_json() for case, one in runs.items()} for runs in rounds],
    }
    return cast("Mapping[str, Any]", report.summary(result))


def _of_read_levels() -> Mapping[str, Any]:
    one = {"answers": ANSWERS, "refused": 1, "violations": 0, f"violations_of_{CONTROL}": 9}
    ran = {**HEAD, "levels": dict.fromkeys(LEVELS, one), "faults": {"node_killed": 2}}
    return read_levels.on_record(read_levels.on_record({}, ran), ran)


def _of_writes(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    monkeypatch.setattr(writes_read_back, "committed_ms", lambda *_: {7: 1_500})
    whole = History([ReadBack(table, 7, 1_000, 1_530) for table in TABLES])
    figures = {table: writes_read_back._figures(cast(Any, None), whole, table) for table in TABLES}
    assert {each["beyond_the_batch_p50_ms"] for each in figures.values()} == {30}
    return {"inserts": 1, "read_back": 2, "misses": 0, "tables": figures, "goal_beyond_p50_ms": 40}


def _of_idle_lag() -> Mapping[str, Any]:
    shown = [idle_lag.Shown(0.0, lag) for lag in (900, 1_100, None)]
    figures = idle_lag.Phase("idle", shown).figures()
    phases = ("idle", "spark_killed_nothing_unread")
    return {"minutes": 60.0, "goal_lag_ms_max": 2_000, **dict.fromkeys(phases, figures)}


def _of_slow_standby() -> Mapping[str, Any]:
    return {
        "lag_most_records": 9_500,
        "bound_records": 10_000,
        "usual_rows_per_second": 20_000,
        "slowed_rows_per_second": 2_000,
    }


def test_a_rate_is_that_of_the_rows_in_a_window() -> None:
    """Rows that come in batches, 2,000 each 2 s, and then 1,000."""
    samples = [
        (at / 10, 2_000 * (at // 20) if at < 200 else 1_000 * (at // 20) + 10_000, 0)
        for at in range(400)
    ]
    found = slow_standby.rates(samples)
    fast = [rate for at, rate in found if at < 20]
    slow = [rate for at, rate in found if at > 20 + slow_standby.WINDOW_S]
    assert fast == [pytest.approx(1_000, rel=0.03)] * 16
    assert slow == [pytest.approx(500, rel=0.03)] * len(slow)
    assert len(slow) > 10


def test_results_have_what_rows_and_pictures_show(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {
        "levels": _of_levels(),
        "read_levels": _of_read_levels(),
        "read_your_writes": _of_writes(monkeypatch),
        "idle_lag": _of_idle_lag(),
        "slow_standby": _of_slow_standby(),
    }
    rows = {row.name: row for row in ALL_ROWS}
    said = {name: rows[name].ours.format_map(result) for name, result in results.items()}
    assert said == {
        "levels": "1.0, 1.0 × eventual",
        "read_levels": "0",
        "read_your_writes": "0",
        "idle_lag": "≤ 1,100 ms",
        "slow_standby": "≤ 9,500",
    }
    assert rows["read_levels"].what.format_map(results["read_levels"]).split()[2] == "2,000,000"
    for name, result in results.items():
        (rows[name].what + rows[name].limit).format_map(result)
        bars = PICTURES[name].bars(dict(result))
        assert bars, name
        assert all(bar.middle >= 0 for bar in bars), name


def test_counts_become_the_batches_that_made_them() -> None:
    keys = {0: ["k0", "k4", "k0"], 1: ["k1"], 2: [], 3: []}
    writes, judged = as_batches({1: {0: 3, 1: 1}, 0: {0: 1}, 2: {0: 3, 1: 1}}, keys)
    assert writes.of == {"k0": [0, 1], "k1": [1], "k4": [1]}

    def values_of(**counts: int) -> Mapping[str, int]:
        return judged(SessionAnswer("s", 0.0, 1.0, counts)).values

    assert values_of(k0=1, k1=NO_VALUE) == {"k0": 0, "k1": NO_VALUE}
    assert values_of(k0=2, k1=1, k4=1) == {"k0": 1, "k1": 1, "k4": 1}
    right = SessionAnswer("s", 0.0, 1.0, values_of(k0=1, k4=NO_VALUE))
    assert row_violations(writes, [right]) == []
    wrong = SessionAnswer("s", 0.0, 1.0, values_of(k0=3))
    assert len(row_violations(writes, [right, wrong])) == 1, "no batch has counted three"


class Client:
    """Answers what batch 0 has made, whatever the level; each tenth read is refused."""

    def __init__(self) -> None:
        self.reads = 0

    async def get(self, _: str, k: str) -> Mapping[str, object] | None:
        return (await self.get_many(_, [k]))[0]

    async def get_many(self, _: str, keys: Sequence[str]) -> list[Mapping[str, object] | None]:
        self.reads += 1
        number = self.reads
        await asyncio.sleep(0)
        if number % 10 == 0:
            raise ServerRefused("not now")
        return [{"K": key, "N": 1} for key in keys]

    async def query(self, _: str) -> list[Mapping[str, object] | None]:
        return await self.get_many(_, KEYS)


class Burst:
    """The same for bursts; each tenth ends with its connection."""

    transport = None

    def __init__(self) -> None:
        self.bursts = 0

    @classmethod
    async def to(cls, *_: object) -> Burst:
        return cls()

    async def ask(self, texts: Sequence[str], _: object) -> list[BurstAnswer]:
        await asyncio.sleep(0)
        self.bursts += 1
        if self.bursts == 10:
            raise NodeGone("it is started again")
        return [
            BurstAnswer(time.monotonic(), _rows(number, text)) for number, text in enumerate(texts)
        ]


def _rows(number: int, text: str) -> list[list[object]] | None:
    return [[key, 1] for key in re.findall(r"'(\w+)'", text)] if number % 10 else None


def test_only_what_the_runs_on_record_lack_is_due() -> None:
    record = _of_read_levels()
    assert read_levels.reads_due(record, 2_500_000) == dict.fromkeys(LEVELS, 500_000)
    assert read_levels.reads_due(record, 1_000_000) == dict.fromkeys(LEVELS, 0)
    assert read_levels.reads_due({}, 1_000_000) == dict.fromkeys(LEVELS, 1_000_000)


def test_all_levels_are_read_to_their_end_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the control, whose reads have no end of their own."""
    monkeypatch.setattr(level_readers.standpipe, "connect_async", lambda *_, **__: Client())
    monkeypatch.setattr(level_readers, "BurstConnection", Burst)
    monkeypatch.setattr(level_readers, "REFUSED_PAUSE_S", 0.0)
    counts, reads = [0] * (len(LEVELS) + 1), 300
    due = dict.fromkeys(LEVELS, reads)
    readers = level_readers.Readers([("a", "1"), ("b", "2")], due, counts, threading.Event())
    asyncio.run(asyncio.wait_for(readers.run(), 300))  # a second, unless it never ends
    assert min(counts[:-1]) >= reads
    keys = {number: [key for key in KEYS if int(key[1:]) % 4 == number] for number in range(4)}
    batches = {0: {number: len(its) for number, its in keys.items()}, 1: {0: 3}}
    truth = Truth(batches, keys, [(0.0, 0)])
    found = level_readers._verdicts(readers.answers, truth)
    assert set(found["levels"]) == set(LEVELS)
    assert [one["violations"] for one in found["levels"].values()] == [0] * len(LEVELS)
    assert all(one["answers"] >= reads and one["refused"] for one in found["levels"].values())
    late = Truth(batches, keys, [(0.0, 1)])  # a batch that counts again what no answer shows
    late.keys[0].append(late.keys[0][0])
    late.batches[1] = {0: len(late.keys[0])}
    found = level_readers._verdicts(readers.answers, late)
    assert found["levels"]["linearizable"]["violations"], "the newest batch is missing"
    assert found["levels"]["bounded"]["violations"]
