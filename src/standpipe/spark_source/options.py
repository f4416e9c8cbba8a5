"""The options of `spark.read.format("standpipe")`. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from standpipe.client.core.settings import Settings
from standpipe.errors import SetupError
from standpipe.session_token import EVENTUAL, LINEARIZABLE, SNAPSHOT

#: what DataFrameReader.load() was given, and the option of the same meaning
TABLE: Final = ("path", "table")
BOUNDS: Final = ("lag_records_max", "replica_lag_ms_max", "source_lag_ms_max")
#: `secret_file` is that of an application that writes: reads need no secret, so it is not opened
OPTIONS: Final = (
    *("nodes", *TABLE, "where", "consistency", "timeout_s", *BOUNDS),
    *("ca", "finds_members", "secret_file"),
)
LEVELS: Final = (SNAPSHOT, EVENTUAL, LINEARIZABLE)
#: for the rows of a table, or of a partition: a node gives a scan half of it
TIMEOUT_S: Final = 60.0


class ReadRefused(SetupError):
    """`spark.read.format("standpipe")` cannot read a table as it is asked for."""

    name = "E-READ-001"


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which table is read, of which nodes, and how."""

    nodes: str
    #: as a statement would name it
    table: str
    settings: Settings
    #: the condition of a pull query; "": all rows
    where: str
    #: PEM file of the authority to trust; None: the system's
    ca: str | None

    @property
    def is_of_one_batch(self) -> bool:
        """Whether all rows are of one batch."""
        return self.settings.consistency == SNAPSHOT

    @property
    def comes_with_plan(self) -> bool:
        """Whether one request gets all rows, while Spark plans: those of a condition may be few,
        and only a node knows whether it names keys."""
        return self.is_of_one_batch or bool(self.where)

    def with_holders(self, holders: Sequence[str]) -> ReadOptions:
        """For a task that knows whom to ask: it need not ask for the members first."""
        settings = replace(self.settings, finds_members=False)
        return replace(self, nodes=",".join([*holders, self.nodes]), settings=settings)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> ReadOptions:
        """`given`: as Spark hands them over, with names in small letters. Raises ReadRefused."""
        for name in given:
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, OPTIONS, n=1)
                raise ReadRefused(
                    f"there is no option {name}",
                    next_step=f"did you mean {near[0]}?" if near else f"it is {', '.join(OPTIONS)}",
                )
        if not given.get("nodes"):
            raise ReadRefused(
                "the option nodes is missing", next_step='.option("nodes", "node1:8088,node2:8088")'
            )
        named = [given[each] for each in TABLE if given.get(each)]
        if len(named) != 1:
            raise ReadRefused(
                "two tables are named" if named else "no table is named",
                next_step='name it once: .load("SCORES")',
            )
        return cls(
            nodes=given["nodes"],
            table=named[0],
            where=given.get("where", ""),
            settings=_settings(given),
            ca=given.get("ca"),
        )


def _settings(given: Mapping[str, str]) -> Settings:
    level = given.get("consistency", SNAPSHOT).lower()
    if level not in LEVELS:
        raise ReadRefused(
            f"there is no consistency {level!r} of a DataFrame",
            next_step=f"it is {', '.join(LEVELS)}",
        )
    members = given.get("finds_members", "true").lower()
    if members not in ("true", "false"):
        raise ReadRefused(f"finds_members is {members!r}", next_step="it is true or false")
    bounds = [_whole_number(name, given[name]) if name in given else None for name in BOUNDS]
    lag_records_max, replica_lag_ms_max, source_lag_ms_max = bounds
    return Settings(
        timeout_s=_seconds(given["timeout_s"]) if "timeout_s" in given else TIMEOUT_S,
        consistency=level,
        finds_members=members == "true",
        lag_records_max=lag_records_max,
        replica_lag_ms_max=replica_lag_ms_max,
        source_lag_ms_max=source_lag_ms_max,
    )


def _whole_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ReadRefused(f"{name} is {text!r}", next_step="it is a whole number, 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ReadRefused(f"timeout_s is {text!r}", next_step="it is a number of seconds above 0")
    return found
