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
