"""FROM a JOIN b ON …: the joins of a query, and which of them are refused.

Not here: the names of joined rows (`join_scope.py`), the Spark SQL of a join (`join_sql.py`,
`join_steps.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from standpipe.model import Source
from standpipe.sql.declarations.direct import SPARK, check_readable
from standpipe.sql.expressions.scope import PSEUDO, Scope, ambiguous, find_source
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.spark.join_scope import ROWKEY, JoinScope, Side, is_on_key, joined_name
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import nearest, place, refusal, unknown_name, unsupported
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import TypedColumn
from standpipe.sql.types.types import quoted

#: Sources of one query. Each join is a stage of every batch, with a state of its own, and the text
#: that Spark plans grows with it.
JOINED_SOURCES_MAX: Final = 20
#: JOIN as ksqlDB's messages write it
_JOIN_TEXTS: Final = {
    "INNER": "[INNER] JOIN",
    "LEFT": "LEFT [OUTER] JOIN",
    "RIGHT": "RIGHT [OUTER] JOIN",
    "FULL": "[FULL] OUTER JOIN",
}


def join_scope(query: ast.Query, sources: Mapping[str, Source]) -> JoinScope:
    """The joined sources of a query. Raises StatementError for a join that is not supported."""
    relations = (query.relation, *(join.relation for join in query.joins))
    if len(relations) > JOINED_SOURCES_MAX:
        raise refusal(
            f"The query reads {len(relations)} sources; {JOINED_SOURCES_MAX} are allowed. Join some"
            " of them in a query of their own, and read its result here.",
            query.at,
        )
    found = [find_source(each.name, sources, each.at) for each in relations]
    for source, relation in zip(found, relations, strict=True):
        check_readable(source, SPARK, relation.at)
    scopes = [
        Scope.of(source, relation.alias) for source, relation in zip(found, relations, strict=True)
    ]
    _check_sources(relations, found)
    _check_kafka(found, query)
    sides: list[Side] = []
    for join, scope in zip(query.joins, scopes[1:], strict=True):
        left, right = _sides_of(join, scopes, scope)
        _check_pair(join, left, right, sides)
        sides = sides or [left]
        sides.append(right)
    is_whole = any(isinstance(item, ast.Star) for item in query.items)
    shows_pseudo = bool(query.partition_by) and is_whole
    named = {each.name for each, _ in ast.walk(query) if isinstance(each, ast.ColumnName)}
    has_positions = shows_pseudo or not named.isdisjoint(PSEUDO.keys() - {"ROWTIME"})
    scope = JoinScope(
        tuple(sides),
        has_positions=has_positions,
        shows_pseudo=shows_pseudo,
        is_grouped=bool(query.group_by),
    )
    _check_chain(query, scope)
    return scope


def _check_sources(relations: Sequence[ast.Relation], found: list[Source]) -> None:
    """Each source once, under an alias of its own (ksqlDB)."""
    aliases: set[str] = set()
    for index, (relation, source) in enumerate(zip(relations, found, strict=True)):
        if source in found[:index]:
            name = source.name
            message = f"Can not join '{name}' to '{name}': self joins are not yet supported."
            if index > 1:
                message = (
                    "N-way joins do not support multiple occurrences of the same source. Source:"
                    f" '{name}'."
                )
            hint = f"Declare another {source.kind.lower()} over its topic, and join that."
            raise refusal(message, relation.at, hint)
        alias = relation.alias or source.name
        if alias in aliases:
            raise refusal(f"Two sources of the join have the alias '{alias}'.", relation.at)
        aliases.add(alias)


def _check_chain(query: ast.Query, scope: JoinScope) -> None:
    """Outer joins that keep the right side need all tables to be joined on one key."""
    if scope.sides[0].source.kind == "TABLE" and not scope.is_on_one_key:
        for join in query.joins:
            if join.kind in ("RIGHT", "FULL"):
                raise unsupported(f"{join.kind} JOIN among tables on different keys", join.at)


def _check_kafka(sources: list[Source], query: ast.Query) -> None:
    kafka = [source.name for source in sources if source.value_format == "KAFKA"]
    if kafka:
        raise refusal(
            f"Source(s) {', '.join(kafka)} are using the 'KAFKA' value format. This format does"
            " not yet support JOIN.\nUse a different value format.",
            query.at,
        )


def _sides_of(join: ast.Join, scopes: list[Scope], new: Scope) -> tuple[Side, Side]:
    """Both halves of ON, first the one over the sources before `new`. The checks are those of
    ksqlDB's Analyzer, in its order."""
    condition = _equality(join.condition)
    _check_aliases(condition, scopes)
    left_of = _owner(condition.left, condition, scopes)
    right_of = _owner(condition.right, condition, scopes)
    if left_of is right_of:
        raise refusal(
            f"Each side of the join must reference exactly one source and not the same source."
            f" Left side references `{left_of.alias}` and right references `{right_of.alias}`",
            condition.at,
        )
    _check_windows(left_of, right_of, join.at)
    _check_owners(left_of, right_of, scopes, new, condition)
    one, two = (condition.left, left_of), (condition.right, right_of)
    (old_node, old), (new_node, _) = (two, one) if left_of is new else (one, two)
    left = Side(old.source, old.alias, Typer(old, "JOIN ON").type(old_node), old_node)
    key = Typer(new, "JOIN ON").type(new_node)
    return left, Side(new.source, new.alias, key, new_node, join.kind, join.within, left)


