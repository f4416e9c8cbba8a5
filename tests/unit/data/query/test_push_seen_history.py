"""No row is shown a second time because a repair wrote it again, and none is lost for that.

A table's topic as its writers make it: batches, attempts that failed, strays, loads, batches that
are committed again, and repairs that are done or broken off, by the decisions of the commit
protocol. A replica applies it, and clients follow it by one push query after another.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final

import msgspec
import pytest
from tests.examples import examples
from tests.unit.data.rows import CODEC, EMPTY, DictStore, commit, key_of, table

from standpipe.data.commit.committed import Committed
from standpipe.data.commit.progress import ProgressBook, fence, removable
from standpipe.data.commit.repair import (
    Finder,
    Sweep,
    SweptRecord,
    headers_under,
    repairs,
)
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    Headers,
    commit_header,
    rowtime_header,
)
from standpipe.data.query.push import PushedRow, PushQuery
from standpipe.data.query.record_rows import Share, TopicRecord
from standpipe.data.replica.events import (
    ApplyBatch,
    Event,
    ProgressCaughtUp,
    RecordsFetched,
)
from standpipe.data.replica.machine import ApplyMachine
from standpipe.model import Commit, LeaseEpoch, Offset, Progress
from standpipe.sql.plans import PushPlan

MINUTE_MS: Final = 60_000
LAG_MS: Final = 60 * MINUTE_MS
NOW_MS: Final = 10**12


TABLE: Final = msgspec.structs.replace(table(), topic="t")
PLAN: Final = PushPlan(
    source=TABLE, schema="", column_names=("K", "N"), column_types=("STRING", "BIGINT"),
    cells=(itemgetter(0), itemgetter(1)), key_cells=(True, False),
)  # fmt: skip
KEYS: Final = "abcde"

#: a key and its number; None: deleted
Row = tuple[str, int | None]


@dataclass
class Topic:
    """A table's topic, its progress and its janitor, as of one partition."""

    random: random.Random
    now_ms: int = NOW_MS
    end: int = 0
    log: list[TopicRecord] = field(default_factory=list[TopicRecord])
    times: dict[int, int] = field(default_factory=dict[int, int])
    #: what compaction has left, by the number of the record
    progress: dict[int, Progress] = field(default_factory=dict[int, Progress])
    reported: int = 0
    book: ProgressBook = field(default_factory=ProgressBook)
    sweep: Sweep = field(default_factory=lambda: Sweep(Offset(0)))
    newest: Progress | None = None
    newest_rows: list[Row] = field(default_factory=list[Row])
    epoch: int = 1
    number: int = 0
    #: what the query means to change: (offset, row)
    changes: list[tuple[int, Row]] = field(default_factory=list[tuple[int, Row]])
    machine: ApplyMachine = field(default_factory=lambda: ApplyMachine(CODEC, EMPTY))
    store: DictStore = field(default_factory=DictStore)
    #: (end of the batch, row) whenever the replica's row of a key changes
    history: list[tuple[int, Row]] = field(default_factory=list[tuple[int, Row]])
    repaired: int = 0

    def __post_init__(self) -> None:
        self.machine.handle(ProgressCaughtUp())
        self.batch()

    # ------------------------------------------------------------------------- writers

    def append(self, row: Row, headers: Headers) -> int:
        key, number = row
        value = None if number is None else b'{"N":%d}' % number
        record = TopicRecord(key.encode(), value, self.now_ms, (*headers,), 0, self.end)
        self.log.append(record)
        self.times[self.end] = self.now_ms
        self.end += 1
        fetched = (record.offset, record.key, record.value, list(record.headers))
        self.follow(RecordsFetched([fetched], Offset(self.end)))
        self.sweep.records([self.swept(record)], Offset(self.end))
        return record.offset

    def swept(self, record: TopicRecord) -> SweptRecord:
        headers, at = record.headers, record.offset
        return SweptRecord(at, record.key, record.value, headers, self.times[at])

    def write(self, row: Row, by: Commit) -> int:
        rowtime = (HEADER_ROWTIME, rowtime_header(7))
        return self.append(row, [(HEADER_COMMIT, commit_header(by)), rowtime])

    def rows(self) -> list[Row]:
        chosen = self.random.sample(KEYS, self.random.randint(0, 3))
        return [(key, self.next_number()) for key in chosen]

    def next_number(self) -> int | None:
        self.number += 1
        return None if self.random.random() < 0.2 else self.number

    def by(self, batch: int) -> Commit:
        return commit(self.epoch, batch, attempt=self.random.getrandbits(32))

    def stray(self) -> None:
        """A zombie, or a task that comes too late with the right attempt."""
        late = self.newest is not None and self.random.random() < 0.3
        by = self.newest.commit if late and self.newest else commit(0, 0)
        self.write((self.random.choice(KEYS), self.next_number()), by)

    def batch(self) -> None:
        number = 0 if self.newest is None else self.newest.commit.batch + 1
        rows = self.rows()
        while self.random.random() < 0.3:  # an attempt that fails
            by = self.by(number)
            for row in rows[: self.random.randint(0, len(rows))]:
                self.write(row, by)
        self.put(rows, self.by(number), is_load=False)

    def load(self) -> None:
        if self.newest is not None:
            self.put(self.rows(), self.by(self.newest.commit.batch), is_load=True)

    def take_over(self) -> None:
        """The next holder of the lease; it may commit the newest batch again."""
        self.epoch += 1
        self.take(fence("Q", LeaseEpoch(self.epoch), nonce=self.epoch, now_ms=self.now_ms))
        newest = self.newest
        if newest is not None and not newest.is_load and self.random.random() < 0.5:
            self.put(self.newest_rows, self.by(newest.commit.batch), is_load=False)

    def put(self, rows: list[Row], by: Commit, *, is_load: bool) -> None:
        made: list[tuple[int, Row]] = []
        for row in rows:
            if self.random.random() < 0.15:
                self.stray()
            made.append((self.write(row, by), row))
        if self.random.random() < 0.15:
            self.stray()
        self.changes += made
        self.newest_rows = rows
        self.commit(by, is_load=is_load)

    def commit(self, by: Commit, *, is_load: bool) -> None:
        newest = self.newest
        record = Progress(
            query_id="Q",
            commit=by,
            sinks={0: self.end},
            starts={0: 0 if newest is None else newest.sinks[0]},
            clean_through={0: self.sweep.clean_through},
            committed_at_ms=self.now_ms,
            since_ms=0 if newest is None else newest.committed_at_ms,
            is_load=is_load,
        )
        self.newest = record
        self.take(record)

    def take(self, record: Progress) -> None:
        self.progress[self.reported] = record
        self.reported += 1
        for each in self.book.take(record):
            self.sweep.target(each.target)
            self.follow(each.target)

    def follow(self, event: Event) -> None:
        """The replica that is always there."""
        before = self.store.numbers()
        for order in self.machine.handle(event):
            if isinstance(order, ApplyBatch):
                self.store.apply(order)
        after = self.store.numbers()
        for key in KEYS:
            stored = key_of(key)
            if before.get(stored) != after.get(stored):
                self.history.append((self.store.meta.position, (key, number_of(after, key))))

    def repair(self, *, breaks_off: bool = False) -> None:
        """As the janitor does (`pipeline/commit/janitor.py`)."""
        if self.newest is None:
            return
        shadows = self.sweep.all_shadows()
        finder = Finder(shadows, [*self.book.targets("Q", 0)], self.sweep.clean_through)
        finder.records(map(self.swept, self.log))
        found = repairs(shadows, finder, now_ms=self.now_ms, compaction_lag_ms=LAG_MS)
        assert not found.too_late
        assert not found.unknown
        by = self.by(self.newest.commit.batch)
        mark = (HEADER_COMMIT, commit_header(by))
        for key, value, headers in found.records:
            if breaks_off and self.random.random() < 0.5:
                return
            number = None if value is None else int(value[5:-1])
            self.append((key.decode(), number), headers_under(headers, mark))
        if not breaks_off:
            self.repaired += len(found.records)
            self.commit(by, is_load=self.newest.is_load)

    # --------------------------------------------------------------------------- Kafka

    def compact(self) -> None:
        """What is superseded among the records that are older than the lag; progress likewise."""
        old = [each for each in self.log if self.times[each.offset] < self.now_ms - LAG_MS]
        kept = {each.key: each.offset for each in old}
        self.log = [
            each for each in self.log if kept.get(each.key, each.offset) <= each.offset
        ]  # what is younger comes after all of them
        gone = {each.commit for each in removable(self.progress.values(), "Q", self.now_ms)}
        self.progress = {n: each for n, each in self.progress.items() if each.commit not in gone}

    def committed_end(self) -> int:
        return max(0, self.book.committed_end("Q", 0))


