"""Control records and the batches of them."""

from __future__ import annotations

import struct

import pytest

from storage.batch import Record, RecordBatch, iterate_batches
from storage.batch.control_batches import (
    Endpoint,
    Voter,
    build_control_batch,
    build_end_transaction_marker,
    encode_kraft_version,
    encode_kraft_voters,
    encode_leader_change,
    encode_snapshot_footer,
    encode_snapshot_header,
)
from storage.batch.control_records import (
    ControlRecord,
    ControlType,
    encode_control_key,
    encode_end_transaction_marker,
    read_control_record,
)
from storage.errors import InvalidRecord

WRITTEN_BY_KAFKA = {
    "END": (
        "00000000000003d70000004200000007027b029407003000000000000000000000000500000000000000050000000000"
        "000049000dffffffff000000012000000008000000000c00000000015b00"
    ),
    "LEADER_CHANGE": (
        "00000000000003d7000000540000001402c3b6e18300200000000000000000000000050000000000000005ffffffffff"
        "ffffffffffffffffff000000014400000008000000023000000000000503000000010000000002000200000002000000"
    ),
    "SNAPSHOT_HEADER": (
        "00000000000003d7000000470000001402f7e8c15500200000000000000000000000050000000000000005ffffffffff"
        "ffffffffffffffffff000000012a000000080000000316000000000001104478cb0000"
    ),
    "SNAPSHOT_FOOTER": (
        "00000000000003d70000003f00000014022ebda55200200000000000000000000000050000000000000005ffffffffff"
        "ffffffffffffffffff000000011a00000008000000040600000000"
    ),
    "KRAFT_VERSION": (
        "00000000000003d700000041000000140240f8848e00200000000000000000000000050000000000000005ffffffffff"
        "ffffffffffffffffff000000011e00000008000000050a000000010000"
    ),
    "KRAFT_VOTERS": (
        "00000000000003d7000000740000001402a576fbf300200000000000000000000000050000000000000005ffffffffff"
        "ffffffffffffffffff00000001820100000008000000066e000002000000030000000000000001000000000000000202"
        "0b434f4e54524f4c4c45520a6c6f63616c686f7374fde8000000000100000000"
    ),
}
"""Batches of Kafka 4.1: offset 983, timestamp 5, leader epoch 20 (the marker: 7)."""

VOTER = Voter(
    voter_id=3,
    directory_id=struct.pack(">qq", 1, 2),
    endpoints=(Endpoint(name="CONTROLLER", host="localhost", port=65000),),
)


def only(data: bytes) -> RecordBatch:
    (batch,) = iterate_batches(data)
    return batch


def control(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


@pytest.mark.covers(
    "MemoryRecordsTest.testBuildEndTxnMarker", "DefaultRecordBatchTest.testReadAndWriteControlBatch"
)
def test_end_transaction_marker_is_kafkas_batch_of_78_bytes() -> None:
    data = build_end_transaction_marker(
        producer_id=73,
        producer_epoch=13,
        is_commit=False,
        coordinator_epoch=347,
        timestamp=5,
        base_offset=983,
        partition_leader_epoch=7,
    )
    assert data.hex() == WRITTEN_BY_KAFKA["END"] and len(data) == 78
    batch = only(data)
    batch.check_valid()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base_offset) == (
        73,
        13,
        -1,
        983,
    )
    assert batch.is_transactional and batch.is_control
    (record,) = batch.records()
    assert read_control_record(record) == ControlRecord(
        control_type=ControlType.ABORT, type_id=0, coordinator_epoch=347
    )


@pytest.mark.covers("MemoryRecordsTest.testBuildLeaderChangeMessage")
@pytest.mark.parametrize(
    ("control_type", "value"),
    [
        (ControlType.LEADER_CHANGE, encode_leader_change(5, (1, 2), (2,))),
        (ControlType.SNAPSHOT_HEADER, encode_snapshot_header(4567890123)),
        (ControlType.SNAPSHOT_FOOTER, encode_snapshot_footer()),
        (ControlType.KRAFT_VERSION, encode_kraft_version(1)),
        (ControlType.KRAFT_VOTERS, encode_kraft_voters((VOTER,))),
    ],
)
def test_batch_of_the_controllers_log_is_kafkas(control_type: ControlType, value: bytes) -> None:
    data = build_control_batch(control_type, value, timestamp=5, base_offset=983, leader_epoch=20)
    assert data.hex() == WRITTEN_BY_KAFKA[control_type.name]
    batch = only(data)
    assert batch.is_valid() and batch.is_control and not batch.is_transactional and not batch.has_producer_id
    assert (batch.base_offset, batch.partition_leader_epoch) == (983, 20)
    (record,) = batch.records()
    assert read_control_record(record).control_type is control_type


