"""The order of the steps of an append, what it checks, and what is left when it stops halfway.

Rules AP1 to AP11, LV8, LV9, traps T29 to T36.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.batch import Compression, Record, RecordBatch, TimestampType, build_batch, iterate_batches
from storage.batch.legacy.builder import build_message_set
from storage.codec.crc32c import crc32c
from storage.config import LogConfig
from storage.disk.filesystem import read_file
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
)
from storage.log import AppendInfo, AppendOrigin, PartitionLog
from tests.storage.log.appends import INT_MAX, follow, lead
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    all_bytes,
    batch,
    disk_and_log,
    epochs,
    new_disk,
    new_file_system,
    offsets_in,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.validation.produced_sets import sent

# The order


def test_ap1_epochs_are_on_disk_before_the_bytes_and_a_roll_between_them() -> None:
    disk, log = disk_and_log(LogConfig(segment_bytes=300, segment_index_bytes=1200))
    lead(log, produced(value_bytes=150))
    disk.call_log = []
    lead(log, produced(value_bytes=150), epoch=5)
    calls = disk.call_log
    epoch_at = next(i for i, call in enumerate(calls) if "leader-epoch-checkpoint" in call)
    created_at = next(i for i, call in enumerate(calls) if "00000000000000000001.log" in call)
    written_at = [i for i, call in enumerate(calls) if call.startswith("write_at") and ".log" in call]
    assert epoch_at < created_at < written_at[-1] and len(written_at) == 1
    assert epochs(log) == [(0, 0), (5, 1)] and log.local.segments.base_offsets == [0, 1]


def test_ap1_nothing_valid_is_nothing_done() -> None:
    disk, log = disk_and_log()
    disk.call_log = []
    assert lead(log, b"").is_empty and follow(log, batch(0, epoch=7)[:-1]).is_empty
    assert disk.call_log == [] and epochs(log) == []


def test_ap1_trailing_bytes_that_are_no_batch_are_not_written() -> None:
    log = open_log(new_file_system())
    data = produced(2)
    assert lead(log, data + data[:40]).size_bytes == len(data)
    whole = batch(2, 2)
    assert follow(log, whole + batch(4)[:30]).size_bytes == len(whole)
    assert log.local.segments.size_bytes == len(data) + len(whole) and read_offsets(log) == [0, 1, 2, 3]


def test_t33_what_is_noted_before_the_size_is_looked_at_stays() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=200, segment_index_bytes=1200))
    with pytest.raises(RecordBatchTooLarge):
        lead(log, produced(value_bytes=300), epoch=3)
    assert epochs(log) == [(3, 0)] and log.log_end_offset == 0


# What is looked at first


@pytest.mark.covers(
    "UnifiedLogTest.testMessageSizeCheck", "UnifiedLogTest.testMessageSizeCheckInAppendAsFollower"
)
def test_ap2_the_size_is_checked_before_the_checksum() -> None:
    data = produced(value_bytes=100)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    log = open_log(new_file_system(), LogConfig(max_message_bytes=len(data) - 1, segment_index_bytes=1200))
    with pytest.raises(RecordTooLarge):
        lead(log, damaged)
    whole = open_log(new_file_system(), LogConfig(max_message_bytes=len(data), segment_index_bytes=1200))
    assert lead(whole, data).last_offset == 0
    assert follow(log, batch(0, value_bytes=100)).last_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_ap2_each_old_message_is_checked(magic: int, codec: Compression) -> None:
    data = sent(magic, codec)
    log = open_log(new_file_system())
    with pytest.raises(CorruptBatch):
        lead(log, data[:-1] + bytes([data[-1] ^ 1]))
    small = open_log(new_file_system(), LogConfig(max_message_bytes=20, segment_index_bytes=1200))
    with pytest.raises(RecordTooLarge):
        lead(small, data)
    assert log.local.segments.size_bytes == small.local.segments.size_bytes == 0


def test_ap3_for_old_messages_the_last_offset_of_the_first_batch_is_used() -> None:
    """Only decompression shows their first offset: at log end 6 a wrapper from 4 to 6 is taken, but a batch is not."""
    log = open_log(new_file_system())
    follow(log, batch(0, 5))
    info = follow(log, sent(1, Compression.GZIP, first_offset=4))
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (6, 6, 7)
    with pytest.raises(StorageError, match="4 to 6 are below"):
        follow(log, batch(4, 3))
    assert follow(log, batch(7, 2)).first_offset == 7


@pytest.mark.covers("UnifiedLogTest.testAppendInfoFirstOffset")
def test_ap3_the_first_offset_of_each_set_is_reported() -> None:
    log = open_log(new_file_system())
    firsts = [lead(log, produced(3)).first_offset, lead(log, produced(3)).first_offset]
    log.flushes.roll(now_ms=NOW_MS)
    assert [*firsts, lead(log, produced(3)).first_offset] == [0, 3, 6]


@pytest.mark.covers("UnifiedLogTest.testAppendWithOutOfOrderOffsetsThrowsException")
def test_ap4_offsets_must_increase_only_in_sets_that_have_them() -> None:
    log = open_log(new_file_system())
    for origin in (AppendOrigin.RAFT_LEADER, None):
        data = batch(3, epoch=0) + batch(1, epoch=0)
        with pytest.raises(StorageError, match="do not increase"):
            follow(log, data) if origin is None else lead(log, data, origin=origin)
    assert lead(log, sent(1) * 2).last_offset == 5, "a client's own offsets count for nothing"


def test_ap5_the_first_batch_of_the_largest_timestamp_counts() -> None:
    log = open_log(new_file_system())
    info = follow(log, batch(0, 2, timestamp=5) + batch(2, 2, timestamp=8) + batch(4, 2, timestamp=8))
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (9, 3)
    assert tuple(log.local.segments.active.max_timestamp) == (9, 3)


@pytest.mark.parametrize("codec", list(Compression))
def test_ap6_with_compression_type_producer_the_set_keeps_its_codec(codec: Compression) -> None:
    log = open_log(new_file_system())
    lead(log, sent(2, codec))
    assert next(iterate_batches(all_bytes(log))).compression is codec
    if codec is not Compression.ZSTD:
        lead(log, sent(1, codec))
        assert list(iterate_batches(all_bytes(log)))[-1].compression is codec


@pytest.mark.covers("BrokerCompressionTest.testBrokerSideCompression")
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", list(Compression))
def test_ap7_the_topics_codec_is_what_is_stored(codec: Compression, target: str) -> None:
    log = open_log(new_file_system(), LogConfig(compression_type=target, segment_index_bytes=1200))
    lead(log, sent(2, codec))
    stored = next(iterate_batches(all_bytes(log)))
    expected = codec.label if target == "producer" else target.replace("uncompressed", "none")
    assert stored.compression.label == expected and offsets_in(all_bytes(log)) == [0, 1, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_ap7_old_sets_are_stored_as_batches(magic: int) -> None:
    log = open_log(new_file_system())
    assert lead(log, sent(magic), epoch=4).last_offset == 2
    assert lead(log, sent(magic, Compression.GZIP), epoch=4).last_offset == 5
    found = list(iterate_batches(all_bytes(log)))
    assert [(each.magic, each.base_offset, each.partition_leader_epoch) for each in found] == [
        (2, 0, 4),
        (2, 3, 4),
    ]
    assert epochs(log) == [(4, 0)] and offsets_in(all_bytes(log)) == list(range(6))


def test_ap7_a_set_that_a_conversion_enlarged_is_checked_against_the_limit_again() -> None:
    data = sent(0, timestamps=(-1,) * 3)
    grown = 61 + len(WORDS_IN_A_BATCH)
    largest = max(each.size_bytes for each in iterate_batches(data))
    assert largest < grown
    log = open_log(new_file_system(), LogConfig(max_message_bytes=grown - 1, segment_index_bytes=1200))
    with pytest.raises(RecordTooLarge):
        lead(log, data)
    assert log.local.segments.size_bytes == 0
    roomy = open_log(new_file_system(), LogConfig(max_message_bytes=grown, segment_index_bytes=1200))
    assert lead(roomy, data).last_offset == 2


WORDS_IN_A_BATCH = sent(2, timestamps=(-1,) * 3)[61:]


@pytest.mark.covers(
    "UnifiedLogTest.shouldApplyEpochToMessageOnAppendIfLeader",
    "UnifiedLogTest.followerShouldSaveEpochInformationFromReplicatedMessagesToTheEpochCache",
)
def test_ap9_each_batchs_epoch_is_noted_with_its_base_offset() -> None:
    log = open_log(new_file_system())
    lead(log, produced(2), epoch=72)
    assert next(iterate_batches(all_bytes(log))).partition_leader_epoch == 72
    follow(log, batch(2, 2, epoch=73) + batch(4, 1, epoch=73) + batch(5, 1, epoch=80))
    assert epochs(log) == [(72, 0), (73, 2), (80, 5)]


@pytest.mark.covers(
    "UnifiedLogTest.testLeaderEpochCacheClearedAfterDowngradeInAppendedMessages",
    "UnifiedLogTest.testLeaderEpochCacheClearedAfterDynamicMessageFormatDowngrade",
)
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_7897_old_messages_of_a_leader_empty_the_epochs(magic: int) -> None:
    check_old_messages_empty_the_epochs(magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_ap9_old_messages_of_a_leader_empty_the_epochs(magic: int) -> None:
    check_old_messages_empty_the_epochs(magic)


def check_old_messages_empty_the_epochs(magic: int) -> None:
    """Check that the known epochs are dropped, and the file emptied at once, not at the next flush."""
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    follow(log, batch(0, 2, epoch=5))
    follow(log, sent(magic, first_offset=2))
    assert epochs(log) == [] and log.epochs.latest_epoch is None and not log.epochs.is_dirty
    assert read_file(file_system, f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n0\n"
    follow(log, batch(5, epoch=9))
    assert epochs(log) == [(9, 5)]


def test_ep13_a_log_of_today_has_epochs_and_old_messages_leave_none_in_the_file() -> None:
    check_old_messages_empty_the_epochs(1)


def follow_above(log: PartitionLog, data: bytes) -> AppendInfo:
    return log.append_as_follower(data, leader_epoch=100, now_ms=NOW_MS, may_exceed_segment=True)


def test_ap9_an_epoch_that_a_refused_set_noted_after_a_gap_begins_with_the_batch_that_is_written() -> None:
    """Kafka too notes the epochs of a set before it looks at its size."""
    log = open_log(new_file_system(), LogConfig(segment_bytes=300, segment_index_bytes=1200))
    with pytest.raises(RecordBatchTooLarge):
        follow(log, batch(1, value_bytes=300))
    assert epochs(log) == [(0, 1)]
    lead(log, produced())
    assert epochs(log) == [(0, 0)]


def test_ap10_the_whole_set_is_checked_against_segment_bytes() -> None:
    one = len(batch(0))
    log = open_log(new_file_system(), LogConfig(segment_bytes=2 * one, segment_index_bytes=1200))
    assert follow(log, batch(0) + batch(1)).last_offset == 1
    with pytest.raises(RecordBatchTooLarge, match=f"{3 * one} bytes"):
        follow(log, batch(2) + batch(3) + batch(4))
    assert log.log_end_offset == 2


def test_ap10_a_follower_takes_a_set_above_segment_bytes_into_a_segment_of_its_own() -> None:
    """Check C7: segment.bytes was lowered after the leader's append, and the follower must not stand still."""
    one = len(batch(0))
    log = open_log(new_file_system(), LogConfig(segment_bytes=2 * one, segment_index_bytes=1200))
    # An empty segment takes the set without a roll.
    assert follow_above(log, batch(0) + batch(1) + batch(2)).last_offset == 2
    assert follow(log, batch(3)).has_rolled
    assert follow_above(log, batch(4) + batch(5) + batch(6)).has_rolled
    assert [segment.base_offset for segment in log.local.segments] == [0, 3, 4]
    assert read_offsets(log) == list(range(7))


