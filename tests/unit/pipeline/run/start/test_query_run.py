"""When a query's start writes the rows of its table to their public topic. What it writes:
test_public_topic.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from standpipe.model import LeaseEpoch
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.io.sink_writer import LeftOut
from standpipe.pipeline.run.start import query_run
from standpipe.pipeline.run.start.query_run import PipelineContext, TakenOver


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
