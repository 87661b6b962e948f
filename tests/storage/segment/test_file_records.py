"""A `.log` file by rule number (FR): appending, slices, walking, truncation."""

from __future__ import annotations

import struct

import pytest

import storage.segment.file_records
from sim.disk.life import Life
from storage.batch import stamp
from storage.disk.filesystem import FileSystem, OpenMode, dirname, read_file
from storage.errors import CorruptBatch, StorageError
from storage.segment.file_records import FileRecords
from tests.storage.index.indexes import simulated
from tests.storage.segment.log_files import PATH, THREE, batch_of, bytes_of, holding, with_three


class TestOpenAndAppend:
    @pytest.mark.covers("FileRecordsTest.testFileSize")
    def test_fr1_all_of_an_existing_file_is_records(self, both_file_systems: tuple[FileSystem, str]) -> None:
        fs, directory = both_file_systems
        path = f"{directory}/0.log"
        records = FileRecords(fs, path)
        for count, batch in enumerate(THREE):
            assert records.append(batch) == sum(map(len, THREE[:count]))
            assert records.size_bytes == fs.stat(path).size_bytes
        records.close()
        again = FileRecords(fs, path, read_only=True)
        assert bytes_of(again.batches()) == THREE
        again.close()

    def test_fr1_read_only_creates_and_changes_nothing(self) -> None:
        disk, fs = simulated()
        with pytest.raises(FileNotFoundError):
            FileRecords(fs, PATH, read_only=True)
        holding(THREE[0], fs)
        before = disk.operations
        records = FileRecords(fs, PATH, read_only=True)
        with pytest.raises(OSError):
            records.append(THREE[1])
        assert records.size_bytes == len(THREE[0])
        records.close()
        assert disk.operations == before

    @pytest.mark.covers("FileRecordsTest.testOpenOversizeFile")
    def test_fr1_a_file_above_two_gibibytes_is_refused(self) -> None:
        _, fs = simulated()
        fs.open(PATH, OpenMode.CREATE).set_length(2**31)
        with pytest.raises(StorageError):
            FileRecords(fs, PATH)

    @pytest.mark.covers(
        "FileRecordsTest.testPreallocateTrue",
        "FileRecordsTest.testPreallocateFalse",
        "FileRecordsTest.testPreallocateClearShutdown",
    )
    def test_fr1_preallocation(self, both_file_systems: tuple[FileSystem, str]) -> None:
        fs, directory = both_file_systems
        path = f"{directory}/0.log"
        records = FileRecords(fs, path, preallocate_bytes=1 << 20)
        assert (records.size_bytes, fs.stat(path).size_bytes) == (0, 1 << 20)
        records.append(THREE[0])
        assert fs.stat(path).size_bytes == 1 << 20
        assert bytes_of(records.batches()) == THREE[:1]
        # The close cuts the preallocated tail (FR6).
        records.close()
        assert fs.stat(path).size_bytes == len(THREE[0])
        again = FileRecords(fs, path, preallocate_bytes=1 << 20, file_already_exists=True)
        assert again.append(THREE[1]) == len(THREE[0])
        assert fs.stat(path).size_bytes == len(THREE[0]) + len(THREE[1])
        again.close()

    def test_fr6_a_power_loss_after_an_orderly_stop_does_not_give_the_preallocated_tail_back(self) -> None:
        disk, fs = simulated()
        records = FileRecords(fs, PATH, preallocate_bytes=1 << 12)
        records.append(THREE[0])
        fs.sync_directory(dirname(PATH))
        records.flush()
        records.close()
        disk.lose_power("none")
        assert disk.file_system(Life()).stat(PATH).size_bytes == len(THREE[0])

    def test_only_zeros_are_taken_for_a_preallocated_tail(
        self, both_file_systems: tuple[FileSystem, str]
    ) -> None:
        fs, directory = both_file_systems
        records = FileRecords(fs, f"{directory}/0.log", preallocate_bytes=3 << 20)
        records.append(THREE[0])
        end = records.size_bytes
        assert records.has_only_zeros_from(end) and not records.has_only_zeros_from(0)
        file = fs.open(f"{directory}/0.log", OpenMode.CREATE)
        file.write_at((2 << 20) + 7, b"x")
        assert not records.has_only_zeros_from(end)
        file.close()
        records.close()

    @pytest.mark.covers("FileRecordsTest.testAppendProtectsFromOverflow")
    def test_fr4_append_refuses_bytes_beyond_two_gibibytes(self) -> None:
        disk, fs = simulated()
        fs.open(PATH, OpenMode.CREATE).set_length(2**31 - 1)
        records = FileRecords(fs, PATH)
        before = disk.operations
        with pytest.raises(ValueError):
            records.append(b"x")
        records.append(b"")
        assert disk.operations == before + 1

    def test_fr4_a_failed_append_leaves_the_end_where_it_was(self) -> None:
        disk, fs = simulated()
        records = holding(THREE[0], fs)
        disk.fail(1, applied_bytes=20)
        with pytest.raises(OSError):
            records.append(THREE[1])
        assert records.size_bytes == len(THREE[0])
        assert bytes_of(records.batches()) == THREE[:1]
        records.append(THREE[2])
        assert bytes_of(records.batches()) == [THREE[0], THREE[2]]

    @pytest.mark.covers("FileRecordsTest.testOutOfRangeSlice", "FileRecordsTest.testRead")
    def test_fr3_slices(self) -> None:
        records, whole = with_three(), b"".join(THREE)
        size = len(whole)
        assert records.read_slice(0, size) == whole
        assert records.read_slice(len(THREE[0]), 2**31 - 1) == whole[len(THREE[0]) :]
        assert records.read_slice(size, 10) == b""
        assert records.read_slice(5, 0) == b""
        for position, wanted in ((size + 1, 15), (-1, 5), (0, -1)):
            with pytest.raises(ValueError):
                records.read_slice(position, wanted)

    def test_fr3_a_slice_does_not_see_a_preallocated_tail(self) -> None:
        _, fs = simulated()
        records = FileRecords(fs, PATH, preallocate_bytes=4096)
        records.append(THREE[0])
        assert records.read_slice(0, 4096) == THREE[0]

    @pytest.mark.covers("FileRecordsTest.testBytesLengthOfWriteTo")
    def test_fr15_a_file_that_shrank_is_one_clean_error(self) -> None:
        _, fs = simulated()
        records = holding(b"".join(THREE), fs)
        # There is never more than the file has.
        assert len(records.read_slice(5, 1 << 20)) == records.size_bytes - 5
        fs.open(PATH, OpenMode.WRITE).truncate(100)
        with pytest.raises(StorageError, match=r"0\.log: read 100 bytes at byte 0, expected 216"):
            records.read_slice(0, records.size_bytes)
        assert records.read_slice(0, 100) == b"".join(THREE)[:100]

    def test_fr7_flush_makes_the_records_durable_and_close_handlers_nothing(self) -> None:
        disk, fs = simulated()
        records = FileRecords(fs, PATH)
        fs.sync_directory("")
        records.append(THREE[0])
        records.flush()
        records.append(THREE[1])
        records.close_handlers()
        assert disk.durable_bytes(PATH) == THREE[0]
        again = FileRecords(fs, PATH)
        again.close()
        assert disk.durable_bytes(PATH) == THREE[0] + THREE[1]

    def test_names(self) -> None:
        _, fs = simulated()
        fs.make_directory("a")
        records = FileRecords(fs, "a/0.log")
        records.rename_to("a/0.log.deleted")
        fs.rename("a", "b")
        records.update_parent_directory("b")
        records.set_modified(77)
        assert (records.path, records.modified_ms()) == ("b/0.log.deleted", 77)
        assert records.delete_if_exists()
        assert not records.delete_if_exists()
        assert fs.list("b") == []


