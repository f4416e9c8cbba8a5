"""POST /query-batch: a row for each key, with the rules of a pull query, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from tests.unit.node.worker.pull.test_fast_many import HERE, OTHERS, Nodes, in_list, run
from tests.unit.node.workers import KEYS, PARTITIONS, Worker, page

from standpipe.config import lags
from standpipe.data.encoding import arrow, native
from standpipe.data.encoding.store_keys import partition_of
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.node.worker.pull import own_rows
from standpipe.node.worker.query_batch import request_body as batches
from standpipe.node.worker.query_batch.answer import BatchAnswer, BatchForm
from standpipe.node.worker.query_batch.endpoint import BatchEndpoint
from standpipe.node.worker.request.answer_budget import AnswerBudget

LAG_MAX = lags.LAG_MAX.name
BODY_MAX = 200_000


class Answer:
    """What a client got."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def table(self) -> Any:
        with pa.ipc.open_stream(self.body) as stream:
            return stream.read_all()


async def post(
    node: Worker,
    body: object,
    accept: str = "application/json",
    budget: AnswerBudget | None = None,
) -> Answer:
    """To one node; a body that is no bytes is made JSON."""
    given = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    whole = [{"type": "http.request", "body": given, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not whole:
            await asyncio.Event().wait()  # the client stays
        return whole.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    endpoint = BatchEndpoint(node.slow_path, BODY_MAX, budget or AnswerBudget())
    lines = [(b"accept", accept.encode()), (b"content-length", b"%d" % len(given))]
    scope = {"type": "http", "path": "/query-batch", "headers": lines}
    await endpoint(scope, receive, send)
    return Answer(sent)


def asked(keys: Sequence[object], **more: object) -> dict[str, object]:
    return {"table": "users", "keys": list(keys), **more}


async def by_in(node: Worker, keys: Sequence[str]) -> dict[str, Any]:
    """The rows that a statement with IN finds, by key."""
    rows: list[Any] = []
    for at in range(0, len(keys), 100):
        answer = await node.answer(in_list(*keys[at : at + 100], "nobody", "else"))
        rows += map(json.loads, answer.body.splitlines()[1:])
    return {row[0]: row for row in rows}


# ------------------------------------------------------------------------------ the rows


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_row_for_each_key_in_the_order_asked(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "_native", None)
    wanted = [*OTHERS[::-1], "nobody", *KEYS.values(), OTHERS[0], "nobody", "a\0b"]

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        answer = await post(node, asked(wanted))
        assert answer.status == 200, answer.body
        rows = await by_in(node, [*OTHERS, *KEYS.values()])
        assert len(rows) == len(OTHERS) + len(KEYS)
        assert answer.json["rows"] == [rows.get(key) for key in wanted]
        assert answer.json["table"] == "USERS"
        assert answer.json["columnNames"] == ["ID", "N"]
        assert answer.json["columnTypes"] == ["STRING", "BIGINT"]
        assert int(answer.headers["content-length"]) == len(answer.body)

    run(tmp_path, story)


def test_the_same_rows_as_arrow(tmp_path: Path) -> None:
    wanted = [*OTHERS, "nobody", OTHERS[0], "x0"]

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        shown = (await post(node, asked(wanted))).json
        answer = await post(node, asked(wanted), BatchForm.ARROW.value)
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
        found = answer.table
        expected = [row or [key, None] for key, row in zip(wanted, shown["rows"], strict=True)]
        assert [list(row.values()) for row in found.to_pylist()] == expected
        assert str(found.schema.field("N").type) == "int64"
        metadata = found.schema.metadata
        assert json.loads(metadata[b"standpipe.freshness"]) == shown["freshness"]
        assert json.loads(metadata[b"standpipe.missing"]) == [wanted.index("nobody")]
        nothing = (await post(node, asked([]), BatchForm.ARROW.value)).table
        assert (nothing.num_rows, nothing.schema.names) == (0, ["ID", "N"])

    run(tmp_path, story)


def test_arrow_is_refused_by_name_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> Any:
        raise ImportError(name)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        monkeypatch.setattr(arrow.importlib, "import_module", without)
        monkeypatch.setattr(node.slow_path, "parts", None)  # no row is read for nothing
        answer = await post(node, asked(["x1"]), BatchForm.ARROW.value)
        assert answer.status == 406
        assert "pyarrow is not installed: pip install standpipe[pandas]" in answer.json["message"]
        monkeypatch.undo()
        either = f"{BatchForm.ARROW.value};q=0.5, application/json"
        assert (await post(node, asked(["x1"]), either)).json["rows"] == [["x1", 1]]
        assert (await post(node, asked(["x1"]), "text/plain")).status == 406

    run(tmp_path, story)


def test_each_partition_says_how_fresh_it_is(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.hold(1, page(100, 107))
        answer = await post(node, asked(KEYS.values()))
        parts = answer.json["freshness"]
        assert [part["partition"] for part in parts] == list(range(PARTITIONS))
        assert [part["offsetLag"] for part in parts] == [0, 7, 0, 0]
        assert {part["batch"] for part in parts} == {7}
        assert answer.headers["standpipe-offset-lag"] == "7", "of the stalest"
        only = await post(node, asked([KEYS[2]]))
        assert [part["partition"] for part in only.json["freshness"]] == [2]
        none = await post(node, asked([]))
        assert (none.json["rows"], none.json["freshness"]) == ([], [])
        assert none.headers["standpipe-role"] == "none"

    run(tmp_path, story)


# ------------------------------------------------------------------------- several nodes

APART = {0: ["a"], 1: ["b", "c"], 2: ["b", "c"], 3: ["a"]}


def test_parts_of_other_nodes_are_forwarded(tmp_path: Path) -> None:
    wanted = [*OTHERS, *KEYS.values(), "nobody"]

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        rows = await by_in(node, wanted)
        node.wires.sent.clear()
        answer = await post(node, asked(wanted, properties={LAG_MAX: 3}))
        assert answer.json["rows"] == [rows.get(key) for key in wanted]
        assert [part["servedBy"] for part in answer.json["freshness"]] == ["a", "b", "b", "a"]
        assert answer.headers["standpipe-served-by"] == "a, b"
        sent = node.wires.sent["b"]
        assert sorted(each["standpipe-partition"] for each in sent) == ["1", "2"], "once each"

    run(tmp_path, story, APART)


def test_the_bound_on_the_lag_goes_along(tmp_path: Path) -> None:
    """A peer that is behind refuses, and no other replica is better."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        for each in nodes.values():
            each.hold(1, page(100, 107))
        answer = await post(node, asked(KEYS.values(), properties={LAG_MAX: 6}))
        assert answer.status == 503
        assert answer.json["standpipe"]["partitions"] == [1]
        assert {each["partition"] for each in answer.json["standpipe"]["verdicts"]} == {1}
        for bound in ({LAG_MAX: 7}, {LAG_MAX: "7"}, {}):
            assert (await post(node, asked(KEYS.values(), properties=bound))).status == 200

    run(tmp_path, story, APART)


def test_a_node_that_died_costs_no_row(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        rows = await by_in(node, list(KEYS.values()))
        del nodes["b"]  # nothing listens there any more
        answer = await post(node, asked(KEYS.values()))
        assert answer.json["rows"] == [rows[key] for key in KEYS.values()]
        assert {part["servedBy"] for part in answer.json["freshness"]} == {"a", "c"}

    run(tmp_path, story, APART)


def test_a_partition_without_a_live_replica_fails_the_batch(tmp_path: Path) -> None:
    """Rows of the others are no answer, and the error names the partition and its nodes."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.publish(["a", "b"], {**HERE, 1: ["b"]}, epoch=2)
        assert (await post(node, asked(KEYS.values()))).status == 200
        del nodes["b"]
        answer = await post(node, asked(KEYS.values()))
        assert answer.status == 503
        assert answer.json["standpipe"]["partitions"] == [1]
        assert "Connection refused" in answer.json["message"]
        assert (await post(node, asked([KEYS[0], KEYS[2]]))).status == 200, "without it"

    run(tmp_path, story)


def test_a_damaged_row_is_taken_from_another_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_rows, "_log", mock.Mock())  # to draw its traceback takes long

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.apply(1, more={KEYS[1]: pack_row(b"[1]", 5)[:-2] + b"9]"})
        answer = await post(node, asked(KEYS.values()))
        assert [part["servedBy"] for part in answer.json["freshness"]] == ["a", "b", "a", "a"]
        assert answer.json["rows"][list(KEYS).index(1)] == [KEYS[1], 1]

    run(tmp_path, story)


def test_a_peer_that_answers_rows_of_other_keys_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        real = node.forwarder.read

        async def lying(*arguments: Any) -> Any:
            part = await real(*arguments)
            return type(part)(rows=[*part.rows, b'["z",1]'], fresh=part.fresh)

        monkeypatch.setattr(node.forwarder, "read", lying)
        answer = await post(node, asked([KEYS[1]]))
        assert answer.status == 500
        assert "of no key that was asked" in answer.json["message"]

    run(tmp_path, story, APART)


# -------------------------------------------------------------------- limits and hostility


def test_as_many_keys_as_are_allowed(tmp_path: Path) -> None:
    wanted = [f"x{number}" for number in range(batches.KEYS_MAX)]

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        answer = await post(node, asked(wanted))
        found = {row[0] for row in answer.json["rows"] if row}
        assert found == {key for key in wanted if key in OTHERS}
        assert len(answer.json["rows"]) == batches.KEYS_MAX
        answer = await post(node, asked([*wanted, "one more"]))
        assert answer.status == 400
        assert "4001 keys. One may name 4000: send several" in answer.json["message"]

    run(tmp_path, story)


def test_more_keys_of_a_partition_than_a_statement_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "STATEMENT_KEYS_MAX", 7)

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        rows = await by_in(node, OTHERS)
        node.wires.sent.clear()
        answer = await post(node, asked(OTHERS))
        assert answer.json["rows"] == [rows[key] for key in OTHERS]
        assert [part["partition"] for part in answer.json["freshness"]] == list(range(PARTITIONS))
        held = [partition_of(key.encode(), PARTITIONS) for key in OTHERS]
        assert len(node.wires.sent["b"]) == sum(-(-held.count(each) // 7) for each in (1, 2))

    run(tmp_path, story, APART)


def test_an_answer_above_the_limit(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.apply(0, value=b'["%b"]' % (b"x" * 5000))
        budget = AnswerBudget(bytes_max=9000)
        answer = await post(node, asked([KEYS[0]]), budget=budget)
        assert answer.status == 400, "the rows and the body that is made of them"
        assert "the answer would take more than 9000 bytes" in answer.json["message"]
        assert budget.held_bytes == 0, "given back"
        budget = AnswerBudget(bytes_max=11_000)
        assert (await post(node, asked([KEYS[0]]), budget=budget)).status == 200
        assert budget.held_bytes == 0

    run(tmp_path, story)


@pytest.mark.parametrize("form", list(BatchForm))
def test_a_key_that_is_asked_often_is_charged_as_often(tmp_path: Path, form: BatchForm) -> None:
    """Before an answer is made of it: 4,000 times one row of 256 KB are 1 GB."""

    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        node.apply(0, value=b'["%b"]' % (b"x" * 5000))
        budget = AnswerBudget(bytes_max=100_000)
        made = mock.Mock(side_effect=AssertionError("made"))
        with mock.patch.object(BatchAnswer, "body", made):
            answer = await post(node, asked([KEYS[0]] * 100), form.value, budget=budget)
        assert answer.status == 400
        assert b"the answer would take more than 100000 bytes" in answer.body
        assert budget.held_bytes == 0

    run(tmp_path, story)


def test_a_forward_carries_no_property_but_the_bound(tmp_path: Path) -> None:
    """Each partition's part is a statement of its own, with a body of its own."""
    given = {LAG_MAX: 7, "max.x": "x" * 100_000}
    assert json.loads(batches.body_of("Q", given))["streamsProperties"] == {LAG_MAX: "7"}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not the expected JSON object"),
        (b"[]", 400, "not the expected JSON object"),
        (b"\xff", 400, "not the expected JSON object"),
        (b'{"table": "USERS", "keys": [' + b"[" * 100_000, 400, "not the expected JSON object"),
        (b'{"table": "USERS", "keys": ["\\ud800"]}', 400, "not the expected JSON object"),
        (b"{" + b" " * BODY_MAX + b"}", 413, "exceeds"),
        ({"keys": ["x1"]}, 400, "missing required field `table`"),
        ({"table": "USERS"}, 400, "missing required field `keys`"),
        (asked([None]), 400, "$.keys[0]"),
        (asked(["x1", True]), 400, "$.keys[1]"),
        (asked([1.5]), 400, "$.keys[0]"),
        (asked([["x1"]]), 400, "$.keys[0]"),
        (asked([7]), 400, "keys[0] = 7 is no STRING"),
        (asked(["x1", 10**400]), 400, "keys"),
        (asked(["x" * 10_001]), 400, "keys[0] has 10001 characters"),
        (asked(["x1"], sql="SELECT"), 400, "unknown field `sql`"),
        (asked(["x1"], properties={"acceptable.offset.lak": 1}), 400, "Did you mean"),
        (asked(["x1"], properties={LAG_MAX: -1}), 400, "is not a number of records"),
        ({"table": "NOBODY", "keys": []}, 400, "Source `NOBODY` does not exist"),
        ({"table": "", "keys": []}, 400, ""),
        ({"table": "x" * 1_001, "keys": []}, 400, "has 1001 characters"),
        ({"table": "USERS WHERE ID = 'x1' --", "keys": []}, 400, "does not exist"),
        ({"table": "USERS`; DROP TABLE USERS;", "keys": []}, 400, "does not exist"),
        ({"table": "`users`", "keys": []}, 400, "does not exist"),
    ],
)
def test_what_is_refused(tmp_path: Path, body: object, status: int, message: str) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        answer = await post(node, body)
        assert answer.status == status, answer.body[:300]
        assert message in answer.json["message"]
        assert (await post(node, asked(["x1"]))).status == 200, "the next one is answered"

    run(tmp_path, story)


HOSTILE = ["'", "''", "'; DROP TABLE USERS; --", "\\", '"', "`", "${a}", "\0", "\x1f", "/*", "é"]


def test_a_key_is_never_read_as_sql(tmp_path: Path) -> None:
    """Not by this node, nor by the peer that gets it in a statement."""

    async def story(nodes: Nodes) -> None:
        for key in HOSTILE:
            number = partition_of(key.encode(), PARTITIONS)
            for each in nodes.values():
                each.apply(number, more={key: pack_row(b"[5]", 5)})
        answer = await post(nodes["a"], asked([*HOSTILE, *(key + "x" for key in HOSTILE)]))
        found = [row and row[:1] for row in answer.json["rows"]]
        assert found[len(HOSTILE) :] == [None] * len(HOSTILE)
        last = {partition_of(key.encode(), PARTITIONS): key for key in HOSTILE}
        for key, row in zip(HOSTILE, answer.json["rows"], strict=False):
            if last[partition_of(key.encode(), PARTITIONS)] == key:
                assert row == [key, 5]

    run(tmp_path, story, {number: ["b"] for number in range(PARTITIONS)})


def test_a_refused_text_is_refused_here_too(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        node = nodes["a"]
        in_hand = node.slow_path.in_hand
        text = batches.statement(node.slow_path.map.view.sources["USERS"], [KEYS[1]])
        in_hand._refused = {in_hand.admitted(text): in_hand._clock.boot_ms() + 60_000}
        answer = await post(node, asked([KEYS[1]]))
        assert answer.status == 429
        assert (await post(node, asked([KEYS[2]]))).status == 200

    run(tmp_path, story)


def test_what_is_counted(tmp_path: Path) -> None:
    async def story(nodes: Nodes) -> None:
        metrics = nodes["a"].metrics
        await post(nodes["a"], asked([KEYS[0]]))
        await post(nodes["a"], asked([KEYS[1]]))
        await post(nodes["a"], b"")
        assert metrics.counts["standpipe_pull_requests"] == {"local": 1, "remote": 1}
        assert metrics.counts["standpipe_pull_errors"] == {"40000": 1}

    run(tmp_path, story, APART)
