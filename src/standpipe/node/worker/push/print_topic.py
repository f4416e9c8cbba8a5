"""One PRINT: all that is in a topic, committed or not, as `data/query/topic_print.py` shows it."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from standpipe.adapters.http.server import Headers
from standpipe.adapters.kafka.connection import Kafka
from standpipe.adapters.kafka.read_once import log_ends, log_starts
from standpipe.adapters.kafka.reader import Partition
from standpipe.adapters.kafka.tail import TopicTail
from standpipe.data.encoding.framed_values import FramedReader, avro_texts, json_texts
from standpipe.data.query.record_rows import Share, TopicRecord
from standpipe.data.query.topic_print import Format, TopicPrint
from standpipe.errors import BadRequest, StandpipeError
from standpipe.node.worker.push.stream_loop import STEP_BYTES, STEP_RECORDS, Ending, is_large
from standpipe.node.worker.request.head import Form
from standpipe.node.worker.request.schemas import SchemaFetcher
from standpipe.sql.plans import PrintPlan
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable


@dataclass
class PrintAnswer:
    """`Live`, once it is opened."""

    plan: PrintPlan
    kafka: Kafka
    #: None: there is no schema registry
    schemas: SchemaFetcher | None = None
    _print: TopicPrint = field(init=False)
    _tail: TopicTail = field(init=False)
    _waiting: deque[TopicRecord] = field(init=False, default_factory=deque[TopicRecord])
    #: from then on, steps have a thread: the consumer is used by one at a time
    _has_met_large: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        framed: tuple[Format, ...] = ()
        if self.schemas is not None:
            registry = self.schemas.registry
            framed = (
                Format("AVRO", _reading(avro_texts(registry))),
                Format("JSON_SR", _reading(json_texts(registry))),
            )
        self._print = TopicPrint(self.plan.interval, self.plan.limit, framed)

    @property
    def headers(self) -> Headers:
        """Of the answer: its media type."""
        return [(b"content-type", Form.LINES.value)]

    @property
    def is_costly(self) -> bool:
        """Whether a large record has come: one of some megabytes takes seconds to decode."""
        return self._has_met_large

    @property
    def is_over(self) -> bool:
        """Whether the statement's LIMIT is reached."""
        return self._print.is_over

    def open(self) -> None:
        """Raises KafkaUnavailable, or BadRequest for a topic that does not exist."""
        from standpipe.adapters.kafka.admin import KafkaAdmin  # a slow import

        topic, counts = self.plan.topic, KafkaAdmin(self.kafka).partition_counts()
        if topic not in counts:
            raise BadRequest(_not_found(topic, list(counts)))
        first = log_starts if self.plan.from_beginning else log_ends
        starts = first(self.kafka, topic, counts[topic])
        places = {Partition(topic, number): at for number, at in starts.items()}
        self._tail = TopicTail(self.kafka, places)

    def head(self) -> bytes:
        """Nothing: PRINT has only lines."""
        return b""

    def step(self) -> bytes | None:
        """Raises RecordsLost."""
        if not self._waiting:
            self._waiting.extend(record for _, record in self._tail.poll(STEP_RECORDS))
            if not self._has_met_large and any(map(is_large, self._waiting)):
                self._has_met_large = True
                return b""
        if not self._waiting:
            return None
        if self.schemas is not None:
            ids = self._print.schema_ids(islice(self._waiting, STEP_RECORDS))
            if not self.schemas.are_fetched(ids):
                return None
        lines = self._print.lines(Share(STEP_RECORDS, STEP_BYTES).draw(self._waiting))
        return "".join(f"{line}\n" for line in lines).encode()

    def last(self, ending: Ending) -> bytes:
        """Nothing: PRINT has no final message."""
        return b""

    def failed(self, error: StandpipeError) -> bytes:
        """The error's message, as the last line."""
        return f"{error.message}\n".encode()

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()


def _reading(reader: FramedReader) -> Callable[[bytes], str]:
    """Without a registry that answers, the bytes are shown in another format."""

    def read(data: bytes) -> str:
        try:
            return reader.read(data)
        except SchemaRegistryUnavailable as error:
            raise ValueError(str(error)) from error

    return read


def _not_found(topic: str, known: list[str]) -> str:
    """ksqlDB's text, with names that are similar or differ in case."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(topic.lower(), folded, n=3, cutoff=0.8)
    hint = "".join(f"\n\tPRINT '{folded[name]}';" for name in near)
    return (
        f"Could not find topic '{topic}', or the KSQL user does not have permissions to list the"
        " topic. Topic names are case-sensitive." + (f"\nDid you mean:{hint}" if hint else "")
    )
