"""Many cases at once: all their statements, then topics, records, queries, and verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tests.conformance import pulls, records, tables
from tests.conformance.cases import Case, Outcome
from tests.conformance.pulls import judge_refusal, refused_wrongly
from tests.conformance.statements import Session
from tests.conformance.world import Record, ToSend, World

from standpipe.data.encoding.store_keys import partition_of
from standpipe.model import Source
from standpipe.node.worker.request.cluster_view import Replicas

#: cases at once: what their topics and stores cost, against what waiting for one another costs
GROUP = 12
TAIL_S_MAX = 60.0


@dataclass
class Running:
    """A case whose statements were accepted, on its way through Kafka and Spark."""

    session: Session
    chain: Future[str] | None = None
    problem: str = ""
    topics: dict[str, int] = field(default_factory=dict)


def statements_of(case: Case, number: int) -> Session | Outcome:
    """The fast first half: what the statements alone decide."""
    session = Session(case, f"c{number}.")
    try:
        session.run()
    except Exception as error:
        return Outcome("failed", f"crashed: {error!r}")
    refusal = case.refusal
    if session.failure is None:
        if refusal is not None and not (case.is_pull and session.selects):
            return Outcome("failed", f"not refused, expected: {refusal.get('message_contains')}")
        return session
    assert session.failed_at is not None
    if refusal is not None and session.failed_at == len(case.statements) - 1:
        return judge_refusal(refusal, session.failure)
    return refused_wrongly(session.failure, case.statements[session.failed_at])


def run(cases: Sequence[Case], world: World | None) -> Iterator[tuple[Case, Outcome]]:
    """Outcomes as they are known. Without a world, cases that need one are left out."""
    numbered = list(enumerate(cases))
    waiting: list[Session] = []
    for number, case in numbered:
        result = statements_of(case, number)
        if isinstance(result, Outcome):
            yield case, result
        else:
            waiting.append(result)
    if world is not None:
        for start in range(0, len(waiting), GROUP):
            group = waiting[start : start + GROUP]
            done: set[str] = set()
            try:
                for case, outcome in _group(group, world):
                    done.add(case.id)
                    yield case, outcome
            except Exception as error:
                for session in group:
                    if session.case.id not in done:
                        yield session.case, Outcome("failed", f"the runner: {error!r}")


def _group(sessions: Sequence[Session], world: World) -> Iterator[tuple[Case, Outcome]]:
    group = [Running(session) for session in sessions]
    for running in group:
        session = running.session
        running.topics = {session.topic(n): count for n, count in session.wanted_topics().items()}
    world.make_topics({name: count for one in group for name, count in one.topics.items()})
    _produce(group, world)
    for running in group:
        session = running.session
        chain = [
            (session.physical_query(query), session.physical(sink).stored_form())
            for query, sink in session.queries.values()
        ]
        running.chain = world.run_chain(chain, session.writers()) if chain else None
    world.publish([source for running in group for source in _held(running)])
    for running in group:
        if running.chain is not None:
            running.problem = running.chain.result()
    found = world.read({name: count for one in group for name, count in one.topics.items()})
    # what Spark could not run has written nothing that a store could wait for
    if held := [source for one in group if not one.problem for source in _held(one)]:
        _wait_for_tailer(held, world)
    for running in group:
        yield running.session.case, _judge(running, found, world)
    world.publish([])
    world.drop_topics([name for one in group for name in one.topics])


def _held(running: Running) -> list[Source]:
    """The tables that a pull query of the case may ask."""
    session = running.session
    if not session.case.is_pull:
        return []
    sources = session.catalog.sources.values()
    return [session.physical(source) for source in sources if source.is_materialized]


def _produce(group: Sequence[Running], world: World) -> None:
    world.send(record for running in group for record in _records(running))


def _records(running: Running) -> Iterator[ToSend]:
    session = running.session
    for row in session.inserted:
        topic = session.topic(row.topic)
        at_ms = int(time.time() * 1000) if row.at_ms is None else row.at_ms
        yield ToSend(topic, running.topics[topic], row.key, row.value, at_ms)
    for record in session.case.data["inputs"]:
        source = session.by_topic.get(record["topic"])
        topic = session.topic(record["topic"])
        count = running.topics[topic]
        raw = records.encode_key(source, record.get("key"))
        yield ToSend(
            topic,
            count,
            records.encode_window(raw, record.get("window")),
            records.encode_value(source, record.get("value")),
            int(record.get("timestamp", 0)),
            tuple(records.headers(record.get("headers")) or ()),
            None if raw is None else partition_of(raw, count),
        )


def _wait_for_tailer(held: Sequence[Source], world: World) -> None:
    """Until every store has what its topic holds; a store that never gets there answers so."""
    replicas = Replicas(world.node.paths.state, world.node.paths.status, open_max=10_000)
    ends = world.ends({source.stored_form().topic: source.partitions for source in held})
    left = {
        source.replica_id(partition): ends[source.stored_form().topic, partition]
        for source in held
        for partition in range(source.partitions)
    }
    deadline = time.monotonic() + TAIL_S_MAX
    while left and time.monotonic() < deadline:
        for replica_id, end in list(left.items()):
            status = None
            with contextlib.suppress(OSError, ValueError):
                status = replicas.get(replica_id).status()
            if status is not None and status.position >= end and status.state.answers:
                del left[replica_id]
        time.sleep(0.05)
    replicas.close()


def _judge(running: Running, found: dict[str, list[Record]], world: World) -> Outcome:
    session = running.session
    if running.problem:
        return Outcome("failed", f"Spark: {running.problem[:600]}")
    own = {
        name: found[session.topic(name)]
        for name in session.wanted_topics()
        if session.topic(name) in found
    }
    try:
        if not session.case.is_pull:
            return tables.judge(session, own)
        outcome = pulls.judge_records(session, own)
        if outcome.kind != "passed":
            return outcome
        return asyncio.run(_ask(session, world))
    except Exception as error:
        return Outcome("failed", f"crashed: {error!r}")


async def _ask(session: Session, world: World) -> Outcome:
    opened = pulls.open_pulls(world, session)
    try:
        return await pulls.judge(session, opened)
    finally:
        opened.replicas.close()
        await opened.forwarder.close()
