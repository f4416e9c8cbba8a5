"""A node whose workers hang over a text with the word WEDGE, in the interpreter's own C code.

    python -m tests.e2e.wedging_node --node-file …          like `python -m standpipe.node`

A query hangs where its text is planned, on the loop; a statement where it is judged, in a thread
that does not give the interpreter back. Nothing in `src` can: patterns are linear there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from standpipe.node.supervisor import parent
from standpipe.sql.lookup.plan_cache import PlanCache
from standpipe.sql.syntax import variables

BACKTRACKING = re.compile(r"(a+)+$")


def hanging(text_at: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if "WEDGE" in arguments[text_at]:
            BACKTRACKING.match("a" * 60 + "b")  # longer than anybody lives
        return function(*arguments, **named)

    return call


if __name__ == "__main__":
    PlanCache.plan = hanging(1, PlanCache.plan)  # type: ignore[method-assign]
    variables.parse = hanging(0, variables.parse)
    sys.exit(parent.main())
