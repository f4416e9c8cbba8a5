"""Which functions are ours in Spark, and when a query needs them. What they compute:
tests/e2e/test_linear_patterns_on_spark.py, tests/e2e/both_ways.py, test_stream_time_on_spark.py."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from standpipe.model import SparkInput
from standpipe.pipeline.run.start import session_functions
from standpipe.pipeline.run.start.session_functions import SOURCES, is_needed
from standpipe.sql.expressions.like import like_template
from standpipe.sql.functions import registry
from standpipe.sql.schemas.avro_write_program import Op
from standpipe.sql.spark.stream_time import timed_sql


def called() -> set[str]:
    """The names of ours in all templates."""
    templates = [each.template for name in registry.names() for each in registry.variants(name)]
    texts = [*templates, like_template(None, None), timed_sql("`S`")]
    return set(re.findall(r"standpipe_\w+", " ".join(texts)))


def test_each_function_that_a_template_calls_is_registered() -> None:
    registered = {name for name, *_ in session_functions._FUNCTIONS}
    assert called() == registered


def test_each_step_of_a_program_is_known_in_java() -> None:
    java = next(each for each in SOURCES if each.stem == "AvroBytes").read_text()
    for op in get_args(Op):
        assert f'"{op}"' in java, op


def test_each_has_a_class_that_knows_what_it_is_to_do() -> None:
    texts = {source.stem: source.read_text() for source in SOURCES}
    for _, of_class, given, _ in session_functions._FUNCTIONS:
        for what in given:
            is_left = what in (
                "REPLACE",
                "RECORDS",
                "INSTANT",
                "SHOWN_INSTANT",
            )  # what remains of a class is not compared
            assert is_left or f'"{what}"' in texts[of_class]
        assert f"public class {of_class} " in texts[of_class]


@pytest.mark.parametrize(
    ("texts", "needed"),
    [
        (("SELECT standpipe_like(`P`, `V`, '') FROM `S`",), True),
        (("SELECT 1", None, "SELECT standpipe_json_keys(`V`, NULL)"), True),
        ((timed_sql("`S`"),), True),
        (("SELECT upper(`V`) FROM `S`", None), False),
        ((), False),
    ],
)
def test_a_query_needs_them_if_any_of_its_texts_calls_one(
    texts: tuple[str | None, ...], needed: bool
) -> None:
    assert is_needed((), *texts) is needed


@pytest.mark.parametrize("timestamp_format", [None, "yyyy-MM-dd"])
def test_a_source_needs_them_to_read_its_time(timestamp_format: str | None) -> None:
    source = SparkInput(
        source="S",
        topic="s",
        view="S",
        columns=(),
        key_format="KAFKA",
        value_format="JSON",
        timestamp_column="AT",
        timestamp_format=timestamp_format,
    )
    assert is_needed((source,), "SELECT 1") is (timestamp_format is not None)


@pytest.mark.parametrize(
    ("pattern", "is_spark", "why"),
    [
        ("a%", True, ""),
        ("%a%", True, "Spark looks for the text"),
        ("a%b", True, "one place for the %"),
        ("%a_%", True, "one piece: its length bounds the steps of each place"),
        ("%a%b", False, "a power of the length of the text"),
        ("a%%b", False, ""),
        (None, False, "a pattern out of a column may be any"),
    ],
)
def test_only_a_like_that_takes_linear_time_is_sparks(
    pattern: str | None, is_spark: bool, why: str
) -> None:
    assert (like_template(pattern, None) == "{0} LIKE {1}") is is_spark, why
