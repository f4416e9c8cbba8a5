"""The data source behind `spark.read.format("standpipe")`, which PySpark runs in three places.

    driver    StandpipeSource.schema     DESCRIBE
    driver    TableRead.partitions       level `snapshot`, and a condition: the rows themselves
                                         other levels: which partitions the table has
    executors TableRead.read             decodes rows that came with the plan, or asks for those
                                         of its partition

A node keeps one version of a row, so tasks that ask one after the other cannot see one batch. At
level `snapshot` one request therefore gets all rows, while Spark plans, and the plan carries them:
tasks that run again, and nodes that die meanwhile, change nothing. At the other levels each task
reads its partition, in one request, of whose answer it uses all or nothing: another replica can
take over at any moment, and no row comes twice.

Filters of Spark are not taken over (`pushFilters`): PySpark 4.2 would show what was read for one of
them wherever else the same DataFrame is used. The option `where` has the nodes filter.

Not here: what is asked of the nodes (`client/core/whole_tables.py`), options (`options.py`), types
(`columns.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import DataType, StructType

from standpipe.client.core.answers import ServerRefused
from standpipe.client.core.rows import Columns
from standpipe.client.core.tables import SourceShape, TableMap
from standpipe.client.table_reader import TableReader
from standpipe.spark_source.columns import record_batches, spark_schema, spark_type
from standpipe.spark_source.options import ReadOptions, ReadRefused
from standpipe.sql.types.names import name_literal
from standpipe.sql.types.types import parse_type

FORMAT: Final = "standpipe"
#: rows that one task gets with its plan, before they are compressed to a fifth or less; Spark warns
#: of tasks beyond 1 MB
SLICE_BYTES: Final = 4 << 20
BY_PARTITIONS: Final = 'read partition by partition, with .option("consistency", "eventual")'


class FetchedRows(InputPartition):
    """Rows that came with the plan: `packed` is their JSON arrays, a line each, compressed."""

    def __init__(self, packed: bytes, types: tuple[str, ...]) -> None:
        super().__init__(None)
        self.packed, self.types = packed, types


class PartitionRead(InputPartition):
    """A partition of the table, for a task to ask for. `holders`: the addresses to ask first."""

    def __init__(self, text: str, number: int, holders: tuple[str, ...], columns: Columns) -> None:
        super().__init__(number)
        self.text, self.number, self.holders, self.columns = text, number, holders, columns


class TableRead(DataSourceReader):
    """A read of a table, or of the columns of it that `schema` names."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads. Raises StandpipeError."""
        options = self._options
        with _reader(options) as nodes:
            layout = nodes.layout(options.table)
            columns = columns_of(layout.shape, self._schema)
            text = _select(layout.shape, columns, options.where)
            if not options.comes_with_plan:
                return _partitions_of(layout, text, columns)
            try:
                found = nodes.lines(text)
            except ServerRefused as error:
                if error.http_status != 400 or not options.is_of_one_batch:
                    raise
                raise ReadRefused(
                    str(error), next_step=f"{BY_PARTITIONS}, or use Standpipe.read"
                ) from error
        _check_same(found.columns, columns, layout.shape.name)
        return [FetchedRows(packed, found.columns.types) for packed in packed_slices(found.lines)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, as record batches. Raises StandpipeError."""
        if isinstance(partition, FetchedRows):
            lines = [line for line in zlib.decompress(partition.packed).split(b"\n") if line]
            return record_batches(lines, partition.types, self._schema)
        assert isinstance(partition, PartitionRead)
        with _reader(self._options.with_holders(partition.holders)) as nodes:
            found = nodes.lines(partition.text, partition.number, partition.holders)
        _check_same(found.columns, partition.columns, self._options.table)
        return record_batches(found.lines, found.columns.types, self._schema)


class StandpipeSource(DataSource):
    """`spark.read.format("standpipe")`. To register it where PySpark does not find it by itself:
    `spark.dataSource.register(StandpipeSource)`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns of the table. Raises StandpipeError."""
        options = ReadOptions.read(self.options)
        with _reader(options) as nodes:
            return spark_schema(nodes.layout(options.table).shape.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """`schema`: of the table, or what the user gave: the columns that are read."""
        return TableRead(ReadOptions.read(self.options), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 PySpark's name
        """Refused."""
        raise ReadRefused(
            'format("standpipe") reads one batch', next_step="Standpipe.read_stream reads changes"
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refused."""
        raise ReadRefused('format("standpipe") only reads', next_step="Standpipe.load writes")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Refused."""
        raise ReadRefused('format("standpipe") only reads', next_step="Standpipe.serve writes")


def _reader(options: ReadOptions) -> TableReader:
    try:
        return TableReader.of(options.nodes, options.settings, options.ca)
    except ValueError as error:
        raise ReadRefused(str(error), next_step="give public addresses of nodes") from error


def columns_of(shape: SourceShape, schema: StructType) -> Columns:
    """The columns that a schema names. Raises ReadRefused if the table has others."""
    for field in schema.fields:
        of = shape.columns.get(field.name)
        if of is None:
            raise ReadRefused(
                f"{shape.name} has no column {field.name}",
                next_step=f"it has {', '.join(shape.columns)}",
            )
        if spark_type(of) != field.dataType:
            raise ReadRefused(
                f"column {field.name} of {shape.name} is {spark_type(of).simpleString()}, not"
                f" {field.dataType.simpleString()}",
                next_step="give that type in .schema(…), and cast the column afterwards",
            )
    names = tuple(field.name for field in schema.fields)
    return Columns(names, tuple(str(shape.columns[name]) for name in names))


def _select(shape: SourceShape, columns: Columns, where: str) -> str:
    names = ", ".join(map(name_literal, columns.names))
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {names} FROM {name_literal(shape.name)}{condition};"  # noqa: S608 quoted


def _partitions_of(layout: TableMap, text: str, columns: Columns) -> list[InputPartition]:
    return [
        PartitionRead(text, number, holders, columns)
        for number, holders in enumerate(layout.holders)
    ]


def packed_slices(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The lines in slices; one that is empty if there are none."""
    held: list[bytes] = []
    held_bytes = 0
    for line in lines:
        held.append(line)
        held_bytes += len(line)
        if held_bytes >= SLICE_BYTES:
            yield zlib.compress(b"\n".join(held), 1)
            held, held_bytes = [], 0
    if held or not lines:
        yield zlib.compress(b"\n".join(held), 1)


def _check_same(found: Columns, planned: Columns, table: str) -> None:
    """Raises ReadRefused if the table was created again meanwhile, with other columns."""
    if found.names != planned.names or _spark_types(found) != _spark_types(planned):
        raise ReadRefused(
            f"{table} has other columns than when the read was planned: {_listed(found)} instead"
            f" of {_listed(planned)}",
            next_step="load it again",
        )


def _spark_types(columns: Columns) -> list[DataType]:
    return [spark_type(parse_type(each)) for each in columns.types]


def _listed(columns: Columns) -> str:
    pairs: Mapping[str, str] = dict(zip(columns.names, columns.types, strict=True))
    return ", ".join(f"{name} {of}" for name, of in pairs.items())
