"""What ends a process: exceptions that are left alone, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
import asyncio, gc, threading, time
import uvloop
from standpipe.adapters import crash_only
from standpipe.errors import NotFound

async def fails():
    raise ZeroDivisionError("on purpose")

def stuck():
    time.sleep(600)
"""


def ends(story: str) -> tuple[int, str]:
    """Exit status and standard error; a process that stays alive fails the test."""
    code = PREAMBLE + textwrap.dedent(story)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    return done.returncode, done.stderr


RUNS = """
crash_only.end_with_threads()
crash_only.run_to_the_end(main(), {loop}.new_event_loop)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("story", "why"),
    [
        (
            """
            async def main():
                await fails()
            """,
            "the main task",
        ),
        (
            """
            async def main():
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
                    group.create_task(asyncio.sleep(600))
            """,
            "a chore in a group",
        ),
        (
            """
            async def main():
                asyncio.get_running_loop().run_in_executor(None, stuck)
                await asyncio.sleep(0.05)
                await fails()
            """,
            "while a thread waits for something that does not come",
        ),
        (
            """
            async def main():
                threading.Thread(target=lambda: 1 / 0, daemon=True).start()
                await asyncio.sleep(600)
            """,
            "a thread",
        ),
        (
            """
            async def main():
                crash_only.end_with_tasks(asyncio.get_running_loop())
                asyncio.get_running_loop().call_later(0.01, lambda: 1 / 0)
                await asyncio.sleep(600)
            """,
            "a timer, as those of elections",
        ),
        (
            """
            async def main():
                crash_only.end_with_tasks(asyncio.get_running_loop())
                asyncio.create_task(fails())
                await asyncio.sleep(0.01)
                gc.collect()
                await asyncio.sleep(600)
            """,
            "a task that nobody awaits",
        ),
    ],
)
def test_an_uncaught_exception_ends_the_process(story: str, why: str, loop: str) -> None:
    status, said = ends(textwrap.dedent(story) + RUNS.format(loop=loop))
    assert status == 1, why
    assert "ZeroDivisionError" in said, "with its trace"


def test_an_error_of_ours_is_said_without_a_trace() -> None:
    story = """
    async def main():
        raise NotFound("there is none")
    """
    status, said = ends(textwrap.dedent(story) + RUNS.format(loop="asyncio"))
    assert (status, said) == (1, "there is none\n")


def test_what_returns_ends_in_order() -> None:
    story = """
    async def main():
        await asyncio.sleep(0)
    """
    status, said = ends(textwrap.dedent(story) + RUNS.format(loop="asyncio") + "print('after')\n")
    assert (status, said) == (0, "")


def test_an_expected_error_of_work_that_nobody_awaits_is_logged() -> None:
    story = """
    async def refused():
        raise NotFound("there is none")

    async def main():
        crash_only.end_with_tasks(asyncio.get_running_loop())
        asyncio.create_task(refused())
        await asyncio.sleep(0.01)
        gc.collect()
    """
    status, said = ends(textwrap.dedent(story) + RUNS.format(loop="asyncio"))
    assert status == 0
    assert "there is none" in said


def test_an_exception_of_a_connection_ends_the_connection_alone() -> None:
    story = """
    class Fails(asyncio.Protocol):
        def data_received(self, data):
            raise ZeroDivisionError("on purpose")

    async def main():
        loop = asyncio.get_running_loop()
        crash_only.end_with_tasks(loop)
        server = await loop.create_server(Fails, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        assert await reader.read() == b""
        writer.close()
        server.close()
    """
    status, said = ends(textwrap.dedent(story) + RUNS.format(loop="asyncio"))
    assert status == 0, said
    assert "ZeroDivisionError" in said, "and is logged"
