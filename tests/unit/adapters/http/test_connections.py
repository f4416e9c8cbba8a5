"""Who is accepted, who gives way, who is cut: decisions without sockets or clocks."""

from __future__ import annotations

import random

import pytest

from standpipe.adapters.http.connections import (
    FRESH,
    ConnectionProgress,
    Connections,
    CutReason,
    Pace,
    PortLimits,
    Room,
    WaitingFor,
    network_of,
)
from standpipe.config import registry
from standpipe.config.listeners import BODY_RATE_MIN, CONNECTIONS_MAX

LIMITS = PortLimits(
    connections_max=6,
    per_address_max=3,
    head_ms_max=10_000,
    body_bytes_per_s_min=1000,
    idle_ms_max=75_000,
)
ASKED = ConnectionProgress(WaitingFor.IDLE, steps=1)


class World:
    """Connections by name, and what is seen of them."""

    def __init__(self, room: Room | None = None) -> None:
        self.seen: dict[str, ConnectionProgress] = {}
        self.known = Connections[str](LIMITS, lambda name: self.seen.get(name, FRESH), room)

    def arrive(self, name: str, address: str = "a", now_ms: int = 0) -> CutReason | str | None:
        return self.known.arrive(name, address, now_ms)

    def sweep(self, now_ms: int) -> list[tuple[str, CutReason]]:
        return [late for some in self.known.sweep(now_ms, at_once=2) for late in some]

    def ask(self, *names: str) -> None:
        self.seen.update(dict.fromkeys(names, ASKED))


# --------------------------------------------------------------------------------- accepting


def test_an_address_may_have_as_many_as_its_limit() -> None:
    world = World()
    assert [world.arrive(name) for name in "123"] == [None] * 3
    world.ask(*"123")
    assert world.arrive("4") is CutReason.ADDRESS
    assert world.arrive("5", "b") is None, "others are served"
    world.known.leave("2")
    assert world.arrive("6") is None, "one went, one may come"
    assert len(world.known) == 4


def test_all_together_may_have_as_many_as_the_listener() -> None:
    world = World()
    for number in range(6):
        assert world.arrive(str(number), f"address {number}") is None
    world.ask(*map(str, range(6)))
    assert world.arrive("7", "another") is CutReason.ALL
    world.known.leave("0")
    assert world.arrive("8", "another") is None


def test_who_has_sent_no_request_gives_way_to_the_next_of_its_address() -> None:
    world = World()
    for name in "123":
        world.arrive(name)
    world.ask("1")
    assert world.arrive("4") == "2", "the oldest one without a request"
    assert world.arrive("5") == "3"
    world.ask("4", "5")
    assert world.arrive("6") is CutReason.ADDRESS, "all have asked"
    assert len(world.known) == 3


def test_in_a_full_listener_the_oldest_of_all_gives_way() -> None:
    world = World()
    for number in range(6):
        world.arrive(str(number), f"address {number}")
    world.ask("0", "1")
    assert world.arrive("7", "another") == "2"
    assert world.arrive("8", "address 0") == "3", "and not only to strangers"
    assert len(world.known) == 6


def test_who_is_idle_for_longest_gives_way_if_all_have_asked() -> None:
    world = World()
    for now_ms, name in enumerate("123"):
        world.arrive(name)
        world.ask(name)
        world.sweep(now_ms)
    world.seen["1"] = ConnectionProgress(WaitingFor.IDLE, steps=2)
    world.sweep(10)
    assert world.arrive("4") == "2", "1 has asked again since"
    world.seen["3"] = ConnectionProgress(WaitingFor.BUSY, steps=2)
    assert world.arrive("5") == "4", "a fresh one first"
    world.ask("5")
    assert world.arrive("6") == "1", "3 is being answered"
    world.ask("6")
    assert world.arrive("7") is CutReason.ADDRESS, "5 and 6 asked just now"
    world.sweep(20)
    assert world.arrive("7") == "5"


def test_idle_connections_of_one_address_never_keep_others_out() -> None:
    """An attack with ten times as many as there may be."""
    world = World()
    for number in range(60):
        world.arrive(f"idle {number}", "attacker")
    assert len(world.known) == LIMITS.per_address_max
    assert [world.arrive(str(n), "user") for n in range(3)] == [None] * 3


