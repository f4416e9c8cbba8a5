"""The client is small: what it loads is Python's own, and two packages."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
before = set(sys.modules)
import standpipe
assert "standpipe.client" not in sys.modules, "a node does not load it"
standpipe.connect("h:1")
standpipe.connect_async("h:1")
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""


#: what executors load for spark.read.format("standpipe")
IN_SPARK = """
import sys
import pyspark.sql.datasource, pyspark.sql.pandas.types
before = set(sys.modules)
import pyspark_standpipe
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""


def test_spark_loads_the_client_and_nothing_of_the_server() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IN_SPARK], capture_output=True, text=True, check=True, timeout=60
    )
    found = {name for name in ran.stdout.split() if not name.startswith("_")}
    optional = {"typing_extensions", "cython_runtime", "pyspark"}
    assert found - optional == {"pyspark_standpipe", "standpipe", "msgspec", "httptools"}


def test_the_client_loads_no_spark_kafka_or_lmdb() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    found = {name for name in ran.stdout.split() if not name.startswith("_")}
    optional = {"typing_extensions", "cython_runtime"}  # msgspec's, httptools' own
    assert found - optional == {"standpipe", "msgspec", "httptools"}
