"""Replicas of a direct table in one thread from one seed: a topic in other hands, and every fault.

In the safety phase programs write, and the topic's owner and chance do what they like; whatever a
replica shows must be a prefix of its log. Then the world heals, and every replica that did not
lose its topic must have all of it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from tests.samples import sample_table
from tests.unit.data.rows import numbers

from standpipe.data.replica.direct_stage import DirectCodec
from standpipe.data.replica.events import ApplyBatch
from standpipe.data.replica.positions import ReplicaState
from standpipe.model import OF_LOG, Column

from .direct_log import SourceLog, rows_of
from .direct_replica import DirectReplica
from .invariants import Violation
from .scheduler import Scheduler

HISTORY = 200
HEAL_MS = 30_000
STEP_MS = 30
#: nobody writes to a topic made again for so long: until then, replicas may not know (DESIGN.md)
QUIET_MS = 8_000


@dataclass(frozen=True)
class DirectOptions:
    """What a seed decides; printed with every failure."""

    replicas: int
    keys: int
    is_versioned: bool
    compacts: bool
    retains: bool
    cuts: bool
    is_made_again: bool
    has_ids: bool
    """Whether the table names Kafka's id of its topic; brokers from before ids give none."""
    has_markers: bool
    write_ms: int
    fault_ms: int
    late_ms: int
    compact_ms: int
    fetches: float
    """How often a consumer has something, each time it is asked."""
    tombstones_ms: int
    safety_ms: int
    end_late_ms: int
    limits: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, seed: int) -> DirectOptions:
        draw = random.Random(seed * 6271 + 11)
        is_versioned = draw.random() < 0.3
        return cls(
            replicas=draw.choice([2, 2, 3]),
            keys=draw.choice([2, 8, 60]),
            is_versioned=is_versioned,
            compacts=draw.random() < (0.3 if is_versioned else 0.9),
            retains=draw.random() < 0.2,
            cuts=draw.random() < 0.25,
            is_made_again=draw.random() < 0.25,
            has_markers=draw.random() < 0.4,
            write_ms=draw.choice([50, 150, 400]),
            fault_ms=draw.choice([500, 2000, 5000]),
            late_ms=draw.choice([5, 100, 600]),
            compact_ms=draw.choice([200, 1500]),
            fetches=draw.choice([1, 0.3, 0.1]),
            tombstones_ms=draw.choice([8_000, 30_000]),
            safety_ms=draw.randint(40_000, 60_000),
            limits={
                "transaction_rows": draw.choice([2, 10, 1000]),
                "backlog_records": draw.choice([3, 30]),
                "held_rows_max": draw.choice([1, 5, 1000]),
                "bytes_max": draw.choice([1500, 1 << 20]),
            },
            end_late_ms=draw.choice([5, 100, 600]),
            has_ids=draw.random() < 0.8,
        )


COLUMNS = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="N", type="BIGINT"),
    Column(name="V", type="BIGINT"),
)


