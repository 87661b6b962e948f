"""The one way of an append: the quick check, the question for room, the epoch, and a disk that fails under it."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.errors import CorruptBatch, InvalidRecord, StorageError
from storage.log import PartitionLog
from storage.log.online import Online
from storage.validation.plain import PlainBatches
from storage.validation.rules import ValidationRules
from tests.storage.log.appends import follow, lead
from tests.storage.logs import NOW_MS, batch, new_file_system, open_log, produced


def sized(size_bytes: int) -> bytes:
    """A produced batch of exactly `size_bytes`."""
    empty = len(build_batch([Record(0, NOW_MS, None, b"")]))
    for value_bytes in range(size_bytes - empty - 8, size_bytes - empty + 1):
        made = build_batch([Record(0, NOW_MS, None, bytes(value_bytes))])
        if len(made) == size_bytes:
            return made
    raise AssertionError(size_bytes)


@pytest.mark.parametrize("size_bytes", [100, 4095, 4096, 4097, 70_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_ap2_a_changed_byte_is_noticed_in_a_batch_of_any_size_and_kind(
    size_bytes: int, kind: type[bytes | bytearray | memoryview]
) -> None:
    sound = sized(size_bytes)
    assert PlainBatches(ValidationRules()).check(kind(sound), 5, 1, NOW_MS) is not None
    for place in (21, size_bytes // 2, size_bytes - 1):
        changed = bytearray(sound)
        changed[place] ^= 1
        given = kind(changed)
        assert PlainBatches(ValidationRules()).check(given, 5, 1, NOW_MS) is None
        assert bytes(given) == bytes(changed), "changed, though it is not plain"
        with pytest.raises((CorruptBatch, InvalidRecord)):
            lead(open_log(new_file_system()), bytes(changed))


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_lv14_a_buffer_that_is_no_bytearray_stays_unchanged(kind: type[bytes | memoryview]) -> None:
    sound = sized(200)
    checked = PlainBatches(ValidationRules()).check(kind(sound), 5, 1, NOW_MS)
    assert checked is not None and checked.records is not sound
    assert sound == sized(200) and bytes(checked.records[:8]) == (5).to_bytes(8)


@pytest.mark.parametrize(
    "made", [produced(), batch(0, 1, epoch=-1, producer_id=7, producer_epoch=0, sequence=0)]
)
def test_t32_a_leader_of_a_negative_epoch_is_refused_and_nothing_is_written(made: bytes) -> None:
    log = open_log(new_file_system())
    with pytest.raises(InvalidRecord):
        lead(log, made, epoch=-1)
    assert (log.log_end_offset, log.local.segments.size_bytes, log.epochs.entries) == (0, 0, [])


def test_ap9_a_leaders_epoch_is_noted_once_at_its_first_offset() -> None:
    log = open_log(new_file_system())
    for epoch in (3, 3, 5, 5, 6):
        lead(log, produced(2), epoch=epoch)
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (5, 4), (6, 8)]


def test_ap9_after_a_truncation_a_leaders_epoch_is_noted_again() -> None:
    log = open_log(new_file_system())
    lead(log, produced(2), epoch=3)
    lead(log, produced(2), epoch=4)
    log.truncate_to(2, now_ms=NOW_MS)
    lead(log, produced(2), epoch=4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (4, 2)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(-3, 60), st.sampled_from([10, 90])), max_size=12),
    st.integers(0, 2**31 + 5),
    st.integers(1, 400),
    st.integers(-1, 100),
)
def test_ls4_where_a_set_has_room_no_roll_is_due(
    appends: list[tuple[int, int, int]], jump: int, size_bytes: int, later_ms: int
) -> None:
    config = LogConfig(
        segment_bytes=600,
        segment_ms=50,
        segment_index_bytes=36,
        index_interval_bytes=1,
        message_timestamp_after_max_ms=100,
    )
    log = open_log(new_file_system(), config)
    now_ms = NOW_MS
    for count, step_ms, value_bytes in appends:
        now_ms += max(step_ms, 0)
        timestamp = now_ms if step_ms >= 0 else -1
        lead(log, produced(count, timestamp=timestamp, value_bytes=value_bytes), now_ms=now_ms)
    active = log.local.segments.active
    offset, timestamp = log.log_end_offset + jump, -1 if later_ms < 0 else now_ms + later_ms
    has_room = active.has_room_for(size_bytes, offset, timestamp, 600, 50)
    is_due = active.should_roll(
        messages_size=size_bytes,
        max_timestamp=timestamp,
        max_offset=offset,
        now_ms=now_ms + max(later_ms, 0),
        max_segment_bytes=600,
        max_segment_ms=50,
    )
    assert not (has_room and is_due)


def test_ls4_a_common_append_finds_room_without_a_second_look() -> None:
    log = open_log(new_file_system())
    lead(log, produced())
    # The second append asks for the first batch's timestamp, and opens the indexes.
    lead(log, produced())
    assert log.local.segments.active.has_room_for(100, 5, NOW_MS + 1, 1 << 20, 1 << 20)


def test_ap15_the_end_of_a_followers_set_is_that_of_its_last_batch() -> None:
    log = open_log(new_file_system())
    info = follow(log, batch(0, 2) + batch(5, 3) + batch(20, 1))
    assert (info.first_offset, info.last_offset, info.batch_count) == (0, 20, 3)
    assert log.local.log_end.offset == 21 and log.local.log_end.position == log.local.segments.size_bytes


def failing(log: PartitionLog) -> Online:
    """The log's flag after a read failed."""
    with pytest.raises(StorageError, match=r"read failed: .*torn"), log.online.during("read"):
        raise OSError(errno.EIO, "torn")
    return log.online