def _equality(condition: ast.Expression) -> ast.Comparison:
    """The condition of a join, which is one comparison of two sources by `=`."""
    text = expression_text(condition)
    if isinstance(condition, ast.Comparison):
        if condition.operator == "=":
            return condition
        hint = f"Got {text}."
        raise refusal("Only equality join criteria is supported.", condition.at, hint)
    message, hint = f"Unsupported join expression: {text}", ""
    if isinstance(condition, ast.Logical) and all(map(_is_equality, condition.operands)):
        hint = "Join on one STRUCT of all columns: STRUCT(A:=L.A, B:=L.B) = STRUCT(A:=R.A, B:=R.B)."
        if len(condition.operands) == 2:  # ksqlDB looks no deeper (Analyzer.visitJoinedSource)
            message = (
                f"Invalid join condition: joins on multiple conditions are not yet supported. Got"
                f" {text}."
            )
    raise refusal(message, condition.at, hint)


def _is_equality(node: ast.Expression) -> bool:
    return isinstance(node, ast.Comparison) and node.operator == "="


def _check_owners(
    left: Scope, right: Scope, scopes: list[Scope], new: Scope, condition: ast.Expression
) -> None:
    """One half of ON is over the source that is joined, the other over one before it. What is
    joined later has no columns yet (Analyzer.visitJoinedSource)."""
    later = next((one for one in (left, right) if scopes.index(one) > scopes.index(new)), None)
    if later is not None:
        names = (each for each, _ in ast.walk(condition) if isinstance(each, ast.ColumnName))
        node = next(each for each in names if _has(later, each))
        text = f"{later.alias}.{node.name}"
        message = f"{place(node.at)}: JOIN ON column '{text}' cannot be resolved."
        raise unknown_name(message, node.at, "")
    if new not in (left, right):
        raise refusal(
            f"A join criteria is expected to reference the source (`{new.alias}`) in the FROM"
            f" clause, instead the right source references `{right.alias}` and the left source"
            f" references `{left.alias}`.",
            condition.at,
        )


def _check_aliases(condition: ast.Expression, scopes: list[Scope]) -> None:
    known = {name for scope in scopes for name in (scope.alias, scope.source.name)}
    for each, _ in ast.walk(condition):
        if isinstance(each, ast.ColumnName) and each.source not in (None, *known):
            raise unknown_name(
                f"Failed to prepare statement: '{each.source}' is not a valid stream/table name"
                " or alias.",
                each.at,
                nearest(str(each.source), known),
            )


