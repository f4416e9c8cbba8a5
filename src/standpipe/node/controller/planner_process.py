"""The assignor as a separate process: a Problem on standard input, its Step on standard output.

`node.controller.planner` starts it for one plan if the work would delay the node's heartbeats. A
separate module, since it is what the child process runs (`python -m`).
"""

from __future__ import annotations

import pickle
import sys

from standpipe.adapters.process import die_with_parent
from standpipe.control.assignment.from_catalog import Problem


def main() -> int:
    """Entry point; returns the exit status."""
    die_with_parent()
    problem = pickle.load(sys.stdin.buffer)  # noqa: S301 from the parent, over a pipe
    assert isinstance(problem, Problem)
    pickle.dump(problem.solve(), sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
