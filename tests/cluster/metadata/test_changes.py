"""Changes of several batches, as every reader of the metadata log puts them together (KIP-868)."""

from __future__ import annotations

import pytest

from cluster.core.metadata.batches import build_change
from cluster.core.metadata.changes import Change, ChangeReader
from cluster.core.metadata.records import AbortTransactionRecord, MetadataRecord, ProducerIdsRecord
from storage.batch import build_batch, iterate_batches, stamp
from storage.batch.record import Record
from storage.errors import InvalidRecord

# Room for two or three of these records.
BATCH_BYTES = 400
ABORT = AbortTransactionRecord(reason="cut")


def ids(*numbers: int) -> list[MetadataRecord]:
    return [ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=number) for number in numbers]


def batches(*changes: list[MetadataRecord], base_offset: int = 0) -> list[bytes]:
    """Return the batches of the changes numbered as a log does it."""
    found: list[bytes] = []
    for records in changes:
        for each in build_change(records, timestamp_ms=1, max_bytes=BATCH_BYTES):
            numbered = bytearray(each)
            stamp(numbered, 0, base_offset=base_offset, partition_leader_epoch=0)
            found.append(bytes(numbered))
            base_offset = next(iter(iterate_batches(numbered))).next_offset
    return found


def records_of(changes: list[Change]) -> list[list[MetadataRecord]]:
    return [[record for _, record in change.records] for change in changes]


def test_krlog8_an_answer_that_ends_within_a_change_yields_nothing_of_it() -> None:
    parts = batches(ids(*range(7)))
    assert len(parts) > 2
    reader = ChangeReader()
    for part in parts[:-1]:
        assert list(reader.read(part)) == []
        assert reader.is_within_a_change and reader.boundary == 0
    (change,) = reader.read(parts[-1])
    assert [offset for offset, _ in change.records] == list(range(7))
    assert not reader.is_within_a_change and reader.boundary == change.end_offset == 7


def test_krlog8_a_change_that_is_aborted_applies_nothing() -> None:
    (first, *rest) = batches(ids(*range(7)))
    reader = ChangeReader()
    assert rest and list(reader.read(first)) == []
    after = batches([ABORT], ids(9), base_offset=reader.next_offset)
    assert records_of(list(reader.read(b"".join(after)))) == [[ABORT], ids(9)]


def test_what_was_read_before_is_skipped() -> None:
    one, two = batches(ids(1), ids(2))
    reader = ChangeReader()
    assert records_of(list(reader.read(one))) == [ids(1)]
    assert records_of(list(reader.read(one + two))) == [ids(2)]
    assert list(reader.read(one + two)) == []


def test_a_hole_in_the_offsets_is_refused() -> None:
    one, _, three = batches(ids(1), ids(2), ids(3))
    with pytest.raises(InvalidRecord, match="offset 2 of the metadata log where 1 must follow"):
        list(ChangeReader().read(one + three))


def test_a_record_that_is_none_is_refused_with_its_offset() -> None:
    data = build_batch([Record(0, 1, None, b'{"type":"NoRecord"}')])
    with pytest.raises(InvalidRecord, match="offset 0 of the metadata log"):
        list(ChangeReader().read(data))


def test_restart_forgets_the_beginning_of_a_change() -> None:
    parts = batches(ids(*range(7)))
    reader = ChangeReader()
    list(reader.read(parts[0]))
    reader.restart(0)
    assert records_of(list(reader.read(b"".join(parts)))) == [ids(*range(7))]
