"""The checks of a produced set in slices: the same results as at once, in bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import Compression, Record, RecordBatch, TimestampType, build_batch, iterate_batches
from storage.batch.format import HEADER_SIZE
from storage.batch.legacy.builder import build_message, build_message_set
from storage.batch.record import encode_record
from storage.codec.compression import compress
from storage.codec.crc32c import crc32c
from storage.codec.varint import encode_varint
from storage.config import LONG_MAX
from storage.errors import InvalidRecord, StorageError, ValidationTakesLong
from storage.producers.entry import AppendOrigin
from storage.validation.batch import validate_and_assign
from storage.validation.checked import CheckedSet, renumbered
from storage.validation.rules import ValidationRules
from storage.validation.sliced import SlicedValidation
from storage.validation.work import STEP_DECODED_BYTES, STEP_RECORDS, STEP_SCANNED_BYTES, StepWork
from tests.storage.batch.strategies import quick
from tests.storage.logs import NOW_MS, ROOMY, new_file_system, open_log
from tests.storage.validation.test_batches_that_unpack import equal_records

CODECS = list(Compression)
BASE_OFFSET, EPOCH = 1_000_000, 7
RULES = ValidationRules()
# A record that holds a large field in several pieces, one that just does not, and small ones.
SIZES = st.sampled_from([0, 1, 20, 100, 65_000, 65_600, 200_000])

record_sizes = st.lists(
    st.tuples(SIZES, st.sampled_from([None, 0, 3, 70_000]), st.integers(0, 3)), max_size=8
)
rule_sets = st.builds(
    ValidationRules,
    target_codec=st.sampled_from([None, *Compression]),
    is_compacted=st.booleans(),
    timestamp_type=st.sampled_from([TimestampType.CREATE, TimestampType.LOG_APPEND]),
    after_max_ms=st.sampled_from([5, 1 << 62]),
    max_message_bytes=st.sampled_from([50_000, 1 << 30]),
)


def payload_of(sizes: list[tuple[int, int | None, int]]) -> bytes:
    """Return encoded records of these value sizes, key sizes and numbers of headers."""
    batch = build_batch(
        Record(
            offset=index,
            timestamp=NOW_MS + index,
            key=None if key is None else b"k" * key,
            value=bytes(value),
            headers=tuple((f"name {number}", b"v" * number) for number in range(headers)),
        )
        for index, (value, key, headers) in enumerate(sizes)
    )
    return batch[HEADER_SIZE:]


def framed(payload: bytes, count: int, codec: Compression, **fields: int) -> bytes:
    """Return a batch of `count` records whose encoded form is `payload`, right or not."""
    batch = bytearray(build_batch([Record(offset=0, timestamp=NOW_MS, key=None, value=b"")])[:HEADER_SIZE])
    batch += compress(codec, payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec | fields.get("attributes", 0))
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def facts_of(checked: CheckedSet) -> tuple[object, ...]:
    return (
        bytes(checked.records),
        checked.first_offset,
        checked.last_offset,
        checked.max_timestamp,
        checked.offset_of_max_timestamp,
        checked.leader_epoch,
        checked.log_append_time_ms,
        [batch.base_offset for batch in checked.producer_batches],
    )


def at_once(records: bytes, rules: ValidationRules) -> object:
    """Return the facts of the set, or the error's type and what it names."""
    try:
        checked = validate_and_assign(
            records, rules, base_offset=BASE_OFFSET, leader_epoch=EPOCH, now_ms=NOW_MS
        )
    except StorageError as error:
        return type(error), getattr(error, "record_errors", ())
    return facts_of(checked)


def in_slices(records: bytes, rules: ValidationRules) -> object:
    try:
        checked = SlicedValidation(records, rules, NOW_MS).run()
        assert checked is not None, len(records)
    except StorageError as error:
        return type(error), getattr(error, "record_errors", ())
    return facts_of(renumbered(checked, BASE_OFFSET, EPOCH))


