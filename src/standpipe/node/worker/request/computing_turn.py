"""Which thread of a heavy worker computes: one at a time, in the order in which they came.

    with turn:                   from here on, no other thread computes
        with turn.waiting():     … but while this one waits for Kafka, or for a client
        turn.pass_on()           … or after TURN_S, if another thread wants to

Threads share the interpreter, so two that compute take twice as long each. What they cost is the
event loop's part: Python gives the interpreter to any thread that waits for it, by chance, and the
loop asks for it after each of its system calls. Beside three threads it stood still for 180 ms.

Not here: what is computed in threads (`node.worker.request.in_hand`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

#: How long a thread computes before it lets another one do so, where it can be interrupted.
TURN_S: Final = 0.02


class Turn(Protocol):
    """What threads that compute enter. No thread may enter it twice."""

    @property
    def is_taken(self) -> bool:
        """Whether a thread computes, as far as is known."""
        ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def waiting(self) -> AbstractContextManager[None]:
        """Around a wait for something else: others may compute meanwhile."""
        ...

    def pass_on(self) -> None:
        """Called now and then by work that can be interrupted."""


class FreeTurn:
    """Everybody computes whenever it wants to: in workers that have ports, whose threads are few
    and whose large texts are a heavy worker's; and where work waits for others in between."""

    is_taken = False

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def waiting(self) -> AbstractContextManager[None]:
        """Around a wait for something else."""
        return nullcontext()

    def pass_on(self) -> None:
        """Nobody waits."""


class ComputingTurn:
    """A lock that passes to the thread that has waited longest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        #: each is held until its thread's turn has come
        self._waiting: deque[threading.Lock] = deque()
        self._until_s = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether a thread computes."""
        return self._is_taken

    def __enter__(self) -> None:
        with self._guard:
            place = threading.Lock() if self._is_taken else None
            self._is_taken = True
            if place is not None:
                place.acquire()
                self._waiting.append(place)
        if place is not None:
            place.acquire()
        self._until_s = time.monotonic() + TURN_S

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Around a wait for something else: others compute meanwhile."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def pass_on(self) -> None:
        """Let the others compute first, if this turn has lasted for TURN_S."""
        if self._waiting and time.monotonic() >= self._until_s:
            with self.waiting():
                pass


FREE: Final[Turn] = FreeTurn()
