"""Requests in flight: at most one of each kind to each peer, each with an instant to try again.

The number alone tells the awaited answer from late and repeated ones, so no other module has to
consider a network that delays and duplicates (KIP-595 leaves it to the request manager).
"""

from dataclasses import dataclass

from standpipe.control.raft.messages import Request
from standpipe.model import NodeId

Kind = type[Request]


@dataclass(slots=True)
class _Call:
    request: int | None  # None: failed already; only waits to be tried again
    due_ms: int


class Calls:
    """The open requests of one replica in its present role."""

    def __init__(self, first_request: int) -> None:
        """`first_request`: above every number that an earlier life of this replica has used."""
        self._next = first_request
        self._calls: dict[tuple[Kind, NodeId], _Call] = {}

    def number(self) -> int:
        """A fresh request number."""
        self._next += 1
        return self._next - 1

    def open(self, kind: Kind, to: NodeId, due_ms: int) -> int:
        """Begin a request, in place of any earlier one of this kind to this peer; its number."""
        number = self.number()
        self.await_answer(kind, to, number, due_ms)
        return number

    def await_answer(self, kind: Kind, to: NodeId, request: int, due_ms: int) -> None:
        """Begin a request whose number was drawn before."""
        self._calls[kind, to] = _Call(request, due_ms)

    def is_open(self, kind: Kind) -> bool:
        """Whether a request of this kind is awaited or waits to be tried again."""
        return any(known is kind for known, _ in self._calls)

    def is_open_to(self, kind: Kind, to: NodeId) -> bool:
        """The same for one peer."""
        return (kind, to) in self._calls

    def close(self, kind: Kind, to: NodeId, request: int) -> bool:
        """Take an answer; False: it is not the one that is awaited, so it must be ignored."""
        call = self._calls.get((kind, to))
        if call is None or call.request != request:
            return False
        del self._calls[kind, to]
        return True

    def pause(self, kind: Kind, to: NodeId, until_ms: int) -> None:
        """Send nothing of this kind to this peer before then."""
        self._calls[kind, to] = _Call(None, until_ms)

    def failed(self, to: NodeId, request: int, until_ms: int) -> Kind | None:
        """Turn a request that will not be answered into a pause; its kind, if it was awaited."""
        for (kind, peer), call in self._calls.items():
            if peer == to and call.request == request:
                call.request, call.due_ms = None, until_ms
                return kind
        return None

    def take_due(self, now_ms: int) -> list[tuple[Kind, NodeId]]:
        """Forget the requests whose time has come, and name them."""
        due = [at for at, call in self._calls.items() if call.due_ms <= now_ms]
        for at in due:
            del self._calls[at]
        return due

    def deadline_ms(self) -> int | None:
        """The next instant at which `take_due` has something to say."""
        return min((call.due_ms for call in self._calls.values()), default=None)

    def drop(self) -> None:
        """Forget everything: answers to a former role or epoch are ignored."""
        self._calls.clear()
