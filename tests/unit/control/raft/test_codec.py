"""Every entry and message comes back as it went; what is not known is refused by name."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.control.raft import messages as msg
from standpipe.control.raft.codec import (
    Unreadable,
    decode_election,
    decode_entry,
    decode_message,
    decode_snapshot,
    encode_election,
    encode_entry,
    encode_message,
    encode_snapshot,
    speaker,
)
from standpipe.control.raft.events import ElectionState
from standpipe.control.raft.log import Entry, EpochEnd, LeaderChange, SnapshotId, SnapshotInfo
from standpipe.control.raft.majority import ReplicaKey, VoterSet

KEYS = st.builds(ReplicaKey, st.text("ab1", min_size=1), st.text("xyz"))
VOTERS = st.lists(KEYS, unique_by=lambda key: key.node, max_size=5).map(VoterSet.of)
NUMBERS = st.integers(0, 2**62)
PAYLOADS = (
    st.binary(max_size=40)
    | VOTERS
    | st.builds(LeaderChange, st.text("ab"), VOTERS, st.lists(KEYS, max_size=3).map(tuple))
)
ENTRIES = st.builds(Entry, NUMBERS, NUMBERS, PAYLOADS)
SNAPSHOTS = st.builds(SnapshotInfo, NUMBERS, NUMBERS, VOTERS, NUMBERS)

#: type of a field -> what it may hold
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "int": NUMBERS,
    "LogOffset": NUMBERS,
    "LeaderEpoch": NUMBERS,
    "Round": NUMBERS,
    "bool": st.booleans(),
    "bytes": st.binary(max_size=40),
    "Error": st.sampled_from(msg.Error),
    "NodeId": st.text("ab"),
    "NodeId | None": st.none() | st.text("ab"),
    "ReplicaKey": KEYS,
    "tuple[ReplicaKey, ...]": st.lists(KEYS, max_size=3).map(tuple),
    "tuple[Entry, ...]": st.lists(ENTRIES, max_size=4).map(tuple),
    "SnapshotId": st.builds(SnapshotId, NUMBERS, NUMBERS),
    "EpochEnd | None": st.none() | st.builds(EpochEnd, NUMBERS, NUMBERS),
    "SnapshotInfo | None": st.none() | SNAPSHOTS,
}


def name_of(annotation: Any) -> str:
    """`NodeId | None`, however Python spells it."""
    text = str(annotation) if get_args(annotation) else annotation.__name__
    text = re.sub(r"[a-z_]+\.(?=[a-zA-Z])", "", text)
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", text)


def messages(kind: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{one.name: BY_TYPE[name_of(one.type)] for one in fields(kind)})


MESSAGES = st.one_of(*(messages(kind) for kind in get_args(msg.Request) + get_args(msg.Response)))


@given(MESSAGES)
def test_messages_come_back(message: msg.Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(ENTRIES)
def test_entries_come_back(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@given(SNAPSHOTS, st.none() | st.builds(ElectionState, NUMBERS, st.none() | st.just("a"), KEYS))
def test_headers_come_back(snapshot: SnapshotInfo, election: ElectionState | None) -> None:
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    assert decode_election(encode_election(election)) == election


@given(st.binary(max_size=60))
def test_no_bytes_of_a_peer_raise_anything_else(data: bytes) -> None:
    for decode in (decode_message, decode_entry, decode_snapshot, decode_election):
        try:
            decode(data)
        except Unreadable:
            continue


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "without a kind"), (b"\xee\x80", "kind 238"), (b"\x00\x80", "cannot read")],
)
def test_what_is_not_known_is_said(data: bytes, text: str) -> None:
    with pytest.raises(Unreadable, match=text):
        decode_message(data)


def test_an_entry_of_a_newer_program_is_refused_by_name() -> None:
    newer = encode_entry(Entry(1, 1, b"")).replace(b"\x01\x01\x00", b"\x01\x01\x07")
    with pytest.raises(Unreadable, match=r"kind 7.*upgrade"):
        decode_entry(newer)


A = ReplicaKey("a", "x")


@pytest.mark.parametrize(
    ("message", "who"),
    [
        (msg.FetchRequest(1, 1, A, 0, 0, 0, 0, 0), A),
        (msg.FetchSnapshotRequest(1, 1, A, SnapshotId(1, 1), 0, 1), A),
        (msg.VoteRequest(1, 1, A, ReplicaKey("b", "y"), 0, 0, pre=True), A),
        (msg.BeginQuorumEpochRequest(1, 1, "a", A), "a"),
        (msg.EndQuorumEpochRequest(1, 1, "a", ()), "a"),
        (msg.ReadOffsetRequest(1, 1), None),
        (msg.VoteResponse(1, msg.Error.NONE, 1, "a", granted=True), None),
    ],
)
def test_who_a_message_says_that_it_is_from(message: msg.Message, who: object) -> None:
    assert speaker(message) == who