@pytest.mark.parametrize("seed", range(20))
def test_counts_hold_for_any_order_of_events(seed: int) -> None:
    draw, world = random.Random(seed), World()
    alive: dict[str, str] = {}
    for number in range(500):
        if alive and draw.random() < 0.4:
            gone = draw.choice(list(alive))
            world.known.leave(gone)
            del alive[gone]
        elif alive and draw.random() < 0.5:
            world.ask(draw.choice(list(alive)))
        elif draw.random() < 0.2:
            world.sweep(number)
        else:
            name, address = str(number), draw.choice("abcd")
            verdict = world.arrive(name, address)
            if isinstance(verdict, CutReason):
                continue
            if verdict is not None:
                assert world.seen.get(verdict, FRESH) in (FRESH, ASKED)
                del alive[verdict]
            alive[name] = address
        counts = [list(alive.values()).count(address) for address in "abcd"]
        assert len(world.known) == len(alive) <= LIMITS.connections_max
        assert max(counts) <= LIMITS.per_address_max
    for name in list(alive):
        world.known.leave(name)
    assert len(world.known) == 0
    assert world.arrive("last", "a") is None


@pytest.mark.parametrize(
    ("address", "network", "why"),
    [
        ("10.0.0.1", "10.0.0.1", "IPv4: the address"),
        ("2001:db8:1:2::1", "2001:0db8:0001:0002", "IPv6: a host may have a whole /64"),
        ("2001:db8:1:2:ffff::9", "2001:0db8:0001:0002", "the same one"),
        ("2001:db8:1:3::1", "2001:0db8:0001:0003", "another one"),
        ("::ffff:10.0.0.1", "10.0.0.1", "IPv4 on a socket of IPv6: all share one /64"),
        ("fe80::1%eth0", "fe80:0000:0000:0000", "with its scope"),
    ],
)
def test_which_addresses_count_together(address: str, network: str, why: str) -> None:
    assert network_of(address) == network, why


@pytest.mark.parametrize(
    ("descriptors", "every", "per_address", "why"),
    [
        (100, 6, 3, "more than enough"),
        (4, 4, 3, "one address has three quarters at most"),
        (2, 2, 1, "which may be less"),
        (1, 1, 1, "never none"),
    ],
)
def test_limits_fit_into_the_descriptors(
    descriptors: int, every: int, per_address: int, why: str
) -> None:
    lowered = LIMITS.within(descriptors)
    assert (lowered.connections_max, lowered.per_address_max) == (every, per_address), why


