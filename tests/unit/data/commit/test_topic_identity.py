import pytest

from standpipe.data.commit.topic_identity import (
    LASTED_MS,
    How,
    TopicChecker,
    TopicKnown,
    TopicSeen,
    changes,
)


@pytest.mark.parametrize(
    ("known", "seen", "how", "why"),
    [
        (TopicKnown("A", 4), TopicSeen("A", 4), None, "as it was"),
        (
            TopicKnown("A", 4),
            TopicSeen("B", 4),
            How.RECREATED,
            "the id tells, whatever its offsets",
        ),
        (TopicKnown("A", 4), TopicSeen("B", 8), How.RECREATED, "that it is another one says more"),
        (TopicKnown("", 4), TopicSeen("B", 4), None, "nothing was committed that named one"),
        (TopicKnown("A", 4), TopicSeen("", 4), None, "a broker without ids says nothing"),
        (TopicKnown("A", 4), None, How.GONE, "it was there, and its id comes never again"),
        (TopicKnown("", 4), None, None, "it is about to be made"),
        (TopicKnown("A", 4), TopicSeen("A", 5), How.PARTITIONS, "keys go elsewhere than before"),
        (TopicKnown("", 0), TopicSeen("A", 5), None, "nobody says how many there should be"),
        (TopicKnown("", 4), TopicSeen("", 3), How.PARTITIONS, "fewer: it was made anew"),
    ],
)
def test_changes(known: TopicKnown, seen: TopicSeen | None, how: How | None, why: str) -> None:
    found = changes({"t": known, "other": TopicKnown("O", 1)}, _with(seen))
    assert [(each.topic, each.how) for each in found] == ([("t", how)] if how else []), why


def _with(seen: TopicSeen | None) -> dict[str, TopicSeen]:
    others = {"other": TopicSeen("O", 1), "not ours": TopicSeen("N", 9)}
    return others if seen is None else {**others, "t": seen}


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (None, "topic t was deleted"),
        (TopicSeen("B", 4), "topic t was deleted and recreated (its id is B, not A)"),
        (TopicSeen("A", 8), "topic t has 8 partitions, and the catalog says 4"),
    ],
)
def test_a_change_says_what_it_is(seen: TopicSeen | None, text: str) -> None:
    (change,) = changes({"t": TopicKnown("A", 4)}, {"t": seen} if seen else {})
    assert str(change) == text


@pytest.mark.parametrize(
    ("named", "heard", "is_sure", "is_lost", "why"),
    [
        ([], [], True, False, "no commit names a topic: one of an older release"),
        (["A"], [], False, False, "Kafka was not asked yet"),
        (["A"], [("A", 0)], True, False, "it is the same one"),
        (["A", ""], [("B", 0)], False, False, "a commit that names none takes nothing back"),
        (["A"], [("", 0)], True, False, "brokers without ids"),
        (["A"], [("B", 0), ("B", LASTED_MS - 1)], False, False, "a broker may be behind"),
        (["A"], [("B", 0), ("B", LASTED_MS)], False, True, "no broker is, for so long"),
        (["A"], [("B", 0), ("A", 9), ("B", LASTED_MS)], False, False, "it did not last"),
        (["A"], [("B", 0), ("A", LASTED_MS)], True, False, "the broker has caught up"),
    ],
)
def test_doubt(
    named: list[str], heard: list[tuple[str, int]], is_sure: bool, is_lost: bool, why: str
) -> None:
    doubt = TopicChecker()
    for topic_id in named:
        doubt.named(topic_id)
    for topic_id, at_ms in heard:
        doubt.heard(topic_id, at_ms)
    assert (doubt.is_sure, bool(doubt.lost)) == (is_sure, is_lost), why
