"""Aggregate functions: ksqlDB's semantics in Spark SQL (see ksqlDB's function reference).

Arrival order is `__ORDER`, the order of offsets within a partition. Spark's own collect_list is
unordered and drops nulls, so functions that need either collect pairs of order and value.
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.functions.signature import ANY, NUMBER, Function, T
from standpipe.sql.types.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    SqlType,
    array,
    map_of,
    struct,
)

_BY_ORDER: Final = "(l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END"
#: every value, including nulls, in arrival order
ARRIVED: Final = (
    "transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', {0})), "
    + _BY_ORDER
    + "), e -> e.`v`)"
)
_DISTINCT: Final = f"array_distinct({ARRIVED})"


def _sum_type(types: tuple[SqlType, ...]) -> SqlType:
    return types[0]


def _element(types: tuple[SqlType, ...]) -> SqlType:
    return types[0].arguments[0]


def _array_of_first(types: tuple[SqlType, ...]) -> SqlType:
    return array(types[0])


def _aggregate(
    name: str,
    parameters: tuple[SqlType, ...],
    result: object,
    template: str,
    *,
    literals: tuple[int, ...] = (),
    on_tables: bool = False,
) -> Function:
    return Function(
        name,
        parameters,
        result,  # pyright: ignore[reportArgumentType]
        template,
        is_aggregate=True,
        on_tables=on_tables,
        literals=literals,
    )


def _by_offset(name: str, *, latest: bool) -> tuple[Function, ...]:
    """LATEST_BY_OFFSET or EARLIEST_BY_OFFSET, of one value and of n.

    A row whose value is null has no order, so it loses to every other row: ksqlDB's ignoreNulls.
    """
    order = "max_by" if latest else "min_by"
    skipping = f"{order}({{0}}, if({{0}} IS NULL, NULL, `__ORDER`))"
    chosen = f"{order}({{0}}, if({{1}} AND {{0}} IS NULL, NULL, `__ORDER`))"
    kept = f"filter({ARRIVED}, e -> e IS NOT NULL)"
    some = f"if({{2}}, {kept}, {ARRIVED})"
    if latest:
        first = f"slice({kept}, greatest(1, size({kept}) - {{1}} + 1), {{1}})"
        picked = f"slice({some}, greatest(1, size({some}) - {{1}} + 1), {{1}})"
    else:
        first, picked = f"slice({kept}, 1, {{1}})", f"slice({some}, 1, {{1}})"
    return (
        _aggregate(name, (T,), T, skipping),
        _aggregate(name, (T, BOOLEAN), T, chosen, literals=(1,)),
        _aggregate(name, (T, INTEGER), _array_of_first, first, literals=(1,)),
        _aggregate(name, (T, INTEGER, BOOLEAN), _array_of_first, picked, literals=(1, 2)),
    )


def _top(of: SqlType) -> tuple[Function, ...]:
    sorted_all = "sort_array(collect_list({0}), false)"
    return (
        _aggregate(
            "TOPK", (of, INTEGER), array(of), f"slice({sorted_all}, 1, {{1}})", literals=(1,)
        ),
        _aggregate(
            "TOPKDISTINCT",
            (of, INTEGER),
            array(of),
            f"slice(array_distinct({sorted_all}), 1, {{1}})",
            literals=(1,),
        ),
    )


def _top_rows(types: tuple[SqlType, ...]) -> SqlType:
    """Result type of TOPK over a sort column and additional columns."""
    others = tuple((f"col{index}", of) for index, of in enumerate(types[1:-1]))
    return array(struct((("sort_col", types[0]), *others)))


_TOP_ORDER: Final = (
    "(l, r) -> CASE WHEN l.k > r.k THEN -1 WHEN l.k < r.k THEN 1"
    " WHEN l.o < r.o THEN -1 WHEN l.o > r.o THEN 1 ELSE 0 END"
)


#: columns that TOPK may show beside the one that it sorts by
OTHERS_MAX: Final = 8


def _top_with(count: int) -> Function:
    """TOPK(column, others…, k) with `count` others: of equal values the older one is kept."""
    fields = "".join(f", 'col{index}', {{{index + 1}}}" for index in range(count))
    row = f"named_struct('sort_col', {{0}}{fields})"
    entry = f"if({{0}} IS NULL, NULL, named_struct('o', `__ORDER`, 'k', {{0}}, 'v', {row}))"
    return _aggregate(
        "TOPK",
        (T, *(ANY,) * count, INTEGER),
        _top_rows,
        f"slice(transform(array_sort(collect_list({entry}), {_TOP_ORDER}), e -> e.v), 1,"
        f" {{{count + 1}}})",
        literals=(count + 1,),
    )


def _sum_list(of: SqlType, inner: str) -> Function:
    """SUM_LIST of lists of a type, added up as `inner`."""
    added = f"aggregate(filter({{0}}, e -> e IS NOT NULL), cast(0 AS {inner}), (s, e) -> s + e)"
    total = f"coalesce(sum({added}), 0)"
    return _aggregate("SUM_LIST", (array(of),), _element, total, on_tables=True)


#: ksqlDB counts no more values than these, the first that came
_HISTOGRAM_VALUES_MAX: Final = 1_000
_HISTOGRAM: Final = (
    f"map_from_entries(transform(slice(array_distinct(filter({ARRIVED}, e -> e IS NOT NULL)), 1, "
    f"{_HISTOGRAM_VALUES_MAX}), k -> "
    "struct(k, cast(size(filter(collect_list({0}), x -> x = k)) AS BIGINT))))"
)

FUNCTIONS: Final = (
    _aggregate("COUNT", (), BIGINT, "count(1)", on_tables=True),
    _aggregate("COUNT", (T,), BIGINT, "count({0})", on_tables=True),
    _aggregate("SUM", (NUMBER,), _sum_type, "coalesce(sum({0}), 0)", on_tables=True),
    # a DOUBLE has 53 bits for a sum. An exact one of whole numbers would have another state, and no
    # query that was made before could go on (PLAN_CHANGED)
    _aggregate("AVG", (DOUBLE,), DOUBLE, "coalesce(avg({0}), 0.0D)", on_tables=True),
    _aggregate("MIN", (T,), T, "min({0})"),
    _aggregate("MAX", (T,), T, "max({0})"),
    *_by_offset("LATEST_BY_OFFSET", latest=True),
    *_by_offset("EARLIEST_BY_OFFSET", latest=False),
    _aggregate("COLLECT_LIST", (T,), array(T), ARRIVED, on_tables=True),
    _aggregate("COLLECT_SET", (T,), array(T), _DISTINCT),
    *_top(T),
    *map(_top_with, range(1, OTHERS_MAX + 1)),
    _aggregate("HISTOGRAM", (STRING,), map_of(STRING, BIGINT), _HISTOGRAM, on_tables=True),
    _aggregate("COUNT_DISTINCT", (T,), BIGINT, "approx_count_distinct({0}, 0.01D)"),
    # ksqlDB's STDDEV_SAMP is the variance; STDDEV_SAMPLE is the standard deviation
    _aggregate("STDDEV_SAMP", (DOUBLE,), DOUBLE, "coalesce(var_samp({0}), 0.0D)", on_tables=True),
    _aggregate(
        "STDDEV_SAMPLE", (DOUBLE,), DOUBLE, "coalesce(stddev_samp({0}), 0.0D)", on_tables=True
    ),
    _aggregate(
        "CORRELATION",
        (DOUBLE, DOUBLE),
        DOUBLE,
        "coalesce(corr({0}, {1}), double('NaN'))",
        on_tables=True,
    ),
    _aggregate(
        "ATTR",
        (T,),
        T,
        "if(count({0}) = count(1) AND min({0}) = max({0}), min({0}), NULL)",
        on_tables=True,
    ),
    *(_sum_list(of, "BIGINT") for of in (INTEGER, BIGINT)),  # not through a DOUBLE's 53 bits
    _sum_list(NUMBER, "DOUBLE"),
)
