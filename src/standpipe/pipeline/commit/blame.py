"""Decides which query caused a driver's death, and which queries may be in a batch together.

Spark's driver is one JVM for all queries, so a query that exhausts its memory crashes it for all,
again and again. Only a query that was in a batch can have caused a death:

    in a batch    what a death means
    one query     it is held against that query; after DEATHS_MAX in a row (VANISHED_MAX, if not
                  only the JVM died) the query is GUILTY
    several       each of them becomes SUSPECT: nothing is held against it
    none          nothing

A suspect runs its next batch alone, so the next death has one possible cause. A query that finishes
a batch, or has nothing to do, is CLEAR again. So no query is failed because of another one, and a
guilty one crashes the driver at most 1 + DEATHS_MAX times: once among others, then alone. A driver
that is killed from outside counts only against a query that was alone that often in a row.

Pure: no clock, no files. Not here: what is on disk (`batch_marks.py`), starting and
failing queries (`run/scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import field, structs

from standpipe.model import Record

#: deaths in a row in which the query alone was in a batch; then it is failed
DEATHS_MAX: Final = 2
#: the same, if the whole driver vanished: most such deaths come from outside (an operator, a lost
#: machine), and one of them may hit a query alone by chance
VANISHED_MAX: Final = 4


class Blame(Enum):
    """What is known of a query: see the top of this module."""

    CLEAR = "CLEAR"
    SUSPECT = "SUSPECT"
    GUILTY = "GUILTY"


class Charge(Record, frozen=True, kw_only=True):
    """What is held against one revision of a query: CREATE OR REPLACE starts with a clean slate."""

    revision: int
    #: deaths in a row in which it was alone in a batch: those of the JVM, and of whole drivers
    deaths: int = 0
    vanished: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether they prove that the query is to blame."""
        return self.deaths / DEATHS_MAX + self.vanished / VANISHED_MAX >= 1


class Docket(Record, frozen=True, kw_only=True):
    """All charges of a service's queries. All its pipelines share one."""

    charges: dict[str, Charge] = field(default_factory=dict[str, Charge])
    #: dead drivers whose marks are already included
    drivers: tuple[str, ...] = ()
    #: pauses, replacements and drops up to this entry of the metadata log are already included
    log_index: int = 0

    def blame(self, query_id: str, revision: int) -> Blame:
        """What is known of a query."""
        charge = self.charges.get(query_id)
        if charge is None or charge.revision != revision:
            return Blame.CLEAR
        return Blame.GUILTY if charge.is_proven else Blame.SUSPECT


def after_death(docket: Docket, in_batch: Mapping[str, int], *, is_of_jvm: bool) -> Docket:
    """The docket after a driver died while these queries ({id: revision}) were in a batch.

    `is_of_jvm`: its JVM ended, and the process that had started it saw that; else both vanished.
    """
    more = 1 if len(in_batch) == 1 else 0
    charges = dict(docket.charges)
    for query_id, revision in in_batch.items():
        charge = charges.get(query_id)
        before = charge if charge is not None and charge.revision == revision else None
        before = before or Charge(revision=revision)
        charges[query_id] = Charge(
            revision=revision,
            deaths=before.deaths + (more if is_of_jvm else 0),
            vanished=before.vanished + (0 if is_of_jvm else more),
        )
    return structs.replace(docket, charges=charges)


def cleared(docket: Docket, query_ids: Iterable[str]) -> Docket:
    """The docket without these queries: they finished a batch, or an operator intervened."""
    gone = set(query_ids)
    kept = {query_id: charge for query_id, charge in docket.charges.items() if query_id not in gone}
    return docket if len(kept) == len(docket.charges) else structs.replace(docket, charges=kept)


def retried(docket: Docket, ended: Mapping[str, int], newest: int) -> Docket:
    """The docket after the log was read up to its entry `newest`; `ended`: queries that were
    paused, replaced or dropped, and in which entry.

    Each driver reads the whole log at its start. An entry counts once: otherwise a query that was
    paused long ago would have a clean slate after every death. If the log is shorter than what is
    included, it is an older copy, or of another cluster, and all of its entries count.
    """
    known = docket.log_index if docket.log_index <= newest else 0
    fresh = [query_id for query_id, index in ended.items() if index > known]
    included = max([known, *ended.values()])
    return structs.replace(cleared(docket, fresh), log_index=included)


class Turns:
    """Which queries of one driver may be in a batch: any number of clear ones, or one suspect."""

    def __init__(self) -> None:
        #: {query in a batch: its revision}
        self.in_batch: dict[str, int] = {}
        #: the suspect that has asked for a turn, or has it; no other query begins a batch
        self.alone: str | None = None

    def may_begin(self, query_id: str, *, is_suspect: bool) -> bool:
        """Whether a query may begin a batch now. A suspect that must wait is next."""
        if query_id in self.in_batch:
            return True
        if self.alone is None and is_suspect:
            self.alone = query_id
        if self.alone is None:
            return True
        return self.alone == query_id and not self.in_batch

    def begin(self, query_id: str, revision: int) -> None:
        """Note that the query is in a batch."""
        self.in_batch[query_id] = revision

    def end(self, query_id: str) -> None:
        """Note that it is in none, and wants none at present."""
        self.in_batch.pop(query_id, None)
        if self.alone == query_id:
            self.alone = None
