"""Start-up rule by rule, and bugs of Kafka's history in it. Rules LL7 to LL26; LogLoaderTest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode, join, read_file
from storage.log import PartitionLog
from storage.producers.rows import encode_snapshot
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    THREE,
    append_each,
    batch,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import file_of, names, put, stopped


def entries(log: PartitionLog) -> Iterator[tuple[int, list[tuple[int, ...]], list[tuple[int, ...]]]]:
    for segment in log.local.segments:
        offsets, times = segment.offset_index, segment.time_index
        yield (
            segment.base_offset,
            [tuple(offsets.entry(slot)) for slot in range(offsets.entries)],
            [tuple(times.entry(slot)) for slot in range(times.entries)],
        )


def stopped_after_a_producer(file_system: SimFileSystem) -> None:
    """Write ten records of producer 3, three a segment, and stop in order."""
    log = open_log(file_system, THREE)
    for sequence in range(10):
        log.append_as_leader(
            produced(producer_id=3, producer_epoch=1, sequence=sequence), leader_epoch=0, now_ms=NOW_MS
        )
    log.close()


# Swaps


def test_ll7_the_range_of_swaps_is_from_the_least_base_to_the_greatest_next_offset() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), batch(4))
    put(file_system, file_of(6, "log.swap"), batch(7))
    put(file_system, file_of(7, "snapshot"), b"in the range")
    log = open_log(file_system, THREE)
    assert log.local.segments.base_offsets == [0, 3, 6, 9]
    assert read_offsets(log) == [0, 1, 2, 4, 7, 9, 10, 11]


def test_t41_a_swap_removes_files_of_any_kind_in_its_range_and_none_beside_it() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), batch(4) + batch(8))
    for offset in (2, 4, 8, 9):
        put(file_system, file_of(offset, "anything"), b"x")
    put(file_system, join(DIRECTORY, "4-notes"), b"no dot, no offset")
    open_log(file_system, THREE)
    assert names(file_system, ".anything") == [f"{offset:020d}.anything" for offset in (2, 9)]
    assert names(file_system, "4-notes") == ["4-notes"]


def test_ll9_the_index_files_of_a_swap_go_live_with_it() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    before = {suffix: read_file(file_system, file_of(3, suffix)) for suffix in ("index", "timeindex")}
    for suffix in ("log", "index", "timeindex"):
        file_system.rename(file_of(3, suffix), file_of(3, suffix + ".swap"))
    log = open_log(file_system, THREE, clean=True)
    assert names(file_system, ".swap") == [] and read_offsets(log) == list(range(12))
    assert {suffix: read_file(file_system, file_of(3, suffix)) for suffix in before} == before


def test_t40_a_swap_without_an_index_gets_one_that_is_built_from_it() -> None:
    """Kafka puts an empty one there, and every look-up scans."""
    file_system = new_file_system()
    stopped(file_system, clean=True)
    before = read_file(file_system, file_of(3, "index"))
    file_system.rename(file_of(3), file_of(3, "log.swap"))
    log = open_log(file_system, THREE, clean=True)
    assert read_offsets(log) == list(range(12))
    log.close()
    assert before and read_file(file_system, file_of(3, "index")) == before


def test_kafka_12520_a_swap_that_is_finished_costs_no_producer() -> None:
    file_system = new_file_system()
    stopped_after_a_producer(file_system)
    for suffix in ("log", "index", "timeindex"):
        file_system.rename(file_of(0, suffix), file_of(0, suffix + ".swap"))
    log = open_log(file_system, THREE, clean=True)
    entry = log.producers.last_entry(3)
    assert entry is not None and entry.last_sequence == 9


def test_minor_3afe2ed_a_swap_does_not_take_the_segment_that_follows_it() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), batch(3) + batch(5))
    log = open_log(file_system, THREE)
    assert 6 in log.local.segments and read_offsets(log) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


# Segments and their indexes


@pytest.mark.covers("LogLoaderTest.testBogusIndexSegmentsAreRemoved")
def test_kafka_670_indexes_without_a_log_are_removed_and_the_log_is_usable() -> None:
    file_system = new_file_system()
    for offset in (0, 5):
        for suffix in ("index", "timeindex", "txnindex"):
            put(file_system, file_of(offset, suffix), b"")
    log = open_log(file_system, THREE)
    assert names(file_system, f"{5:020d}.index") == []
    assert log.local.segments.active.offset_index.length_bytes == 1200
    append_each(log, 10)
    assert read_offsets(log) == list(range(10))


def test_ll10_a_directory_in_place_of_a_segment_is_ignored() -> None:
    file_system = new_file_system()
    stopped(file_system)
    file_system.make_directory(file_of(100))
    file_system.make_directory(file_of(200, "index"))
    assert read_offsets(open_log(file_system, THREE)) == list(range(12))


def test_kafka_2012_a_transaction_index_that_makes_no_sense_is_rebuilt() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    # It ends below its segment.
    put(file_system, file_of(3, "txnindex"), bytes(2) + (1).to_bytes(8, "big") * 4)
    log = open_log(file_system, THREE, clean=True)
    segment = log.local.segments.get(3)
    assert segment is not None and list(segment.transaction_index.entries()) == []


def test_kafka_4734_a_time_index_made_for_an_old_segment_takes_no_room() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    file_system.unlink(file_of(3, "timeindex"))
    open_log(file_system, THREE, clean=True)
    assert file_system.stat(file_of(3, "timeindex")).size_bytes == 0


@pytest.mark.covers("LogLoaderTest.testRecoverWithEmptyActiveSegment")
def test_kafka_13603_an_empty_active_segment_without_an_index_is_no_damage() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    append_each(log, 3)
    log.flushes.roll(now_ms=NOW_MS)
    log.flushes.flush()
    log.close_handles()
    for suffix in ("index", "timeindex"):
        if file_system.exists(file_of(3, suffix)):
            file_system.unlink(file_of(3, suffix))
    log = open_log(file_system, THREE, recovery_point=3)
    assert (log.local.recovery_point, log.log_end_offset, log.recovered_bytes_removed) == (3, 3, 0)
    assert file_system.exists(file_of(3, "index"))


@pytest.mark.covers("LogLoaderTest.testIndexRebuild", "LogLoaderTest.testCorruptIndexRebuild")
@pytest.mark.parametrize("content", [None, b" " * 240, b"\x00" * 240, b"\xff" * 240])
def test_regression_c_indexes_lost_or_overwritten_are_as_before_after_recovery(content: bytes | None) -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for step in range(30):
        log.append_as_leader(produced(timestamp=NOW_MS + step), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    log = open_log(file_system, THREE, clean=True)
    before = list(entries(log))
    log.close_handles()
    for name in (*names(file_system, ".index"), *names(file_system, ".timeindex")):
        if content is None:
            file_system.unlink(join(DIRECTORY, name))
        else:
            put(file_system, join(DIRECTORY, name), content)
    log = open_log(file_system, THREE)
    assert list(entries(log)) == before and read_offsets(log) == list(range(30))
    for step in range(30):
        found = log.reads.offset_for_timestamp(NOW_MS + step)
        assert found is not None and found.offset == step


@pytest.mark.parametrize("count", [1, 4])
def test_kafka_866_recovery_indexes_the_offsets_that_append_indexed(count: int) -> None:
    """Recovery and append both index the last offset of a batch (also KAFKA-804)."""
    file_system = new_file_system()
    wide = LogConfig(segment_index_bytes=1200, index_interval_bytes=SIZE)
    log = open_log(file_system, wide)
    for _ in range(12):
        log.append_as_leader(produced(count), leader_epoch=0, now_ms=NOW_MS)
    before = list(entries(log))
    log.close_handles()
    log = open_log(file_system, wide)
    assert [each[:2] for each in entries(log)] == [each[:2] for each in before] and before[0][1]


def test_kafka_593_the_active_segments_indexes_have_room_after_a_start() -> None:
    file_system = new_file_system()
    stopped(file_system, 4, clean=True)
    log = open_log(file_system, THREE, clean=True)
    assert log.local.segments.active.offset_index.length_bytes == 1200
    append_each(log, 1)
    assert log.local.segments.base_offsets == [0, 3]


def test_kafka_12955_exactly_the_segments_after_a_cut_are_deleted() -> None:
    file_system = new_file_system()
    stopped(file_system, 30)
    put(file_system, file_of(9), batch(9) + b"torn")
    log = open_log(file_system, THREE)
    assert log.local.segments.base_offsets == [0, 3, 6, 9]
    assert names(file_system, ".log") == [f"{base:020d}.log" for base in (0, 3, 6, 9)]
    assert read_offsets(log) == list(range(10))


def test_kafka_6324_files_that_are_missing_already_do_not_stop_a_recovery_that_deletes() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(0), batch(0) + b"torn")
    for suffix in ("timeindex", "snapshot"):
        file_system.unlink(file_of(6, suffix))
    assert read_offsets(open_log(file_system, THREE)) == [0]


# Offsets, epochs, producers


@pytest.mark.covers("LogLoaderTest.testCleanShutdownFile")
def test_ll20_after_an_orderly_stop_the_recovery_point_is_the_log_end() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    assert open_log(file_system, THREE, clean=True).local.recovery_point == 12


@pytest.mark.covers("LogLoaderTest.testLogRecoversToCorrectOffset")
@pytest.mark.parametrize("point", [0, 5, 12])
def test_t37_recovery_does_not_move_the_recovery_point(point: int) -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, THREE, recovery_point=point)
    assert (log.local.recovery_point, log.log_end_offset) == (point, 12)
    log.flushes.flush()
    assert log.local.recovery_point == 12


def test_kafka_10101_a_recovery_point_beyond_the_end_is_lowered_to_it() -> None:
    """The second crash would find records written since above a higher point, and trust them unseen."""
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(9), batch(9) + b"torn")
    log = open_log(file_system, THREE, recovery_point=12)
    assert (log.log_end_offset, log.local.recovery_point) == (10, 10)
    append_each(log, 6)
    log.close_handles()
    put(file_system, file_of(12), batch(12) + b"torn")
    log = open_log(file_system, THREE, recovery_point=10)
    assert read_offsets(log) == list(range(13))


def test_t38_the_first_cut_deletes_every_later_segment_even_good_ones() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3), b"")
    put(file_system, file_of(3), batch(3) + b"torn")
    assert open_log(file_system, THREE).local.segments.base_offsets == [0, 3]


def test_ll14_a_segment_that_is_empty_but_sound_ends_no_log() -> None:
    """A length of zero, without a byte cut, does not stop the loop (LL16)."""
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3), b"")
    log = open_log(file_system, THREE)
    assert log.local.segments.base_offsets == [0, 3, 6, 9] and log.log_end_offset == 12


@pytest.mark.covers(
    "LogLoaderTest.testLogEndLessThanStartAfterReopen",
    "LogLoaderTest.testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery",
)
def test_ll18_a_log_that_ends_below_its_start_starts_again_there() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3), b"no batch at all, only text")
    log = open_log(file_system, THREE, log_start_offset=4)
    assert (log.log_start_offset, log.log_end_offset, log.local.segments.base_offsets) == (4, 4, [4])
    assert log.epochs.entries == []
    assert names(file_system, ".log") == [f"{4:020d}.log"]
    assert not [name for name in names(file_system, ".snapshot") if int(name[:20]) != 4]
    append_each(log, 7)
    log.close_handles()
    assert read_offsets(open_log(file_system, THREE, log_start_offset=4)) == list(range(4, 11))
    assert names(file_system, ".deleted") == []


def test_ll22_epochs_at_or_beyond_the_end_are_forgotten() -> None:
    file_system = new_file_system()
    stopped(file_system, 6)
    put(file_system, join(DIRECTORY, "leader-epoch-checkpoint"), b"0\n3\n0 0\n4 6\n5 90\n")
    log = open_log(file_system, THREE, clean=True)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]
    assert read_file(file_system, join(DIRECTORY, "leader-epoch-checkpoint")) == b"0\n1\n0 0\n"


def test_ll24_epochs_are_cut_at_the_checkpoint_not_at_the_first_segment() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for suffix in ("log", "index", "timeindex"):
        file_system.unlink(file_of(0, suffix))
    log = open_log(file_system, THREE)
    assert log.log_start_offset == 3
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]
    log.close_handles()
    log = open_log(file_system, THREE, log_start_offset=4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 4)]


def test_ll26_the_marks_are_at_least_the_log_start() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, THREE, log_start_offset=5, recovery_point=2)
    assert (log.high_watermark, log.local.recovery_point) == (5, 5)


def test_ll11_a_segment_recovered_at_once_leaves_a_snapshot_at_its_end() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    file_system.unlink(file_of(0, "index"))
    # It is not of the last two segments, which get a snapshot anyway.
    file_system.unlink(file_of(3, "snapshot"))
    open_log(file_system, THREE, clean=True)
    assert read_file(file_system, file_of(3, "snapshot")) == encode_snapshot([])


def test_kafka_10832_a_segment_that_is_recovered_does_not_write_through_to_the_logs_producers() -> None:
    file_system = new_file_system()
    stopped_after_a_producer(file_system)
    # The segment is recovered with producers as of offset 6.
    file_system.unlink(file_of(3, "index"))
    log = open_log(file_system, THREE, clean=True)
    entry = log.producers.last_entry(3)
    assert entry is not None and entry.last_sequence == 9


def test_t45_no_snapshot_after_an_orderly_stop_means_no_producer() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    log.append_as_leader(produced(producer_id=3, producer_epoch=1, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    for name in names(file_system, ".snapshot"):
        file_system.unlink(join(DIRECTORY, name))
    assert open_log(file_system, THREE, clean=True).producers.last_entry(3) is None


def test_kafka_5435_no_snapshot_after_a_crash_means_a_look_at_the_log() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    log.append_as_leader(produced(producer_id=3, producer_epoch=1, sequence=0), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    for name in names(file_system, ".snapshot"):
        file_system.unlink(join(DIRECTORY, name))
    assert open_log(file_system, THREE).producers.last_entry(3) is not None


@pytest.mark.covers("LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot")
def test_t46_of_the_snapshots_beyond_the_last_segment_the_largest_stays() -> None:
    file_system = new_file_system()
    # The segments are 0, 3, 6; the close took a snapshot at 8.
    stopped(file_system, 8, clean=True)
    for stray in (1, 4, 7):
        put(file_system, file_of(stray, "snapshot"), encode_snapshot([]))
    open_log(file_system, THREE, clean=True).close_handles()
    assert names(file_system, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (3, 6, 8)]


@pytest.mark.covers("LogLoaderTest.testLogRecoversForLeaderEpoch")
def test_kafka_10432_recovery_finds_every_epoch_again_also_epoch_0() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch, count in ((0, 2), (1, 3), (3, 4)):
        append_each(log, count, epoch=epoch)
    log.close_handles()
    for content in (b"", b"0\n1\n0 0\n"):
        put(file_system, join(DIRECTORY, "leader-epoch-checkpoint"), content)
        log = open_log(file_system, THREE)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 2), (3, 5)]
        log.close_handles()


@pytest.mark.covers("LogLoaderTest.testReopenThenTruncate")
def test_a_log_that_is_reopened_can_be_truncated() -> None:
    file_system = new_file_system()
    stopped(file_system, 12, clean=True)
    log = open_log(file_system, THREE, clean=True)
    log.truncate_to(2, now_ms=NOW_MS)
    assert len(log.local.segments) == 1 and log.log_end_offset == 2


@pytest.mark.covers("LogLoaderTest.testOpenDeletesObsoleteFiles")
def test_ll6_segments_that_retention_renamed_are_deleted_by_a_start() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for base in (0, 3):
        for suffix in ("log", "index", "timeindex"):
            file_system.rename(file_of(base, suffix), file_of(base, suffix + ".deleted"))
    log = open_log(file_system, THREE)
    assert log.local.segments.base_offsets == [6, 9] and names(file_system, ".deleted") == []


@pytest.mark.covers("LogLoaderTest.testCorruptLog")
@pytest.mark.parametrize("junk", [b"\x01", b"\x7f" * 17, b"\xff" * 61, bytes(300), b"replog" * 100])
def test_regression_b_junk_at_the_end_costs_no_record(junk: bytes) -> None:
    file_system = new_file_system()
    stopped(file_system, 11)
    for suffix in ("log", "index"):
        put(file_system, file_of(9, suffix), read_file(file_system, file_of(9, suffix)) + junk)
    log = open_log(file_system, THREE, recovery_point=5)
    assert read_offsets(log) == list(range(11))
    append_each(log, 2)
    assert read_offsets(log) == list(range(13))


@pytest.mark.slow
def test_regression_b_a_tail_cut_at_every_byte_keeps_the_batches_before() -> None:
    disk = new_disk()
    stopped(new_file_system(disk), 3)
    for size in range(3 * SIZE):
        twin = disk.snapshot()
        file_system = new_file_system(twin)
        file = file_system.open(file_of(0), OpenMode.WRITE)
        file.truncate(size)
        file.close()
        assert read_offsets(open_log(file_system, THREE)) == list(range(size // SIZE))


@pytest.mark.covers("LogLoaderTest.testOverCompactedLogRecovery")
def test_regression_d_offsets_near_2_31_multiples_are_found_again() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    offsets = [0, 2**31 - 1, 2**31, 2**31 + 1, 2**32 + 5, 2**32 + 6]
    for offset in offsets:
        log.append_as_follower(batch(offset), leader_epoch=0, now_ms=NOW_MS)
    bases = log.local.segments.base_offsets
    log.close_handles()
    log = open_log(file_system, THREE)
    assert read_offsets(log) == offsets and log.local.segments.base_offsets == bases
