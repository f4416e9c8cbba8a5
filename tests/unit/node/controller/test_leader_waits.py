"""What the leader's loops wait for: the first of several works, and its error."""

from __future__ import annotations

import asyncio

import pytest

from standpipe.node.controller.leader import first_of


async def raises() -> None:
    raise ZeroDivisionError


async def waits(cancelled: list[str]) -> None:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        cancelled.append("cancelled")
        raise


async def returns() -> int:
    return 1


def test_the_first_that_returns_ends_the_others() -> None:
    cancelled: list[str] = []

    async def story() -> None:
        await first_of([waits(cancelled), returns()])
        await asyncio.sleep(0)

    asyncio.run(story())
    assert cancelled == ["cancelled"]


def test_an_error_is_raised() -> None:
    """It was swallowed, and the loop around it began again without a pause, for ever."""
    cancelled: list[str] = []

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await first_of([waits(cancelled), raises()])
        await asyncio.sleep(0)

    asyncio.run(story())
    assert cancelled == ["cancelled"]
