"""Requests in flight: at most one of each kind to each peer, each with a retry instant.

The number alone distinguishes the awaited answer from late and duplicate ones, so no other module
has to handle delays and duplicates in the network (KIP-595 leaves it to the request manager).
"""

from dataclasses import dataclass

from standpipe.control.raft.messages import Request
from standpipe.model import NodeId

Kind = type[Request]


@dataclass(slots=True)
class _Call:
    request: int | None  # None: already failed; only waits for its retry
    due_ms: int


class Calls:
    """The open requests of one replica in its present role."""

    def __init__(self, first_request: int) -> None:
        """`first_request`: above every number that an earlier run of this replica used."""
        self._next = first_request
        self._calls: dict[tuple[Kind, NodeId], _Call] = {}

    def number(self) -> int:
        """A fresh request number."""
        self._next += 1
        return self._next - 1

    def open(self, kind: Kind, to: NodeId, due_ms: int) -> int:
        """Begin a request, replacing any earlier one of this kind to this peer; its number."""
        number = self.number()
        self.await_answer(kind, to, number, due_ms)
        return number

    def await_answer(self, kind: Kind, to: NodeId, request: int, due_ms: int) -> None:
        """Begin a request whose number is already drawn."""
        self._calls[kind, to] = _Call(request, due_ms)

    def is_open(self, kind: Kind) -> bool:
        """Whether a request of this kind is in flight or waits for its retry."""
        return any(known is kind for known, _ in self._calls)

    def is_open_to(self, kind: Kind, to: NodeId) -> bool:
        """The same for one peer."""
        return (kind, to) in self._calls

    def close(self, kind: Kind, to: NodeId, request: int) -> bool:
        """Take an answer; False: it is not the awaited one and must be ignored."""
        call = self._calls.get((kind, to))
        if call is None or call.request != request:
            return False
        del self._calls[kind, to]
        return True

    def pause(self, kind: Kind, to: NodeId, until_ms: int) -> None:
        """Send nothing of this kind to this peer before then."""
        self._calls[kind, to] = _Call(None, until_ms)

    def failed(self, to: NodeId, request: int, until_ms: int) -> Kind | None:
        """Turn a request that will get no answer into a pause; its kind, if it was in flight."""
        for (kind, peer), call in self._calls.items():
            if peer == to and call.request == request:
                call.request, call.due_ms = None, until_ms
                return kind
        return None

    def take_due(self, now_ms: int) -> list[tuple[Kind, NodeId]]:
        """Remove and return the requests that are due."""
        due = [at for at, call in self._calls.items() if call.due_ms <= now_ms]
        for at in due:
            del self._calls[at]
        return due

    def deadline_ms(self) -> int | None:
        """The next instant at which `take_due` returns something."""
        return min((call.due_ms for call in self._calls.values()), default=None)

    def drop(self) -> None:
        """Forget everything: answers for an earlier role or epoch are ignored."""
        self._calls.clear()
