"""The bound of a record's size, by which a producer refuses what no request could hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.core.client.waiting_records import RECORD_OVERHEAD_BYTES, size_bound
from storage.batch import Record, build_batch

# The most that the lengths of a header take beyond what they have at least.
_LENGTHS_BYTES = 10
_fields = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=40), _fields), max_size=4).map(tuple)


@given(_fields, _fields, _headers)
def test_the_size_of_a_record_alone_in_a_batch_is_below_its_bound_and_not_far(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    size_bytes = len(build_batch([Record(0, 0, key, value, headers=headers)]))
    over_bytes = size_bound(key, value, headers) - size_bytes
    wide_bytes = sum(4 * len(name) - len(name.encode()) for name, _ in headers)
    assert 0 <= over_bytes - wide_bytes <= RECORD_OVERHEAD_BYTES + _LENGTHS_BYTES * len(headers)
