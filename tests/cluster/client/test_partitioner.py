"""Keys go to the partitions to which Kafka's own producer sends them."""

from __future__ import annotations

import pytest

from cluster.core.client.partitioner import StickyPartitioner, murmur2, partition_for_key
from storage.draws import Draws


@pytest.mark.parametrize(
    # The cases are those of Kafka's UtilsTest.testMurmur2.
    ("text", "expected"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected % (1 << 32)


def test_key_partition_masks_the_sign_bit_before_the_modulus() -> None:
    assert partition_for_key(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7


def test_empty_key_is_a_key() -> None:
    assert partition_for_key(b"", 5) == (murmur2(b"") & 0x7FFFFFFF) % 5


def test_keyless_records_stay_for_a_batch_then_another_partition_is_drawn() -> None:
    sticky = StickyPartitioner("t", 100, Draws(3))
    chosen = [sticky.partition(50, [0, 1, 2, 3]) for _ in range(40)]
    assert all(chosen[index] == chosen[index + 1] for index in range(0, 40, 2))
    assert len(set(chosen)) == 4


def test_keyless_records_leave_a_partition_that_lost_its_leader() -> None:
    sticky = StickyPartitioner("t", 1 << 20, Draws(3))
    first = sticky.partition(1, [0, 1])
    assert sticky.partition(1, [1 - first]) == 1 - first


def test_sticky_choice_is_a_function_of_the_seed() -> None:
    runs = []
    for _ in range(2):
        sticky = StickyPartitioner("t", 1, Draws(9))
        runs.append([sticky.partition(1, [0, 1, 2]) for _ in range(20)])
    assert runs[0] == runs[1]
