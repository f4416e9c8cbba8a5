"""What control told the workers, and for how long it is believed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from standpipe.adapters.clock import Clock
from standpipe.adapters.files import published
from standpipe.config import registry
from standpipe.control.liveness.lag import FRESH_MS
from standpipe.model import BatchId, Health, NodeId, Offset, ReplicaState
from standpipe.model_liveness import KnownLag, KnownLags, Liveness, PeerLiveness, ReplicaLag
from standpipe.node.liveness.peer_state import VERDICTS_AGE_MS_MAX, PeerStateReader

A, B = NodeId("a"), NodeId("b")
REPLICA = ("T1", 1, 0)


class Hands(Clock):
    """A clock that is set by hand."""

    now_ms = 1_000_000

    def boot_ms(self) -> int:
        return self.now_ms


def lag(position: int, end: int) -> ReplicaLag:
    return ReplicaLag(
        table_id="T1",
        generation=1,
        partition=0,
        position=Offset(position),
        committed_end=Offset(end),
        state=ReplicaState.RUNNING,
        batch=BatchId(1),
    )


def known_lag(node: NodeId, lag: ReplicaLag, at_ms: int) -> KnownLag:
    return KnownLag(node_id=node, lag=lag, at_boot_ms=at_ms, reported_boot_ms=at_ms)


class Control:
    """Writes what control would."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.clock = Hands()
        self.liveness, self.lags = folder / "liveness", folder / "lags"
        layer = {name.replace("__", "."): value for name, value in settings.items()}
        self.peers = PeerStateReader(self.liveness, self.lags, registry.load(layer), self.clock)

    def tell(self, **health: Health) -> None:
        peers = tuple(PeerLiveness(node_id=NodeId(n), health=h) for n, h in health.items())
        told = Liveness(published_boot_ms=self.clock.now_ms, peers=peers)
        published.write(self.liveness, told)

    def tell_lags(self, *known: tuple[NodeId, ReplicaLag, int]) -> None:
        listed = tuple(known_lag(*one) for one in known)
        published.write(self.lags, KnownLags(published_boot_ms=self.clock.now_ms, known=listed))


def test_nothing_was_told(tmp_path: Path) -> None:
    control = Control(tmp_path)
    assert not control.peers.refresh()
    heard = control.peers.state.of(REPLICA)
    assert (heard.liveness, heard.lags, heard.committed_end) == ({}, {}, -1)


def test_the_same_files_are_the_same_object(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.tell(a=Health.ALIVE)
    assert control.peers.refresh()
    told = control.peers.state
    assert not control.peers.refresh()
    assert control.peers.state is told, "decisions are kept by it"
    control.tell(a=Health.DOWN)
    assert control.peers.refresh()
    assert control.peers.state.liveness[A].health is Health.DOWN


def test_verdicts_that_nobody_renews_are_dropped(tmp_path: Path) -> None:
    """Control stopped: a node that was down then may be back; breakers decide from here on."""
    control = Control(tmp_path)
    control.tell(a=Health.DOWN)
    control.peers.refresh()
    control.clock.now_ms += VERDICTS_AGE_MS_MAX
    assert not control.peers.refresh()
    control.clock.now_ms += 1
    assert control.peers.refresh()
    assert control.peers.state.liveness == {}
    control.tell(a=Health.DOWN)
    assert control.peers.refresh()
    assert A in control.peers.state.liveness


@pytest.mark.parametrize(
    ("age_ms", "health", "believed", "why"),
    [
        (0, Health.ALIVE, True, "fresh"),
        (3000, Health.ALIVE, True, "the limit"),
        (3001, Health.ALIVE, False, "too old: unknown"),
        (0, Health.DOWN, False, "a dead node's last word (ksql#4833)"),
        (0, Health.UNKNOWN, True, "it reported, after all"),
    ],
)
def test_lags_are_believed_for_a_while(
    tmp_path: Path, age_ms: int, health: Health, believed: bool, why: str
) -> None:
    control = Control(tmp_path)
    control.tell(a=health)
    control.tell_lags((A, lag(90, 100), control.clock.now_ms - age_ms))
    control.peers.refresh()
    heard = control.peers.state.of(REPLICA)
    assert (A in heard.lags) is believed, why
    assert heard.committed_end == 100, "a committed end only grows: never too old"
    assert bool(control.peers.state.lags_of(A)) is believed


@pytest.mark.parametrize(
    ("after_ms", "is_fresh", "is_believed", "why"),
    [
        (0, True, True, "just told"),
        (FRESH_MS, True, True, "the limit"),
        (FRESH_MS + 1, False, True, "an upper bound: nobody is refused by it"),
        (VERDICTS_AGE_MS_MAX, False, True, "the other limit"),
        (VERDICTS_AGE_MS_MAX + 1, False, False, "nobody knows"),
    ],
)
def test_lags_grow_old_while_no_file_changes(
    tmp_path: Path, after_ms: int, is_fresh: bool, is_believed: bool, why: str
) -> None:
    """Control stopped. Its last word on the lags is older than that on the peers."""
    control = Control(tmp_path)
    told_ms = control.clock.now_ms
    control.tell_lags((A, lag(90, 100), told_ms), (B, lag(90, 100), told_ms - 10_000))
    control.clock.now_ms += 20
    control.tell(a=Health.ALIVE)
    control.peers.refresh()
    for now_ms in range(told_ms + 20, told_ms + after_ms + 1, 20):
        control.clock.now_ms = now_ms
        control.peers.refresh()
    control.clock.now_ms = told_ms + after_ms
    control.peers.refresh()
    heard = control.peers.state.of(REPLICA)
    assert (told_ms >= heard.fresh_since_ms) is is_fresh, why
    assert (A in heard.lags) is is_believed, why
    assert not control.peers.refresh(), "decisions are kept in between"


def test_the_end_is_the_largest_of_all(tmp_path: Path) -> None:
    control = Control(tmp_path)
    now = control.clock.now_ms
    control.tell_lags((A, lag(90, 100), now), (B, lag(95, 120), now))
    control.peers.refresh()
    assert control.peers.state.of(REPLICA).committed_end == 120
    assert control.peers.state.end_of(REPLICA) == 120
    assert control.peers.state.of(("T1", 2, 0)).committed_end == -1, "another generation"


def test_reports_alone_come_seldom(tmp_path: Path) -> None:
    """Control says for how long they are believed; they refuse nobody."""
    control = Control(tmp_path)
    now_ms = control.clock.now_ms
    known = known_lag(A, lag(90, 100), now_ms - 15_000)
    record = KnownLags(published_boot_ms=now_ms, known=(known,), age_ms_max=15_000)
    published.write(control.lags, record)
    control.peers.refresh()
    heard = control.peers.state.of(REPLICA)
    assert A in heard.lags
    assert heard.fresh_since_ms == now_ms + 1, "each node's is of another instant"
    published.write(control.lags, msgspec.structs.replace(record, age_ms_max=0))
    control.peers.refresh()
    heard = control.peers.state.of(REPLICA)
    assert heard.fresh_since_ms == now_ms - FRESH_MS, "beats confirm them"


def test_a_file_of_another_version_is_passed_over(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.tell(a=Health.DOWN)
    control.peers.refresh()
    control.liveness.write_bytes(b"\xc1 what is this")
    control.peers.refresh()
    assert control.peers.state.liveness[A].health is Health.DOWN
