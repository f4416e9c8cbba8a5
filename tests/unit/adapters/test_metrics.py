"""The exposition, as prometheus_client's own parser reads it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from standpipe.adapters.metrics import (
    COUNTERS,
    GAUGES,
    LATENCY_NAME,
    STATES,
    TIMINGS,
    Metrics,
    State,
)

UNITS = ("seconds", "bytes", "records", "rows", "reads", "barriers", "inodes", "fds", "total")
#: no quantities: 1 or 0, and a place in a log
FLAGS = (
    "standpipe_quorum_has_leader",
    "standpipe_quorum_applied_index",
    "standpipe_replica_state",
    "standpipe_query_state",
    "standpipe_peer_up",
    "standpipe_topics_failing",
)


def parsed(metrics: Metrics, states: Iterable[State] = ()) -> dict[str, Metric]:
    text = asyncio.run(metrics.exposition(states)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_counts_of_all_workers_are_told_apart(tmp_path: Path) -> None:
    first, second = Metrics(0, tmp_path), Metrics(1, tmp_path)
    for route in ("local", "local", "remote"):
        first.answered(route, 0.003)
    second.answered("local", 7.0)
    second.count("standpipe_inserted_rows", by=5)
    second.save()
    (tmp_path / "metrics-2").write_bytes(b"of another version")
    found = parsed(first)
    assert set(found) == {*COUNTERS, *GAUGES, LATENCY_NAME, *TIMINGS}
    counts = {
        (s.labels["worker"], s.labels["route"]): s.value
        for s in found["standpipe_pull_requests"].samples
    }
    assert counts == {("0", "local"): 2, ("0", "remote"): 1, ("1", "local"): 1}
    assert values(found["standpipe_inserted_rows"]) == {("1",): 5}
    latency = {
        (s.labels["worker"], s.labels["le"]): s.value
        for s in found[LATENCY_NAME].samples
        if s.name.endswith("_bucket")
    }
    assert (latency["0", "0.002"], latency["0", "0.005"], latency["0", "+Inf"]) == (0, 3, 3)
    assert (latency["1", "5.0"], latency["1", "+Inf"]) == (0, 1)


def test_quick_answers_are_counted_like_others(tmp_path: Path) -> None:
    """Within the first bound, at it and beyond, whoever asks first for the counts."""
    took_s = (0.000_01, 0.000_05, 0.000_051, 3.0)
    one, other = Metrics(0, tmp_path), Metrics(0, tmp_path)
    for turn in range(3):
        for seconds in took_s:
            one.answered_here(seconds)
            other.answered("local", seconds)
        one.answered("remote", 0.000_01)
        other.answered("remote", 0.000_01)
        if turn == 1:
            assert one.answered_count() == other.answered_count() == 10
    found, expected = parsed(one), parsed(other)
    for name in ("standpipe_pull_requests", LATENCY_NAME):
        assert values(found[name]) == pytest.approx(values(expected[name]))
    assert one.answered_count() == 15, "each once"
    one.save()
    assert parsed(Metrics(1, tmp_path)).keys() == found.keys()


def test_gauges_are_what_each_worker_has_now(tmp_path: Path) -> None:
    first, second = Metrics(0, tmp_path), Metrics(1, tmp_path)
    for number in (3, 1):
        first.gauge("standpipe_waiting_reads", "session", number)
    second.gauge("standpipe_waiting_reads", "session", 0)
    second.save()
    waiting = parsed(first)["standpipe_waiting_reads"]
    assert waiting.type == "gauge"
    assert values(waiting) == {("session", "0"): 1, ("session", "1"): 0}


def test_durations_are_in_the_bucket_of_the_next_bound(tmp_path: Path) -> None:
    first, second, control = (
        Metrics(0, tmp_path),
        Metrics(1, tmp_path),
        Metrics("control", tmp_path),
    )
    name = "standpipe_barrier_seen_seconds"
    for seconds in (0.001, 0.0011, 9.0):
        first.took(name, seconds)
    second.took(name, 0.5)
    second.save()
    control.save()
    found = {
        (s.labels["worker"], s.labels.get("le", s.name.removeprefix(name))): s.value
        for s in parsed(first)[name].samples
    }
    assert [found["0", le] for le in ("0.0005", "0.001", "0.002", "5.0", "+Inf")] == [0, 1, 2, 2, 3]
    assert found["0", "_sum"] == pytest.approx(9.0021)
    assert (found["1", "0.2"], found["1", "0.5"]) == (0, 1)
    assert {worker for worker, _ in found} == {"0", "1"}, "control answers no queries"


def test_states_are_gauges_and_counters_without_a_worker(tmp_path: Path) -> None:
    awkward = 'a "name" \\ of\ntwo lines'
    found = parsed(
        Metrics(0, tmp_path),
        [
            ("standpipe_replica_lag_seconds", [((awkward, "1", "0"), 0.25)]),
            ("standpipe_query_bad_records_total", [(("CTAS_T_1",), 3)]),
            ("standpipe_peer_up", []),
        ],
    )
    lag, bad = found["standpipe_replica_lag_seconds"], found["standpipe_query_bad_records"]
    assert (lag.type, bad.type) == ("gauge", "counter")
    (sample,) = lag.samples
    assert sample.labels == {"table": awkward, "generation": "1", "partition": "0"}
    assert sample.value == 0.25
    assert [sample.name for sample in bad.samples] == ["standpipe_query_bad_records_total"]
    assert found["standpipe_peer_up"].samples == []


def test_lookups_go_on_between_two_metrics(tmp_path: Path) -> None:
    """The scrape's own turns of the loop: as many as there are metrics."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scrape() -> None:
        counting = asyncio.create_task(count())
        await Metrics(0, tmp_path).exposition((name, []) for name in STATES)
        counting.cancel()

    asyncio.run(scrape())
    assert turns >= len(STATES) + len(COUNTERS)


@pytest.mark.parametrize("name", [*STATES, *GAUGES, *TIMINGS])
def test_names_follow_the_rules(name: str) -> None:
    """Prometheus, "Metric and label naming": prefix, unit last and in base units, `_total`."""
    timings = {name: ((), meaning) for name, meaning in TIMINGS.items()}
    labels, meaning = (STATES | GAUGES | timings)[name]
    assert re.fullmatch(r"standpipe_[a-z_]+", name)
    assert name in FLAGS or name.rpartition("_")[2] in UNITS
    assert all(re.fullmatch(r"[a-z_]+", label) for label in labels)
    assert meaning.endswith(".")