def test_ap10_a_raft_leaders_whole_set_is_checked_against_segment_bytes() -> None:
    one = len(batch(0))
    log = open_log(new_file_system(), LogConfig(segment_bytes=2 * one, segment_index_bytes=1200))
    sets = batch(0, epoch=0) + batch(1, epoch=0) + batch(2, epoch=0)
    with pytest.raises(RecordBatchTooLarge, match=f"{3 * one} bytes"):
        lead(log, sets, epoch=0, origin=AppendOrigin.RAFT_LEADER)
    assert log.log_end_offset == 0


def test_ap11_a_roll_for_old_messages_begins_as_low_as_they_may_begin() -> None:
    """The true first offset of a wrapper is unknown: it is its last minus 2^31 - 1, or the log end."""
    log = open_log(new_file_system(), ROOMY)
    follow(log, batch(0))
    far = 3 * INT_MAX
    message = build_message_set(
        [Record(far, NOW_MS, b"k", b"v")], magic=1, base_offset=far, timestamp_type=TimestampType.CREATE
    )
    assert follow(log, message).has_rolled
    assert log.local.segments.base_offsets == [0, far - INT_MAX]
    assert follow(log, batch(far + INT_MAX + 5)).has_rolled
    assert log.local.segments.base_offsets[-1] == far + INT_MAX + 5, "of a batch it is known (KAFKA-6530)"


