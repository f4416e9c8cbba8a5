"""Which failed orders for topics are due again: each topic has its own exponential back-off.

A topic that Kafka refuses must not delay the others, nor be requested in a tight loop. Pure:
instants come from the caller.

Not here: the orders (`topic_reconciler`), carrying them out (`adapters.kafka.admin`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.control.metadata.topic_reconciler import KafkaOrder

RETRY_MS_MIN: Final = 500
RETRY_MS_MAX: Final = 60_000


@dataclass(frozen=True)
class _Failed:
    order: KafkaOrder
    why: str
    pause_ms: int
    due_ms: int


class OrderRetries:
    """Failed orders by topic. Forgets an order as soon as another one is wanted for its topic."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failed] = {}

    def due(self, orders: Sequence[KafkaOrder], now_ms: int) -> list[KafkaOrder]:
        """Those of the wanted orders to carry out now, in order."""
        wanted = {order.name: order for order in orders}
        self._failed = {
            name: failed
            for name, failed in self._failed.items()
            if wanted.get(name) == failed.order
        }
        return [
            order
            for order in orders
            if (failed := self._failed.get(order.name)) is None or failed.due_ms <= now_ms
        ]

    def note(self, order: KafkaOrder, why: str, now_ms: int) -> None:
        """What came of an order; `why` empty: it was carried out."""
        before = self._failed.pop(order.name, None)
        if why:
            pause_ms = min(before.pause_ms * 2, RETRY_MS_MAX) if before else RETRY_MS_MIN
            self._failed[order.name] = _Failed(order, why, pause_ms, now_ms + pause_ms)

    @property
    def failures(self) -> Mapping[str, str]:
        """topic -> why its order failed the last time."""
        return {name: failed.why for name, failed in self._failed.items()}
