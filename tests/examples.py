"""How many random examples a property is tried on: few in `make check`, more in `make test`."""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("EXAMPLES_TIMES", "1"))


def examples(count: int) -> int:
    """`count` in `make check`; EXAMPLES_TIMES as many where that is set."""
    return count * TIMES