@settings(quick, max_examples=25)
@given(record_sizes, st.sampled_from(CODECS), rule_sets, st.integers(0, 1), st.data())
def test_lv23_slices_accept_and_refuse_what_the_whole_does(
    sizes: list[tuple[int, int | None, int]],
    codec: Compression,
    rules: ValidationRules,
    repeats: int,
    data: st.DataObject,
) -> None:
    payload = payload_of(sizes) * (1 + repeats)
    if payload and data.draw(st.booleans(), label="damaged"):
        at = data.draw(st.integers(0, min(len(payload), 40) - 1), label="at")
        payload = payload[:at] + data.draw(st.binary(max_size=3), label="bytes") + payload[at + 1 :]
    records = framed(payload, len(sizes) * (1 + repeats) or 1, codec)
    rules = replace(rules, max_message_bytes=max(rules.max_message_bytes, len(records)))
    assert in_slices(records, rules) == at_once(records, rules)


@quick
@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    st.sampled_from(CODECS[:4]),
    st.integers(0, 1),
    rule_sets,
)
def test_lv8_slices_convert_messages_of_magic_0_and_1_as_the_whole_does(
    values: list[bytes], codec: Compression, magic: int, rules: ValidationRules
) -> None:
    kind = TimestampType.CREATE if magic else TimestampType.NO
    messages = build_message_set(
        [Record(offset=index, timestamp=NOW_MS, key=b"", value=value) for index, value in enumerate(values)],
        magic=magic,
        compression=codec,
        timestamp_type=kind,
    )
    assert in_slices(messages, rules) == at_once(messages, rules)


def limited(records: bytes, rules: ValidationRules = RULES) -> CheckedSet:
    work = StepWork()
    return validate_and_assign(records, rules, base_offset=0, leader_epoch=0, now_ms=NOW_MS, work=work)


def many_records(count: int, value_bytes: int, codec: Compression = Compression.ZSTD) -> bytes:
    return framed(payload_of([(value_bytes, 0, 0)] * count), count, codec)


def test_lv23_a_step_scans_a_batch_up_to_its_bounds() -> None:
    assert limited(many_records(STEP_RECORDS, 1)).last_offset == STEP_RECORDS - 1
    with pytest.raises(ValidationTakesLong):
        limited(many_records(STEP_RECORDS + 1, 1))
    most = STEP_SCANNED_BYTES - 100
    assert limited(many_records(1, most)).last_offset == 0
    with pytest.raises(ValidationTakesLong):
        limited(many_records(1, STEP_SCANNED_BYTES))


def test_lv23_a_step_decodes_only_a_small_batch_whose_records_have_many_headers() -> None:
    headers = tuple(("", None) for _ in range(5_000))
    for count, is_small in ((1, True), (2, False)):
        batch = build_batch(
            Record(offset=index, timestamp=NOW_MS, key=None, value=b"", headers=headers)
            for index in range(count)
        )
        assert (len(batch) <= STEP_DECODED_BYTES) is is_small
        if is_small:
            limited(batch)
        else:
            with pytest.raises(ValidationTakesLong):
                limited(batch)


def peak_of(records: bytes, rules: ValidationRules = RULES) -> int:
    """Return the most bytes that the checks held at a time."""
    tracemalloc.start()
    try:
        SlicedValidation(records, rules, NOW_MS).run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS[1:])
def test_lv23_one_record_that_unpacks_to_very_much_is_checked_and_built_again_in_little_memory(
    codec: Compression,
) -> None:
    value_bytes = 12 << 20
    records = many_records(1, value_bytes, codec)
    for target in (None, Compression.ZSTD, Compression.GZIP):
        rules = ValidationRules(target_codec=target)
        assert peak_of(records, rules) < (1 << 20) + 4 * len(records)


