"""What a client has seen and written, so that no later answer is older. Read level `session`. Pure.

Each answer to a read or an insert brings a token that covers the one that was sent. Requests go on
side by side, so the client keeps the token that covers all answers. It holds texts, and merges them
when a request needs one: threads may share a session without a lock, since a text is taken out only
after the one that covers it is in.

Not here: what a token says (`session_token.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from standpipe.client.core.exchange import HttpAnswer
from standpipe.client.core.literals import without_texts
from standpipe.session_token import (
    LEVEL_PROPERTY,
    TOKEN_PROPERTY,
    SessionToken,
    merged,
    written_token,
)

#: texts that are kept before they are merged
TEXTS_MAX: Final = 32
_ITEM: Final = b'{"consistencyToken":'
#: in a text without quoted names, and with single blanks
_INSERT: Final = re.compile(
    r"(?:^|;) ?INSERT INTO ?[^ (;]* ?(?:\([^();]*\))? ?VALUES ?\(", re.IGNORECASE
)


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
            if len(self._texts) > TEXTS_MAX:  # a push query's, which no request asks for
                _ = self.token

    def properties(self) -> dict[str, object]:
        """What a read or an insert says of its session. A node of an older release refuses it."""
        return {LEVEL_PROPERTY: "session", TOKEN_PROPERTY: self.token}


def kept(session: ClientSession | None) -> ClientSession:
    """The session of a client. Raises ValueError if it keeps none."""
    if session is None:
        raise ValueError("this client keeps no session: connect(…, session=True)")
    return session


class _TokenItem(msgspec.Struct):
    consistencyToken: str  # noqa: N815 ksqlDB's name


class _ArrayItem(msgspec.Struct):
    consistencyToken: _TokenItem  # noqa: N815 ksqlDB's name


_decode_item: Final = msgspec.json.Decoder(_ArrayItem).decode
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


def token_in_item(line: str) -> str | None:
    """The token in an item of an array; None: it is another one. A push query has them between its
    rows."""
    try:
        return _decode_item(line.strip().removesuffix(",")).consistencyToken.consistencyToken
    except msgspec.MsgspecError:
        return None


def has_insert(statements: str) -> bool:
    """Whether one of the statements is an INSERT … VALUES: with a session, the answer has a
    token."""
    keywords = " ".join(without_texts(statements).split())
    return _INSERT.search(keywords) is not None


def without_token(
    entities: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], str | None]:
    """The entities of an answer to statements, and the token that came after them; None: none."""
    last = entities[-1] if entities else {}
    if last.get("@type") != "consistencyToken":
        return entities, None
    return entities[:-1], str(last["consistencyToken"]["consistencyToken"])


def token_of_writes(acknowledged: Iterable[tuple[str, int, int]]) -> str:
    """A token for what a Kafka producer of one's own has written: (topic, partition, offset) of the
    records that Kafka has acknowledged, in any order.

    Merged into a session, it makes reads of all tables downstream show these records. It does not
    say Kafka's id of the topic, so it holds for a topic of that name that is created later, too.
    Raises ValueError for what is no topic, partition or offset.
    """
    newest: dict[str, dict[int, int]] = {}
    for topic, partition, offset in acknowledged:
        offsets = newest.setdefault(topic, {})
        offsets[partition] = max(offset, offsets.get(partition, offset))
    return SessionToken().merged(*(written_token(*each) for each in newest.items())).text()
