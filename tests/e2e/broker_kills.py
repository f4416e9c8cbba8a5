"""Does every row equal a recompute, however often brokers of a secured Kafka die or hang?

    make broker-kills KILLS=20

Three brokers with SASL_SSL, SCRAM and ACLs, three nodes, Spark, and events at a steady rate. Again
and again one broker, at times the controller, is killed (SIGKILL), hangs (SIGSTOP) or is shut down,
and comes back. After every fifth time, all events that Kafka acknowledged are waited for, and every
row is compared.

Not here: two brokers at once, which min.insync.replicas=2 answers by refusing writes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.progress import Progress as Bar
from tests import report
from tests.e2e import kill_runs
from tests.e2e.cluster import TestCluster
from tests.e2e.kafka_cluster import BROKERS, KafkaCluster
from tests.e2e.secured_cluster import (
    STATEMENTS,
    Feed,
    await_rows,
    feed_of,
    secured_cluster,
    secured_kafka,
    wait_for_events,
)

RESULTS = report.RESULTS / "broker_kills.json"
CHECK_EVERY = 5
EVENTS_MAX = 400  # acknowledged while a broker is away


def disturb(kafka: KafkaCluster, feed: Feed, dice: random.Random) -> str:
    """One broker goes and comes back; returns what happened to which."""
    number = dice.choice([*BROKERS, kafka.controller()])
    how = dice.choice(("killed", "hung", "shut down"))
    away = {"killed": kafka.kill, "hung": kafka.stop, "shut down": kafka.shut_down}[how]
    away(number)
    wait_for_events(feed, dice.randrange(1, EVENTS_MAX))
    if how == "hung":
        kafka.go_on(number)
        kafka.wait_until_ready()
    else:
        kafka.start_again(number)
    return how


def wrong_rows(cluster: TestCluster, feed: Feed) -> list[str]:
    """Rows that do not become those of the recompute, and what they are instead."""
    try:
        await_rows(cluster, feed)
    except AssertionError as error:
        return [str(error)]
    return []


def run(kills: int, seed: int) -> dict[str, object]:
    dice, kinds = random.Random(seed), Counter[str]()
    began, rows, wrong = time.monotonic(), 0, list[str]()
    with (
        tempfile.TemporaryDirectory() as name,
        secured_kafka((folder := Path(name)) / "kafka") as kafka,
        secured_cluster(kafka, folder / "cluster") as cluster,
        feed_of(kafka, folder / "app") as feed,
        Bar() as bar,
    ):
        cluster.sql(STATEMENTS)
        task = bar.add_task("brokers", total=kills)
        for number in range(1, kills + 1):
            if number % CHECK_EVERY == 1:
                feed.start()
                wait_for_events(feed, 50)
            kinds[disturb(kafka, feed, dice)] += 1
            bar.advance(task)
            if number % CHECK_EVERY == 0 or number == kills:
                feed.stop()
                wrong += wrong_rows(cluster, feed)
                rows += len(feed.rows())
        return {
            "seed": seed,
            "brokers_disturbed": kills,
            "kinds": dict(sorted(kinds.items())),
            "events_acknowledged": feed.acknowledged_count,
            "events_failed": len(feed.errors),
            "rows_compared": rows,
            "rows_wrong": len(wrong),
            "wrong": wrong,
            "seconds": round(time.monotonic() - began, 1),
        }


def main() -> int:
    given = kill_runs.options(__doc__, kills=20, result=RESULTS).parse_args()
    ran = kill_runs.record(given, lambda: run(given.kills, given.seed))
    print(ran)
    return 0 if ran["events_failed"] == ran["rows_wrong"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
