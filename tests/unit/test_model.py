"""Records: what they say of themselves, and that they survive a wire."""

import msgspec
import pytest
from tests.samples import sample_table

from standpipe.model import (
    NO_BATCH,
    BatchId,
    LeaseEpoch,
    Offset,
    ReplicaId,
    ReplicaState,
    ReplicaStatus,
)

STATUS = ReplicaStatus(
    state=ReplicaState.RUNNING,
    position=Offset(7),
    committed_end=Offset(9),
    log_end=Offset(12),
    batch=BatchId(3),
    lease_epoch=LeaseEpoch(1),
    confirmed_boot_ms=1,
    source_instant_ms=0,
    foreign_records=0,
    rows=5,
    watermark_ms=0,
)


@pytest.mark.parametrize(
    ("position", "committed_end", "lag", "why"),
    [
        (7, 9, 2, "behind"),
        (9, 9, 0, "up to date"),
        (10, 9, 0, "never negative"),
        (0, 0, 0, "nothing is committed, and that is known"),
        (0, -1, None, "unknown is not zero"),
    ],
)
def test_offset_lag(position: int, committed_end: int, lag: int | None, why: str) -> None:
    status = msgspec.structs.replace(
        STATUS, position=Offset(position), committed_end=Offset(committed_end)
    )
    assert status.offset_lag == lag, why


@pytest.mark.parametrize("state", ReplicaState)
def test_only_two_states_answer(state: ReplicaState) -> None:
    assert state.answers is (state in {ReplicaState.CATCHING_UP, ReplicaState.RUNNING})


def test_key_columns_and_value_columns_split_the_columns() -> None:
    source = sample_table(partitions=4)
    assert [c.name for c in source.key_columns] == ["K"]
    assert [c.name for c in source.value_columns] == ["N"]


def test_records_survive_both_encodings_and_ignore_newer_fields() -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        body = codec.encode({**msgspec.to_builtins(STATUS), "added_later": 1})
        assert codec.decode(body, type=ReplicaStatus) == STATUS
    assert NO_BATCH == -1


def test_a_replica_id_as_text_and_back() -> None:
    for known in (ReplicaId("CTAS_T_7", 2, 11), ReplicaId("with-dashes-1", 1, 0)):
        assert ReplicaId.parse(str(known)) == known
    assert str(ReplicaId("t", 1, 0)) == "t-1-0"


@pytest.mark.parametrize("text", ["", "t", "t-1", "t-x-1", "t-1-", "t-01-1", "t-1--1x", "t- 1-1"])
def test_no_replica_id(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        ReplicaId.parse(text)
