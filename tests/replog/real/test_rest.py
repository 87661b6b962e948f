"""What a healed partition lacks to be at rest."""

from __future__ import annotations

import pytest

from cluster.core.messages import TopicPartition
from replog.real.admin import Place
from replog.real.rest import partition_lacks

T0 = TopicPartition("t", 0)


def places(**ends: tuple[int, int]) -> dict[tuple[TopicPartition, int], Place]:
    return {(T0, int(name.removeprefix("broker_"))): Place(*end) for name, end in ends.items()}


def test_a_partition_whose_replicas_are_equal_and_committed_lacks_nothing() -> None:
    assert partition_lacks((1, 2), 1, 2, T0, places(broker_1=(5, 5), broker_2=(5, 5))) == ""


@pytest.mark.parametrize(
    ("isr", "leader", "ends", "word"),
    [
        ((1, 2), -1, {}, "has no leader"),
        ((1,), 1, {}, "only [1] are in sync"),
        ((1, 2), 1, {"broker_1": (5, 5)}, "broker 2 has no replica"),
        ((1, 2), 1, {"broker_1": (5, 5), "broker_2": (4, 4)}, "differ"),
        ((1, 2), 1, {"broker_1": (5, 4), "broker_2": (5, 4)}, "differ"),
    ],
)
def test_what_a_partition_lacks_is_said(
    isr: tuple[int, ...], leader: int, ends: dict[str, tuple[int, int]], word: str
) -> None:
    assert word in partition_lacks(isr, leader, 2, T0, places(**ends))