def _owner(node: ast.Expression, condition: ast.Comparison, scopes: list[Scope]) -> Scope:
    """The one source that half of a join condition refers to."""
    owners: list[Scope] = []
    for each, _ in ast.walk(node):
        if isinstance(each, ast.ColumnName):
            fitting = [scope for scope in scopes if _has(scope, each)]
            if not fitting:
                named = [one for one in scopes if each.source in (one.alias, one.source.name)]
                (named or scopes)[-1].resolve(each, "JOIN ON")
            if len(fitting) > 1:
                message = ambiguous(each, [scope.alias for scope in fitting])
                raise refusal(f"Exception while preparing statement: {message}", each.at)
            owners += [scope for scope in fitting if scope not in owners]
    if len(owners) != 1:
        raise refusal(
            f"Invalid comparison expression '{expression_text(node)}' in join"
            f" '{expression_text(condition)}'. Each side of the join comparision must contain"
            " references from exactly one source.",
            node.at,
        )
    return owners[0]


def _has(scope: Scope, node: ast.ColumnName) -> bool:
    is_named = node.source in (None, scope.alias)
    return is_named and (node.name in scope.types or node.name in PSEUDO)


def _check_windows(left: Scope, right: Scope, at: ast.Position) -> None:
    """A windowed key is raw key and window, so both sides must have the same kind of window.
    `left`, `right`: as in the condition."""
    one, two = left.source.window, right.source.window
    if one is None and two is None:
        return
    if one is None or two is None:
        said = [
            f"`{scope.alias}` is {'not' if window is None else window.kind} windowed"
            for scope, window in ((left, one), (right, two))
        ]
        listed = "\n".join(said)
        raise refusal(f"Can not join windowed source to non-windowed source.\n{listed}", at)
    if (one.kind == "SESSION") != (two.kind == "SESSION"):
        raise refusal(
            f"Incompatible windowed sources.\nLeft source: {one.kind}\nRight source: {two.kind}\n"
            "Session windowed sources can only be joined to other session windowed sources, and may"
            " still not result in expected behaviour as session bounds must be an exact match for"
            " the join to work\nHopping and tumbling windowed sources can only be joined to other"
            " hopping and tumbling windowed sources",
            at,
        )


def _check_pair(join: ast.Join, left: Side, right: Side, before: list[Side]) -> None:
    """What ksqlDB's planner refuses: kinds and keys first, then types, then WITHIN."""
    joined = before[0] if before else left  # a stream joined with a table is a stream
    kinds = (joined.source.kind, right.source.kind)
    got = f"Got {left.source.name} {_JOIN_TEXTS[join.kind]} {right.source.name}."
    if kinds == ("TABLE", "STREAM"):
        raise refusal(
            "Invalid join order: table-stream joins are not supported; only stream-table joins."
            f" {got}",
            join.at,
        )
    if kinds == ("STREAM", "TABLE"):
        _check_stream_table(join, left, right, got)
    if kinds == ("TABLE", "TABLE"):
        _check_tables(join, left, right, before, got)
    _check_types(join, left, right, are_tables=kinds == ("TABLE", "TABLE"))
    _check_within(join, kinds)
    _check_in_place(join, left, right)


def _check_types(join: ast.Join, left: Side, right: Side, *, are_tables: bool) -> None:
    """Keys that are compared have one type, which contains no map."""
    if left.key.type != right.key.type:
        first, second = _in_order(join, left, right)
        got = f"Got {_typed(first)} = {_typed(second)}."
        at = join.condition.at
        differ = f"Invalid join condition: types don't match. {got}"
        if not are_tables:  # of streams, ksqlDB says so where it makes the joined schema
            differ += f"\nInvalid join. Key types differ: {left.key.type} vs {right.key.type}"
        raise refusal(differ, at, "Convert one of them with CAST.")
    if right.key.type.contains("MAP"):
        key = left.key
        name = joined_name(left.alias, key.name) if isinstance(key, TypedColumn) else ROWKEY
        raise refusal(
            "Map keys, including types that contain maps, are not supported as they may lead to"
            " unexpected behavior due to inconsistent serialization. Key column name:"
            f" {quoted(name)}. Column type: {right.key.type}. See"
            " https://github.com/confluentinc/ksql/issues/6621 for more.",
            join.condition.at,
        )


