"""Events at a steady pace, from a thread: the n-th of a key carries n, and none may be lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

from tests.hosts.cluster import HostCluster, produce


class Feed:
    """`numbers`: key -> number of its newest event that was handed to the producer."""

    def __init__(self, cluster: HostCluster, numbers: Mapping[str, int], rate: float) -> None:
        self.numbers = dict(numbers)
        self._producer: Any = cluster.producer()
        self._pause_s = 1 / rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def stop(self, wait_s: float) -> dict[str, int]:
        """Ends, and waits until Kafka has acknowledged all of it."""
        self._stopping.set()
        self._thread.join(10)
        assert self._producer.flush(wait_s) == 0, "events are still not acknowledged"
        return self.numbers

    def _run(self) -> None:
        chance, keys = random.Random(1), sorted(self.numbers)
        while not self._stopping.wait(self._pause_s):
            key = chance.choice(keys)
            self.numbers[key] += 1
            produce(self._producer, key, self.numbers[key])
            self._producer.poll(0)
