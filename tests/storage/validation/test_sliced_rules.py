"""The rules that slices share with a validation at once, each at its bound and with records above one piece."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from storage.batch import Compression, RecordBatch, TimestampType, build_batch, iterate_batches
from storage.batch.format import TRANSACTIONAL_FLAG
from storage.batch.legacy.builder import build_message_set
from storage.batch.pieces import PIECE_BYTES
from storage.batch.record import MAX_INT64, Record
from storage.codec.crc32c import crc32c
from storage.errors import (
    InvalidRecord,
    InvalidTransactionState,
    RecordTooLarge,
    StorageError,
    ValidationTakesLong,
)
from storage.validation.batch import validate_and_assign
from storage.validation.rules import ValidationRules
from storage.validation.sliced import SlicedValidation
from storage.validation.work import StepWork
from tests.storage.logs import NOW_MS, ROOMY, epochs, new_file_system, open_log, produced
from tests.storage.validation.test_sliced import at_once, framed, in_slices, payload_of

LARGE: tuple[int, int | None, int] = (200_000, 3, 1)
Sizes = list[tuple[int, int | None, int]]
SETS: dict[str, Sizes] = {"small": [(10, 3, 0), (20, 3, 0)], "large": [(10, 3, 0), LARGE, (10, 3, 0)]}
TARGETS = [Compression.NONE, Compression.LZ4]


def with_fields(records: bytes, *, flags: int = 0, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Write the producer's fields into a batch, possible or not."""
    changed = bytearray(records)
    changed[22] |= flags
    struct.pack_into(">qhi", changed, 43, producer_id, epoch, sequence)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


@pytest.mark.parametrize("value_bytes", [10, 200_000])
@pytest.mark.parametrize("target", TARGETS)
def test_bb2_timestamps_far_apart_survive_that_their_batch_is_built_again(
    value_bytes: int, target: Compression
) -> None:
    times = (-1, MAX_INT64, 4)
    records = build_batch(
        [Record(place, time, None, bytes(value_bytes)) for place, time in enumerate(times)],
        compression=Compression.GZIP,
    )
    rules = ValidationRules(target_codec=target)
    in_one_go = validate_and_assign(records, rules, base_offset=0, leader_epoch=0, now_ms=NOW_MS)
    for checked in (in_one_go, SlicedValidation(records, rules, NOW_MS).run()):
        assert checked is not None
        (batch,) = iterate_batches(bytes(checked.records))
        assert tuple(record.timestamp for record in batch.records()) == times


@pytest.mark.parametrize("sizes", SETS.values(), ids=SETS)
@pytest.mark.parametrize("target", TARGETS)
def test_lv19_a_set_that_slices_built_again_may_have_just_the_greatest_size(
    sizes: Sizes, target: Compression
) -> None:
    records = framed(payload_of(sizes), len(sizes), Compression.GZIP)
    built = SlicedValidation(records, ValidationRules(target_codec=target), NOW_MS).run()
    assert built is not None
    size_bytes = max(len(built.records), len(records))
    just = ValidationRules(target_codec=target, max_message_bytes=size_bytes)
    assert in_slices(records, just) == at_once(records, just)
    if len(built.records) > len(records):
        too_small = ValidationRules(target_codec=target, max_message_bytes=size_bytes - 1)
        with pytest.raises(RecordTooLarge):
            SlicedValidation(records, too_small, NOW_MS).run()


@pytest.mark.parametrize("magic", [0, 1])
def test_lv19_a_set_that_slices_converted_may_have_just_the_greatest_size(magic: int) -> None:
    messages = build_message_set([Record(0, NOW_MS, b"k", b"v")], magic=magic)
    built = SlicedValidation(messages, ValidationRules(), NOW_MS).run()
    assert built is not None and len(built.records) > len(messages)
    just = ValidationRules(max_message_bytes=len(built.records))
    assert in_slices(messages, just) == at_once(messages, just)
    too_small = ValidationRules(max_message_bytes=len(built.records) - 1)
    with pytest.raises(RecordTooLarge):
        SlicedValidation(messages, too_small, NOW_MS).run()


