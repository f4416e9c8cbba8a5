"""What a run asks Spark, and what it need not ask; Spark is faked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from standpipe.model import BatchId
from standpipe.pipeline.commit.batch import BatchCounts
from standpipe.pipeline.run.start.running_query import QueryRun, TableRun
from standpipe.pipeline.run.watch.late_records import LateRecords


class Spark:
    """A streaming query. Its batches have one late record each; `asked` counts questions."""

    def __init__(self) -> None:
        self.batches, self.asked = 0, 0
        self.said: list[bytes] = []
        self._jsq = self

    def recentProgress(self) -> list[Any]:
        self.asked += 1
        return [
            SimpleNamespace(
                batchId=lambda batch=batch: batch,
                timestamp=lambda: "2013-01-01T00:00:00.000Z",
                stateOperators=lambda: [SimpleNamespace(numRowsDroppedByWatermark=lambda: 1)],
                sources=list,
                eventTime=dict[str, str],
            )
            for batch in range(self.batches)
        ]

    @property
    def isActive(self) -> bool:
        self.asked += 1
        return False

    @property
    def status(self) -> dict[str, Any]:
        self.asked += 1
        return {"message": "Processing new data", "isDataAvailable": True}

    def exception(self) -> Exception:
        return ValueError("it has ended")


def run_of(spark: Spark) -> QueryRun:
    log = SimpleNamespace(tell=spark.said.extend)
    janitor = SimpleNamespace(swept=SimpleNamespace(log=log), failure=None, stop=lambda: None)
    table = TableRun(
        query_id="Q",
        counts=BatchCounts(batch=BatchId(3)),
        janitor=cast(Any, janitor),
        topics=cast(Any, SimpleNamespace(failure=None)),
        late=LateRecords("Q"),
    )
    return QueryRun(
        streaming_query=cast(Any, spark),
        tables={"Q": table},
        unread=cast(Any, None),
        spark=cast(Any, None),
    )


def test_spark_is_not_asked_about_a_query_that_sleeps() -> None:
    spark = Spark()
    run = run_of(spark)
    assert run.failure(sleeps=True) is None
    assert not run.signs(with_work=True, sleeps=True).has_data
    assert spark.asked == 0
    assert isinstance(run.failure(), ValueError)
    assert run.signs(with_work=False).has_data


def test_late_records_are_counted_once_and_all_of_them() -> None:
    """While a query sleeps, Spark reports nothing new; of a batch that runs, it reports later than
    the batch is committed."""
    spark = Spark()
    run = run_of(spark)
    spark.batches = 1
    assert run.count_late("Q", None) == 1
    assert run.count_late("Q", BatchId(0)) == 1, "it may have slept for a moment only"
    assert spark.asked == 2
    assert run.count_late("Q", BatchId(0)) == 1
    assert spark.asked == 2, "nothing can have come"
    spark.batches = 2
    assert run.count_late("Q", BatchId(1)) == 2, "a batch between two looks"
    spark.batches = 3
    assert run.count_late("Q", None) == 3
    assert run.count_late("Q", BatchId(2)) == 3
    assert len(spark.said) == 3
