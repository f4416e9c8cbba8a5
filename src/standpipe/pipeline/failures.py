"""Why a query cannot continue: named failures, and how Spark's errors are mapped to them.

A named failure ends in QueryStatus FAILED and is not retried before a user pauses and resumes the
query: trying again could only lose data or repeat it. Everything else is retried with back-off
(`run/scheduler.py`). Other queries are not affected.
"""

from __future__ import annotations

import re
from typing import Final

#: parts of a message of Spark or Kafka -> our reason; the first match wins. Not here: an unknown
#: topic. Kafka briefly gives that answer for a new topic that a broker does not know yet; the next
#: start checks whether it was deleted (`commit/topic_check.py`)
_KNOWN: Final = (
    ("KAFKA_DATA_LOSS", "DATA_LOSS"),
    ("Some data may have been lost", "DATA_LOSS"),
    ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", "PLAN_CHANGED"),
    ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", "PLAN_CHANGED"),
    ("CANNOT_LOAD_STATE_STORE", "STATE_DAMAGED"),
)
#: what Java calls storage that is away or restarts: state that cannot be loaded now is not damaged
_AWAY: Final = re.compile(
    r"java\.net\.\w+Exception|org\.apache\.hadoop\.[\w.$]*(?:ConnectTimeout|Retriable|Standby|SafeMode"
    r"|BlockMissing)Exception"
)
_REBUILD: Final = "DROP {kind} {name}; and then {statement}"

#: reason -> what happened, and the command that resolves it
_RESOLVED_BY: Final = {
    "DATA_LOSS": "a topic that the query reads has lost records that were not read yet (it was "
    "deleted or recreated, or its retention is shorter than an outage). To continue with what is "
    "left: " + _REBUILD,
    "PLAN_CHANGED": "the state in the checkpoint is of another plan of this query. To rebuild "
    "it: " + _REBUILD,
    "STATE_DAMAGED": "the state in the checkpoint cannot be read. Restore the directory of the "
    "checkpoint, or rebuild it: " + _REBUILD,
    "FOREIGN_FENCE": "Then " + _REBUILD,
    "DRIVER_DIED": "Spark's driver has died twice in a row while this query alone was in a batch; "
    "the log of the pipeline says of what, most often of a lack of memory. Other queries continue. "
    "To try again: PAUSE {query_id}; and then RESUME {query_id}; before that, `standpipe query "
    "isolate {name}` gives it a driver of its own. To change the query: CREATE OR REPLACE, or "
    + _REBUILD,
}


#: `QueryStatus.reason` -> what it means; docs/errors.md is generated from it
REASONS: Final = {
    "CHECKPOINT_MISMATCH": "Final. The checkpoint is of another query.",
    "CHECKPOINT_LOST": "Final. Readers have seen a batch that the checkpoint does not have.",
    "CHECKPOINT_DAMAGED": "Final. A file of the checkpoint cannot be read.",
    "DATA_LOSS": "Final. A topic has lost records that the query had not read.",
    "TOPIC_CHANGED": "Final. A topic of the query was deleted or recreated, or a source has other "
    "partitions than its declaration. Of a query that is RUNNING: partitions were added to its "
    "table topic, and are not used; or its public topic was recreated, and lacks older rows.",
    "TOPIC_INTERNAL": "Final. The query would write a topic that is internal to the cluster.",
    "PLAN_CHANGED": "Final. The state in the checkpoint is of another plan.",
    "STATE_DAMAGED": "Final. The state in the checkpoint cannot be read.",
    "PLAN_UNREADABLE": "Final. Spark cannot run the plan. An older pipeline may lack a function: "
    "upgrade pipelines before nodes; a newer one that takes over goes on.",
    "DRIVER_DIED": "Spark's driver died twice in a row while this query alone was in a batch. "
    "Final until the query is paused and resumed, or replaced.",
    "FOREIGN_FENCE": "Final. The progress topic has a lease epoch that this cluster did not grant: "
    "another cluster, or someone who knows the secret, wrote it. FENCED, below, is another thing.",
    "TOPIC_MISSING": "Waits for a topic. If commits name the topic, TOPIC_CHANGED after 10 s.",
    "ACCESS_DENIED": "Waits for an ACL of Kafka, which the message names.",
    "SCHEMA_REGISTRY_UNAVAILABLE": "Waits for the schema registry: a batch has records under a "
    "schema that is not known yet. The message says why; no record is left out for that.",
    "GROUP_CHANGED": "A query of its group ran alone meanwhile; the group starts without it.",
    "THROTTLED": "Its batches are smaller or wait, since a replica is further behind than "
    "standpipe.replication.max.lag allows. The message names it. It goes on by itself.",
    "NO_PROGRESS": "Its source has data, but nothing was committed for 20 s.",
}
#: a topic that is absent for this long was deleted: by then all brokers know a new topic
GONE_S: Final = 10.0


#: in a message of Spark it stands in the traceback of our source, with its own message behind it
_REGISTRY: Final = re.compile(r"SchemaRegistryUnavailable: ([^\n]*)")


class QueryFailed(Exception):
    """A failure with a stable name; `message` names the next step."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class NotYet(Exception):
    """Something that the query needs does not exist yet, such as its topic.

    `final_failure`: the failure if it has not appeared within `GONE_S`; None: wait longer.
    """

    def __init__(self, reason: str, message: str, final_failure: QueryFailed | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.final_failure = final_failure


class Fenced(Exception):
    """Another lease epoch is newer: this run of the query must write nothing more."""


def resolved_by(reason: str, *, query_id: str, kind: str, name: str, statement: str) -> str:
    """Text that says what happened and which statements resolve it; "" for other reasons."""
    text = _RESOLVED_BY.get(reason, "")
    return text.format(query_id=query_id, kind=kind, name=name, statement=statement)


def registry_failure(text: str) -> tuple[str, str] | None:
    """The reason and message of an error, with its class, of the schema registry; None: it is
    another."""
    found = _REGISTRY.search(text)
    return ("SCHEMA_REGISTRY_UNAVAILABLE", found[1]) if found else None


def reason_of(message: str) -> str | None:
    """The reason that a message of Spark implies; None: a retry may succeed."""
    found = next((reason for part, reason in _KNOWN if part in message), None)
    return None if found == "STATE_DAMAGED" and _AWAY.search(message) else found
