"""Which answers fit beside those that are not sent yet."""

from __future__ import annotations

import pytest

from standpipe.errors import BadRequest, StandpipeError, TooManyRequests
from standpipe.node.worker.request.answer_budget import AnswerBudget


@pytest.mark.parametrize(
    ("others", "own", "more", "error", "why"),
    [
        (0, 0, 100, None, "just fits"),
        (0, 0, 101, BadRequest, "no patience makes it fit"),
        (0, 60, 40, None, "fits as a whole"),
        (0, 60, 41, BadRequest, "its whole does not"),
        (50, 0, 50, None, "beside others"),
        (50, 0, 51, TooManyRequests, "it would fit later"),
        (99, 1, -1, None, "a scan that begins anew gives back"),
    ],
)
def test_take(
    others: int, own: int, more: int, error: type[StandpipeError] | None, why: str
) -> None:
    budget = AnswerBudget(bytes_max=100, held_bytes=others + own)
    if error is None:
        budget.take(own, more)
        assert budget.held_bytes == others + own + more, why
    else:
        with pytest.raises(error):
            budget.take(own, more)
        assert budget.held_bytes == others + own, why
    budget.give_back(own)
    assert budget.held_bytes == others + (0 if error else more)


@pytest.mark.parametrize(
    ("held_bytes", "room_bytes"), [(0, 70), (50, 20), (70, 0), (90, 0)], ids=lambda n: str(n)
)
def test_scans_leave_room_to_rows(held_bytes: int, room_bytes: int) -> None:
    assert AnswerBudget(bytes_max=80, held_bytes=held_bytes).room_bytes == room_bytes


def test_copies_of_an_answer_do_not_take_the_place_of_its_own_rows() -> None:
    """They become its rows; those of others do not."""
    budget = AnswerBudget(bytes_max=100)
    budget.lend(80)
    budget.take(0, 100, 80)
    budget.give_back(100)
    with pytest.raises(TooManyRequests):
        budget.take(0, 30)
