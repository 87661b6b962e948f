"""The bytes and names that each kind of power loss leaves of changes that no sync made durable."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from sim.disk import PowerLoss
from sim.disk.life import Dead, Life
from storage.disk.filesystem import OpenMode, read_file, replace_file
from tests.sim.disk.disks import ALL_MODES, content_after, new_disk, with_durable_file


class TestPowerLossOfData:
    def test_none_keeps_only_synced_data(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk, b"0123456789")
        file.write_at(2, b"xx")
        file.append(b"more")
        file.truncate(5)
        file.append(b"y" * 100)
        file.set_length(300)
        assert disk.durable_bytes("d/f") == b"0123456789"
        assert content_after(disk, "none") == b"0123456789"

    def test_all_leaves_everything(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk, b"0123456789")
        file.truncate(5)
        file.append(b"y" * 100)
        file.write_at(200, b"z")
        expected = file.read_at(0, 999)
        assert content_after(disk, "all") == expected
        assert disk.pending_count() == 0

    def test_sync_covers_bytes_and_length(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        file.set_length(10_000_000)
        file.write_at(8, b"entry")
        file.sync()
        file.set_length(16)
        assert content_after(disk, "none") == b"\0" * 8 + b"entry" + bytes(10_000_000 - 13)

    def test_sync_of_one_file_says_nothing_of_another(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"a")
        other = fs.open("d/g", OpenMode.CREATE)
        fs.sync_directory("d")
        other.append(b"lost")
        file.append(b"b")
        file.sync()
        disk.lose_power("none")
        after = disk.file_system(Life())
        assert (read_file(after, "d/f"), read_file(after, "d/g")) == (b"ab", b"")

    def test_prefix_is_a_moment_of_the_whole_disk(self) -> None:
        seen = set()
        for seed in range(40):
            disk = new_disk(seed)
            fs, one = with_durable_file(disk)
            other = fs.open("d/g", OpenMode.CREATE)
            fs.sync_directory("d")
            for step in range(3):
                one.append(b"%d" % step)
                other.append(b"%d" % step)
            disk.lose_power("prefix")
            after = disk.file_system(Life())
            state = (read_file(after, "d/f"), read_file(after, "d/g"))
            assert 0 <= len(state[0]) - len(state[1]) <= 1
            assert b"012".startswith(state[0]) and b"012".startswith(state[1])
            seen.add(state)
        # Every moment occurs, the first and the last too.
        assert len(seen) == 7

    def test_subset_keeps_blocks_each_on_its_own(self) -> None:
        blocks_kept = set()
        for seed in range(60):
            disk = new_disk(seed)
            _, file = with_durable_file(disk, b"o" * 3 * 4096)
            file.write_at(0, b"n" * 3 * 4096)
            content = content_after(disk, "subset")
            assert content is not None and len(content) == 3 * 4096
            blocks = [content[at : at + 4096] for at in range(0, len(content), 4096)]
            assert all(len(set(block)) == 1 for block in blocks)
            blocks_kept.add(bytes(block[0] for block in blocks))
        assert len(blocks_kept) == 8

    def test_subset_may_keep_a_length_without_its_data(self) -> None:
        contents = set()
        for seed in range(60):
            disk = new_disk(seed)
            _, file = with_durable_file(disk)
            file.append(b"aa")
            file.append(b"bb")
            content = content_after(disk, "subset")
            assert content is not None
            contents.add(content)
        whole_lengths = {b"", b"aa", b"aabb"}
        holes = {b"\0\0", b"\0\0bb", b"aa\0\0", b"\0\0\0\0"}
        assert contents == whole_lengths | holes

    def test_subset_does_not_bring_back_what_a_kept_truncation_cut(self) -> None:
        for seed in range(60):
            disk = new_disk(seed)
            _, file = with_durable_file(disk, b"old!")
            file.truncate(1)
            file.set_length(4)
            assert content_after(disk, "subset") in (b"old!", b"o", b"o\0\0\0")

    def test_torn_keeps_what_came_before_and_tears_a_write_by_sectors(self) -> None:
        kinds = set()
        for seed in range(60):
            disk = new_disk(seed)
            _, file = with_durable_file(disk, b"o" * 8192)
            file.write_at(0, b"n" * 8192)
            content = content_after(disk, "torn")
            assert content is not None and len(content) == 8192
            for at in range(0, 8192, 512):
                sector = content[at : at + 512]
                kinds.add(sector[:1] if len(set(sector)) == 1 else b"?")
        assert kinds == {b"n", b"o", b"\0", b"?"}

    def test_torn_always_finds_a_write_to_tear(self) -> None:
        torn = 0
        for seed in range(40):
            disk = new_disk(seed)
            _, file = with_durable_file(disk, b"head")
            writes = [bytes([65 + step]) * 1600 for step in range(4)]
            for write in writes:
                file.append(write)
            content = content_after(disk, "torn")
            assert content is not None and content.startswith(b"head")
            whole = {b"head" + b"".join(writes[:count]) for count in range(5)}
            torn += content not in whole
        # In one of four cases the length is the old one.
        assert 20 <= torn < 40

    @pytest.mark.parametrize("mode", ALL_MODES)
    def test_a_power_loss_is_a_function_of_the_seed(self, mode: PowerLoss) -> None:
        results = []
        for seed in (5, 5, 6):
            disk = new_disk(seed)
            fs, file = with_durable_file(disk, b"x" * 9000)
            for step in range(20):
                file.append(bytes([step]) * 700)
                replace_file(fs, f"d/{step}", bytes([step]) * 10)
            disk.lose_power(mode)
            after = disk.file_system(Life())
            results.append([(name, read_file(after, f"d/{name}")) for name in after.list("d")])
        assert results[0] == results[1]
        assert (results[0] == results[2]) == (mode in ("none", "all"))

    def test_set_modified_is_not_durable_before_a_sync(self) -> None:
        disk = new_disk(now_ms=77)
        fs, _ = with_durable_file(disk)
        fs.set_modified("d/f", 5)
        disk.lose_power("none")
        fs = disk.file_system(Life())
        assert fs.stat("d/f").modified_ms == 77
        fs.set_modified("d/f", 5)
        fs.open("d/f", OpenMode.WRITE).sync()
        disk.lose_power("none")
        assert disk.file_system(Life()).stat("d/f").modified_ms == 5


class TestPowerLossOfNames:
    def test_a_synced_file_without_a_synced_name_vanishes(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk)
        new = fs.open("d/new", OpenMode.CREATE)
        new.append(b"x")
        new.sync()
        with pytest.raises(FileNotFoundError):
            disk.durable_bytes("d/new")
        assert content_after(disk, "none", "d/new") is None

    def test_a_synced_directory_without_a_synced_name_vanishes_with_all_in_it(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk)
        fs.make_directory("d/deep")
        new = fs.open("d/deep/new", OpenMode.CREATE)
        new.append(b"x")
        new.sync()
        fs.sync_directory("d/deep")
        twin = disk.snapshot()
        assert content_after(twin, "none", "d/deep/new") is None
        fs.sync_directory("d")
        assert content_after(disk, "none", "d/deep/new") == b"x"

    def test_a_name_may_be_durable_without_the_bytes(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk)
        fs.open("d/new", OpenMode.CREATE).append(b"x")
        fs.sync_directory("d")
        assert content_after(disk, "none", "d/new") == b""

    def test_an_unsynced_unlink_is_undone(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk, b"back")
        fs.unlink("d/f")
        twin = disk.snapshot()
        assert content_after(twin, "none") == b"back"
        fs.sync_directory("d")
        assert content_after(disk, "all") is None

    def test_an_unsynced_rename_leaves_the_old_name(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk, b"1")
        fs.rename("d/f", "d/g")
        disk.lose_power("none")
        assert disk.file_system(Life()).list("d") == ["f"]

    @pytest.mark.parametrize("mode", ALL_MODES)
    def test_replace_file_leaves_the_old_content_or_the_new(self, mode: PowerLoss) -> None:
        """Checked at every crash point, after every kind of power loss."""
        for call, seed in product(range(1, 8), range(6)):
            disk = new_disk(seed)
            fs, _ = with_durable_file(disk, b"old content")
            disk.arm_crash(call)
            # The last of the crash points strikes no call.
            with suppress(Dead):
                replace_file(fs, "d/f", b"new")
            assert content_after(disk, mode) in (b"old content", b"new")

    def test_replace_file_is_durable_when_it_returns(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk, b"old content")
        replace_file(fs, "d/f", b"new")
        assert content_after(disk, "none") == b"new"

    def test_subset_keeps_each_name_on_its_own(self) -> None:
        seen = set()
        for seed in range(80):
            disk = new_disk(seed)
            fs, _ = with_durable_file(disk)
            fs.unlink("d/f")
            fs.open("d/a", OpenMode.CREATE)
            fs.open("d/b", OpenMode.CREATE)
            disk.lose_power("subset")
            seen.add(tuple(disk.file_system(Life()).list("d")))
        assert len(seen) == 8

    def test_a_file_never_ends_with_two_names(self) -> None:
        for seed in range(60):
            disk = new_disk(seed)
            fs, _ = with_durable_file(disk)
            fs.open("d/tmp", OpenMode.CREATE).append(b"x")
            fs.rename("d/tmp", "d/swap")
            fs.rename("d/swap", "d/log")
            disk.lose_power("subset")
            names = [name for name in disk.file_system(Life()).list("d") if name != "f"]
            assert len(names) <= 1

    def test_a_rename_between_directories_is_one_change(self) -> None:
        for mode, seed in product(ALL_MODES, range(20)):
            disk = new_disk(seed)
            fs, _ = with_durable_file(disk, b"1")
            fs.make_directory("e")
            fs.sync_directory("")
            fs.rename("d/f", "e/f")
            disk.lose_power(mode)
            after = disk.file_system(Life())
            assert after.exists("d/f") != after.exists("e/f")

    def test_syncing_either_directory_makes_a_rename_between_them_durable(self) -> None:
        for synced in ("d", "e"):
            disk = new_disk()
            fs, _ = with_durable_file(disk, b"1")
            fs.make_directory("e")
            fs.sync_directory("")
            fs.open("d/new", OpenMode.CREATE)
            fs.rename("d/new", "e/new")
            fs.sync_directory(synced)
            disk.lose_power("none")
            after = disk.file_system(Life())
            assert (after.list("d"), after.list("e")) == (["f"], ["new"])


def test_a_disk_deceives_after_a_sync_that_lied_until_power_is_lost_and_so_does_its_image() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk, b"abc")
    assert not disk.deceives
    disk.let_syncs_lie(True)
    file.append(b"def")
    file.sync()
    disk.let_syncs_lie(False)
    assert disk.deceives
    image = disk.snapshot()
    disk.lose_power("all")
    assert not disk.deceives
    disk.restore(image)
    assert disk.deceives
    disk.wipe()
    assert not disk.deceives