class Sizes:
    """A listener with so many connections."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize("seed", range(20))
def test_listeners_share_their_room_and_each_has_its_own_part(seed: int) -> None:
    draw = random.Random(seed)
    listeners = draw.randint(1, 4)
    descriptors = draw.randint(2 * listeners, 60)
    room, members = Room(descriptors, listeners), [Sizes() for _ in range(listeners)]
    for member in members:
        room.join(member)
    kept = descriptors // listeners // 2
    for _ in range(500):
        member = draw.choice(members)
        has_place = room.has_place(member)
        assert has_place or member.count >= kept, "what is kept for it is there"
        if has_place and draw.random() < 0.6:
            member.count += 1
        elif member.count and draw.random() < 0.5:
            member.count -= 1
        assert sum(map(len, members)) <= descriptors
        assert member.count <= room.most
    for member in members:
        member.count = 0
    while room.has_place(members[0]):
        members[0].count += 1
    assert members[0].count == room.most


def test_a_listener_without_room_gives_up_what_is_its_own() -> None:
    room, peers = Room(8, 2), Sizes(5)
    room.join(peers)
    world = World(room)
    for name in "123":
        assert world.arrive(name, f"address {name}") is None
    assert world.arrive("4", "another") == "1"
    world.ask("2", "3", "4")
    assert world.arrive("5", "another") is CutReason.ALL
    peers.count = 4
    assert world.arrive("5", "another") is None


def test_limits_come_from_the_keys() -> None:
    settings = registry.load({CONNECTIONS_MAX.name: 9, BODY_RATE_MIN.name: 7})
    limits = PortLimits.of(settings)
    assert (limits.connections_max, limits.body_bytes_per_s_min) == (9, 7)
    assert PortLimits.of(registry.load({})) == PortLimits()


# --------------------------------------------------------------------------------- deadlines

HALF = ConnectionProgress(WaitingFor.HEAD, steps=3)
BODY = ConnectionProgress(WaitingFor.BODY, steps=3, received=0)
IDLE = ConnectionProgress(WaitingFor.IDLE, steps=3)


@pytest.mark.parametrize(
    ("before", "now", "after_ms", "reason", "why"),
    [
        (FRESH, FRESH, 9_999, None, "it still has time"),
        (FRESH, FRESH, 10_000, CutReason.HEAD, "a silent one"),
        (HALF, HALF, 9_999, None, "half a head of a later request"),
        (HALF, HALF, 10_000, CutReason.HEAD, "the same one, too long"),
        (HALF, ConnectionProgress(WaitingFor.HEAD, 4), 10_000, None, "another head: it moved"),
        (IDLE, IDLE, 74_999, None, "idle"),
        (IDLE, IDLE, 75_000, CutReason.IDLE, "for long"),
        (IDLE, ConnectionProgress(WaitingFor.IDLE, 4), 75_000, None, "it asked in between"),
        (BODY, BODY, 9_999, None, "no byte of the body yet"),
        (BODY, BODY, 10_000, CutReason.BODY, "none in time"),
        (BODY, BODY._replace(received=5_000), 14_999, None, "5 s' worth of bytes, 10 s at first"),
        (BODY, BODY._replace(received=5_000), 15_000, CutReason.BODY, "it gets no more for them"),
        (BODY, BODY._replace(received=10**6), 600_000, None, "a large one that keeps its pace"),
        (BODY, ConnectionProgress(WaitingFor.BUSY, 3), 600_000, None, "it came; we are to answer"),
        (
            ConnectionProgress(WaitingFor.BUSY, 3),
            ConnectionProgress(WaitingFor.BUSY, 3),
            600_000,
            None,
            "a push query",
        ),
    ],
)
def test_what_is_late(
    before: ConnectionProgress,
    now: ConnectionProgress,
    after_ms: int,
    reason: CutReason | None,
    why: str,
) -> None:
    assert Pace(0, before).is_late(now, after_ms, LIMITS) is reason, why


@pytest.mark.parametrize("step_ms", [100, 1000, 2500])
def test_a_byte_now_and_then_moves_no_deadline(step_ms: int) -> None:
    """Slowloris: no byte of a head counts, and those of a body for what they are."""
    for progress, reason in ((HALF, CutReason.HEAD), (BODY, CutReason.BODY)):
        pace, now_ms, told = Pace(0, progress), 0, None
        while told is None:
            now_ms += step_ms
            told = pace.is_late(progress._replace(received=now_ms // step_ms), now_ms, LIMITS)
        assert told is reason
        assert now_ms <= 10_000 + 2 * step_ms


def test_waiting_for_us_is_not_counted_against_the_client() -> None:
    pace = Pace(0, BODY)
    for now_ms in range(1000, 100_000, 1000):
        assert pace.is_late(ConnectionProgress(WaitingFor.BUSY, 3), now_ms, LIMITS) is None
    assert pace.is_late(BODY, 100_000, LIMITS) is None, "its time begins now"
    assert pace.is_late(BODY, 109_999, LIMITS) is None
    assert pace.is_late(BODY, 110_000, LIMITS) is CutReason.BODY


def test_a_sweep_names_the_late_ones() -> None:
    world = World()
    world.arrive("silent")
    world.arrive("asked")
    world.ask("asked")
    world.sweep(0)
    late = [(now_ms, world.sweep(now_ms)) for now_ms in range(1000, 76_000, 1000)]
    assert [each for each in late if each[1]][:2] == [
        (10_000, [("silent", CutReason.HEAD)]),
        (11_000, [("silent", CutReason.HEAD)]),
    ], "named until it has left"
    world.known.leave("silent")
    assert world.sweep(76_000) == [("asked", CutReason.IDLE)]


def test_who_leaves_during_a_sweep_is_left_alone() -> None:
    world = World()
    for name in "123":
        world.arrive(name)
    sweep = world.known.sweep(10_000, at_once=2)
    assert [name for name, _ in next(sweep)] == ["1", "2"]
    world.known.leave("3")
    assert next(sweep) == []


def test_a_process_that_stood_still_blames_nobody() -> None:
    """What came meanwhile is still in the sockets when the sweep wakes."""
    world = World()
    world.arrive("half")
    for now_ms in (0, 1000, 2000):
        assert world.sweep(now_ms) == []
    assert world.sweep(60_000) == [], "58 s without a turn"
    swept = [world.sweep(now_ms) for now_ms in range(61_000, 71_000, 1000)]
    assert [len(each) for each in swept] == [0] * 6 + [1] * 4, "3 s had been its own"


def test_a_process_that_gets_half_a_processor_gives_twice_the_time() -> None:
    """Deadlines of 0.3 s cut a client whose request was there, in a process beside five others."""
    world = World()
    world.known.begin(0)
    world.arrive("half")
    swept = [world.sweep(now_ms) for now_ms in range(2000, 24_000, 2000)]
    assert [len(each) for each in swept] == [0] * 9 + [1] * 2


def test_a_process_that_stood_still_before_its_first_sweep_blames_nobody() -> None:
    world = World()
    world.known.begin(0)
    world.arrive("half")
    assert world.sweep(60_000) == []
