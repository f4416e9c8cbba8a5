"""Bytes of a connection become answers: the short way says what httptools says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.client.core.exchange import AnswerParser, plain_answer

NAMES = ("content-length", "Content-Length", "content-type", "standpipe-batch", "standpipe-Role",
         "CONNECTION", "connection", "Transfer-Encoding", "transfer-encoding", "upgrade", "x",
         "vary")  # fmt: skip
VALUES = (
    "0",
    "1",
    "5",
    "05",
    "6",
    "+5",
    "5 ",
    " 5",
    "close",
    "chunked",
    "",
    "keep-alive",
    "5, 5",
    "é",
)
PAIR = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES))
#: as a node writes them, with any other line at any place; or any lines
HEADERS = st.builds(
    lambda length, lags, other: [
        ("content-type", "text"),
        ("content-length", length),
        *lags,
        *other,
    ],
    st.sampled_from(VALUES[:4]),
    st.lists(st.tuples(st.just("standpipe-offset-lag"), st.sampled_from(VALUES)), max_size=3),
    st.lists(PAIR, max_size=1),
).flatmap(st.permutations) | st.lists(PAIR, max_size=5)
STARTS = ("HTTP/1.1 200 OK", "HTTP/1.1 200 Fine", "HTTP/1.0 200 OK", "HTTP/1.1 204 OK",
          "HTTP/1.1 503 OK", "HTTP/1.1 200 OKAY")  # fmt: skip


def answer_bytes(start: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{start}\r\n{lines}\r\n".encode("latin-1") + body


@given(
    start=st.sampled_from(STARTS) | st.just(STARTS[0]),
    headers=HEADERS,
    body=st.sampled_from([b"", b"x", b"hello", b"hello!", b"\r\n\r\nx"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_short_way_reads_what_httptools_reads(
    start: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    data = answer_bytes(start, headers, body)
    found = plain_answer(data)
    if found is None:
        return
    short, end = found
    parser = AnswerParser()
    assert parser.feed(data[:1]) == []  # in two pieces: httptools reads it
    assert parser.feed(data[1:end]) == [parser.answer]
    assert parser.answer is not None
    assert (short.status, dict(short.headers), short.body) == (
        parser.answer.status,
        parser.answer.headers,
        parser.answer.body,
    )
    assert parser.is_kept
    assert not parser.is_partial, "httptools finds the same end"


@pytest.mark.parametrize("blanks", [" ", "\t", " \t "])
def test_blanks_around_a_value_are_not_part_of_it(blanks: str) -> None:
    data = answer_bytes(STARTS[0], [("content-length", "0"), ("a", f"{blanks}5{blanks}")], b"")
    parser = AnswerParser()
    parser.feed(data[:1])
    parser.feed(data[1:])
    assert parser.answer is not None
    assert parser.answer.headers["a"] == "5"


USUAL = answer_bytes(
    STARTS[0],
    [("content-type", "text"), ("content-length", "5"), ("standpipe-batch", "7")],
    b"hello",
)


def test_an_answer_of_a_node_takes_the_short_way() -> None:
    found = plain_answer(USUAL)
    assert found is not None
    short, end = found
    assert end == len(USUAL)
    assert short.headers["standpipe-batch"] == "7"
    assert short.headers.get("standpipe-role", "") == ""
    assert (len(short.headers), short.body) == (3, b"hello")


@pytest.mark.parametrize(
    ("of", "by"),
    [
        (b"length: 5", b"length: 6"),
        (b"length: 5", b"length: 5\r\nContent-Length: 5"),
        (b"length: 5", b"length: 5\r\nConnection: close"),
        (b"length: 5", b"length: 5\r\n folded"),
        (b"content-length: 5", b"transfer-encoding: chunked"),
        (b"200", b"100"),
        (b"content-type: text\r\n", b"content-type: text\r\nvary: *\r\n"),
        (b"batch: 7", b"batch: 7\r\nStandpipe-Role: active"),
        (b"batch: 7", b"batch: \xe9"),
        (b"batch: 7", b"batch"),
    ],
)
def test_what_is_unusual_is_left_to_httptools(of: bytes, by: bytes) -> None:
    assert plain_answer(USUAL.replace(of, by)) is None


@pytest.mark.parametrize("first", range(1, len(USUAL)))
def test_an_answer_in_two_pieces_and_one_after_it(first: int) -> None:
    parser = AnswerParser()
    parser.feed(USUAL[:first])
    assert parser.answer is None
    parser.feed(USUAL[first:])
    for _ in range(2):
        assert parser.answer is not None
        assert (parser.answer.body, parser.is_kept) == (b"hello", True)
        assert dict(parser.answer.headers)["standpipe-batch"] == "7"
        parser.begin()
        parser.feed(USUAL)


SHOWN = [(b"a" * 3, 3), (b"", 0), (b"xyz", 3)]
SEVERAL = [answer_bytes(STARTS[0], [("content-length", str(n))], body) for body, n in SHOWN]


@given(
    answers=st.lists(st.sampled_from([*SEVERAL, USUAL, USUAL.replace(b"batch", b"Batch")])),
    cuts=st.lists(st.integers(1, 60), min_size=1),
)
@settings(max_examples=examples(200), deadline=None)
def test_several_answers_however_they_are_cut(answers: list[bytes], cuts: list[int]) -> None:
    parser, data, found = AnswerParser(), b"".join(answers), list[bytes]()
    turn = 0
    while data:
        size = cuts[turn % len(cuts)] * (1 if turn % 2 else 7)
        found += [each.body for each in parser.feed(data[:size])]
        data = data[size:]
        turn += 1
    assert found == [each.partition(b"\r\n\r\n")[2] for each in answers]
    assert not parser.is_partial


def test_what_follows_the_answer_is_no_part_of_it() -> None:
    parser = AnswerParser()
    with pytest.raises(ValueError, match="not an HTTP answer"):
        parser.feed(USUAL + b"o")
    assert [each.body for each in AnswerParser().feed(USUAL * 2)] == [b"hello", b"hello"]


def test_an_interim_answer_is_passed_over() -> None:
    parser = AnswerParser()
    parser.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not parser.has_head
    parser.feed(USUAL)
    assert parser.answer is not None
    assert parser.answer.body == b"hello"
