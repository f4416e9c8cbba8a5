from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import in_columns

from standpipe.data.replica.events import Fetched, columns_of

_INDEX = st.none() | st.integers(-8, 8)
_RECORD = st.tuples(
    st.integers(0, 99),
    st.none() | st.binary(max_size=2),
    st.none() | st.binary(max_size=2),
    st.none() | st.just([("sp-commit", b"1")]),
)


@given(st.lists(_RECORD, max_size=6), _INDEX, _INDEX, st.sampled_from((1, 2, 64)))
def test_columns_are_a_sequence_of_records(
    records: list[Fetched], start: int | None, stop: int | None, step: int
) -> None:
    columns = in_columns(records)
    assert [*columns] == records
    assert [*columns[start:stop:step]] == records[start:stop:step]
    assert [columns[n] for n in range(len(columns))] == records
    if records:
        assert columns[-1] == records[-1]
        assert [*map(list, columns_of(columns))] == [*map(list, columns_of(records))]
