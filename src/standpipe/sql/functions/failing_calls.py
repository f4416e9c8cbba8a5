"""Which functions fail where they have no value, and which are NULL then (`Failing`).

A function that fails makes NULL of the whole column, unless it is an argument of another one. Those
with a Java primitive among their parameters (`long`) fail for NULL. Source: ksqlDB's functions
(`io.confluent.ksql.function.udf`), whose exceptions are what fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from standpipe.sql.types.typed_expression import Failing
from standpipe.sql.types.types import SqlType

#: functions that are not NULL for each NULL argument
NOT_STRICT: Final = frozenset(
    {
        *("ARRAY_CONCAT", "ARRAY_CONTAINS", "ARRAY_JOIN", "ARRAY_REMOVE", "COALESCE"),
        *("CONCAT", "CONCAT_WS", "ELT", "ENTRIES", "FIELD", "GEO_DISTANCE", "GREATEST", "IFNULL"),
        *("INSTR", "IS_JSON_STRING", "JSON_ARRAY_CONTAINS", "LEAST", "MAP_UNION"),
        *("MASK", "MASK_KEEP_LEFT", "MASK_KEEP_RIGHT", "MASK_LEFT", "MASK_RIGHT", "NULLIF"),
        *("SLICE", "TO_JSON_STRING"),
    }
)
#: functions of a primitive, and those that say so of themselves
_FAILING: Final = frozenset(
    {
        *("DATETOSTRING", "FROM_DAYS", "GENERATE_SERIES", "GEO_DISTANCE", "STRINGTODATE"),
        *("STRINGTOTIMESTAMP", "TIMESTAMPTOSTRING"),
    }
)
_WHOLE: Final = frozenset({"INTEGER", "BIGINT"})
_INVALID: Final = frozenset(
    {
        *("CONVERT_TZ", "FORMAT_DATE", "FORMAT_TIME", "FORMAT_TIMESTAMP"),
        *("PARSE_DATE", "PARSE_TIME", "PARSE_TIMESTAMP"),
    }
)


def failing_of(name: str, parameters: Sequence[SqlType]) -> Failing:
    """When a call of a scalar function fails."""
    is_of_primitive = name == "ROUND" and parameters[0].base in _WHOLE
    if name in _FAILING or is_of_primitive:
        return Failing.FAILING_CALL
    if name in _INVALID:
        return Failing.INVALID_CALL
    return Failing.CALLED if name in NOT_STRICT else Failing.STRICT_CALL
