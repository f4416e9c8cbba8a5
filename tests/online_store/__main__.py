"""`make feast`: our online store under the real Feast, on a real cluster (Kafka, 2 nodes, Spark).

The cluster runs in this environment, the tests in one of their own: Feast brings 70 packages, some
of them in other versions than ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.cluster import start

TESTS = Path(__file__).with_name("with_feast.py")
ROOT = TESTS.parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.online_store", description=__doc__)
    parser.add_argument("--python", required=True, help="of the environment with Feast")
    given, more = parser.parse_known_args()
    # Feast uses what is deprecated, and the conftest.py of all tests needs packages of ours
    options = ["-o", "filterwarnings=default", "--confcutdir", str(TESTS.parent)]
    command = [given.python, "-m", "pytest", *options, "-p", "no:cacheprovider", str(TESTS), *more]
    with tempfile.TemporaryDirectory() as folder:
        running = start(Path(folder), nodes=2, pipelines=1)
        try:
            nodes = ",".join(address for _, address in running.addresses)
            environment = {**os.environ, "STANDPIPE_NODES": nodes, "PYTHONPATH": str(ROOT / "src")}
            return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
        finally:
            running.close()


if __name__ == "__main__":
    sys.exit(main())
