import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from standpipe.data.encoding import store_keys
from standpipe.pipeline.io import partition_udf


@settings(deadline=None)  # the first call loads numpy's and pyarrow's kernels
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 200))
def test_partitions_agree_with_the_dull_twin(keys: list[bytes], count: int) -> None:
    expected = [store_keys.partition_of(key, count) for key in keys]
    assert partition_udf.partitions(pa.array(keys, pa.binary()), count).tolist() == expected


def test_an_empty_batch_and_a_slice() -> None:
    keys = pa.array([b"a", b"bb", b"ccc", b"dddd"], pa.large_binary())
    assert partition_udf.partitions(keys.slice(0, 0), 4).tolist() == []
    sliced = partition_udf.partitions(keys.slice(2), 4).tolist()
    assert sliced == [store_keys.partition_of(key, 4) for key in (b"ccc", b"dddd")]
