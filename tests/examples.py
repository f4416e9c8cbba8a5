"""How many random examples a property is tried on: few in `make check`, more in `make test`."""

from __future__ import annotations

import os
from typing import Final

TIMES: Final = int(os.environ.get("EXAMPLES_TIMES", "1"))


def examples(count: int, thorough: int | None = None) -> int:
    """`count` in `make check`. Where EXAMPLES_TIMES is set: `thorough`, or that many times `count`.

    `thorough` is for what is dear, so that few of it belong into `make check`.
    """
    return count if TIMES == 1 else thorough or count * TIMES