def number_of(rows: Mapping[bytes, bytes], key: str) -> int | None:
    found = rows.get(key_of(key))
    return None if found is None else int(found[1:-1])


@dataclass
class Client:
    """It follows the table from somewhere on, by one push query after the other."""

    topic: Topic
    start: int
    #: the table's rows, as it may know them where it begins
    rows: dict[str, int | None]
    shown: list[Row] = field(default_factory=list[Row])

    def __post_init__(self) -> None:
        self.ask(self.start)

    def ask(self, start: int) -> None:
        self.committed = Committed("Q")
        self.query = PushQuery(PLAN, {0: start}, self.committed)
        #: how many of the records of progress that were ever written
        self.read_until = 0

    def resume(self) -> None:
        self.ask(self.query.positions[0])

    def read(self, count: int) -> None:
        topic = self.topic
        for number, record in topic.progress.items():
            if number >= self.read_until:
                self.query.progress(record)
        self.read_until = topic.reported
        at = bisect_left(topic.log, self.query.positions[0], key=attrgetter("offset"))
        for record in topic.log[at:]:
            self.query.heard(record)
        rows = self.query.take(Share(count, 10**9), self.topic.now_ms)
        self.shown += map(row_of, rows)

    def read_all(self) -> None:
        self.read(10**9)


