"""How a feature view of Feast is a table: names and types. Without Feast.

| Feast | Standpipe |
|---|---|
| feature view | the table that its tag `standpipe_table` names, else `table_name` of the config |
| join keys of its entities | the key columns |
| features | value columns of these names, which fold as in SQL: `trips` is TRIPS |
| event timestamp | the column that the tag `standpipe_timestamp` names, else the timestamp field |
| writes | INSERTs, with the timestamp field, into what `standpipe_input` names; else refused |

Feast neither makes, changes nor removes a table: Spark or another program writes its rows, and
other readers may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from standpipe.client.core.rows import Columns, Row
from standpipe.client.core.tables import SourceShape
from standpipe.errors import BadRequest
from standpipe.sql.types.names import folded
from standpipe.sql.types.types import parse_type

#: Feast's types -> SQL types that they are read from
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "BOOL": ("BOOLEAN",),
    "INT32": ("INTEGER",),
    "INT64": ("BIGINT", "INTEGER"),
    "FLOAT": ("DOUBLE", "DECIMAL", "INTEGER"),
    "DOUBLE": ("DOUBLE", "DECIMAL", "INTEGER", "BIGINT"),
    "STRING": ("STRING", "DATE", "TIME", "DECIMAL"),
    "BYTES": ("BYTES",),
    "IMAGE_BYTES": ("BYTES",),
    "UNIX_TIMESTAMP": ("TIMESTAMP",),
    "DECIMAL": ("STRING", "DECIMAL"),
    "UUID": ("STRING",),
    "TIME_UUID": ("STRING",),
    "JSON": ("STRING",),
    # or a JSON text, since the values of one of Feast's maps may be of several types
    "MAP": ("STRING", "MAP"),
    "STRUCT": ("STRING", "STRUCT", "MAP"),
    "MAP_LIST": ("STRING", "ARRAY"),
    "STRUCT_LIST": ("STRING", "ARRAY"),
}
#: an event timestamp and the features by name; two Nones: there is no such row
Found = tuple[datetime | None, dict[str, Any] | None]
#: a Feast type and values -> values of that type in Feast's form
ToFeast = Callable[[str, Sequence[Any]], Sequence[Any]]


class FeatureViewRefused(BadRequest):
    """A feature view and its table do not fit; the message says how they could."""


def sql_types(feast_type: str) -> tuple[str, ...]:
    """The SQL types that a feature can be read from. A list or a set is an array."""
    if feast_type in _TYPES:
        return _TYPES[feast_type]
    element, _, kind = feast_type.rpartition("_")
    return tuple(f"ARRAY<{each}>" for each in _TYPES.get(element, ()) if kind in ("LIST", "SET"))


def _fits(feast_type: str, column_type: str) -> bool:
    known, of = sql_types(feast_type), parse_type(column_type)
    return of.base in known or str(of) in known


@dataclass(frozen=True)
class ViewTable:
    """The table of a feature view. `keys`, `features`: names in Feast -> Feast's types."""

    view: str
    name: str
    keys: Mapping[str, str]
    features: Mapping[str, str]
    timestamp: str
    #: the user has named the timestamp, so a table without it is refused
    needs_timestamp: bool
    #: the event timestamp in what is written to, whose query may give it another name
    written_timestamp: str
    #: what the user has named to write to
    input: str | None

    @classmethod
    def of(cls, view: Any, project: str, template: str) -> ViewTable:
        """The table of a Feast `FeatureView`. Raises FeatureViewRefused."""
        tags: Mapping[str, str] = view.tags or {}
        source = getattr(view, "batch_source", None)
        field = (source and source.timestamp_field) or "event_timestamp"
        keys = {each.name: _type_name(each) for each in view.entity_columns}
        try:
            name = template.format(project=project, view=view.name)
        except (KeyError, IndexError, ValueError) as error:
            raise FeatureViewRefused(
                f"table_name: {template!r} in feature_store.yaml is not understood ({error!r}):"
                " write {view} or {project}_{view}"
            ) from error
        return cls(
            view=view.name,
            name=folded(tags.get("standpipe_table", name)),
            keys=keys,
            features={each.name: _type_name(each) for each in view.features},
            timestamp=folded(tags.get("standpipe_timestamp", field)),
            needs_timestamp="standpipe_timestamp" in tags,
            written_timestamp=folded(field),
            input=tags.get("standpipe_input"),
        )

    def refused(self, why: str) -> FeatureViewRefused:
        """The error, with the names of view and table."""
        return FeatureViewRefused(f"feature view {self.view}, table {self.name}: {why}")

    def target(self) -> str:
        """What an INSERT goes to. Raises FeatureViewRefused if nothing was named."""
        if self.input is None:
            raise self.refused(
                "Feast cannot write it, as its rows come from Spark or another program. Name the"
                " stream or table that these read in the view's tag standpipe_input"
            )
        return self.input

    def check(self, shape: SourceShape) -> None:
        """Raises FeatureViewRefused if the table cannot serve the view."""
        if shape.is_windowed:
            raise self.refused(
                "a key has a row for each window. Serve one row for each key, such as the latest"
            )
        keys = [column.name for column in shape.key_columns]
        wanted = [_column(name, keys) for name in self.keys]
        if sorted(keys) != sorted(wanted):
            raise self.refused(
                f"its key is {', '.join(keys)}, and the join keys are {', '.join(self.keys)}."
                " Give the view the entities of the key, or name another table in the tag"
                " standpipe_table"
            )
        types = {name: str(of) for name, of in shape.columns.items()}
        columns = Columns(tuple(types), tuple(types.values()))
        for name, feast_type in self.keys.items():
            self._check_type(name, feast_type.replace("INT32", "INT64"), columns)
        self.check_features(self.features, columns)

    def check_features(self, names: Sequence[str] | Mapping[str, str], columns: Columns) -> None:
        """Raises FeatureViewRefused if a feature is not among the columns, or of another type."""
        for name in names:
            if name not in self.features:
                raise self.refused(f"the view has no feature {name}")
            self._check_type(name, self.features[name], columns)
        if self.needs_timestamp and self.timestamp not in columns.names:
            raise self.refused(f"it has no column {self.timestamp}: change standpipe_timestamp")

    def _check_type(self, name: str, feast_type: str, columns: Columns) -> None:
        column = _column(name, columns.names)
        if column not in columns.names:
            raise self.refused(
                f"it has no column {column}, only {', '.join(columns.names)}. Add the column to the"
                f" table's query, or remove {name} from the view"
            )
        found = columns.types[columns.place(column)]
        if not _fits(feast_type, found):
            known = " or ".join(sql_types(feast_type)) or "no type of SQL"
            raise self.refused(
                f"{column} is of type {found}, and a {feast_type} is read from {known}. Change the"
                " type in the view's schema, or CAST in the table's query"
            )

    def found(
        self, rows: Sequence[Row | None], names: Sequence[str] | None, to_feast: ToFeast
    ) -> list[Found]:
        """What Feast gets for the rows of `get_many`. Raises FeatureViewRefused."""
        names = list(self.features) if names is None else names
        there = [row for row in rows if row is not None]
        for columns in {row.columns for row in there}:  # of several if the table was made again
            self.check_features(names, columns)
        values: list[Sequence[Any]] = []
        for name in names:
            listed = [row[_column(name, row.columns.names)] for row in there]
            try:
                values.append(to_feast(self.features[name], listed))
            except (TypeError, ValueError, AssertionError) as error:
                raise self.refused(
                    f"a value of {name} is no {self.features[name]}: {error}. Change the type in"
                    " the view's schema, or the value in the table's query"
                ) from error
        times = (row.get(self.timestamp) for row in there)
        by_row = zip(times, zip(*values, strict=True) if names else ((),) * len(there), strict=True)
        made = iter([(at, dict(zip(names, each, strict=True))) for at, each in by_row])
        return [(None, None) if row is None else next(made) for row in rows]

    def record(self, key: Mapping[str, object], features: Mapping[str, Any], at: datetime) -> Any:
        """A row to insert. Raises FeatureViewRefused if it lacks features: an INSERT replaces the
        whole row."""
        if missing := [name for name in self.features if name not in features]:
            raise self.refused(
                f"a write lacks {', '.join(missing)}. Write all features of the view together"
            )
        return {**key, **features, self.written_timestamp: at}


def _type_name(field: Any) -> str:
    return field.dtype.to_value_type().name


def _column(name: str, columns: Sequence[str]) -> str:
    return name if name in columns else folded(name)
