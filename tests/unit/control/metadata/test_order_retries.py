"""One topic that Kafka refuses waits longer each time, and holds up no other."""

from __future__ import annotations

from standpipe.control.metadata.order_retries import RETRY_MS_MAX, RETRY_MS_MIN, OrderRetries
from standpipe.control.metadata.topic_reconciler import CreateTopic, DeleteTopic

BAD, GOOD = CreateTopic("a.b", 1, {}), CreateTopic("c", 1, {})


def test_a_failed_order_waits_and_others_do_not() -> None:
    retries = OrderRetries()
    assert retries.due([BAD, GOOD], 0) == [BAD, GOOD]
    retries.note(BAD, "it collides", 0)
    retries.note(GOOD, "", 0)
    assert retries.due([BAD, GOOD], RETRY_MS_MIN - 1) == [GOOD]
    assert retries.due([BAD], RETRY_MS_MIN) == [BAD]
    assert retries.failures == {"a.b": "it collides"}


def test_the_pause_doubles_up_to_a_minute() -> None:
    retries, now_ms, pauses = OrderRetries(), 0, list[int]()
    for _ in range(12):
        retries.note(BAD, "refused", now_ms)
        before_ms = now_ms
        while not retries.due([BAD], now_ms):
            now_ms += RETRY_MS_MIN
        pauses.append(now_ms - before_ms)
    assert pauses[:4] == [500, 1000, 2000, 4000]
    assert pauses[-3:] == [RETRY_MS_MAX] * 3


def test_success_and_another_wish_end_the_waiting() -> None:
    retries = OrderRetries()
    retries.note(BAD, "refused", 0)
    retries.note(BAD, "", 1)
    assert (retries.failures, retries.due([BAD], 1)) == ({}, [BAD])
    retries.note(BAD, "refused", 2)
    changed = CreateTopic("a.b", 2, {})
    assert retries.due([changed], 3) == [changed], "a new statement is tried at once"
    retries.note(changed, "refused", 3)
    assert retries.due([DeleteTopic("a.b")], 4) == [DeleteTopic("a.b")]
    assert retries.due([], 5) == []
    assert retries.failures == {}, "what nobody wants fails no longer"