def test_ap16_an_error_of_the_disk_takes_the_log_offline_for_every_verb() -> None:
    log = open_log(new_file_system())
    lead(log, produced(3))
    assert failing(log).reason is not None
    verbs = (
        lambda: lead(log, produced()),
        lambda: follow(log, batch(3)),
        lambda: log.read(0, max_size=10),
        lambda: log.truncate_to(1, now_ms=NOW_MS),
        lambda: log.truncation.truncate_fully_and_start_at(1, now_ms=NOW_MS),
        lambda: log.flushes.roll(now_ms=NOW_MS),
        log.flushes.prepare,
        lambda: log.retention.delete_old(NOW_MS),
        lambda: log.appends.assign_epoch(4),
        lambda: log.rename_directory("other-0"),
        log.close,
    )
    for verb in verbs:
        with pytest.raises(StorageError, match="is offline: read failed"):
            verb()
    assert log.log_end_offset == 3


def test_ap16_a_refusal_leaves_the_log_online_and_an_unexpected_error_in_a_change_does_not() -> None:
    log = open_log(new_file_system())
    with pytest.raises(InvalidRecord), log.online.during("roll"):
        raise InvalidRecord("refused")
    assert log.online.reason is None and lead(log, produced()).last_offset == 0
    with pytest.raises(ValueError, match="not the disk's"), log.online.during("roll"):
        raise ValueError("not the disk's")
    with pytest.raises(StorageError, match="is offline: roll failed: ValueError: not the disk's"):
        lead(log, produced())
    # In a change that cannot refuse anything, the same holds of storage's own errors.
    log = open_log(new_file_system(), directory="logs/other-0")
    with pytest.raises(InvalidRecord), log.online.during("truncate", refuses=False):
        raise InvalidRecord("half done")
    assert log.online.reason == "truncate failed: InvalidRecord: half done"


def test_ap16_a_log_that_was_renamed_names_its_new_directory() -> None:
    log = open_log(new_file_system())
    log.rename_directory("topic-0.00000000000000000000000000000000-delete")
    with pytest.raises(StorageError, match="-delete: sync failed"), log.online.during("sync"):
        raise OSError(errno.EIO, "gone")
