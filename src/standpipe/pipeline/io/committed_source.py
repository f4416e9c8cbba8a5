"""A topic that one of our queries writes, as another query reads it: its committed rows only.

Spark's Kafka source reads up to the log's end, and would see rows of stragglers, zombies and failed
attempts. `CommittedSource` wraps it: a batch ends at committed ends, and keeps only the rows that
the progress topic names (`data/commit/committed.py`). Both follow from the batch's offsets alone,
so a replay sees the same rows.

It uses Spark's first source API (`Source.getBatch`), because only there can the plan of each batch
say which commits it shows. The JVM calls it; rows never pass through Python.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from standpipe.adapters.kafka.connection import Kafka
from standpipe.data.commit.committed import Committed, Range
from standpipe.data.commit.repair import SweptRecord
from standpipe.data.commit.seal import ProgressReader
from standpipe.data.encoding.store_keys import HEADER_COMMIT
from standpipe.errors import KafkaUnavailable
from standpipe.model import SparkInput
from standpipe.pipeline.io.checkpoint_path import CheckpointPath
from standpipe.pipeline.io.kafka_options import KafkaReads, Starts, starting_offsets
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.source_v1 import SourceV1, kafka_source, offsets_of, stream_of
from standpipe.pipeline.io.topic_reader import TopicReader

CATCH_UP_S_MAX: Final = 60.0
POLL_S: Final = 0.1
#: a key that matches no record: an entry under it keeps the filter's map typed when it is empty
_NO_MARK: Final = "X''"


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """The query that writes a topic, and where the reading query keeps its checkpoint."""

    query_id: str
    log: ProgressLog
    directory: CheckpointPath
    #: called when more is committed than before, and when the topic cannot be followed any more
    has_news: Callable[[], None] = field(default=lambda: None)
    #: gets each feed that is begun (`ended_unless_started`)
    feeds: list[CommittedFeed] = field(default_factory=list["CommittedFeed"])


class CommittedFeed:
    """Follows the progress topic for one reader of one query's topic, in a separate thread."""

    def __init__(self, kafka: Kafka, upstream: Upstream) -> None:
        self._committed = Committed(upstream.query_id)
        self._has_news = upstream.has_news
        self._changed = threading.Condition()
        self._read_to, self._stopped = 0, False
        self._failure: Exception | None = None
        self._end = upstream.log.end_offsets(upstream.log.topic, 1)[0]
        arguments = (kafka, upstream.log.topic, upstream.log.reader())
        threading.Thread(target=self._run, args=arguments, name="committed", daemon=True).start()
        upstream.feeds.append(self)

    def ends(self) -> dict[int, int]:
        """Committed ends, as of now. Raises KafkaUnavailable."""
        with self._changed:
            self._wait(lambda: self._read_to >= self._end)
            return self._committed.ends()

    def next_ends(self, starts: Mapping[int, int], records_max: int) -> dict[int, int]:
        """Where the next batch ends, at most `records_max` records after `starts`; `starts` itself
        if there is nothing new."""
        with self._changed:
            self._wait(lambda: self._read_to >= self._end)
            return self._committed.next_ends(starts, records_max)

    def ranges(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, list[Range]]:
        """The committed ranges of a batch, whose ends were committed when Spark chose them."""
        with self._changed:
            self._wait(lambda: all(self._committed.end(p) >= end for p, end in ends.items() if end))
            return {p: self._committed.ranges(p, starts.get(p, 0), end) for p, end in ends.items()}

    def forget(self, passed: Mapping[int, int]) -> None:
        """Drop what the previous batch has consumed."""
        with self._changed:
            self._committed.forget(passed)

    def stop(self) -> None:
        """End the feed."""
        self._stopped = True

    def _wait(self, holds: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._failure is not None or holds(), CATCH_UP_S_MAX)
        if self._failure is not None or not holds():
            why = self._failure or "it is not read up to its end in time"
            raise KafkaUnavailable(f"Kafka: the topic of progress: {why}") from self._failure

    def _run(self, kafka: Kafka, topic: str, progress: ProgressReader) -> None:
        reader = TopicReader(kafka, topic, {0: 0})
        try:
            while not self._stopped:
                for _, records, end in reader.poll(POLL_S):
                    with self._changed:
                        news = [self._take(record, progress) for record in records]
                        self._read_to = max(self._read_to, end)
                        self._changed.notify_all()
                    if any(news):
                        self._has_news()
        except Exception as error:  # the query's next wait raises it, and the query is retried
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            self._has_news()
        finally:
            reader.close()

    def _take(self, record: SweptRecord, progress: ProgressReader) -> bool:
        """Whether it is a record of the query that is read."""
        if record.value is None:
            return False
        found = progress.read(record.key, record.value, record.headers)
        if found is not None:
            self._committed.take(found)
        return found is not None and found.query_id == self._committed.query_id


@contextmanager
def ended_unless_started() -> Generator[list[CommittedFeed]]:
    """For the start of a query: the feeds that begin with its sources (`Upstream.feeds`). Spark
    stops the sources of a query that it has started. If the start fails before, nobody would: a
    thread and a consumer would be left by each try."""
    begun: list[CommittedFeed] = []
    try:
        yield begun
    except BaseException:
        for each in begun:
            each.stop()
        raise