class TestTruncate:
    @pytest.mark.covers(
        "FileRecordsTest.testTruncate", "FileRecordsTest.testTruncateIfSizeIsDifferentToTargetSize"
    )
    def test_fr5_truncate(self) -> None:
        _, fs = simulated()
        records = holding(b"".join(THREE), fs)
        assert records.truncate_to(len(THREE[0])) == len(THREE[1]) + len(THREE[2])
        assert read_file(fs, PATH) == THREE[0]
        records.append(THREE[2])
        assert bytes_of(records.batches()) == [THREE[0], THREE[2]]

    def test_fr5_a_truncation_that_fails_leaves_the_records_as_they_were(self) -> None:
        disk, fs = simulated()
        records = holding(b"".join(THREE), fs)
        disk.fail(1)
        with pytest.raises(OSError, match="Input/output"):
            records.truncate_to(len(THREE[0]))
        assert bytes_of(records.batches()) == THREE
        assert records.size_bytes == len(b"".join(THREE))

    @pytest.mark.covers("FileRecordsTest.testTruncateNotCalledIfSizeIsSameAsTargetSize")
    def test_fr5_an_equal_size_leaves_the_file_alone(self) -> None:
        disk, fs = simulated()
        records = holding(THREE[0], fs)
        before = disk.operations
        assert records.truncate_to(records.size_bytes) == 0
        assert disk.operations == before

    @pytest.mark.covers("FileRecordsTest.testTruncateNotCalledIfSizeIsBiggerThanTargetSize")
    def test_fr5_truncate_beyond_size_raises(self) -> None:
        records = with_three()
        for size in (records.size_bytes + 1, -1):
            with pytest.raises(StorageError):
                records.truncate_to(size)
        assert bytes_of(records.batches()) == THREE

    def test_fr5_a_preallocated_tail_is_cut_at_an_equal_size_too(self) -> None:
        _, fs = simulated()
        records = FileRecords(fs, PATH, preallocate_bytes=4096)
        records.append(THREE[0])
        assert records.truncate_to(records.size_bytes) == 0
        assert read_file(fs, PATH) == THREE[0]

    def test_fr6_close_syncs_and_trims_and_close_handlers_does_neither(self) -> None:
        for is_orderly in (True, False):
            disk, fs = simulated()
            records = FileRecords(fs, PATH, preallocate_bytes=4096)
            fs.sync_directory("")
            records.append(THREE[0])
            if is_orderly:
                records.close()
            else:
                records.close_handlers()
            assert len(read_file(fs, PATH)) == (len(THREE[0]) if is_orderly else 4096)
            durable = disk.durable_bytes(PATH)
            assert durable.startswith(THREE[0]) == is_orderly

    def test_fr6_trim_cuts_only_the_preallocated_tail(self) -> None:
        _, fs = simulated()
        records = FileRecords(fs, PATH, preallocate_bytes=4096)
        records.append(THREE[0])
        records.trim()
        assert read_file(fs, PATH) == THREE[0]


