"""How many steps does a lookup take on the fast path? Limit: a tenth more than bench/guard.json.

    python bench/guard.py [--record]

A step is a bytecode of CPython, or a call of a C function. Their number is the same in every run,
on any machine, so a change that makes lookups dearer is found without a quiet one; what a C
function does inside is not counted. `--record` writes the file again: say in the commit why.

Counted is what lies between the body of a request and its response (`LookupFastPath.answer`), or
its whole message where that is known (`answer_message`), on real files, with the clocks stopped.
Not here: sockets, and time (`bench/pull.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.load.cases import select, select_columns, select_day, select_many  # noqa: E402
from bench.load.tables import hourly_keys, make_node  # noqa: E402

from standpipe.adapters.clock import Clock  # noqa: E402
from standpipe.adapters.http.peer_client import PeerClient  # noqa: E402
from standpipe.adapters.metrics import Metrics  # noqa: E402
from standpipe.config import registry  # noqa: E402
from standpipe.data.encoding import native  # noqa: E402
from standpipe.node.liveness.peer_state import PeerStateReader  # noqa: E402
from standpipe.node.worker.pull.fast_path import LookupFastPath  # noqa: E402
from standpipe.node.worker.pull.forward import Forwarder  # noqa: E402
from standpipe.node.worker.pull.forward_headers import RequestFormat  # noqa: E402
from standpipe.node.worker.pull.route_cache import RouteCache  # noqa: E402
from standpipe.node.worker.request.cluster_view import Map, Replicas  # noqa: E402
from standpipe.node.worker.request.head import Form  # noqa: E402

RECORD = ROOT / "bench" / "guard.json"
TOLERATED = 1.1
KEYS = 400
#: lookups of one count: each meets the partitions in another order
LOOKUPS = 20

Steps = dict[str, int]
Call = Callable[[], bytes | None]
#: case -> texts of its statements
CASES: Mapping[str, Callable[[int], str]] = {
    "one text": select,
    "one text, columns": lambda number: select(number).replace("*", "DEST, FLIGHTS"),
    "two predicates, columns": select_columns,
    "windows of a day": lambda number: select_day(number % hourly_keys(KEYS)),
    "IN of 10": lambda number: select_many(range(number, number + 10)),
    "IN of 100": lambda number: select_many(range(number, number + 100)),
}
HEAD = b"POST /query HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
#: whose whole messages are never known
ALWAYS_BY_BODY = (CASES["IN of 10"], CASES["IN of 100"])


def fast_path(folder: Path) -> LookupFastPath:
    """The fast path of a worker over a filled table."""
    config = make_node(folder, KEYS, with_hours=True)
    settings = registry.load({})
    replicas = Replicas(config.paths.state, config.paths.status)
    peers = PeerStateReader(config.paths.liveness, config.paths.lags, settings)
    forwarder = Forwarder(PeerClient(), 1000, 1000)
    return LookupFastPath(
        node_id=config.node_id,
        map=Map(config.paths.snapshot, replicas),
        replicas=replicas,
        routes=RouteCache(config.node_id, settings, forwarder, peers),
        metrics=Metrics(0, config.paths.run),
        body_bytes_max=1_000_000,
    )


class Counter:
    """Counts what a call executes: bytecodes, and calls of C functions."""

    def __init__(self) -> None:
        self.steps: Steps = {"bytecodes": 0, "calls of C": 0}

    def run(self, call: Callable[[], object]) -> None:
        tracer, profiler = sys.gettrace(), sys.getprofile()
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            call()
        finally:
            sys.setprofile(profiler)
            sys.settrace(tracer)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.steps["bytecodes"] += event == "opcode"
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        self.steps["calls of C"] += event == "c_call"


class StoppedClocks:
    """All clocks that a lookup reads, while it is entered. They go on when `now_ms` is set: pages
    written with running ones differ in age by a millisecond or not, and are merged in other steps.
    """

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for holder, name, now in (
            (time, "time", self._now_s),
            (time, "monotonic", self._now_s),
            (time, "perf_counter", self._now_s),
            (Clock, "boot_ms", lambda _clock: self.now_ms),
        ):
            self._patches.enter_context(mock.patch.object(holder, name, now))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _now_s(self) -> float:
        return (self.now_ms + 0.5) / 1000  # in the middle: rounded, it is never the one before


def bodies_of(path: LookupFastPath, text: Callable[[int], str]) -> list[Call]:
    """Lookups by their bodies."""
    form = RequestFormat(Form.ARRAY)
    bodies = [json.dumps({"ksql": text(number)}).encode() for number in range(LOOKUPS)]
    path.map.view.plans.plan(text(0), {})
    if text in ALWAYS_BY_BODY:
        return [partial(answer_by_body, path, form, body) for body in bodies]
    return [partial(path.answer, form, body) for body in bodies]


def answer_by_body(path: LookupFastPath, form: RequestFormat, body: bytes) -> bytes | None:
    """As the listener does, which tries to learn what it answers."""
    answer = path.answer(form, body)
    path.learn_message(form, HEAD % len(body) + body, len(HEAD % len(body)))
    return answer


def messages_of(path: LookupFastPath, text: Callable[[int], str]) -> list[Call]:
    """Lookups by their whole messages, which are learnt when they were answered by their bodies."""
    form, messages = RequestFormat(Form.ARRAY), list[bytes]()
    for number in range(LOOKUPS):
        body = json.dumps({"ksql": text(number)}).encode()
        head = HEAD % len(body)
        messages.append(head + body)
        assert path.answer(form, body)
        assert path.learn_message(form, messages[-1], len(head))
    return [partial(path.answer_message, message) for message in messages]


def steps_of(calls: Sequence[Call], clocks: StoppedClocks, ms_each: int = 0) -> Steps:
    """Steps of one lookup; `ms_each`: how far the clocks go on between two of them."""
    counter = Counter()
    for call in calls:  # whatever is kept is there
        assert call() is not None
    for call in calls:
        clocks.now_ms += ms_each
        counter.run(call)
    return {name: round(count / len(calls)) for name, count in counter.steps.items()}


def measure(folder: Path) -> dict[str, Steps]:
    """Steps of one lookup, by case."""
    with StoppedClocks() as clocks, no_garbage_collection():
        path = fast_path(folder)
        try:
            found = {name: steps_of(bodies_of(path, text), clocks) for name, text in CASES.items()}
            messages, bodies = messages_of(path, select), bodies_of(path, select)
            filtered, lists = bodies_of(path, select_columns), bodies_of(path, CASES["IN of 10"])
            return {
                **found,
                "one text, new ms": steps_of(bodies, clocks, 1),
                "one message": steps_of(messages, clocks),
                "one message, new ms": steps_of(messages, clocks, 1),
                "two predicates, message": steps_of(messages_of(path, select_columns), clocks),
                "two predicates, new ms": steps_of(filtered, clocks, 1),
                "IN of 10, new ms": steps_of(lists, clocks, 1),
            }
        finally:
            path.replicas.close()


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """What others left behind is not finalized among the counted steps."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def beyond(recorded: Mapping[str, Steps], found: Mapping[str, Steps]) -> list[str]:
    """What takes more than is tolerated, or was never recorded."""
    return [
        f"{name}: {count} {what}, recorded {recorded.get(name, {}).get(what, 0)}"
        for name, steps in found.items()
        for what, count in steps.items()
        if count > TOLERATED * recorded.get(name, {}).get(what, 0)
    ]


def build() -> str:
    """What has records of its own: bytecodes differ between versions of Python."""
    version = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.python_implementation()} {version}, " + (
        "compiled" if native.IS_COMPILED else "Python only"
    )


def records() -> dict[str, dict[str, Steps]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--record", action="store_true")
    given = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="standpipe-guard-") as name:
        found = measure(Path(name))
    known = records()
    for name, steps in found.items():
        print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in steps.items()))
    if given.record:
        text = json.dumps({**known, build(): found}, indent=1, sort_keys=True)
        RECORD.write_text(text + "\n")
        return 0
    if build() not in known:
        print(f"{build()} has no record: --record makes one")
        return 0
    more = beyond(known[build()], found)
    print("\n".join(more) or f"within {TOLERATED} x the record of {build()}")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
