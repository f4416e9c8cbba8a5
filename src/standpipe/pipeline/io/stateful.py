"""Steps of a plan as Spark operators: runs `data/operators/keyed.py` in applyInPandasWithState.

Rows of many keys go to Python with their states in one Arrow batch, so a key costs no extra call.
transformWithState was tried: it asks the JVM for each value of a state, and starts a new Python
process for each operator at each start of a query, which times out on a busy machine.

The functions travel with all of their code, so the Python of an executor needs pandas and PyArrow,
as Spark says, and nothing of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, cast

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from standpipe.data.operators import keyed, sessions
from standpipe.data.operators.keyed import OPERATORS, TIMED, Operator
from standpipe.model import SparkStep

_pd: Any = import_module("pandas")
KEY: Final = "__K"
for _module in (keyed, sessions, sys.modules[__name__]):  # all that the functions call
    cast(Any, cloudpickle).register_pickle_by_value(_module)
_TYPES: Final = {"b": "boolean", "i": "bigint", "s": "string"}


def add_step(session: SparkSession, step: SparkStep) -> None:
    """Register the step's output as a view. The views that its SQL names must exist."""
    operator, columns = OPERATORS[step.operator]
    is_timed = step.operator in TIMED
    output = ", ".join(f"`{n}` {_TYPES[of]}" for n, of in {KEY: "s", **columns}.items())
    rows = cast(DataFrame, cast(Any, session).sql(step.sql))
    made = rows.groupBy(KEY).applyInPandasWithState(
        _function(operator, dict(step.options), (KEY, *columns), is_timed=is_timed),
        output,
        "state string",
        "append",
        "EventTimeTimeout" if is_timed else "NoTimeout",
    )
    made.createOrReplaceTempView(step.view)


def _function(
    operator: Operator, options: dict[str, int], names: tuple[str, ...], *, is_timed: bool
) -> Callable[[Any, Iterable[Any], Any], Iterator[Any]]:
    def apply(key: Any, frames: Iterable[Any], state: Any) -> Iterator[Any]:
        rows: list[dict[str, Any]] = []
        for frame in frames:
            taken = [str(name) for name in frame.columns if name not in (KEY, "__TS")]
            values: list[list[Any]] = [frame[name].tolist() for name in taken]
            rows += [dict(zip(taken, each, strict=True)) for each in zip(*values, strict=True)]
        known = state.get[0] if state.exists else None
        # event times are shifted up by 1 ms (SparkInput.time_shift_ms)
        watermark_ms = state.getCurrentWatermarkMs() - 1 if is_timed else 0
        result = operator(known, rows, options, watermark_ms)
        if result.state is None:
            if known is not None:
                state.remove()
        else:
            state.update((result.state,))
            if is_timed and result.wakes_ms is not None:
                state.setTimeoutTimestamp(max(result.wakes_ms, watermark_ms + 1) + 1)
        for row in result.rows:
            row[KEY] = key[0]
        columns = {name: [row[name] for row in result.rows] for name in names}
        yield _pd.DataFrame(columns, columns=list(names))

    return apply
