"""Of all tests: private files, as a node has them, and ports that no test beside this one takes.

Properties are tried on few examples, the grammar's tables are kept from one run to the next,
garbage is collected seldom, and a logged error is written without the values of all variables.
"""

from __future__ import annotations

import gc
import os

import structlog
from hypothesis import HealthCheck, settings
from structlog import dev
from tests import grammar_tables
from tests.examples import examples

from standpipe.adapters.files.private import keep_private
from standpipe.local.cluster import ports

PORTS_FIRST, PORTS_EACH = 16_000, 4_000
#: pytest-xdist's name of this process: gw0, gw1, …
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

keep_private()
grammar_tables.keep()
#: each collection looks at all that the tests, their modules and their syntax trees are made of:
#: with Python's thresholds (700, 10, 10), an eighth of the processor time
gc.set_threshold(20_000, 20, 10)
#: structlog's default renders the variables of each frame: 1 to 4 s of processor time per error
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        dev.ConsoleRenderer(colors=False, exception_formatter=dev.plain_traceback),
    ]
)
#: of a property that names no other count: `make test` tries many more. None is judged by time: a
#: busy machine is no failure
settings.register_profile(
    "standpipe",
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("standpipe")
if _WORKER:  # a port of a process that was killed must be free when it starts again
    _first = PORTS_FIRST + PORTS_EACH * (int(_WORKER.removeprefix("gw")) % 4)
    ports.ANY = range(_first, _first + PORTS_EACH - ports.NODE_STEP)


def pytest_collection_finish() -> None:
    """The tests themselves stay to the end: no collection need look at them."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """One last collection finds what is left; pytest makes five more, which have little to do."""
    gc.collect()
    gc.freeze()
