"""The functions of our operators, as Spark's executors get them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from standpipe.data.operators.keyed import OPERATORS, TIMED
from standpipe.pipeline.io import stateful

pickler: Any = cloudpickle
#: an executor's Python, which has no standpipe
EXECUTOR = """
import json, pickle, sys
sys.modules["standpipe"] = None
import pandas as pd

class State:
    exists = False
    def getCurrentWatermarkMs(self):
        return 1
    def update(self, value):
        pass
    def setTimeoutTimestamp(self, at_ms):
        pass

with open(sys.argv[1], "rb") as file:
    functions, row = pickle.load(file)
rows = pd.DataFrame([{"__K": "k", **row}])
counts = {}
for name, function in functions.items():
    (out,) = function(("k",), [rows], State())
    counts[name] = len(out)
print(json.dumps(counts))
"""
TIMES = {"__ORDER": 1, "__ROWTIME": 7, "__T": 7}
ROW = {**TIMES, "__ROW": "{}", "__SIDE": 0, "__SIGN": 1, "__ID": "i"}
FLAGS = {"__LIVE": True, "__LOOSE": False, "__STAYS": False}
OPTIONS = {"gap_ms": 5, "before_ms": 5, "after_ms": 5, "grace_ms": -1, "retention_ms": 9}
KEEPS = {"keeps_left": 1, "keeps_right": 1}


def test_executors_need_nothing_of_ours(tmp_path: Path) -> None:
    functions = {
        name: stateful._function(
            operator, OPTIONS | KEEPS, (stateful.KEY, *columns), is_timed=name in TIMED
        )
        for name, (operator, columns) in OPERATORS.items()
    }
    path = tmp_path / "functions"
    path.write_bytes(pickler.dumps((functions, ROW | FLAGS)))
    ran = subprocess.run(
        [sys.executable, "-c", EXECUTOR, str(path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == dict.fromkeys(OPERATORS, 1), "each makes a row of the row"