def _typed(side: Side) -> str:
    """Its half of ON, each column qualified by its source, with its type."""
    return f"{expression_text(ast.qualified(side.node, side.alias))}{{{side.key.type}}}"


def _check_within(join: ast.Join, kinds: tuple[str, str]) -> None:
    if kinds == ("STREAM", "STREAM"):
        if join.within is None:
            raise refusal(
                "Stream-Stream joins must have a WITHIN clause specified. None was provided. To"
                " learn about how to specify a WITHIN clause with a stream-stream join, please"
                " visit: https://docs.confluent.io/current/ksql/docs/syntax-reference.html"
                "#create-stream-as-select",
                join.at,
                "For example: … JOIN … WITHIN 1 HOUR ON …",
            )
    elif join.within is not None:
        name, end = "Stream-Table", "(ie. the WITHIN clause) and try to execute your join again."
        if "STREAM" not in kinds:
            name = "Table-Table"
            end = "(i.e. the WITHIN clause) and try to execute your Table-Table join again."
        raise refusal(
            f"A window definition was provided for a {name} join. These joins are not windowed."
            f" Please drop the window definition {end}",
            join.at,
        )


def _check_in_place(join: ast.Join, left: Side, right: Side) -> None:
    """Windowed sources are joined on their whole keys: no key would fit the window otherwise."""
    one, two = left.source.window, right.source.window
    if one is None or two is None:
        return
    if not all(is_on_key(side) for side in (left, right)) or one.size_ms != two.size_ms:
        raise refusal(
            "Implicit repartitioning of windowed sources is not supported. See"
            " https://github.com/confluentinc/ksql/issues/4385.",
            join.at,
        )


def _check_stream_table(join: ast.Join, left: Side, right: Side, got: str) -> None:
    if join.kind == "FULL":
        raise refusal(
            f"Invalid join type: full-outer join not supported for stream-table join. {got}",
            join.at,
        )
    if not is_on_key(right):
        raise refusal(
            "Invalid join condition: stream-table joins require to join on the table's primary"
            f" key. Got {_condition(join, left, right)}.",
            join.at,
        )
    if join.kind == "RIGHT":
        hint = f"A stream and a table are joined by INNER or LEFT JOIN. {got}"
        raise refusal(f"Invalid join type encountered: {_JOIN_TEXTS['RIGHT']}", join.at, hint)


def _check_tables(join: ast.Join, left: Side, right: Side, before: list[Side], got: str) -> None:
    if not is_on_key(right):
        raise refusal(
            "Invalid join condition: table-table joins require to join on the primary key of the"
            f" right input table. Got {_condition(join, left, right)}.",
            join.at,
        )
    if is_on_key(left):
        return
    if join.kind == "FULL":
        raise refusal(
            "Invalid join type: full-outer join not supported for foreign-key table-table join."
            f" {got}",
            join.at,
        )
    if before:
        raise refusal(
            "Invalid join condition: foreign-key table-table joins are not supported as part of"
            f" n-way joins. Got {_condition(join, left, right)}.",
            join.at,
        )
    if join.kind == "RIGHT":
        raise refusal("RIGHT OUTER JOIN on a foreign key is not supported", join.at)


def check_no_windowed_tables(scope: JoinScope, query: ast.Query) -> None:
    """Refuses windowed tables in a persistent query, wherever they stand (PushQueryValidator)."""
    if any(side.source.kind == "TABLE" and side.source.window for side in scope.sides):
        raise refusal("KSQL does not support persistent queries on windowed tables.", query.at)


def _in_order(join: ast.Join, left: Side, right: Side) -> tuple[Side, Side]:
    """Both sides as the condition of the statement names them."""
    assert isinstance(join.condition, ast.Comparison)
    return (left, right) if join.condition.left is left.node else (right, left)


def _condition(join: ast.Join, left: Side, right: Side) -> str:
    """The condition as in the statement, each column qualified by its source."""
    first, second = _in_order(join, left, right)
    return f"{first.text} = {second.text}"