@pytest.mark.covers(
    "MemoryRecordsBuilderTest.testWriteLeaderChangeControlBatch",
    "MemoryRecordsBuilderTest.testWriteLeaderChangeControlBatchWithoutLeaderEpoch",
)
def test_bb1_batch_of_the_controllers_log_needs_a_leader_epoch() -> None:
    value = encode_leader_change(1, (1,), (1,))
    with pytest.raises(AssertionError):
        build_control_batch(ControlType.LEADER_CHANGE, value, timestamp=5, base_offset=0, leader_epoch=-1)
    batch = only(
        build_control_batch(ControlType.LEADER_CHANGE, value, timestamp=5, base_offset=0, leader_epoch=5)
    )
    assert batch.partition_leader_epoch == 5


def test_long_texts_and_many_voters_have_lengths_of_two_bytes() -> None:
    value = encode_leader_change(1, range(200), ())
    assert value[6:8] == bytes((0xC9, 0x01)) and len(value) == 6 + 2 + 200 * 5 + 1 + 1


@pytest.mark.covers(
    "ControlRecordTypeTest.testRoundTrip",
    "ControlRecordTypeTest.testParseUnknownType",
    "ControlRecordTypeTest.testParseUnknownVersion",
)
def test_control_type_is_read_from_any_version_and_an_unknown_one_is_known_by_its_number() -> None:
    assert read_control_record(control(struct.pack(">hh", 0, 337), None)) == ControlRecord(
        control_type=ControlType.UNKNOWN, type_id=337
    )
    later = struct.pack(">hhi", 5, 2, 23432)
    assert read_control_record(control(later, None)).control_type is ControlType.LEADER_CHANGE
    assert read_control_record(control(struct.pack(">hh", 0, -1), None)).type_id == -1
    for control_type in ControlType:
        if control_type is not ControlType.UNKNOWN:
            key = encode_control_key(control_type)
            value = struct.pack(">hi", 0, 1)
            assert read_control_record(control(key, value)).control_type is control_type


@pytest.mark.covers("ControlRecordUtilsTest.testInvalidControlRecordType")
@pytest.mark.parametrize("key", [None, b"", bytes(3), struct.pack(">hh", -1, 0)])
def test_short_key_or_negative_version_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord, match="control record's key"):
        read_control_record(control(key, struct.pack(">hi", 0, 1)))


@pytest.mark.covers(
    "EndTransactionMarkerTest.testSerde",
    "EndTransactionMarkerTest.testDeserializeNewerVersion",
)
def test_marker_is_read_from_any_version() -> None:
    for is_commit in (False, True):
        key, value = encode_end_transaction_marker(is_commit=is_commit, coordinator_epoch=79)
        read = read_control_record(control(key, value))
        assert read.coordinator_epoch == 79
        assert read.control_type is (ControlType.COMMIT if is_commit else ControlType.ABORT)
    newer = struct.pack(">hiq", 1, 79, 9)
    assert read_control_record(control(encode_control_key(ControlType.COMMIT), newer)).coordinator_epoch == 79


@pytest.mark.covers(
    "EndTransactionMarkerTest.testIllegalNegativeVersion",
    "EndTransactionMarkerTest.testNotEnoughBytes",
)
@pytest.mark.parametrize("value", [None, b"", bytes(5), struct.pack(">hi", -1, 79)])
def test_marker_that_is_short_or_of_a_negative_version_is_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord, match="control record's value"):
        read_control_record(control(encode_control_key(ControlType.ABORT), value))


@pytest.mark.covers(
    "EndTransactionMarkerTest.testUnknownControlTypeNotAllowed",
    "EndTransactionMarkerTest.testCannotDeserializeUnknownControlType",
)
def test_unknown_type_cannot_be_written_and_has_no_coordinator_epoch() -> None:
    with pytest.raises(ValueError, match="unknown type"):
        encode_control_key(ControlType.UNKNOWN)
    read = read_control_record(control(struct.pack(">hh", 0, 99), struct.pack(">hi", 0, 5)))
    assert read.coordinator_epoch == -1