@pytest.mark.slow
def test_lv23_a_record_of_very_many_headers_is_checked_in_little_memory() -> None:
    count = 40_000
    fields = b"\x00\x00\x00\x01\x01" + encode_varint(count) + b"\x00\x01" * count
    records = framed(encode_varint(len(fields)) + fields, 1, Compression.ZSTD)
    assert len(records) < 200
    assert peak_of(records) < 1 << 20
    wrong = framed(encode_varint(len(fields) + 1) + fields + b"\x00", 1, Compression.ZSTD)
    with pytest.raises(InvalidRecord):
        SlicedValidation(wrong, RULES, NOW_MS).run()


@pytest.mark.slow
def test_lv23_very_many_equal_records_are_built_again_from_pieces() -> None:
    # Held whole, unpacked and built again, they took 2.5 MB.
    assert peak_of(equal_records(60_000)) < 1_000_000


def test_pro6_an_append_beyond_the_bounds_of_a_step_leaves_the_log_as_it_was() -> None:
    log = open_log(new_file_system(), ROOMY)
    records = equal_records(STEP_RECORDS + 1)
    with pytest.raises(ValidationTakesLong):
        log.append_as_leader(records, leader_epoch=3, now_ms=NOW_MS, work=StepWork())
    assert log.log_end_offset == 0 and log.online.reason is None
    validation = log.appends.validation(records, NOW_MS)
    slices = 0
    while not validation.is_done:
        validation.advance()
        slices += 1
    assert slices > 3
    log.append_as_leader(equal_records(5), leader_epoch=3, now_ms=NOW_MS)
    info = log.appends.validated_as_leader(validation, leader_epoch=3, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (5, 5 + STEP_RECORDS)
    stored = log.read(5, max_size=1 << 20).records
    batch = RecordBatch(stored, 0, len(stored))
    assert batch.is_valid() and batch.base_offset == 5 and batch.partition_leader_epoch == 3


@pytest.mark.parametrize("key", [None, b"k"])
def test_lv20_a_large_record_without_a_key_is_refused_for_a_compacted_topic(key: bytes | None) -> None:
    records = build_batch([Record(offset=0, timestamp=NOW_MS, key=key, value=bytes(200_000))])
    rules = ValidationRules(is_compacted=True)
    assert in_slices(records, rules) == at_once(records, rules)
    assert isinstance(in_slices(records, rules)[0], bytes) == (key is not None)  # type: ignore[index]


def test_what_a_batch_unpacks_to_is_work_of_the_step() -> None:
    work, rules = StepWork(), ValidationRules()
    record = Record(offset=0, timestamp=NOW_MS, key=None, value=bytes(512_000))
    records = build_batch([record], compression=Compression.GZIP)
    before = work.left
    validate_and_assign(records, rules, base_offset=0, leader_epoch=0, now_ms=NOW_MS, work=work)
    assert before - work.left >= 1000


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize(("messages", "slices"), [(1, 2), (1999, 2), (2000, 4), (3999, 4)])
def test_lv8_a_slice_converts_many_messages_and_not_very_many(
    codec: Compression, messages: int, slices: int
) -> None:
    """They are read twice, checked and then built again; a first slice looks at the headers.

    A wrapper of more than 64 KiB has slices for the pieces of its content, too.
    """
    records = [Record(offset=index, timestamp=NOW_MS, key=b"", value=b"") for index in range(messages)]
    data = build_message_set(records, magic=1, compression=codec)
    validation, found = SlicedValidation(data, RULES, NOW_MS), 0
    while not validation.is_done:
        validation.advance()
        found += 1
    if codec is Compression.NONE or len(data) < 100:
        assert found == slices
    else:
        assert slices <= found <= 30


@pytest.mark.parametrize(("base", "delta"), [(-10, -(1 << 63)), ((1 << 63) - 1, 1), (-10, -1), (5, -6)])
def test_lv11_a_time_beyond_64_bits_wraps_in_both_ways_of_checking(base: int, delta: int) -> None:
    rules = ValidationRules(after_max_ms=LONG_MAX)
    payload = encode_record(0, 0, b"k", b"v") + encode_record(1, delta, b"k", b"v")
    records = bytearray(framed(payload, 2, Compression.NONE))
    struct.pack_into(">q", records, 27, base)
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    times = [record.timestamp for record in RecordBatch(records, 0, len(records)).records()]
    checked = at_once(bytes(records), rules)
    assert checked == in_slices(bytes(records), rules)
    assert isinstance(checked, tuple) and checked[3] == max(*times, -1)


def test_lv23_without_a_bound_on_the_step_a_batch_of_any_number_of_records_is_checked_at_once() -> None:
    records = many_records(STEP_RECORDS + 1, 1)
    assert at_once(records, RULES) == in_slices(records, RULES)
    assert (
        validate_and_assign(
            records, RULES, base_offset=0, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        ).last_offset
        == STEP_RECORDS
    )


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
@pytest.mark.parametrize("target", [None, Compression.ZSTD])
@pytest.mark.parametrize("codec", CODECS[1:4])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv8_slices_convert_large_messages_piece_by_piece(
    magic: int, codec: Compression, target: Compression | None, timestamp_type: TimestampType
) -> None:
    large = bytes(range(256)) * 300
    fields = [(b"", b"a"), (b"k", large), (large, None), (b"", b"b" * 50_000), (large, large), (b"k", b"c")]
    data = build_message_set(
        [Record(index, NOW_MS + index, key, value) for index, (key, value) in enumerate(fields)],
        magic=magic,
        compression=codec,
        timestamp_type=TimestampType.CREATE if magic else TimestampType.NO,
    )
    rules = ValidationRules(
        target_codec=target, timestamp_type=timestamp_type, max_message_bytes=1 << 20, is_compacted=True
    )
    assert in_slices(data, rules) == at_once(data, rules)


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
@pytest.mark.parametrize("codec", CODECS[1:4])
def test_lv8_large_messages_of_a_wrapper_that_states_log_append_time_have_its_time(
    codec: Compression, timestamp_type: TimestampType
) -> None:
    values = [b"a", bytes(range(256)) * 300, b"c"]
    messages = build_message_set(
        [Record(index, NOW_MS + index, b"k", value) for index, value in enumerate(values)], magic=1
    )
    # Bit 3 states the log append time.
    stated = build_message(
        2, magic=1, timestamp=NOW_MS + 77, key=None, value=compress(codec, messages), attributes=codec | 8
    )
    rules = ValidationRules(target_codec=None, timestamp_type=timestamp_type, max_message_bytes=1 << 20)
    result = in_slices(stated, rules)
    assert result == at_once(stated, rules)
    if timestamp_type is TimestampType.CREATE:
        assert isinstance(result, tuple)
        assert [each.timestamp for batch in iterate_batches(result[0]) for each in batch.records()] == [
            NOW_MS + 77
        ] * 3


@pytest.mark.parametrize("at", [16, 17, 30, 40_000, -1])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv8_slices_refuse_a_damaged_large_message_as_the_whole_does(magic: int, at: int) -> None:
    fields = [(0, b"a"), (1, bytes(range(256)) * 300)]
    first, second = (
        build_message(index, magic=magic, timestamp=NOW_MS, key=b"k", value=value, attributes=0)
        for index, value in fields
    )
    damaged = bytearray(second)
    damaged[at] ^= 4
    data = build_message(
        1, magic=magic, timestamp=NOW_MS, key=None, value=compress(Compression.GZIP, first + damaged), attributes=1
    )  # fmt: skip
    refusal = in_slices(data, RULES)
    assert refusal == at_once(data, RULES)
    # An error, not the facts of a set.
    assert isinstance(refusal, tuple) and isinstance(refusal[0], type)


@pytest.mark.parametrize("codec", CODECS[1:4])
def test_lv8_a_large_message_is_not_held_while_it_is_converted(codec: Compression) -> None:
    data = build_message_set([Record(0, NOW_MS, None, bytes(8 << 20))], magic=1, compression=codec)
    tracemalloc.start()
    rules = ValidationRules(target_codec=Compression.ZSTD)
    SlicedValidation(data, rules, NOW_MS).run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20
