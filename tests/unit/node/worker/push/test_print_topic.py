"""What one step of a PRINT handles; the rest is tested with a real Kafka."""

from __future__ import annotations

from typing import Any

from standpipe.adapters.kafka.reader import Partition
from standpipe.data.query.record_rows import TopicRecord
from standpipe.node.worker.push.print_topic import PrintAnswer
from standpipe.node.worker.push.stream_loop import STEP_BYTES
from standpipe.sql.plans import PrintPlan


class Tail:
    """Gives one record at each poll."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)

    def poll(self, _count: int) -> list[tuple[Partition, TopicRecord]]:
        value = b"x" * self.sizes.pop(0)
        return [(Partition("t", 0), TopicRecord(b"k", value, 0, ()))]


def printing(*sizes: int) -> Any:
    plan = PrintPlan(topic="t", from_beginning=True, interval=1, limit=None)
    found: Any = PrintAnswer(plan, "")
    found._tail = Tail(*sizes)
    return found


def test_print_topic_decodes_large_records_beside_the_loop() -> None:
    """One AVRO record of some megabytes took seconds: the worker was killed over it."""
    answer = printing(10, STEP_BYTES, 10)
    assert answer.step()
    assert not answer.is_costly
    assert answer.step() == b"", "nothing of it is decoded here"
    assert answer.is_costly
    assert len(answer.step()) > STEP_BYTES
    assert answer.step()
    assert answer.is_costly, "a step may still run in the thread"
