"""Functions that find equal elements, for elements that contain maps.

Spark cannot compare maps. So each element gets a text that only equal elements share
(`functions.cast.canonical`), and elements are selected by the positions of their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from standpipe.sql.functions.aggregate import ARRIVED
from standpipe.sql.functions.cast import canonical
from standpipe.sql.types.typed_expression import Aggregate, Operation, Typed
from standpipe.sql.types.types import STRING, SqlType, array

_FIRST: Final = "array_position({texts}, element_at({texts}, i + 1)) = i + 1"
_BOTH: Final = "concat({2}, {3})"

#: function -> template over its arguments, followed by the texts of each argument
_TEMPLATES: Final = {
    "ARRAY_DISTINCT": f"filter({{0}}, (e, i) -> {_FIRST})".replace("{texts}", "{1}"),
    "ARRAY_UNION": f"filter(concat({{0}}, {{1}}), (e, i) -> {_FIRST})".replace("{texts}", _BOTH),
    "ARRAY_EXCEPT": (
        f"if({{1}} IS NULL, NULL, filter({{0}}, (e, i) -> {_FIRST}"
        " AND NOT array_contains({3}, element_at({texts}, i + 1))))"
    ).replace("{texts}", "{2}"),
    "ARRAY_INTERSECT": (
        f"if({{1}} IS NULL, NULL, filter({{0}}, (e, i) -> {_FIRST}"
        " AND array_contains({3}, element_at({texts}, i + 1))))"
    ).replace("{texts}", "{2}"),
    "ARRAY_REMOVE": "filter({0}, (e, i) -> element_at({2}, i + 1) <> {3})",
    "ARRAY_CONTAINS": "coalesce(array_contains({2}, {3}), false)",
    "NULLIF": "if({2} = {3}, NULL, {0})",
}
_ATTR: Final = "if(size(array_distinct({1})) = 1, element_at({0}, 1), NULL)"


def over_maps(name: str, arguments: Sequence[Typed], result: SqlType) -> Typed | None:
    """The function computed on texts; None if Spark can compare the elements itself."""
    if name == "COLLECT_SET" and arguments[0].type.contains("MAP"):
        everything = Aggregate(result, ARRIVED, tuple(arguments))
        return over_maps("ARRAY_DISTINCT", (everything,), result)
    if name == "ATTR" and arguments[0].type.contains("MAP"):
        of = array(result)
        each = Aggregate(of, ARRIVED, tuple(arguments))
        return Operation(result, _ATTR, (each, _texts(each, of)))
    if name not in _TEMPLATES or not arguments[0].type.contains("MAP"):
        return None
    of = arguments[0].type
    if of.base == "ARRAY" and name != "NULLIF":
        texts = [_texts(argument, of) for argument in arguments]
    else:
        texts = [Operation(STRING, canonical(of, "{0}"), (argument,)) for argument in arguments]
    return Operation(result, _TEMPLATES[name], (*arguments, *texts))


def _texts(argument: Typed, of: SqlType) -> Typed:
    """Texts of an array's elements, or of one element. The text of a null is empty."""
    element = of.arguments[0]
    if argument.type != of:
        return Operation(STRING, f"coalesce({canonical(element, '{0}')}, '')", (argument,))
    text = f"coalesce({canonical(element, 'm')}, '')"
    return Operation(array(STRING), f"transform({{0}}, m -> {text})", (argument,))
