"""An uncaught exception in any process of a node ends that process; its parent starts it again.

A process that continues without one of its tasks or threads looks alive, so its parent does not
restart it, but part of its work is no longer done. So each process awaits its permanent tasks, or
this module watches them. The handler of one request or one connection catches its own exceptions.

Not here: the death of a process with its parent (`adapters.process`), restarts
(`node.supervisor.child`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from standpipe.errors import StandpipeError

_EXPECTED: Final = (StandpipeError, OSError, TimeoutError)


def end_at_once(what: str, fault: BaseException) -> NoReturn:
    """End this process because of an uncaught exception; its parent starts it again.

    It waits for nothing: asyncio's own end waits for the threads that it gave work to, and one that
    waits for Kafka, or for a file descriptor, would keep a process that no longer works.
    """
    sys.stderr.write(f"{what}: the process ends\n")
    traceback.print_exception(fault)
    sys.stderr.flush()
    os._exit(1)


def end_with_threads() -> None:
    """Let an uncaught exception of any thread end the process: what the thread did, nobody would
    do any longer."""

    def ended(failed: threading.ExceptHookArgs) -> None:
        fault = failed.exc_value or RuntimeError("a thread failed")
        name = failed.thread.name if failed.thread else "a thread"
        end_at_once(f"uncaught in the thread {name}", fault)

    threading.excepthook = ended


def run_to_the_end(
    main: Coroutine[Any, Any, None], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Run a process's event loop. What `main` raises ends the process at once, with exit status 1:
    an error of ours by its text, any other exception with its traceback."""

    async def guarded() -> None:
        try:
            await main
        except StandpipeError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
            os._exit(1)
        except Exception as fault:
            end_at_once("uncaught exception", fault)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(guarded())


def end_with_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let an uncaught exception of a callback, or of a task that nobody awaits, end the process.

    For a process whose timers and tasks are its work, as control's elections. Exceptions of a
    connection's protocol end that connection only, as asyncio does; errors that are to be expected
    (ours, the system's) may be left by work that was cancelled.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        is_work = "handle" in context or isinstance(context.get("future"), asyncio.Task)
        if is_work and isinstance(fault, Exception) and not isinstance(fault, _EXPECTED):
            end_at_once(context["message"], fault)
        loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
