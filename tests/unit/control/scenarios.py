"""`@covers("EL-01", …)` names the behaviours of raft_scenarios.json that a test shows.

It changes nothing at run time; `tests/tidy/test_raft_scenarios.py` reads the names from the source.
"""

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def covers(*ids: str) -> Callable[[Test], Test]:
    assert ids
    return lambda test: test
