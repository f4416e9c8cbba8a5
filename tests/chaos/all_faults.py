"""Every fault of the chaos suite, in the order in which they happen."""

from __future__ import annotations

from tests.chaos.clock_faults import ClockAhead, ClockBack, ClockDays
from tests.chaos.faults import (
    ControlStopped,
    DiskFull,
    Fault,
    Flapping,
    KafkaDown,
    Killed,
    Lossy,
    OneWay,
    Partial,
    Partitioned,
    Slow,
    SparkDown,
    Starved,
    Stopped,
    StoreDamaged,
    TailerStopped,
    WorkersHung,
)

ALL: tuple[type[Fault], ...] = (
    Killed,
    Stopped,
    Partitioned,
    WorkersHung,
    OneWay,
    ControlStopped,
    TailerStopped,
    Partial,
    Flapping,
    Slow,
    Lossy,
    DiskFull,
    StoreDamaged,
    Starved,
    KafkaDown,
    SparkDown,
    ClockAhead,
    ClockBack,
    ClockDays,
)
