"""The golden runs compare producer snapshots by content: the order of entries may differ, and nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.golden.comparing import compare, has_entries
from tests.golden.snapshots import ENTRY, FRAME, MOST_ENTRIES, Snapshot, digest, encoded, lies_about
from tests.places import GOLDEN

ENTRIES = [ENTRY.pack(producer_id, 2, 15, 104, 3, 1234, 5, -1) for producer_id in (17, 33, 5)]
# The same entries as Kafka wrote them and as they are written here.
KAFKAS, OURS = encoded(ENTRIES), Snapshot(encoded([ENTRIES[2], ENTRIES[0], ENTRIES[1]]))
SIZE, DIGEST = len(KAFKAS), digest(KAFKAS)
FILE = [SIZE, DIGEST]


@pytest.mark.parametrize("order", list(permutations(ENTRIES)))
def test_entries_in_any_order_are_kafkas(order: tuple[bytes, ...]) -> None:
    assert Snapshot(encoded(order)).is_kafkas(SIZE, DIGEST)


@pytest.mark.parametrize(("kind", "lie"), list(lies_about(OURS)), ids=lambda value: str(value)[:40])
def test_every_false_value_in_a_snapshot_is_noticed(kind: str, lie: Snapshot) -> None:
    assert not lie.is_kafkas(SIZE, DIGEST), kind
    found: list[str] = []
    compare({"5.snapshot": FILE}, {"5.snapshot": lie}, "files", found)
    assert len(found) == 1 and found[0].startswith("files.5.snapshot: Kafka [148, ")


def test_the_false_values_are_version_checksum_each_field_and_the_number_of_entries() -> None:
    lies = dict(lies_about(OURS))
    assert len(lies) == 12
    assert all(len(lie.content) == len(KAFKAS) for kind, lie in lies.items() if "an entry" not in kind)
    assert len(list(lies_about(Snapshot(encoded([]))))) == 2


def test_a_snapshot_of_another_size_or_hash_is_not_kafkas() -> None:
    assert not OURS.is_kafkas(SIZE + 1, DIGEST)
    assert not OURS.is_kafkas(SIZE, DIGEST[:-1] + "x")


@pytest.mark.parametrize("kafkas", [None, FILE])
def test_a_snapshot_that_one_of_the_two_lacks_differs(kafkas: list[object] | None) -> None:
    found: list[str] = []
    compare({"5.snapshot": kafkas}, {"5.snapshot": None if kafkas else OURS}, "files", found)
    assert len(found) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        KAFKAS[:-1],
        KAFKAS[: FRAME.size - 1],
        KAFKAS + b"\0",
        b"\0\2" + KAFKAS[2:],
        KAFKAS[:-1] + b"\0",
    ],
)
def test_an_unsound_snapshot_is_kafkas_only_by_equal_bytes(content: bytes) -> None:
    damaged = Snapshot(content)
    with pytest.raises(ValueError):
        damaged.entries()
    assert not has_entries(damaged)
    assert damaged.is_kafkas(len(content), digest(content))
    assert not damaged.is_kafkas(SIZE, DIGEST)
    assert str(damaged).startswith("an unsound snapshot: ")


def test_more_entries_than_orders_can_be_tried_are_reported_as_such() -> None:
    entries = [ENTRY.pack(producer_id, 0, 0, 0, 0, 0, 0, -1) for producer_id in range(MOST_ENTRIES + 1)]
    ours, kafkas = Snapshot(encoded(entries)), encoded(entries[::-1])
    assert not ours.is_kafkas(len(kafkas), digest(kafkas))
    assert str(ours).endswith("(too many to try each order)")


def test_snapshots_that_kafka_wrote_are_sound() -> None:
    paths = sorted(GOLDEN.glob("kafka-*/**/*.snapshot"))
    assert len(paths) > 50
    assert any(has_entries(Snapshot(path.read_bytes())) for path in paths)
    for path in paths:
        Snapshot(path.read_bytes()).entries()
