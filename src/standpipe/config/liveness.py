"""The keys of heartbeats and lag reports, with the relations between them (KLIP-12).

Not here: what they control (`control.liveness.heartbeats`, `control.liveness.lag`); all other keys
(`standpipe.config.keys`).
"""

from __future__ import annotations

from standpipe.config.registry import Config, key, relation

HEARTBEAT = key(
    "ksql.heartbeat.enable",
    bool,
    True,
    source="ksqlDB",
    doc="Nodes send heartbeats to each other, and skip nodes without them. On by default, unlike "
    "ksqlDB.",
)
BEAT_SEND = key(
    "ksql.heartbeat.send.interval.ms",
    int,
    100,
    unit="ms",
    low=10,
    source="KLIP-12",
    doc="How often a node sends a heartbeat to each other node.",
)
BEAT_CHECK = key(
    "ksql.heartbeat.check.interval.ms",
    int,
    200,
    unit="ms",
    low=10,
    source="KLIP-12",
    doc="How often a node evaluates the heartbeats of the others. A node that stops is detected "
    "within send interval x missed threshold + check interval.",
)
BEAT_WINDOW = key(
    "ksql.heartbeat.window.ms",
    int,
    2000,
    unit="ms",
    low=100,
    source="KLIP-12",
    doc="Heartbeats older than this are ignored.",
)
BEATS_MISSED = key(
    "ksql.heartbeat.missed.threshold.ms",
    int,
    3,
    unit="count",
    low=1,
    source="KLIP-12",
    doc="Consecutive missed heartbeats that mark a node down. ksqlDB's name says ms; it is a "
    "count.",
)
BEATS_RECEIVED = key(
    "standpipe.heartbeat.received.threshold",
    int,
    2,
    unit="count",
    low=1,
    source="KLIP-12",
    doc="Consecutive received heartbeats that mark a node alive. In KLIP-12, but never in ksqlDB.",
)
LAG_REPORTS = key(
    "ksql.lag.reporting.enable",
    bool,
    True,
    source="ksqlDB",
    doc="Nodes report the positions of their replicas. On by default, unlike ksqlDB.",
)
LAG_SEND = key(
    "ksql.lag.reporting.send.interval.ms",
    int,
    5000,
    unit="ms",
    low=100,
    source="ksqlDB",
    doc="How often a node reports all of its lags. In clusters of up to 20 nodes its "
    "heartbeats, if enabled, carry changes as well. Otherwise a report is valid for three "
    "intervals, so set the same value on all nodes.",
)

relation(
    lambda config: config[BEAT_WINDOW] > config[BEAT_SEND] * config[BEATS_MISSED],
    why="ksql.heartbeat.window.ms must exceed send interval x missed threshold: a shorter "
    "window cannot contain the misses",
)
relation(
    lambda config: config[BEAT_WINDOW] > config[BEAT_SEND] * config[BEATS_RECEIVED],
    why="ksql.heartbeat.window.ms must exceed send interval x received threshold: else no node "
    "ever counts as alive",
)


#: Consecutive reports that may be lost if only reports confirm lags.
REPORTS_LOST_MAX = 3
#: Minimum, however often reports are sent: the lags of a briefly slow node stay known.
REPORTS_AGE_MS_MIN = 3000
#: The same minimum, for a leader that has just been elected.
REPORTS_SETTLE_MS_MIN = 5000


def reports_age_ms_max(config: Config) -> int:
    """How long a lag is valid that only reports confirm. Milliseconds."""
    low = max(config[BEAT_WINDOW], REPORTS_AGE_MS_MIN)
    return max(low, REPORTS_LOST_MAX * config[LAG_SEND])


def reports_settle_ms(config: Config) -> int:
    """Within this time all nodes have reported again, even if one report is lost. Milliseconds."""
    return max(REPORTS_SETTLE_MS_MIN, 3 * config[LAG_SEND] // 2)
