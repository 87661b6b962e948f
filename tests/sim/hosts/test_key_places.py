"""The second account of Kafka's partitioner agrees with what real Kafka has hashed, and with the product."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.core.client.partitioner import partition_for_key
from sim.hosts.key_places import place_of_key


def test_a_key_has_the_place_that_kafkas_own_test_names() -> None:
    # UtilsTest.testMurmur2.
    assert place_of_key(b"foobar", 1 << 31) == -790332482 & 0x7FFFFFFF
    assert place_of_key(b"21", 1 << 31) == -973932308 & 0x7FFFFFFF
    assert place_of_key(b"a-little-bit-long-string", 1 << 31) == -985981536 & 0x7FFFFFFF


@given(key=st.binary(max_size=40), partitions=st.integers(1, 100))
def test_both_accounts_agree(key: bytes, partitions: int) -> None:
    assert place_of_key(key, partitions) == partition_for_key(key, partitions)
