"""Which changes of a source's columns CREATE OR REPLACE may make, and the text of the refusal.

In place (`check_upgrade`), existing rows stay as they are: columns may be added at the end, as in
ksqlDB. In a rebuild (`check_rebuild`), every row is recomputed: value columns may be added,
removed, moved and widened; the keys are the table's identity and cannot change.

Texts: ksqlDB's (StructuredDataSource.canUpgradeTo, MetaStoreImpl).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from standpipe.errors import StatementError
from standpipe.model import Column, Source
from standpipe.sql.declarations.formats import schema_text
from standpipe.sql.declarations.published import public_form

#: type -> types that hold all of its values
_WIDER: Final[dict[str, tuple[str, ...]]] = {
    "INTEGER": ("BIGINT", "DOUBLE"),
    "BIGINT": ("DOUBLE",),
    "DATE": ("TIMESTAMP",),
}


def check_upgrade(before: Source, after: Source) -> None:
    """Raises StatementError that names each thing that cannot change in place."""
    issues = [
        _issue(before, what, old, new)
        for what, old, new in (
            ("type", before.kind, after.kind),
            ("topic", _topic(before), _topic(after)),
            ("timestampColumn", before.timestamp_column, after.timestamp_column),
            ("window", before.window, after.window),
        )
        if old != new
    ]
    if why := _changed_columns(before, after):
        issues.append(_schema_issue(before, after, why))
    _refuse(issues)


def check_rebuild(before: Source, after: Source) -> None:
    """Like `check_upgrade`, for a table whose rows are all recomputed."""
    issues = [
        _issue(before, what, old, new)
        for what, old, new in (
            ("topic", _topic(before), _topic(after)),
            ("windowed keys", before.window is not None, after.window is not None),
        )
        if old != new
    ]
    if before.key_columns != after.key_columns:
        issues.append(_schema_issue(before, after, _keys(before, after)))
    else:
        types = {column.name: column.type for column in after.value_columns}
        narrower = [
            column
            for column in before.value_columns
            if (new := types.get(column.name, column.type)) != column.type
            and new not in _WIDER.get(column.type, ())
        ]
        if narrower:
            why = f"The following columns would not fit their existing values: {_listed(narrower)}"
            issues.append(_schema_issue(before, after, why))
    _refuse(issues)


def _topic(source: Source) -> str:
    """What readers of a topic depend on: name, partitions, formats."""
    public = public_form(source)
    formats = f"{public.key_format}/{public.value_format}"
    return f"{public.topic} ({source.partitions} partitions, {formats})"


def _changed_columns(before: Source, after: Source) -> str:
    if before.key_columns != after.key_columns:
        return _keys(before, after)
    kept = after.columns[: len(before.columns)]
    lost = [old for old, new in _pairs(before.columns, kept) if old != new]
    if not lost:
        return ""
    return f"The following columns are changed, missing or reordered: {_listed(lost)}"


def _keys(before: Source, after: Source) -> str:
    pairs = _pairs(before.key_columns, after.key_columns)
    lost = [old for old, new in pairs if old != new]
    return (
        "Key columns must be identical. The following key columns are changed, missing or"
        f" reordered: {_listed(lost)}"
    )


def _pairs(old: tuple[Column, ...], new: tuple[Column, ...]) -> list[tuple[Column, Column | None]]:
    padded: tuple[Column | None, ...] = (*new, *[None] * len(old))
    return list(zip(old, padded, strict=False))


def _listed(columns: Iterable[Column]) -> str:
    return f"[{', '.join(schema_text((column,)) for column in columns)}]"


def _schema_issue(before: Source, after: Source, why: str) -> str:
    return (
        _issue(before, "schema", schema_text(before.columns), schema_text(after.columns))
        + f". ({why})"
    )


def _issue(before: Source, what: str, old: object, new: object) -> str:
    return f"DataSource '`{before.name}`' has {what} = {old} which is not upgradeable to {new}"


def _refuse(issues: list[str]) -> None:
    if issues:
        raise StatementError("Cannot upgrade data source: " + "\n\tAND ".join(issues))