class DirectWorld:
    def __init__(self, seed: int, options: DirectOptions | None = None) -> None:
        self.seed = seed
        self.options = options or DirectOptions.of(seed)
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.counts: Counter[str] = Counter()
        self._history: deque[str] = deque(maxlen=HISTORY)
        version = {"version_column": "V"} if self.options.is_versioned else {}
        source = sample_table(columns=COLUMNS, is_direct=True, **version)
        self.codec = DirectCodec.of(source, 0)
        self.log = SourceLog(self.options.tombstones_ms)
        self.replicas = [DirectReplica(self, f"r{n}") for n in range(self.options.replicas)]
        #: Kafka's id of the topic that the table was made for; "": it is not known
        self.followed_id = self._topic_id()
        self._number = 0
        self._versions: dict[bytes, int] = {}
        self._quiet_until_ms = 0
        self._is_healing = False

    # ------------------------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_us // 1000 + 1_000_000

    @property
    def sure_ms(self) -> int:
        """For how long tombstones are sure to stay: as `topics.DIRECT_TOMBSTONES_MS`."""
        return self.options.tombstones_ms // 2

    def late_ms(self) -> int:
        return self.random.randint(0, self.options.late_ms)

    def _every(self, ms: float, action, *, until_healing: bool = True) -> None:
        def again() -> None:
            if until_healing and self._is_healing:
                return
            action()
            self._every(ms, action, until_healing=until_healing)

        self.scheduler.after(1000 * ms * self.random.uniform(0.5, 1.5), again)

    # ------------------------------------------------------------------------- the topic

    def _write(self) -> None:
        if self.now_ms < self._quiet_until_ms:
            return
        for _ in range(self.random.choice([1, 1, 1, 6])):
            self._write_one()
        if self.options.has_markers and self.random.random() < 0.3:
            self.log.mark()
            self.counts["markers"] += 1
        self.log.note_end(self.now_ms)

    def _write_one(self) -> None:
        self._number += 1
        key = b"k%d" % self.random.randrange(self.options.keys)
        chance = self.random.random()
        if chance < 0.05:
            self.log.append(b"bad", self._number, 0, is_bad=True)
        elif chance < 0.2:
            self.log.append(key, None, 0)
        else:
            newest = self._versions.get(key, 0)
            is_replay = newest > 0 and self.random.random() < 0.3
            version = self.random.randint(1, newest) if is_replay else newest + 1
            self._versions[key] = max(newest, version)
            self.log.append(key, self._number, version)
        self.counts["records"] += 1

    def _compact(self) -> None:
        self.counts["records compacted"] += self.log.compact(self.now_ms, self.random)

    def _retain(self) -> None:
        self.log.retain(self.random.randint(0, self.log.end))
        self.counts["retentions"] += 1

    def _cut(self) -> None:
        end = self.random.randint(max(self.log.start, self.log.end - 20), self.log.end)
        self.note("topic", f"cut off at {end} of {self.log.end}")
        self.log.cut_off(end)
        self.log.note_end(self.now_ms)
        self.counts["logs cut off"] += 1

    def _topic_id(self) -> str:
        return self.log.topic_id if self.options.has_ids else ""

    def _make_again(self) -> None:
        self.log.make_again()
        self.note("topic", f"made again as {self.log.topic_id}")
        self._quiet_until_ms = self.now_ms + QUIET_MS
        self.counts["topics made again"] += 1

    # ------------------------------------------------------------------------ the nodes

    def _fault(self) -> None:
        replica = self.random.choice(self.replicas)
        kind = self.random.choice(["kill", "kill", "pause", "disk", "operator"])
        if kind == "operator" and replica.is_lost:
            self.note(replica.name, "the table is made again")
            self.counts["tables made again"] += 1
            self.followed_id = self._topic_id()
            for each in self.replicas if self.followed_id else [replica]:
                each.empty()
                if each.machine is not None:
                    each.open()
        elif kind in ("kill", "disk") and replica.machine is not None:
            self.note(replica.name, kind)
            replica.kill()
            if kind == "disk":
                replica.empty()
            self.counts["replicas killed"] += 1
            away_ms = self.random.choice([50, 1000, 2 * self.options.tombstones_ms])
            self.scheduler.after(1000 * away_ms, replica.open)
        elif kind == "pause" and not replica.is_paused:
            replica.is_paused = True
            self.counts["replicas paused"] += 1
            away_ms = self.random.choice([200, 4000, self.options.tombstones_ms])
            self.note(replica.name, f"paused for {away_ms} ms")
            self.scheduler.after(1000 * away_ms, lambda: setattr(replica, "is_paused", False))

    # ----------------------------------------------------------------------- what must hold

    def changing(self, replica: DirectReplica, order: ApplyBatch) -> None:
        """A transaction: no row goes back to a smaller version, unless its key was deleted."""
        if not self.options.is_versioned:
            return
        new, old = numbers(dict(order.puts)), replica.store.numbers()
        for key in new.keys() & old.keys():
            before, after = _pair(old[key])[1], _pair(new[key])[1]
            deleted = self._deleted(replica, key[:-2], int(order.meta.position))
            if after < before and not deleted:
                raise Violation(f"{replica.name}: {key} goes back from {before} to {after}")

    def _deleted(self, replica: DirectReplica, key: bytes, end: int) -> bool:
        return any(
            record is not None and record.key == key and record.number is None
            for history in self.log.logs_of(replica.store.meta.topic_id)
            for record in history[replica.store.meta.position : end]
        )

    def check(self, replica: DirectReplica) -> None:
        """Rows with a label are those of a prefix of a log that its topic has been."""
        machine, store = replica.machine, replica.store
        if machine is None or not machine.state.answers:
            return
        self.counts["checks"] += 1
        if self.followed_id and store.meta.topic_id not in ("", self.followed_id):
            raise Violation(f"{replica.name} follows another topic than {self.followed_id}")
        begun_id, begun_end = replica.begun
        is_known = begun_id == self.log.topic_id and not self.log.cuts
        if is_known and store.meta.position < begun_end:
            raise Violation(f"{replica.name} answers while it is made: {store.meta}")
        if store.meta.batch != OF_LOG:
            self.counts["rows without a label"] += 1
            return
        if self.options.is_versioned and (self.options.compacts or self.options.retains):
            return  # `changing` holds; the topic itself may have lost the larger version
        position, found = int(store.meta.position), self._rows(replica)
        known = [
            rows_of(history, replica.start or 0, position, is_versioned=self.options.is_versioned)
            for history in self.log.logs_of(store.meta.topic_id)
            if len(history) >= position
        ]
        if found not in known:
            raise Violation(
                f"{replica.name} at {position} of {store.meta.topic_id} from {replica.start}: "
                f"{found} is none of {known}"
            )

    def rebuilding(self, fetched: int) -> None:
        """A store is given up. What a log lost that was cut off may be nowhere else."""
        if fetched > self.log.end:
            raise Violation(f"a store is given up at {fetched}, and the log ends at {self.log.end}")

    def confirmed(self, replica: DirectReplica) -> None:
        """It says that it has all from before an instant."""
        if replica.store.meta.topic_id != self.log.topic_id:
            return  # it has 3 s to notice
        end = self.log.end_at(replica.confirmed_ms - 1)
        self.counts["confirmations"] += 1
        if replica.store.meta.position < end:
            raise Violation(f"{replica.name} confirmed {end} and is at {replica.store.meta}")

    def lost(self, replica: DirectReplica, reason: str) -> None:
        self.note(replica.name, f"DATA_LOSS: {reason}")
        self.counts["replicas that lost their topic"] += 1
        if not self.counts["topics made again"] and not self.counts["logs cut off"]:
            raise Violation(f"{replica.name} lost a topic that was never touched: {reason}")

    def _rows(self, replica: DirectReplica) -> dict[bytes, tuple[int, int]]:
        return {key[:-2]: _pair(array) for key, array in replica.store.numbers().items()}

    # -------------------------------------------------------------------------------- a run

    def run(self) -> None:
        options = self.options
        for replica in self.replicas:
            replica.open()
            self._every(STEP_MS, replica.step, until_healing=False)
        self._every(options.write_ms, self._write)
        self._every(options.fault_ms, self._fault)
        seldom_ms = options.safety_ms / 4
        if options.compacts:
            self._every(options.compact_ms, self._compact)
        if options.retains:
            self._every(seldom_ms, self._retain)
        if options.cuts:
            self._every(seldom_ms, self._cut)
        if options.is_made_again:
            self._every(seldom_ms, self._make_again)
        self.scheduler.run(1000 * options.safety_ms)
        self._heal()

    def _heal(self) -> None:
        self._is_healing = True
        away_ms = 2 * self.options.tombstones_ms
        self.scheduler.run(self.scheduler.now_us + 1000 * (away_ms + HEAL_MS))
        for replica in self.replicas:
            machine, store = replica.machine, replica.store
            assert machine is not None
            if machine.state is ReplicaState.DATA_LOSS:
                continue
            if machine.state is not ReplicaState.RUNNING or store.meta.batch != OF_LOG:
                raise Violation(f"{replica.name} never came to the end: {store.meta}")
            if (store.meta.topic_id, store.meta.position) != (self.log.topic_id, self.log.end):
                raise Violation(f"{replica.name} is not at the end: {store.meta}")
            if self.now_ms - replica.confirmed_ms > 2000:
                raise Violation(f"{replica.name} does not confirm that it is at the end")
            self.check(replica)
            self.counts["replicas at the end"] += 1

    def note(self, who: str, what: str) -> None:
        self._history.append(f"{self.now_ms:>9} {who:6} {what}")

    def history(self) -> str:
        return "\n".join([str(self.options), *self._history])


def _pair(array: bytes) -> tuple[int, int]:
    number, version = array.strip(b"[]").split(b",")
    return int(number), int(version)