def test_kafka_6554_the_last_offset_delta_is_checked_against_the_count() -> None:
    data = bytearray(produced(3))
    data[23:27] = (7).to_bytes(4, "big")
    view = RecordBatch(bytes(data), 0, len(data))
    assert not view.is_valid()
    log = open_log(new_file_system())
    with pytest.raises(CorruptBatch):
        lead(log, bytes(data))
    with pytest.raises(InvalidRecord):
        lead(log, with_checksum(data))
    assert log.log_end_offset == 0


def with_checksum(data: bytearray) -> bytes:
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


# Other traps of an append


def test_t29_a_leaders_bytearray_is_its_own() -> None:
    """A client's bytes object is copied before offsets are stamped: two logs may get the same one."""
    data = produced(2)
    logs = [open_log(new_file_system()) for _ in range(2)]
    lead(logs[0], produced())
    for log in logs:
        lead(log, data)
    assert data == produced(2)
    assert offsets_in(all_bytes(logs[0])) == [0, 1, 2] and offsets_in(all_bytes(logs[1])) == [0, 1]


def test_t30_a_batch_that_says_log_append_is_stored_as_create_time() -> None:
    log = open_log(new_file_system())
    lead(log, sent(2, timestamp_type=TimestampType.LOG_APPEND))
    assert next(iterate_batches(all_bytes(log))).timestamp_type is TimestampType.CREATE


