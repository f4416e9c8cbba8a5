"""What a function of the registry is: one row of the tables beside this module.

A row says: name, types of the arguments, type of the result, Spark template. T, K and V stand for
any type (the same one wherever they occur), NUMBER for any number. A template has {0}, {1}… per
argument and {all} for all of them. The last type of a variadic row may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from standpipe.sql.types.types import SqlType

T: Final = SqlType("T")
K: Final = SqlType("K")
V: Final = SqlType("V")
NUMBER: Final = SqlType("NUMBER")
VARIABLES: Final = frozenset({"T", "K", "V", "NUMBER"})

#: By the type of an argument: what the result is.
ResultRule = Callable[[tuple[SqlType, ...]], SqlType]


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the registry: a signature and the Spark SQL that computes it."""

    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType | ResultRule
    template: str
    is_aggregate: bool = False
    is_variadic: bool = False
    #: of an aggregate: may be computed over a table, whose rows are replaced and deleted
    #: (ksqlDB: undo)
    on_tables: bool = True
    #: places of arguments that must be literals
    literals: tuple[int, ...] = ()
    #: template of the one argument that `template` then gets: the array of a table function
    inner: str = ""
    #: template where pattern and zone, the second and third argument, are literals and the pattern
    #: has letters for the zone: Spark writes those of the session's zone, whatever the instant's
    zoned: str = ""
