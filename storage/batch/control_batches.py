"""Control batches as Kafka's coordinators and its controller write them (Kafka: MemoryRecords.withEndTransactionMarker,
withLeaderChangeMessage and related methods).

Each is an uncompressed batch of magic 2 with one control record. The values of the types from LEADER_CHANGE on are
flexible messages of version 0: the fields in order; before each array and string its length plus one as an unsigned
varint; after each structure the number of its tagged fields as an unsigned varint, always 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from storage.batch.builder import build_batch
from storage.batch.control_records import ControlType, encode_control_key, encode_end_transaction_marker
from storage.batch.record import Record

_NO_TAGS = b"\x00"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SNAPSHOT_HEADER = struct.Struct(">hq")
_FEATURE = struct.Struct(">hh")
_PORT = struct.Struct(">H")
_VERSION = _INT16.pack(0)
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address at which a voter listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A member of the quorum; `directory_id` is 16 bytes."""

    voter_id: int
    directory_id: bytes
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


def build_end_transaction_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Build the batch (78 bytes) that ends a transaction in one partition."""
    key, value = encode_end_transaction_marker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_control_batch(
    control_type: ControlType, value: bytes, *, timestamp: int, base_offset: int, leader_epoch: int
) -> bytes:
    """Build a batch of the controller's log, which has no producer; `value` comes from an `encode_…` below."""
    assert control_type >= ControlType.LEADER_CHANGE, control_type
    assert leader_epoch >= 0, leader_epoch
    return build_batch(
        [Record(base_offset, timestamp, encode_control_key(control_type), value)],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        is_control=True,
    )


def encode_leader_change(leader_id: int, voters: Iterable[int], granting_voters: Iterable[int]) -> bytes:
    parts = [_VERSION, _INT32.pack(leader_id)]
    for voter_ids in (voters, granting_voters):
        parts.append(_array(_INT32.pack(voter_id) + _NO_TAGS for voter_id in voter_ids))
    return b"".join(parts) + _NO_TAGS


def encode_snapshot_header(last_contained_log_timestamp: int) -> bytes:
    return _SNAPSHOT_HEADER.pack(0, last_contained_log_timestamp) + _NO_TAGS


def encode_snapshot_footer() -> bytes:
    return _VERSION + _NO_TAGS


def encode_kraft_version(kraft_version: int) -> bytes:
    return _VERSION + _INT16.pack(kraft_version) + _NO_TAGS


def encode_kraft_voters(voters: Iterable[Voter]) -> bytes:
    return _VERSION + _array(map(_encode_voter, voters)) + _NO_TAGS


def _encode_voter(voter: Voter) -> bytes:
    assert len(voter.directory_id) == _UUID_BYTES, voter
    endpoints = _array(
        _string(each.name) + _string(each.host) + _PORT.pack(each.port) + _NO_TAGS for each in voter.endpoints
    )
    feature = _FEATURE.pack(voter.min_kraft_version, voter.max_kraft_version) + _NO_TAGS
    return _INT32.pack(voter.voter_id) + voter.directory_id + endpoints + feature + _NO_TAGS


def _array(elements: Iterable[bytes]) -> bytes:
    parts = list(elements)
    return _unsigned_varint(len(parts) + 1) + b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _unsigned_varint(len(encoded) + 1) + encoded


def _unsigned_varint(value: int) -> bytes:
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