class CommittedSource(SourceV1):
    """Around Spark's Kafka source."""

    def __init__(
        self, spark: SparkSession, reads: KafkaReads, source: SparkInput, upstream: Upstream
    ) -> None:
        super().__init__(spark)
        topic = source.topic
        self._topic, self._log = topic, upstream.log
        self._begins: Starts = source.starts or None
        self._records_max = reads.batch_records_max
        self._feed = CommittedFeed(reads.kafka, upstream)
        self._frozen: dict[int, int] | None = None
        options = {
            **reads.options(topic, headers=True),
            "startingOffsets": starting_offsets(topic, self._begins),
        }
        #: Spark's own source
        self.kafka = kafka_source(spark, options, upstream.directory / "committed" / source.view)

    # ------------------------------------------------------------------- which rows a batch has

    def latestOffset(self, start: Any, _limit: Any) -> Any:  # noqa: N802
        """Where the next batch ends; `start` itself (None: nothing was read) if it has no rows."""
        starts = self._starts() if start is None else self._all(offsets_of(start)[self._topic])
        ends = self._feed.next_ends(starts, self._records_max)
        if self._frozen is not None:
            ends = {p: min(end, max(starts[p], self._frozen.get(p, 0))) for p, end in ends.items()}
        if ends == starts:
            return start
        return self.deserializeOffset(json.dumps({self._topic: ends}))

    def getBatch(self, start: Any, end: Any) -> Any:  # noqa: N802
        """The committed rows between two offsets."""
        rows = ClassicDataFrame(self.kafka.getBatch(start, end), self._spark)
        return cast(Any, self.shown(rows, start, end))._jdf

    def shown(self, rows: DataFrame, start: Any, end: Any) -> DataFrame:
        """Those of the records between two offsets that are committed."""
        starts = offsets_of(start.get())[self._topic] if start.isDefined() else {}
        return visible(rows, self._feed.ranges(starts, offsets_of(end)[self._topic]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than what is committed now."""
        self._frozen = self._feed.ends()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """No limit: `latestOffset` applies that of the query."""
        return self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()

    def commit(self, end: Any) -> None:
        """No later batch begins below `end`."""
        self._feed.forget(offsets_of(end)[self._topic])

    def _all(self, offsets: dict[int, int]) -> dict[int, int]:
        """`offsets` plus partitions that were added to the topic since, from 0."""
        return {**dict.fromkeys(self._feed.ends(), 0), **offsets}

    def _starts(self) -> dict[int, int]:
        if self._begins is not None:
            return self._all(dict(self._begins))
        partitions = self._feed.ends()
        return self._log.start_offsets(self._topic, max(partitions) + 1) if partitions else {}

    # ------------------------------------------------------------------ what Spark's source does

    def schema(self) -> Any:
        """The columns of Spark's Kafka source."""
        return self.kafka.schema()

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """The newest committed ends, for Spark's progress reports."""
        ends = self._feed.ends()
        return self.deserializeOffset(json.dumps({self._topic: ends})) if ends else None

    def stop(self) -> None:
        """End the feed and Spark's Kafka source."""
        self._feed.stop()
        self.kafka.stop()

    def toString(self) -> str:  # noqa: N802
        """The name of the source in Spark's progress reports."""
        return f"committed rows of {self._topic}"


def committed_stream(
    spark: SparkSession,
    reads: KafkaReads,
    source: SparkInput,
    upstream: Upstream,
    kind: type[CommittedSource] = CommittedSource,
) -> DataFrame:
    """The committed records of a topic, in the form of `KafkaReads.stream`, which has all."""
    return stream_of(spark, kind(spark, reads, source, upstream))


def visible(rows: DataFrame, ranges: Mapping[int, list[Range]]) -> DataFrame:
    """Kafka records (with `headers`) that lie in a range and carry its commit."""
    return rows.filter(is_visible(ranges))


def is_visible(ranges: Mapping[int, list[Range]]) -> Column:
    """Whether a Kafka record (with `headers`) lies in a range and carries its commit. At most one
    range of a partition has no commit.

    Spark's generated code refers to constants of these types instead of containing them, so the
    code is the same for each batch and compiled once.
    """
    own = f.get(f.filter("headers", lambda each: each["key"] == HEADER_COMMIT), f.lit(0))
    mark = f.concat(own.getField("value"), f.col("partition").cast("binary"))
    found = f.try_element_at(f.expr(_table_sql(ranges)), mark)
    place, offset = f.col("partition") + 1, f.col("offset")
    lows, highs = (f.try_element_at(f.expr(bounds), place) for bounds in _any_sql(ranges))
    exact = (offset >= found["low"]) & (offset < found["high"])
    return f.coalesce(exact, f.lit(False)) | ((offset >= lows) & (offset < highs))


def _table_sql(ranges: Mapping[int, list[Range]]) -> str:
    """{commit and partition: the range}"""
    entries = {_NO_MARK: (0, 0)}
    for partition, found in ranges.items():
        for each in found:
            if each.mark is not None:
                name = f"X'{each.mark.hex()}{partition.to_bytes(4, 'big').hex()}'"
                entries[name] = (each.low, each.high)
    places = ", ".join(
        f"named_struct('low', {low}L, 'high', {high}L)" for low, high in entries.values()
    )
    return f"map_from_arrays(array({', '.join(entries)}), array({places}))"


def _any_sql(ranges: Mapping[int, list[Range]]) -> tuple[str, str]:
    """Per partition, the bounds of the range (at most one) in which every record counts."""
    count = max(ranges, default=-1) + 1
    bounds = [(0, 0)] * max(1, count)
    for partition, found in ranges.items():
        for each in found:
            if each.mark is None:
                bounds[partition] = (each.low, each.high)
    lows, highs = (", ".join(f"{bound[side]}L" for bound in bounds) for side in (0, 1))
    return f"array({lows})", f"array({highs})"
