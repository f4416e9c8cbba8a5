"""The functions of pull queries, held to the registry: their meaning is test_evaluator.py's."""

from __future__ import annotations

from standpipe.sql.expressions.evaluator_functions import FUNCTIONS
from standpipe.sql.functions import registry


def test_each_is_a_scalar_function_of_the_registry() -> None:
    assert set(FUNCTIONS) <= set(registry.names())
    assert not any(map(registry.is_aggregate, FUNCTIONS))
    assert not any(map(registry.is_table_function, FUNCTIONS))
