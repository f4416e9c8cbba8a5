"""What a listener asks before it parses: the answers to requests that need no parser.

Not here: when it asks (`adapters.http.server`), and what is answered
(`node.worker.pull.fast_path`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Headers = Sequence[tuple[bytes, bytes]]


class Awaited(Protocol):
    """An answer that comes later. Until then, what its connection sends is held."""

    def then(self, take: Callable[[bytes | None], None]) -> None:
        """Say who takes it: called once, in another turn of the loop, with the whole response; with
        None if the slow path is to answer."""
        ...

    def leave(self) -> None:
        """The client has gone: it is not taken any more."""
        ...


class FastPath(Protocol):
    """The fast path of one listener. All calls are synchronous and must not wait."""

    def classify(self, path: bytes, headers: Headers) -> object | None:
        """A token for a POST head that `answer` understands; None: such requests take the slow
        path."""
        ...

    def answer(self, token: Any, body: bytes) -> bytes | Awaited | None:
        """The whole response, head included, at once or later; None: take the slow path."""
        ...

    def answer_message(self, message: bytes) -> bytes | Awaited | None:
        """The whole response, at once or later, to bytes that are exactly one message, and whose
        head is one that was learnt; None: they may be anything."""
        ...

    def learn_message(self, token: Any, message: bytes, head_bytes: int) -> bool:
        """`answer` has just answered this message, whose known head has so many bytes. True: from
        now on `answer_message` may answer others that have the same head."""
        ...


class NoFastPath:
    """Of a listener where every request goes to the application."""

    def classify(self, path: bytes, headers: Headers) -> None:
        """No head is known."""

    def answer(self, token: object, body: bytes) -> None:
        """Never called."""

    def answer_message(self, message: bytes) -> None:
        """No message is known."""

    def learn_message(self, token: object, message: bytes, head_bytes: int) -> bool:
        """Never called."""
        return False
