"""The keys of heartbeats and lag reports, with the relations between them (KLIP-12).

Not here: what they do (`control.liveness.heartbeats`, `control.liveness.lag`), all other keys
(`standpipe.config.keys`).
"""

from __future__ import annotations

from standpipe.config.registry import Config, key, relation

HEARTBEAT = key(
    "ksql.heartbeat.enable",
    bool,
    True,
    source="ksqlDB",
    doc="Nodes beat to each other and pass over those that do not. On by default, unlike ksqlDB.",
)
BEAT_SEND = key(
    "ksql.heartbeat.send.interval.ms",
    int,
    100,
    unit="ms",
    low=10,
    source="KLIP-12",
    doc="How often a node tells each other node that it lives.",
)
BEAT_CHECK = key(
    "ksql.heartbeat.check.interval.ms",
    int,
    200,
    unit="ms",
    low=10,
    source="KLIP-12",
    doc="How often a node judges the others by their beats. A node that stops is found within "
    "send x missed + check.",
)
BEAT_WINDOW = key(
    "ksql.heartbeat.window.ms",
    int,
    2000,
    unit="ms",
    low=100,
    source="KLIP-12",
    doc="Beats older than this are not looked at.",
)
BEATS_MISSED = key(
    "ksql.heartbeat.missed.threshold.ms",
    int,
    3,
    unit="count",
    low=1,
    source="KLIP-12",
    doc="Beats missed in a row that mark a node down. ksqlDB's name says ms; it is a count.",
)
BEATS_RECEIVED = key(
    "standpipe.heartbeat.received.threshold",
    int,
    2,
    unit="count",
    low=1,
    source="KLIP-12",
    doc="Beats received in a row that mark a node alive. ksqlDB never had this one of KLIP-12's.",
)
LAG_REPORTS = key(
    "ksql.lag.reporting.enable",
    bool,
    True,
    source="ksqlDB",
    doc="Nodes report how far their replicas are. On by default, unlike ksqlDB.",
)
LAG_SEND = key(
    "ksql.lag.reporting.send.interval.ms",
    int,
    5000,
    unit="ms",
    low=100,
    source="ksqlDB",
    doc="How often a node reports all of its lags. In clusters of up to 20 nodes changes go with "
    "its beats, if it beats; elsewhere a report is believed for three intervals, so all nodes "
    "should have the same.",
)

relation(
    lambda config: config[BEAT_WINDOW] > config[BEAT_SEND] * config[BEATS_MISSED],
    why="ksql.heartbeat.window.ms must exceed send interval x missed threshold: a shorter window "
    "cannot see the misses",
)
relation(
    lambda config: config[BEAT_WINDOW] > config[BEAT_SEND] * config[BEATS_RECEIVED],
    why="ksql.heartbeat.window.ms must exceed send interval x received threshold: else no node "
    "ever counts as alive",
)


#: Where reports alone confirm lags, so many may be lost.
REPORTS_LOST_MAX = 3
#: However fast reports come: a node that is slow for a moment is not unheard of.
REPORTS_AGE_MS_MIN = 3000
#: The same, of a leader that has just been elected.
REPORTS_SETTLE_MS_MIN = 5000


def reports_age_ms_max(config: Config) -> int:
    """For how long a lag is believed that reports alone confirm."""
    low = max(config[BEAT_WINDOW], REPORTS_AGE_MS_MIN)
    return max(low, REPORTS_LOST_MAX * config[LAG_SEND])


def reports_settle_ms(config: Config) -> int:
    """Within which all nodes have reported again, be one report lost on its way."""
    return max(REPORTS_SETTLE_MS_MIN, 3 * config[LAG_SEND] // 2)
