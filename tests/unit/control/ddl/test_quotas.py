"""What statements may use up. PARTITIONS=1000000 stopped the control of all nodes for minutes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.control.ddl.test_propose import after, asked

from standpipe.config import registry
from standpipe.config import statements as keys
from standpipe.control.ddl.limits import StatementLimits
from standpipe.control.ddl.propose import judge
from standpipe.control.ddl.quotas import Quotas, catalog_bytes
from standpipe.control.ddl.responses import StatementReply
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import Catalog
from standpipe.errors import StatementError
from standpipe.model import LogIndex

STREAM = (
    "CREATE STREAM {} (ID STRING KEY, V INTEGER) "
    "WITH (KAFKA_TOPIC='{}', PARTITIONS={}, VALUE_FORMAT='JSON');"
)
TABLE = "CREATE TABLE {} AS SELECT ID, COUNT(*) AS N FROM S GROUP BY ID EMIT CHANGES;"
S, S2, T = STREAM.format("S", "s", 4), STREAM.format("S2", "s2", 4), TABLE.format("T")
BASE = after(S, T, "CREATE TYPE M AS INTEGER;")


def limits(**quotas: int) -> StatementLimits:
    return StatementLimits(quotas=Quotas(**quotas))


def judged(sql: str, catalog: Catalog = BASE, **quotas: int) -> object:
    return judge(asked(sql), catalog, {"wide": 5000}, limits(**quotas))


@pytest.mark.parametrize(
    ("sql", "quotas", "words", "why"),
    [
        (
            STREAM.format("X", "x", 1_000_000),
            {},
            "X would have 1000000 partitions; standpipe.source.partitions.max allows 1000",
            "the default",
        ),
        (
            "CREATE STREAM X (A INT) WITH (KAFKA_TOPIC='wide', VALUE_FORMAT='JSON');",
            {},
            "X would have 5000 partitions; standpipe.source.partitions.max allows 1000",
            "of a topic that exists",
        ),
        (
            TABLE.format("X").replace("AS SELECT", "WITH (PARTITIONS=9) AS SELECT"),
            {"source_partitions_max": 8},
            "X would have 9 partitions; standpipe.source.partitions.max allows 8",
            "of a result",
        ),
        (
            "CREATE SOURCE TABLE X (A INT PRIMARY KEY) WITH (KAFKA_TOPIC='wide', FORMAT='JSON');",
            {},
            "X would have 5000 partitions; standpipe.source.partitions.max allows 1000",
            "of a copied table",
        ),
        (
            STREAM.format("X", "x", 4),
            {"partitions_max": 11},
            "would have 12 partitions together; standpipe.partitions.max allows 11",
            "in small pieces",
        ),
        (
            S2,
            {"sources_max": 2},
            "There would be 3 streams and tables; standpipe.sources.max allows 2",
            "streams",
        ),
        (
            TABLE.format("T2"),
            {"sources_max": 2},
            "There would be 3 streams and tables; standpipe.sources.max allows 2",
            "tables",
        ),
        (
            TABLE.format("T2"),
            {"queries_max": 1},
            "'ksql.query.persistent.active.limit' setting",
            "queries that make tables",
        ),
        (
            TABLE.format("T2"),
            {"queries_max": 1},
            "Current persistent query count: 1. Configured limit: 1.",
            "with ksqlDB's text",
        ),
        (
            "CREATE TYPE M2 AS INTEGER;",
            {"types_max": 1},
            "There would be 2 types; standpipe.types.max allows 1",
            "types",
        ),
        (
            S2.replace("WITH", f"/* {'x' * 60_000} */ WITH"),
            {},
            "standpipe.statement.bytes.max allows 16384",
            "comments: the catalog keeps the text of a statement",
        ),
        (
            S2.replace("WITH", f"/* {'é' * 900} */ WITH"),
            {"statement_bytes_max": 1800},
            "standpipe.statement.bytes.max allows 1800",
            "bytes, not characters",
        ),
        (
            f"CREATE TYPE M2 AS STRUCT<{', '.join(f'F{n} INT' for n in range(300))}>;",
            {"statement_bytes_max": 2000},
            "standpipe.statement.bytes.max allows 2000",
            "types",
        ),
        (
            S2,
            {"catalog_bytes_max": catalog_bytes(BASE) + 100},
            "standpipe.catalog.bytes.max allows",
            "what all of them take",
        ),
        (
            "ALTER STREAM S ADD COLUMN W STRING;",
            {"catalog_bytes_max": catalog_bytes(BASE)},
            "standpipe.catalog.bytes.max allows",
            "columns",
        ),
    ],
)
def test_a_statement_over_a_limit(sql: str, quotas: dict[str, int], words: str, why: str) -> None:
    with pytest.raises(StatementError) as refused:
        judged(sql, **quotas)
    assert words in refused.value.message, why
    assert refused.value.statement, "shown with its text"


def test_limits_are_inclusive() -> None:
    exact: dict[str, Any] = {
        "source_partitions_max": 4,
        "partitions_max": 12,
        "sources_max": 3,
        "queries_max": 1,
        "statement_bytes_max": len(S2),
    }
    assert not isinstance(judged(S2, **exact), StatementReply)
    for name in ("source_partitions_max", "partitions_max", "sources_max", "statement_bytes_max"):
        with pytest.raises(StatementError):
            judged(S2, **{**exact, name: exact[name] - 1})


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE T;",
        "TERMINATE ALL;",
        "PAUSE ALL;",
        "DROP TYPE M;",
        "CREATE OR REPLACE" + S.removeprefix("CREATE"),
        "ALTER STREAM S ADD COLUMN W STRING;",
    ],
)
def test_what_frees_or_adds_nothing_passes_above_the_limits(sql: str) -> None:
    """They may have been lowered, or an older release had none."""
    counts = {"partitions_max": 1, "source_partitions_max": 1, "sources_max": 1, "queries_max": 0}
    assert not isinstance(judged(sql, **counts, types_max=0), StatementReply)


def test_each_limit_has_a_key() -> None:
    given = {
        "standpipe.source.partitions.max": 1,
        "standpipe.partitions.max": 2,
        "standpipe.sources.max": 3,
        "ksql.query.persistent.active.limit": 4,
        "standpipe.push.transient.max": 9,
        "standpipe.types.max": 5,
        "standpipe.catalog.bytes.max": 65_536,
        "standpipe.statement.bytes.max": 1024,
    }
    assert Quotas.of(registry.load(given)) == Quotas(1, 2, 3, 4, 9, 5, 65_536, 1024)
    assert Quotas.of(registry.load({})) == Quotas()
    assert StatementLimits.of(registry.load({}), "default_").replicas_max == 10
    assert keys.PARTITIONS_MAX.default * 80 < 8 << 20, "an assignment is one entry of the log"


def test_a_catalog_at_its_limit_is_published_within_its_bytes() -> None:
    """40 statements with comments of 400 KB slowed every read of every node."""
    catalog, refusals = BASE, list[str]()
    while not refusals:
        count = len(catalog.sources)
        sql = STREAM.format(f"X{count}", "x", 1).replace("WITH", f"/*{'x' * 16_000}*/ WITH")
        try:
            command = judge(asked(sql), catalog, {"x": 1})
        except StatementError as refused:
            refusals.append(refused.message)
            continue
        assert not isinstance(command, StatementReply)
        command = msgspec.structs.replace(command, request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    assert "standpipe.catalog.bytes.max allows 2097152" in refusals[0]
    assert 100 < len(catalog.sources) < 140
    assert catalog_bytes(catalog) <= Quotas().catalog_bytes_max
