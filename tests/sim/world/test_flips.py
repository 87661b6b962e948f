"""Frames of which a bit flips on the way: where batches are in them, and which bits may flip."""

from __future__ import annotations

from sim.world.flips import batches_in, flip_in_records
from sim.world.streams import Stream
from storage.batch import Record, RecordBatch, build_batch
from storage.draws import Draws


def batch(value: bytes) -> bytes:
    return bytes(build_batch([Record(offset=0, timestamp=1, key=None, value=value)]))


def test_batches_are_found_wherever_they_are_and_nothing_else() -> None:
    first, second = batch(b"\x02" * 40), batch(b"b")
    data = b"\x02" * 30 + first + second + b"\x02\x00" * 40
    assert batches_in(data) == [(30, 30 + len(first)), (30 + len(first), 30 + len(first) + len(second))]
    assert batches_in(b"\x02" * 200) == [] and batches_in(first[:-1]) == [] and batches_in(b"") == []


def test_one_bit_flips_in_what_a_checksum_covers() -> None:
    head, one = b"head", batch(b"value")
    draws = Stream(Draws(1), "flips", "1->2")
    for _ in range(50):
        flipped = flip_in_records(head + one + b"tail", draws)
        assert flipped is not None
        assert flipped[: len(head) + 21] == head + one[:21] and flipped[-4:] == b"tail"
        assert not RecordBatch(flipped, len(head), len(one)).is_valid()
        changed = sum((a ^ b).bit_count() for a, b in zip(flipped, head + one + b"tail", strict=True))
        assert changed == 1
    assert flip_in_records(b"no batch", draws) is None
