import pytest

from standpipe.model import NO_BATCH, BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.progress_log import (
    key_of,
    newest_valid,
    processing_log_topic,
    progress_topic,
)


def record(epoch: int, batch: int, query_id: str = "Q") -> Progress:
    commit = Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(batch), attempt=7)
    return Progress(query_id=query_id, commit=commit)


def test_names_of_the_topics() -> None:
    assert progress_topic("default_") == "default__progress"
    assert processing_log_topic("default_") == "default_ksql_processing_log"


@pytest.mark.parametrize(
    ("progress", "key"),
    [(record(3, 0), b'["Q",0]'), (record(3, 12), b'["Q",12]'), (record(3, -1), b'["Q",-3]')],
)
def test_key_of(progress: Progress, key: bytes) -> None:
    assert key_of(progress) == key


@pytest.mark.parametrize(
    ("records", "newest", "why"),
    [
        ([], NO_BATCH, "a new query"),
        ([record(1, -1)], NO_BATCH, "a fence commits nothing"),
        ([record(1, -1), record(1, 0), record(1, 1)], 1, "as they come"),
        ([record(1, 0), record(2, -1)], 0, "what was valid before a fence stays so"),
        ([record(1, 0), record(2, -1), record(1, 1)], 0, "a zombie's record behind it is void"),
        ([record(1, 0), record(2, -1), record(1, 1), record(2, 1)], 1, "and its replay is valid"),
        ([record(1, 5, "OTHER"), record(1, 0)], 0, "other queries do not count"),
        ([record(2, 5, "OTHER"), record(1, 0)], 0, "nor do their epochs"),
    ],
)
def test_newest_valid(records: list[Progress], newest: int, why: str) -> None:
    assert newest_valid(records, "Q") == newest, why
