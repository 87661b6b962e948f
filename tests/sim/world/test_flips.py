"""Frames of which a bit flips on the way: where batches are in them, and which bits may flip."""

from __future__ import annotations

import pytest

from cluster.core.messages import BrokerHeartbeatRequest
from cluster.rpc import methods
from cluster.shell.streams import CODEC
from sim.world.flips import batches_in, flip_anywhere, flip_in_records, flip_in_structure, is_readable
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


def test_a_flip_in_the_structure_leaves_no_message_and_changes_one_bit() -> None:
    path = f"/{methods.CONTROLLER}/BrokerHeartbeat"
    data = CODEC.unary.request_to_bytes(
        BrokerHeartbeatRequest(broker_id=2, broker_epoch=77, metadata_offset=9)
    )
    draws = Stream(Draws(1), "flips", "1->2")
    for _ in range(20):
        flipped = flip_in_structure(data, lambda frame: is_readable(path, frame, to_target=True), draws)
        assert flipped is not None and not is_readable(path, flipped, to_target=True)
        assert sum((a ^ b).bit_count() for a, b in zip(flipped, data, strict=True)) == 1
    assert is_readable(path, data, to_target=True)
    assert flip_in_structure(data, lambda frame: True, draws) is None
    assert flip_in_structure(b"", lambda frame: False, draws) is None


@pytest.mark.parametrize(
    "path", [methods.PRODUCE, methods.REPLICA_FETCH, f"/{methods.CONTROLLER}/AlterPartition"]
)
@pytest.mark.parametrize("to_target", [True, False])
def test_what_is_no_message_of_a_method_is_not_readable(path: str, to_target: bool) -> None:
    assert is_readable(path, b"", to_target=to_target)
    assert not is_readable(path, b"\xff", to_target=to_target)


def test_any_bit_may_flip_and_each_does() -> None:
    draws, data = Stream(Draws(1), "flips", "1->2"), bytes(3)
    found = {flip_anywhere(data, draws) for _ in range(400)}
    assert len(found) == 24 and all(sum(byte.bit_count() for byte in each) == 1 for each in found)