@pytest.mark.parametrize("step", [lambda log: lead(log, produced()), lambda log: follow(log, batch(5))])
def test_t33_a_follower_leaves_gaps_upward_never_below(step: Callable[[PartitionLog], AppendInfo]) -> None:
    log = open_log(new_file_system())
    follow(log, batch(3))
    step(log)
    with pytest.raises(StorageError, match="are below"):
        follow(log, batch(3))
    assert read_offsets(log)[0] == 3


def test_t36_a_roll_by_time_compares_the_sets_largest_timestamp_with_the_first_batchs_largest() -> None:
    config = LogConfig(segment_ms=1000, segment_index_bytes=1200)
    log = open_log(new_file_system(), config)
    # The times are 100, 101, 102.
    lead(log, produced(3, timestamp=100))
    # The times reach 1102, which is exactly 1000 later.
    lead(log, produced(3, timestamp=1100))
    assert log.local.segments.base_offsets == [0]
    lead(log, produced(1, timestamp=1103), now_ms=NOW_MS)
    assert log.local.segments.base_offsets == [0, 6]
    assert lead(log, produced(1, timestamp=5), now_ms=NOW_MS + 5000).has_rolled is False, (
        "the clock counts not"
    )


def test_t36_without_timestamps_the_clock_counts_from_the_segments_making() -> None:
    log = open_log(new_file_system(), LogConfig(segment_ms=1000, segment_index_bytes=1200))
    lead(log, sent(2, timestamps=(-1,)), now_ms=NOW_MS + 1)
    assert lead(log, sent(2, timestamps=(-1,)), now_ms=NOW_MS + 1000).has_rolled is False
    assert lead(log, sent(2, timestamps=(-1,)), now_ms=NOW_MS + 1001).has_rolled


