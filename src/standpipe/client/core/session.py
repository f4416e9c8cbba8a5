"""What a client has seen, so that no later answer is older (read level `session`). Pure.

Each answer brings a token that covers the one that was sent with the read. Reads go on side by
side, so the client keeps the token that covers all answers. It holds texts, and merges them when a
read needs one: threads may share a session without a lock, since a text is taken out only after
the one that covers it is in.

Not here: what a token says (`session_token.py`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from standpipe.client.core.exchange import HttpAnswer
from standpipe.session_token import LEVEL_PROPERTY, TOKEN_PROPERTY, SessionToken, merged

_ITEM: Final = b'{"consistencyToken":'


class ClientSession:
    """One session. `token`: of an earlier one, to go on from; "": it has seen nothing yet.

    Raises TokenRefused.
    """

    def __init__(self, token: str = "") -> None:
        SessionToken.parse(token)
        self._texts = {token}

    @property
    def token(self) -> str:
        """Covers everything that was seen; another client may go on from it."""
        texts = tuple(self._texts)
        if len(texts) == 1:
            return texts[0]
        whole = merged(texts)
        self._texts.add(whole)
        self._texts.difference_update({*texts} - {whole})
        return whole

    def saw(self, token: str) -> None:
        """An answer came, with this token. Raises TokenRefused."""
        if token not in self._texts:
            SessionToken.parse(token)
            self._texts.add(token)

    def properties(self) -> dict[str, object]:
        """What a read says of its session. A node of an older release refuses the level."""
        return {LEVEL_PROPERTY: "session", TOKEN_PROPERTY: self.token}


class _TokenItem(msgspec.Struct):
    consistencyToken: str  # noqa: N815 ksqlDB's name


_decode: Final = msgspec.json.Decoder(_TokenItem).decode


def token_of(answer: HttpAnswer) -> str | None:
    """The token at the end of an answer in lines; None: it has none."""
    start = answer.body.rfind(b"\n", 0, -1) + 1
    return token_in(answer.body[start:])


def token_in(line: bytes) -> str | None:
    """The token in a line of an answer; None: it is another one."""
    if not line.startswith(_ITEM):
        return None
    try:
        return _decode(line).consistencyToken
    except msgspec.MsgspecError:
        return None