@pytest.mark.parametrize("sizes", SETS.values(), ids=SETS)
@pytest.mark.parametrize("flags", [0, 0x10])
@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence", "is_taken"),
    [(0, 0, 0, True), (5, 3, 7, True), (-2, 0, 0, False), (5, -1, 0, False), (5, 0, -1, False)],
)
def test_lv25_producer_fields_that_no_batch_may_have_are_refused_where_it_is_built_again(
    sizes: Sizes,
    flags: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    is_taken: bool,
) -> None:
    records = framed(payload_of(sizes), len(sizes), Compression.GZIP)
    records = with_fields(records, flags=flags, producer_id=producer_id, epoch=epoch, sequence=sequence)
    rules = ValidationRules(target_codec=Compression.LZ4)
    result = in_slices(records, rules)
    assert result == at_once(records, rules)
    if not is_taken:
        assert result == (InvalidRecord, ())
        return
    checked = SlicedValidation(records, rules, NOW_MS).run()
    assert checked is not None
    built = RecordBatch(bytes(checked.records), 0, len(checked.records))
    assert (built.producer_id, built.producer_epoch, built.base_sequence) == (producer_id, epoch, sequence)
    assert built.is_transactional == bool(flags)


@pytest.mark.parametrize("flags", [0, 0x10])
def test_lv25_a_batch_without_a_producer_is_built_again_unless_it_is_of_a_transaction(flags: int) -> None:
    records = framed(payload_of(SETS["small"]), 2, Compression.GZIP)
    records = with_fields(records, flags=flags, producer_id=-1, epoch=-1, sequence=-1)
    result = in_slices(records, ValidationRules(target_codec=Compression.LZ4))
    assert (result == (InvalidRecord, ())) == bool(flags)


@pytest.mark.parametrize("sizes", SETS.values(), ids=SETS)
@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
def test_lv11_a_batch_that_states_log_append_time_has_that_time_in_each_record_until_it_is_stamped(
    sizes: Sizes, target: Compression | None, timestamp_type: TimestampType
) -> None:
    records = bytearray(framed(payload_of(sizes), len(sizes), Compression.GZIP, attributes=8))
    struct.pack_into(">q", records, 35, NOW_MS + 77)
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    for after_max_ms in (76, 77, 1 << 62):
        rules = ValidationRules(target_codec=target, timestamp_type=timestamp_type, after_max_ms=after_max_ms)
        assert in_slices(bytes(records), rules) == at_once(bytes(records), rules), after_max_ms


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_lv8_each_message_of_an_old_set_needs_a_key_in_slices_too(wrong: int) -> None:
    """An uncompressed message is a batch of its own, whose errors end the checks."""
    records = [Record(offset, NOW_MS, None if offset == wrong else b"k", b"v") for offset in range(3)]
    messages = build_message_set(records, magic=1)
    for is_compacted in (True, False):
        rules = ValidationRules(is_compacted=is_compacted)
        result = in_slices(messages, rules)
        assert result == at_once(messages, rules)
        assert (isinstance(result, tuple) and result[0] is InvalidRecord) == is_compacted


@pytest.mark.parametrize("sizes", SETS.values(), ids=SETS)
@pytest.mark.parametrize("before_max_ms", [5, (1 << 63) - 1])
@pytest.mark.parametrize("target", [None, *TARGETS])
def test_lv9_a_time_beyond_64_bits_wraps_as_in_java_in_slices_too(
    sizes: Sizes, before_max_ms: int, target: Compression | None
) -> None:
    records = bytearray(framed(payload_of(sizes), len(sizes), Compression.GZIP))
    # The first record has the last time there is, and each later one a greater delta.
    struct.pack_into(">q", records, 27, (1 << 63) - 1)
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    rules = ValidationRules(target_codec=target, before_max_ms=before_max_ms)
    assert in_slices(bytes(records), rules) == at_once(bytes(records), rules)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("change", ["one record fewer", "one record more", "a byte more", "a piece more"])
def test_lv22_records_that_do_not_fill_a_large_batch_are_refused(codec: Compression, change: str) -> None:
    payload, count = payload_of(SETS["large"]), 3
    more = {"a byte more": b"\x00", "a piece more": bytes(1 << 16)}.get(change, b"")
    count += {"one record fewer": -1, "one record more": 1}.get(change, 0)
    records = framed(payload + more, count, codec)
    for target in TARGETS:
        rules = ValidationRules(target_codec=target)
        assert in_slices(records, rules) == at_once(records, rules) == (InvalidRecord, ())


def test_lv22_bytes_of_a_piece_that_begins_after_the_last_record_are_refused() -> None:
    """Small records fill the first piece exactly, so that nothing read is left when the last one is taken."""
    beside = len(payload_of([(1000, 3, 0)])) - 1000
    sizes: Sizes = [(1000, 3, 0)] * 62
    rest = PIECE_BYTES - len(payload_of(sizes))
    payload = payload_of([*sizes, (rest - beside, 3, 0)])
    payload = payload_of([*sizes, (rest - beside + PIECE_BYTES - len(payload), 3, 0)])
    assert len(payload) == PIECE_BYTES
    for target in TARGETS:
        rules = ValidationRules(target_codec=target)
        whole, longer = (framed(payload + more, 63, Compression.NONE) for more in (b"", b"\x00"))
        assert in_slices(whole, rules) == at_once(whole, rules) != (InvalidRecord, ())
        assert in_slices(longer, rules) == at_once(longer, rules) == (InvalidRecord, ())