class TestWalk:
    @pytest.mark.covers("FileRecordsTest.testIterationOverPartialAndTruncation")
    @pytest.mark.parametrize("tail_bytes", [0, 2, 4, 5, 6, 12, 16, 17])
    def test_fr8a_a_tail_of_up_to_17_bytes_is_ignored(self, tail_bytes: int) -> None:
        records = holding(b"".join(THREE) + bytes(tail_bytes))
        assert bytes_of(records.batches()) == THREE
        assert [position for _, _, position, _ in records.scan_headers()] == [0, 72, 144]

    def test_fr8a_a_zero_tail_of_18_bytes_is_damage(self) -> None:
        records = holding(b"".join(THREE) + bytes(18))
        for walk in (records.batches(), (header for *_, header in records.scan_headers())):
            assert [next(walk) for _ in THREE]
            with pytest.raises(CorruptBatch, match="a size field of 0") as raised:
                next(walk)
            assert raised.value.position == sum(map(len, THREE))

    def test_fr8b_a_file_shorter_than_the_limit_is_damage(self) -> None:
        records = with_three()
        size = records.size_bytes
        for end in (size + 18, size + 100_000):
            with pytest.raises(CorruptBatch, match="unexpected end"):
                list(records.batches(0, end))
            with pytest.raises(CorruptBatch, match="unexpected end"):
                list(records.scan_headers(0, end))

    @pytest.mark.parametrize("size_field", [13, 0, -1, -(2**31)])
    def test_fr8c_a_size_field_below_14_is_damage(self, size_field: int) -> None:
        damaged = bytearray(b"".join(THREE))
        struct.pack_into(">i", damaged, len(THREE[0]) + 8, size_field)
        records = holding(bytes(damaged))
        with pytest.raises(CorruptBatch) as raised:
            list(records.batches())
        assert raised.value.position == len(THREE[0])
        with pytest.raises(CorruptBatch) as raised:
            list(records.scan_headers())
        assert raised.value.position == len(THREE[0])
        with pytest.raises(CorruptBatch):
            records.search_for_offset_with_size(2)

    def test_fr8d_an_incomplete_last_batch_ends_the_walk_silently(self) -> None:
        whole = b"".join(THREE)
        for missing in range(1, len(THREE[2])):
            records = holding(whole[: len(whole) - missing])
            assert bytes_of(records.batches()) == THREE[:2]
            assert [position for _, _, position, _ in records.scan_headers()] == [0, 72]
            records.close_handlers()

    @pytest.mark.covers("FileRecordsTest.testIteratorWithLimits")
    def test_fr8_limits(self) -> None:
        records = with_three()
        first, second = len(THREE[0]), len(THREE[0]) + len(THREE[1])
        assert bytes_of(records.batches(first, second)) == [THREE[1]]
        assert bytes_of(records.batches(first, second - 1)) == []
        assert [batch.position for batch in records.batches(first)] == [first, second]

    def test_fr8e_magic_above_two_is_walked_as_two(self) -> None:
        odd = bytearray(THREE[1])
        odd[16] = 3
        records = holding(THREE[0] + odd + THREE[2])
        assert [batch.magic for batch in records.batches()] == [2, 3, 2]
        # The checksum does not cover the magic, and FR11 leaves it the only judge.
        assert [header[3] for *_, header in records.scan_headers()] == [2, 3, 2]

    @pytest.mark.covers("FileRecordsTest.testSliceSizeLimitWithConcurrentWrite")
    def test_fr2_a_walk_keeps_its_end_while_records_are_appended(self) -> None:
        records = holding(THREE[0])
        walk = records.batches()
        assert next(walk).base_offset == 0
        records.append(THREE[1])
        assert list(walk) == []

    @pytest.mark.covers("FileRecordsTest.testIterationDoesntChangePosition")
    def test_fr4_appends_go_to_the_end_whatever_was_read(self) -> None:
        records = holding(THREE[0])
        assert next(records.batches()).base_offset == 0
        records.search_for_offset_with_size(0)
        assert records.append(THREE[1]) == len(THREE[0])
        assert bytes_of(records.batches()) == THREE[:2]

    def test_batches_may_be_kept_while_the_walk_continues(self) -> None:
        many = [batch_of(offset, value=bytes([offset]) * 3000) for offset in range(40)]
        assert bytes_of(list(holding(b"".join(many)).batches())) == many

    def test_a_batch_larger_than_the_block_is_read_whole(self) -> None:
        large = [batch_of(offset, value=bytes([65 + offset]) * 700_000) for offset in range(3)]
        records = holding(b"".join([*large, THREE[0]]))
        assert bytes_of(records.batches()) == [*large, THREE[0]]
        assert [header[0] for *_, header in records.scan_headers()] == [0, 1, 2, 0]

    def test_fr9_a_search_reads_no_bodies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        records = holding(b"".join(batch_of(offset, value=bytes(300_000)) for offset in range(8)))
        read: list[int] = []
        read_at = records._file.read_at

        def noting(position: int, size: int) -> bytes:
            read.append(size)
            return read_at(position, size)

        monkeypatch.setattr(records._file, "read_at", noting)
        found = records.search_for_offset_with_size(7)
        assert found is not None and found.offset == 7
        assert sum(read) <= 8 * storage.segment.file_records.FIRST_BLOCK_BYTES

    @pytest.mark.parametrize(("with_bodies", "calls"), [(True, 3), (False, 5)])
    def test_fr8_a_walk_reads_many_batches_with_one_call(
        self, monkeypatch: pytest.MonkeyPatch, with_bodies: bool, calls: int
    ) -> None:
        """A walk that needs the bodies reads blocks that double; one over headers reads short blocks only."""
        records = holding(b"".join(batch_of(offset) for offset in range(1000)))
        read: list[int] = []
        read_at = records._file.read_at

        def noting(position: int, size: int) -> bytes:
            read.append(size)
            return read_at(position, size)

        monkeypatch.setattr(records._file, "read_at", noting)
        assert len(list(records._frames(0, records.size_bytes, with_bodies=with_bodies))) == 1000
        assert len(read) == calls, read


class TestWholeFile:
    def test_fr16_last_batch_is_found_by_walking_all(self) -> None:
        records = with_three()
        last = records.last_batch()
        assert last is not None and (last.base_offset, last.position) == (2, 144)
        again = records.last_batch(72)
        assert again is not None and again.position == 144
        assert holding(b"").last_batch() is None
        assert records.last_batch(records.size_bytes) is None

    def test_fr16_last_batch_meets_the_damage_on_its_way(self) -> None:
        records = holding(THREE[0] + bytes(30) + THREE[1])
        with pytest.raises(CorruptBatch):
            records.last_batch()


def test_a_leader_stamped_batch_is_stored_as_stamped() -> None:
    batch = bytearray(batch_of(0))
    stamp(batch, 0, base_offset=17, partition_leader_epoch=4)
    records = holding(b"")
    records.append(batch)
    (found,) = records.batches()
    assert (found.base_offset, found.partition_leader_epoch, found.is_valid()) == (17, 4, True)
