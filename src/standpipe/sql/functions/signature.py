"""The definition of a registry function: one row of the tables beside this module.

A row has: name, argument types, result type, Spark template. T, K and V stand for any type (the
same one wherever they occur), ANY for any type, NUMBER for any number. A template has {0}, {1}… for
the arguments and {all} for all of them. The last type of a variadic row may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from standpipe.sql.functions.time_patterns import Letters
from standpipe.sql.types.types import SqlType

T: Final = SqlType("T")
K: Final = SqlType("K")
V: Final = SqlType("V")
NUMBER: Final = SqlType("NUMBER")
#: any type as well, but each time another one may stand there
ANY: Final = SqlType("ANY")
#: a DECIMAL of any precision; all arguments become the one that holds each of them
ANY_DECIMAL: Final = SqlType("DECIMAL(P, S)")
VARIABLES: Final = frozenset({"T", "K", "V", NUMBER.base, ANY_DECIMAL.base})

#: Argument types -> result type.
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
    #: for an aggregate: whether it may be computed over a table, whose rows are replaced and
    #: deleted (ksqlDB: undo)
    on_tables: bool = True
    #: indices of arguments that must be literals
    literals: tuple[int, ...] = ()
    #: for a table function: template of the array that `template` gets as its only argument
    inner: str = ""
    #: template of how many characters, bytes or items the result has, if that can be much more
    #: than the arguments have: a larger result than {limit} is NULL. {total}: the length of all
    #: arguments, {count}: their number
    size: str = ""
    #: letters that the pattern of a date or time, argument 2, may have; None: there is none
    letters: Letters | None = None
    #: indices of arguments that are time zones
    zones: tuple[int, ...] = ()
    #: index of the argument that is a regular expression; None: there is none
    expression: int | None = None
