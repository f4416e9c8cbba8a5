"""docs/metrics.md from the declared metrics: `python -m standpipe.local.docgen.metrics`."""

from __future__ import annotations

from standpipe.adapters.metrics import (
    COUNTERS,
    GAUGES,
    LATENCY_MEANING,
    LATENCY_NAME,
    STATES,
    TIMINGS,
)
from standpipe.local.docgen.lines import items

HEAD = """\
# Metrics

Generated from `src/standpipe/adapters/metrics.py` by `make docs`; change it there.

`GET /metrics` of any node, in Prometheus's text format. Each node speaks for itself, so scrape all
of them. A metric that is not known has no sample: an unknown lag is never 0.

"""

COUNTED = """\
## Counted by workers

All have the label `worker` too: whichever worker of the node is asked answers for all. The
connections of control's port are counted as those of the worker `control`.

"""

READ = """\
## Read at the scrape

States of the node as they are at that moment. `table`, `generation` and `partition` name a copy on
the node that is asked; a table that is built beside another one has two generations. Pipelines
tell every node of all queries, so take `max by (query_id)` over nodes, not a sum. What a copy or a
pipeline counts (`_total`) begins at 0 again with a new store or a new driver. The reasons of a
query are those of [INTERFACES](INTERFACES.md) "Pipeline"; SHOW QUERIES says what resolves each.
The metadata quorum loses leaders where `standpipe_quorum_sync_seconds` is more than about four
fifths of `controller.quorum.fetch.timeout.ms` (600, so 0.48 s); it has no sample where control is
gone.

"""

ALARMS = """\
## Worth an alarm

Where it lasts for a minute or so: restarts and moves show for seconds.

```
max by (query_id, state, reason)
  (standpipe_query_state{state=~"FAILED|RETRYING|UNRESPONSIVE"}) == 1
max by (query_id, reason) (standpipe_query_state{reason=~"NO_PROGRESS|TOPIC_CHANGED"}) == 1
max by (query_id) (standpipe_query_report_age_seconds) > 30
standpipe_replica_state{state=~"FAILED|DATA_LOSS"} == 1
standpipe_replica_lag_seconds > 60
standpipe_peer_up == 0
standpipe_snapshot_age_seconds > 5
standpipe_quorum_has_leader == 0
standpipe_quorum_sync_seconds > 0.48
increase(standpipe_connections_refused_total[5m]) > 0
standpipe_disk_free_bytes < 0.1 * standpipe_disk_size_bytes
standpipe_process_open_fds > 0.9 * standpipe_process_max_fds
```
"""


def page() -> str:
    """docs/metrics.md."""
    counters = [(f"{name}_total", *entry) for name, entry in COUNTERS.items()]
    gauges = [(name, *entry) for name, entry in GAUGES.items()]
    timed = {LATENCY_NAME: LATENCY_MEANING, **TIMINGS}
    timings = [(name, (), f"{meaning} A histogram.") for name, meaning in timed.items()]
    states = [(name, *entry) for name, entry in STATES.items()]
    counted = [*counters, *gauges, *timings]
    return "\n".join([HEAD + COUNTED + _list(counted), READ + _list(states), ALARMS.rstrip(), ""])


def _list(entries: list[tuple[str, tuple[str, ...], str]]) -> str:
    def line(name: str, labels: tuple[str, ...], meaning: str) -> str:
        shown = ", ".join(f"`{label}`" for label in labels)
        return f"`{name}`{f' ({shown})' if shown else ''}: {meaning}"

    return items([line(*entry) for entry in entries])


if __name__ == "__main__":
    print(page(), end="")
