"""What ends the doubt about a key that a foreign record wrote."""

from __future__ import annotations

from tests.unit.data.rows import commit, record

from standpipe.data.encoding.store_keys import commit_header
from standpipe.data.replica.gaps import Shadows
from standpipe.model import Offset

OURS, FOREIGN = commit(1, 1), commit(1, 0)
WANTED = commit_header(OURS)
SUSPECT_END = Offset(10)


def shadowed() -> Shadows:
    """`a` by a foreign record at offset 5."""
    shadows = Shadows()
    shadows.judged([record(5, "a", 1, FOREIGN), record(6, "b", 1, OURS)], WANTED, 0)
    return shadows


def test_a_foreign_record_below_the_suspect_end_hides_a_row() -> None:
    assert shadowed().hide_a_row(Offset(7), SUSPECT_END)
    assert not shadowed().hide_a_row(Offset(7), Offset(5)), "nothing was missing by then"


def test_a_committed_record_ends_it_once_it_is_applied() -> None:
    shadows = shadowed()
    shadows.judged([record(8, "a", 2, OURS)], WANTED, 0)
    assert shadows.hide_a_row(Offset(7), SUSPECT_END)
    assert shadows.hide_a_row(Offset(8), SUSPECT_END), "the record at 8 is not below 8"
    assert not shadows.hide_a_row(Offset(9), SUSPECT_END)
    assert not shadows


def test_what_a_committed_record_has_ended_a_later_one_does_not_put_off() -> None:
    shadows = shadowed()
    shadows.judged([record(8, "a", 2, OURS), record(15, "a", 3, OURS)], WANTED, 0)
    assert not shadows.hide_a_row(Offset(9), SUSPECT_END)


def test_the_first_foreign_record_of_a_key_says_when_it_began() -> None:
    """The next one came after the gap, the row was hidden before."""
    shadows = shadowed()
    shadows.judged([record(12, "a", 3, FOREIGN)], WANTED, 0)
    assert shadows.hide_a_row(Offset(13), SUSPECT_END)


def test_a_foreign_record_after_it_begins_anew() -> None:
    shadows = shadowed()
    shadows.judged([record(8, "a", 2, OURS), record(9, "a", 3, FOREIGN)], WANTED, 0)
    assert shadows.hide_a_row(Offset(10), SUSPECT_END)


def test_a_record_that_is_called_clean_ends_it() -> None:
    shadows = shadowed()
    shadows.clean([record(8, "a", 2, FOREIGN)])
    assert not shadows.hide_a_row(Offset(9), SUSPECT_END)


def test_the_last_record_of_a_key_in_what_is_clean_is_right() -> None:
    """Seed 659: a foreign tombstone of a row that never was; it had vanished before any sweep read
    it, so no repair came, and no replica that had seen it ever became whole."""
    shadows = Shadows()
    shadows.judged([record(5, "a", None, FOREIGN)], WANTED, 0)
    assert shadows.settled(Offset(5)) == []
    assert shadows.settled(Offset(6)) == [record(5, "a", None, FOREIGN)]
    assert not shadows.hide_a_row(Offset(7), SUSPECT_END)


def test_what_a_committed_record_ended_is_not_settled_by_the_foreign_one() -> None:
    shadows = shadowed()
    shadows.judged([record(8, "a", 2, OURS)], WANTED, 0)
    assert shadows.settled(Offset(9)) == []
