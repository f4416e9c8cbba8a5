"""What the clients of both drivers do alike, since it waits for nothing."""

from __future__ import annotations

from standpipe.client.core.exchange import Clock
from standpipe.client.core.nodes import Nodes
from standpipe.client.core.operations import Operations
from standpipe.client.core.settings import Settings
from standpipe.client.core.short_way import ShortWay


class ClientBase:
    """A client without its driver."""

    def __init__(self, nodes: tuple[str, ...], settings: Settings, clock: Clock) -> None:
        self._operations = Operations(Nodes(nodes), clock, settings)
        self._short = ShortWay(self._operations)

    @property
    def session_token(self) -> str | None:
        """Covers all that this client has read and inserted, for another client to go on from;
        None: it keeps no session."""
        session = self._operations.session
        return None if session is None else session.token

    def join_session(self, token: str) -> None:
        """Go on from this token, too: of another client, or of `token_of_writes`.

        Raises TokenRefused for a text that is no token, and ValueError if this client keeps no
        session.
        """
        self._operations.join(token)