@pytest.mark.parametrize("left_out", [1, 2, 5, 199_990, 200_030])
def test_lv22_a_large_record_that_ends_early_is_refused(left_out: int) -> None:
    payload = payload_of([(10, 3, 0), LARGE])[:-left_out]
    records = framed(payload, 2, Compression.GZIP)
    for target in (None, *TARGETS):
        rules = ValidationRules(target_codec=target)
        assert in_slices(records, rules) == at_once(records, rules) == (InvalidRecord, ())


@pytest.mark.parametrize("sizes", SETS.values(), ids=SETS)
def test_lv25_what_slices_build_again_has_the_level_of_the_topic(
    sizes: Sizes,
) -> None:
    records = framed(payload_of(sizes), len(sizes), Compression.LZ4)
    results = []
    for level in (1, 9):
        rules = ValidationRules(target_codec=Compression.GZIP, target_level=level)
        assert in_slices(records, rules) == at_once(records, rules)
        results.append(in_slices(records, rules))
    assert results[0] != results[1]


def test_pro6_an_append_outside_of_a_step_does_all_slices_of_a_large_set_itself() -> None:
    log = open_log(new_file_system(), replace(ROOMY, compression_type="lz4"))
    records = framed(payload_of(SETS["large"]), 3, Compression.GZIP)
    with pytest.raises(ValidationTakesLong):
        log.append_as_leader(records, leader_epoch=4, now_ms=NOW_MS, work=StepWork())
    assert log.log_end_offset == 0
    info = log.append_as_leader(records, leader_epoch=4, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 2, 3)
    batch = next(iter(log.local.segments.active.records.batches()))
    assert (batch.compression, batch.partition_leader_epoch) == (Compression.LZ4, 4)
    assert list(batch.records()) == list(RecordBatch(records, 0, len(records)).records())


def test_ap13_a_large_set_that_begins_a_transaction_shows_its_guard_after_all_slices_too() -> None:
    log = open_log(new_file_system(), replace(ROOMY, compression_type="lz4"))
    log.producers.verifies_transactions = True
    records = framed(payload_of(SETS["large"]), 3, Compression.GZIP)
    records = with_fields(records, flags=TRANSACTIONAL_FLAG, producer_id=9, epoch=0, sequence=0)
    with pytest.raises(InvalidTransactionState, match="not confirmed"):
        log.append_as_leader(records, leader_epoch=4, now_ms=NOW_MS)
    guard = log.appends.maybe_start_transaction_verification(9, sequence=0, producer_epoch=0, now_ms=NOW_MS)
    info = log.append_as_leader(records, leader_epoch=4, now_ms=NOW_MS, guard=guard)
    assert (info.last_offset, log.producers.first_undecided_offset) == (2, 0)


def test_a_set_without_a_whole_batch_appends_nothing_in_slices_either() -> None:
    log = open_log(new_file_system(), ROOMY)
    validation = log.appends.validation(framed(payload_of(SETS["small"]), 2, Compression.NONE)[:-1], NOW_MS)
    assert validation.run() is None
    log.appends.validated_as_leader(validation, leader_epoch=4, now_ms=NOW_MS)
    assert (log.log_end_offset, log.local.segments.size_bytes, epochs(log)) == (0, 0, [])


def test_ap16_a_set_whose_slices_ended_is_refused_by_a_log_that_went_offline_meanwhile() -> None:
    log = open_log(new_file_system(), ROOMY)
    validation = log.appends.validation(framed(payload_of(SETS["large"]), 3, Compression.GZIP), NOW_MS)
    validation.run()
    log.online.failed("flush", OSError("broken"))
    with pytest.raises(StorageError, match="is offline"):
        log.appends.validated_as_leader(validation, leader_epoch=4, now_ms=NOW_MS)
    assert (log.log_end_offset, log.local.segments.size_bytes) == (0, 0)


def test_lv11_a_set_that_was_checked_in_slices_has_the_time_of_its_checks_as_log_append_time() -> None:
    log = open_log(new_file_system(), replace(ROOMY, message_timestamp_type="LogAppendTime"))
    validation = log.appends.validation(produced(), NOW_MS + 7)
    validation.run()
    log.appends.validated_as_leader(validation, leader_epoch=0, now_ms=NOW_MS + 9)
    (stored,) = iterate_batches(log.read(0, max_size=1).records)
    assert stored.max_timestamp == NOW_MS + 7
