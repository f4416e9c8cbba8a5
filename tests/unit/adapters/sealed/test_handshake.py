"""Who learns what before a connection is proved, and who is let in. Bytes only, no socket.

A *stranger* does not know the secret. It may listen on a node's old address, dial, pass on what it
hears, and keep it for later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from standpipe.adapters.sealed.handshake import (
    FRAME_BYTES_MAX,
    INTERNAL,
    MAGIC,
    NONCE_BYTES,
    PEER,
    Acceptor,
    Dialler,
    HandshakeRefused,
    Hello,
    PeerIdentity,
    SealedSession,
    Welcome,
)
from standpipe.adapters.sealed.records import SealBroken
from standpipe.model import NodeId

SECRET = "correct horse battery staple"
N1, N2, N3 = (PeerIdentity(SECRET, NodeId(f"node-{number}")) for number in (1, 2, 3))
OPERATOR = PeerIdentity(SECRET)


def nonce(letter: str) -> bytes:
    return letter.encode() * NONCE_BYTES


def dialler(me: PeerIdentity = N1, to: str = "node-2", letter: str = "d") -> Dialler:
    return Dialler(me, NodeId(to), nonce(letter))


def acceptor(me: PeerIdentity = N2, letter: str = "a") -> Acceptor:
    return Acceptor(me, nonce(letter))


def answer_of(accepts: Acceptor, opening: bytes) -> bytes:
    """What it says to a dialler that has proved nothing."""
    assert accepts.received(opening[len(MAGIC) :]) is None
    return accepts.answer


def is_refused(accepts: Acceptor, data: bytes) -> bool:
    try:
        accepts.received(data)
    except HandshakeRefused:
        return True
    return False


def shaken(dials: Dialler, accepts: Acceptor) -> tuple[SealedSession, SealedSession]:
    """Both sessions of a whole handshake. Raises HandshakeRefused."""
    ours = dials.received(answer_of(accepts, dials.opening))
    assert ours is not None
    theirs = accepts.received(dials.proof)
    assert theirs is not None
    return ours, theirs


def test_a_greeting_that_is_nested_without_end_is_refused() -> None:
    """It was an exception that nobody expected, with its trace in the log."""
    fields = [msgspec.msgpack.encode(field) for field in ("", "", INTERNAL)]
    greeting = b"\x95" + b"".join(fields) + b"\xc4\x00"
    greeting += b"\x91" * (FRAME_BYTES_MAX - len(greeting) - 1) + b"\x90"
    with pytest.raises(HandshakeRefused, match="cannot be read"):
        acceptor().received(len(greeting).to_bytes(4, "big") + greeting)


def test_a_whole_handshake() -> None:
    ours, theirs = shaken(dialler(), acceptor())
    assert (ours.peer, theirs.peer) == ("node-2", "node-1")
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        for data in (b"one", b"two"):
            assert receiver.opener.open(sender.sealer.seal(data)) == data


def test_it_arrives_byte_by_byte_and_the_first_record_comes_along() -> None:
    dials, accepts = dialler(), acceptor()
    sessions = [accepts.received(bytes([one])) for one in dials.opening[len(MAGIC) :]]
    assert sessions == [None] * len(sessions)
    ours = None
    for one in accepts.answer:
        assert ours is None
        ours = dials.received(bytes([one]))
    assert ours is not None
    theirs = accepts.received(dials.proof + ours.sealer.seal(b"asked"))
    assert theirs is not None
    assert theirs.opener.open(accepts.rest) == b"asked"


# ------------------------------------------------------------------ a stranger that listens


def forged(letter: str = "s") -> bytes:
    """The best that it can say: everything right but the secret."""
    stranger = PeerIdentity("guessed", NodeId("node-2"))
    return answer_of(acceptor(stranger, letter), dialler().opening)


STRANGERS = [
    (lambda _: b"", "it keeps silent"),
    (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is a web server, or an older release"),
    (lambda _: b"\x00" * 2000, "noise"),
    (lambda _: b"\xff" * 2000, "more than a greeting has"),
    (lambda opening: opening, "it sends back our own bytes"),
    (lambda opening: opening[len(MAGIC) :] * 2, "our own challenge, as if it were its greeting"),
    (lambda _: forged(), "it has another secret"),
    (lambda _: answer_of(acceptor(), dialler(letter="e").opening), "an answer that it recorded"),
    (lambda opening: answer_of(acceptor(N3), opening), "it asked another node"),
    (lambda opening: answer_of(acceptor(N1), opening), "it asked the dialler itself"),
    (
        lambda opening: answer_of(acceptor(replace(N2, listener=PEER)), opening),
        "it asked another listener of the node that was meant",
    ),
]


@pytest.mark.parametrize(("answer", "why"), STRANGERS)
def test_who_cannot_prove_itself_gets_a_greeting_only(
    answer: Callable[[bytes], bytes], why: str
) -> None:
    dials = dialler()
    try:
        session = dials.received(answer(dials.opening))
    except HandshakeRefused:
        session = None
    assert session is None, why
    assert dials.proof == b"", "nothing that another node would accept"
    assert SECRET.encode() not in dials.opening
    greeting = msgspec.msgpack.decode(dials.opening[len(MAGIC) + 4 :], type=Hello)
    assert greeting == Hello(N1.node, N2.node, INTERNAL, nonce("d")), "and this is all of it"


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(HandshakeRefused, match="does not know the secret"):
        dialler().received(forged())
    with pytest.raises(HandshakeRefused, match="start this release"):
        dialler().received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    dials = dialler()
    answer = answer_of(acceptor(N3), dials.opening)
    with pytest.raises(HandshakeRefused, match="node-3 answers at the address of node-2"):
        dials.received(answer)


# -------------------------------------------------------------------- a stranger that dials


def test_what_it_recorded_opens_nothing() -> None:
    """All bytes of a whole, good connection, replayed to the same node and to another."""
    dials = dialler()
    ours, _ = shaken(dials, acceptor())
    recorded = dials.opening[len(MAGIC) :] + dials.proof + ours.sealer.seal(b"POST /execute")
    for again in (acceptor(letter="b"), acceptor(N3, "c")):
        with pytest.raises(HandshakeRefused):
            again.received(recorded)


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        (b"\x00\x00\x00\x20" + b"x" * 32, "it guesses"),
        (b"\x00\x00\x00\x00", "nothing is no proof"),
        (None, "the acceptor's own proof, sent back"),
    ],
)
def test_it_is_not_let_in(proof: bytes | None, why: str) -> None:
    accepts = acceptor()
    answer = answer_of(accepts, dialler().opening)
    assert is_refused(accepts, answer[-36:] if proof is None else proof), why


@pytest.mark.parametrize(
    ("me", "to", "why"),
    [
        (N1, "node-3", "it means another node"),
        (replace(N1, listener=PEER), "node-2", "it means another listener"),
        (PeerIdentity("guessed", NodeId("node-1")), "node-2", "it has another secret"),
    ],
)
def test_a_proof_counts_only_for_whom_it_was_made(me: PeerIdentity, to: str, why: str) -> None:
    """A dialler that skips its own checks, as a rogue one would."""
    accepts, dials = acceptor(), dialler(me, to)
    answer = answer_of(accepts, dials.opening)
    transcript = dials._hello + answer[4:-36]
    proof = me.proof(b"dialler", transcript)
    assert is_refused(accepts, len(proof).to_bytes(4, "big") + proof), why


def test_an_operator_reaches_any_node_and_is_none() -> None:
    ours, theirs = shaken(dialler(OPERATOR, ""), acceptor(N3))
    assert (ours.peer, theirs.peer) == ("node-3", "")


@pytest.mark.parametrize("at", range(len(dialler().opening) - len(MAGIC)))
def test_a_greeting_that_was_changed_on_its_way(at: int) -> None:
    """Whatever is changed, node id and nonce included, ends in no session or in no agreement."""
    dials, accepts = dialler(), acceptor()
    sent = bytearray(dials.opening[len(MAGIC) :])
    sent[at] ^= 1
    try:
        if accepts.received(bytes(sent)) is not None:
            pytest.fail("a session without a proof")
        session = dials.received(accepts.answer)
    except HandshakeRefused:
        return
    assert session is None


def test_keys_differ_by_connection_and_by_direction() -> None:
    first, second = shaken(dialler(), acceptor()), shaken(dialler(letter="e"), acceptor())
    request = first[0].sealer.seal(b"request")
    for other in (first[0], second[0], second[1]):
        with pytest.raises(SealBroken):
            other.opener.open(request)
    assert first[1].opener.open(request) == b"request"


@pytest.mark.parametrize(
    "greeting",
    [
        msgspec.msgpack.encode(Hello(NodeId("n"), NodeId("node-2"), INTERNAL, b"short")),
        msgspec.msgpack.encode(Welcome(NodeId("n"), INTERNAL, nonce("x"))),
        b"\xc1",
    ],
)
def test_a_greeting_that_is_none(greeting: bytes) -> None:
    with pytest.raises(HandshakeRefused):
        acceptor().received(len(greeting).to_bytes(4, "big") + greeting)
