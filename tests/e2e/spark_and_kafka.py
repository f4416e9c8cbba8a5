"""Start a Kafka broker and a Spark session, and print the Java they run on: a child of a test.

python tests/e2e/spark_and_kafka.py DIRECTORY PORT
"""

from __future__ import annotations

import sys
from pathlib import Path

from standpipe.config import registry
from standpipe.local.cluster import jvm
from standpipe.local.cluster.broker import Broker
from standpipe.pipeline.run import session


def main(directory: Path, port: int) -> None:
    java = jvm.find_java()
    print("java", java.version, java.home)
    with Broker(directory, port) as broker:
        spark = session.open_session(
            registry.load({}), master="local[1]", jars=jvm.jars("spark"), java_home=java.home
        )
        spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        print("rows", spark.range(7).count())
        session.kill_jvm()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
