"""When a query's start writes the rows of its table to their public topic (what it writes:
test_public_topic.py), and what a start leaves behind that fails."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pyspark.errors import AnalysisException
from tests.unit.pipeline.queries_of import wanted_of

from standpipe.errors import KafkaUnavailable
from standpipe.model import LeaseEpoch
from standpipe.pipeline.commit.batch import CommitBatch
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.failures import QueryFailed
from standpipe.pipeline.io import committed_source
from standpipe.pipeline.io.committed_source import CommittedFeed, Upstream
from standpipe.pipeline.io.sink_writer import LeftOut
from standpipe.pipeline.run.start import query_run
from standpipe.pipeline.run.start.query_run import PipelineContext, Stream, TakenOver


class _Starts:
    """Starts of one query; `published`: the topics that were written to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self.published: list[str] = []
        monkeypatch.setattr(query_run, "publish_rows", self._publish_rows)
        monkeypatch.setattr(query_run, "limits_of", lambda *_, **__: None)

    def _publish_rows(
        self, _session: object, _wanted: object, topic: str, *_: object, **__: object
    ) -> LeftOut:
        self.published.append(topic)
        return LeftOut()

    def start(self, topic: str | None, topic_id: str) -> None:
        epoch = LeaseEpoch(1)
        wanted = SimpleNamespace(published_topic=topic, query_id="CTAS_T_1", lease_epoch=epoch)
        taken = SimpleNamespace(
            wanted=wanted, topics=SimpleNamespace(public_id=topic_id), records=[]
        )
        around = SimpleNamespace(
            reads=None,
            log=SimpleNamespace(report=lambda _records: None),
            check_lease=lambda *_: None,
        )
        query_run._publish(
            cast(TakenOver, taken),
            cast(Any, None),
            cast(PipelineContext, around),
            Checkpoint(self._root, epoch),
        )


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Starts:
    return _Starts(tmp_path, monkeypatch)


def test_rows_are_published_once_to_each_public_topic(starts: _Starts) -> None:
    for topic, topic_id in ((None, ""), ("T", "id-1"), ("T", "id-1"), ("T", "")):
        starts.start(topic, topic_id)
    assert starts.published == ["T"]


def test_a_public_topic_that_was_recreated_gets_all_rows_again(starts: _Starts) -> None:
    for topic_id in ("id-1", "id-2", "id-2"):
        starts.start("T", topic_id)
    assert starts.published == ["T", "T"]


def test_what_an_older_release_published_is_known_by_id_from_now_on(
    starts: _Starts, tmp_path: Path
) -> None:
    (tmp_path / "published").write_text("T")
    starts.start("T", "id-1")
    assert starts.published == []
    starts.start("T", "id-2")
    assert starts.published == ["T"]


class _Reader:
    """Stands for a TopicReader that hears nothing."""

    begun: ClassVar[list[_Reader]] = []

    def __init__(self, *_: object) -> None:
        self.is_open, self.is_away = True, False
        self.begun.append(self)

    def poll(self, wait_s: float) -> list[object]:
        time.sleep(0.01)
        if self.is_away:
            raise KafkaUnavailable("Kafka: away")
        return []

    def close(self) -> None:
        self.is_open = False


def _open(_: object, __: object, ___: object, upstream: Upstream, ____: object) -> None:
    CommittedFeed("kafka", upstream)


def _refuse(*_: object) -> None:
    raise KafkaUnavailable("Kafka: away")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("start_stream", "the limit of a topic is not known, say"),
        ("_records", "so may a second source: Spark never hears of the first one"),
        (None, "it runs, so Spark ends its sources"),
    ],
)
def test_a_start_that_fails_leaves_no_feed(
    step: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (of_topic,) = wanted_of(
        "CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, "
        "VALUE_FORMAT='JSON'); CREATE TABLE A AS SELECT K, COUNT(*) AS C FROM S GROUP BY K;"
    )
    wanted = dataclasses.replace(of_topic, writers={"s": "CSAS_S_1"})
    log = SimpleNamespace(topic="p", end_offsets=lambda *_: {0: 0}, reader=lambda: None)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    probe = SimpleNamespace(wake=lambda _: None)
    around = SimpleNamespace(log=log, probe=probe, reads=None, spark=spark)
    taken, session = SimpleNamespace(newest=None), SimpleNamespace(sql=lambda _: None)
    checkpoint = Checkpoint(tmp_path, LeaseEpoch(2))
    monkeypatch.setattr(_Reader, "begun", [])
    monkeypatch.setattr(committed_source, "TopicReader", _Reader)
    monkeypatch.setattr(query_run, "resume", lambda *_: (taken, checkpoint))
    monkeypatch.setattr(query_run, "query_session", lambda *_: session)
    monkeypatch.setattr(query_run.session_functions, "register_needed", lambda *_: None)
    for name in ("_publish", "follow_sources", "_records", "start_stream"):
        monkeypatch.setattr(query_run, name, _refuse if name == step else lambda *_: None)
    monkeypatch.setattr(query_run, "open_view", _open)
    if step is None:
        query_run.start_query(wanted, cast(PipelineContext, around))
        (running,) = _Reader.begun
        time.sleep(0.1)
        assert running.is_open, why
        running.is_away = True  # so that its thread ends, too
        return
    with pytest.raises(KafkaUnavailable):
        query_run.start_query(wanted, cast(PipelineContext, around))
    deadline = time.monotonic() + 30
    while not _Reader.begun or any(each.is_open for each in _Reader.begun):
        assert time.monotonic() < deadline, why
        time.sleep(0.01)


@pytest.mark.parametrize("sleeps", [False, True])
def test_what_spark_refuses_to_stream_is_final(tmp_path: Path, *, sleeps: bool) -> None:
    """Spark finds some of it only as the query begins. It was tried again every 30 s."""

    def refuse(*_: object, **__: object) -> None:
        raise AnalysisException("not supported with streaming DataFrames")

    plan: Any = SimpleNamespace()
    plan.writeStream = plan
    for name in ("outputMode", "queryName", "option", "foreachBatch"):
        setattr(plan, name, lambda *_: plan)
    plan.start = refuse
    around = SimpleNamespace(
        stops_when_drained=False, clocks=SimpleNamespace(start=refuse) if sleeps else None
    )
    with pytest.raises(QueryFailed, match=r"PLAN_UNREADABLE.*streaming DataFrames"):
        query_run.started(
            Stream(plan=plan, output_mode="append"),
            cast(CommitBatch, SimpleNamespace(name="Q")),
            Checkpoint(tmp_path, LeaseEpoch(2)),
            cast(PipelineContext, around),
        )