@pytest.mark.covers("UnifiedLogTest.testCompactedTopicConstraints")
def test_lv8_on_a_compacted_topic_each_record_without_a_key_is_named() -> None:
    log = open_log(new_file_system(), LogConfig(cleanup_policy="compact", segment_index_bytes=1200))

    def keyed(*keys: bytes | None, codec: Compression = Compression.NONE) -> bytes:
        return build_batch(
            [Record(index, NOW_MS, key, b"v") for index, key in enumerate(keys)], compression=codec
        )

    for data, refused in (
        (keyed(None, b"k"), [0]),
        (keyed(None), [0]),
        (keyed(b"k", None, codec=Compression.GZIP), [1]),
    ):
        with pytest.raises(InvalidRecord, match="no key, which a compacted topic requires") as caught:
            lead(log, data)
        assert [error.record_index for error in caught.value.record_errors] == refused
    assert lead(log, keyed(b"a", b"b")).last_offset == 1
    assert lead(log, keyed(b"a", codec=Compression.GZIP)).last_offset == 2


@pytest.mark.covers(
    "UnifiedLogTest.testAppendMessageWithNullPayload", "UnifiedLogTest.testAppendWithNoTimestamp"
)
def test_lv9_null_values_and_no_timestamps_are_fine() -> None:
    log = open_log(new_file_system())
    lead(log, build_batch([Record(0, -1, None, None)]))
    (record,) = next(iterate_batches(all_bytes(log))).records()
    assert (record.offset, record.timestamp, record.value) == (0, -1, None)


@pytest.mark.covers("UnifiedLogTest.testAppendAsLeaderWithRaftLeader")
def test_ap2_a_raft_leaders_batches_are_of_its_own_epoch() -> None:
    log = open_log(new_file_system())
    for epoch in (2, 4):
        with pytest.raises(InvalidRecord, match="differs from the leader's epoch 3"):
            lead(log, batch(0, 3, epoch=epoch), epoch=3, origin=AppendOrigin.RAFT_LEADER)
    assert lead(log, batch(0, 3, epoch=3), epoch=3, origin=AppendOrigin.RAFT_LEADER).last_offset == 2
    with pytest.raises(StorageError, match="are below"):
        lead(log, batch(1, 3, epoch=3), epoch=3, origin=AppendOrigin.RAFT_LEADER)
    assert lead(log, batch(3, 3, epoch=3), epoch=3, origin=AppendOrigin.RAFT_LEADER).last_offset == 5


@pytest.mark.covers("UnifiedLogTest.testMessageSetSizeCheck")
def test_ap10_a_set_of_exactly_segment_bytes_is_taken() -> None:
    data = produced(value_bytes=100)
    log = open_log(new_file_system(), LogConfig(segment_bytes=len(data), segment_index_bytes=1200))
    assert lead(log, data).last_offset == 0
    smaller = open_log(new_file_system(), LogConfig(segment_bytes=len(data) - 1, segment_index_bytes=1200))
    with pytest.raises(RecordBatchTooLarge):
        lead(smaller, data)