def row_of(pushed: PushedRow) -> Row:
    key, number = msgspec.json.decode(pushed.columns, type=tuple[str, int | None])
    return key, number


def client_at_end(topic: Topic) -> Client:
    numbers = topic.store.numbers()
    return Client(topic, topic.committed_end(), {key: number_of(numbers, key) for key in KEYS})


def client_at_beginning(topic: Topic) -> Client:
    start = topic.log[0].offset if topic.log else topic.end
    return Client(topic, start, dict.fromkeys(KEYS))


def changed(rows: list[Row], before: Mapping[str, int | None]) -> dict[str, list[int | None]]:
    """{key: what it changed to}"""
    found: dict[str, list[int | None]] = {}
    for key in KEYS:
        numbers = [before[key], *(number for its, number in rows if its == key)]
        found[key] = [number for number, _ in groupby(numbers)][1:]
    return found


def act(topic: Topic) -> None:
    acts = (topic.batch, topic.stray, topic.load, topic.take_over, topic.repair)
    (chosen,) = topic.random.choices(acts, (6, 3, 1, 1, 3))
    if chosen == topic.repair:
        topic.repair(breaks_off=topic.random.random() < 0.2)
    else:
        chosen()
    topic.now_ms += topic.random.randint(0, 3_000)


def check_exactly(client: Client) -> None:
    """What was shown is what the query meant to change, each once; and the replica's history."""
    topic, at = client.topic, client.query.positions[0]
    meant = [row for offset, row in topic.changes if client.start <= offset < at]
    assert client.shown == meant
    if at >= topic.committed_end():
        history = [row for end, row in topic.history if end > client.start]
        assert changed(client.shown, client.rows) == changed(history, client.rows)


@pytest.mark.parametrize("seed", range(examples(12, 150)))
def test_a_push_query_shows_the_history_of_a_replica(seed: int) -> None:
    """Whoever begins where, reads how slowly, and goes on at whatever node."""
    topic = Topic(random.Random(seed))
    clients: list[Client] = []
    for _ in range(60):
        act(topic)
        if topic.random.random() < 0.1:
            begin = topic.random.choice((client_at_end, client_at_beginning))
            clients.append(begin(topic))
        for client in clients:
            if topic.random.random() < 0.5:
                client.read(topic.random.randint(1, 9))
            if topic.random.random() < 0.1:
                client.resume()
    assert topic.repaired
    for client in clients:
        client.read_all()
        check_exactly(client)


@pytest.mark.parametrize("seed", range(examples(12, 150)))
def test_no_row_is_missing_from_a_topic_that_was_compacted(seed: int) -> None:
    """Hours pass, and progress records are removed, too. Who reads at once still has each change
    once. Who is slow, or comes late, has the replica's rows in the end, and none goes back."""
    topic = Topic(random.Random(seed))
    clients: list[Client] = []
    prompt: list[Client] = []
    for _ in range(60):
        act(topic)
        for client in prompt:
            client.read_all()
            if topic.random.random() < 0.2:
                client.resume()
        if topic.random.random() < 0.3:
            # the pipeline is never away for as long as compaction waits
            topic.now_ms += topic.random.randint(0, 40) * MINUTE_MS
            topic.repair()
        if topic.random.random() < 0.5:
            topic.compact()
        if topic.random.random() < 0.1:
            clients.append(client_at_beginning(topic))
            prompt.append(client_at_end(topic))
        for client in clients:
            if topic.random.random() < 0.3:
                client.read(topic.random.randint(1, 5))
            if topic.random.random() < 0.1:
                client.resume()
    topic.repair()
    rows = {key: number_of(topic.store.numbers(), key) for key in KEYS}
    for client in prompt:
        client.read_all()
        check_exactly(client)
    meant = {number for _, (_, number) in topic.changes}
    for client in clients:
        client.read_all()
        assert {**client.rows, **dict(client.shown)} == rows
        for key in KEYS:
            numbers = [n for its, n in client.shown if its == key and n is not None and n in meant]
            assert numbers == sorted(numbers)
