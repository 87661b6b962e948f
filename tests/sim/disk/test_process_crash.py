"""The disk that forgets: what a crash leaves, which life is fenced, which faults can be armed."""

from __future__ import annotations

import errno
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import Applied
from sim.disk.life import Dead, Life
from storage.disk.filesystem import File, OpenMode, read_file
from storage.draws import Draws
from tests.sim.disk.disks import ALL_MODES, content_after, new_disk, with_durable_file


class TestProcessCrash:
    def test_the_page_cache_survives_with_names_and_bytes(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"synced")
        file.append(b" and not")
        fs.open("d/new", OpenMode.CREATE).append(b"x")
        disk.crash_process()
        after = disk.file_system(Life())
        assert read_file(after, "d/f") == b"synced and not"
        assert after.list("d") == ["f", "new"]
        # The write, the name, the other write.
        assert disk.pending_count() == 3

    def test_every_handle_of_the_dead_life_raises(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"0123")
        lock = fs.lock("d/.lock")
        mapped = file.map_for_reading()
        disk.crash_process()
        before = disk.operations
        for call in (
            lambda: file.append(b"x"),
            lambda: file.write_at(0, b"x"),
            lambda: file.read_at(0, 1),
            lambda: file.size(),
            lambda: file.sync(),
            lambda: file.truncate(0),
            lambda: file.set_length(9),
            lambda: file.map_for_reading(),
            lambda: fs.open("d/g", OpenMode.CREATE),
            lambda: fs.exists("d"),
            lambda: fs.stat("d"),
            lambda: fs.list("d"),
            lambda: fs.rename("d/f", "d/g"),
            lambda: fs.unlink("d/f"),
            lambda: fs.make_directory("e"),
            lambda: fs.remove_directory("d"),
            lambda: fs.set_modified("d/f", 1),
            lambda: fs.sync_directory("d"),
            lambda: fs.lock("d/.other"),
        ):
            with pytest.raises(Dead):
                call()
        assert disk.operations == before
        # Closing a dead life's file raises nothing and changes nothing: a generator may close it much later.
        mapped.close()
        lock.release()
        file.close()
        assert read_file(disk.file_system(Life()), "d/f") == b"0123"

    def test_dead_passes_by_except_exception(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.crash_process()

        def product_code() -> None:
            try:
                file.append(b"x")
            except Exception:
                pytest.fail("caught its own death")

        with pytest.raises(Dead):
            product_code()

    def test_locks_are_free_and_a_late_release_does_not_free_the_next_holder(self) -> None:
        disk = new_disk()
        lock = disk.file_system(Life()).lock(".lock")
        disk.crash_process()
        after = disk.file_system(Life())
        after.lock(".lock")
        lock.release()
        with pytest.raises(BlockingIOError):
            after.lock(".lock")

    def test_maps_of_dead_processes_do_not_hold_the_file(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk, b"0123")
        mapped = file.map_for_reading()
        disk.crash_process()
        again = disk.file_system(Life()).open("d/f", OpenMode.WRITE)
        again.truncate(1)
        mapped.close()
        own = again.map_for_reading()
        with pytest.raises(BufferError):
            again.truncate(0)
        own.close()


class TestArmedFaults:
    def test_a_crash_strikes_inside_the_nth_mutating_call(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk)
        disk.arm_crash(3, applied=Applied.NOTHING)
        file.append(b"1")
        # Reading does not count.
        assert file.read_at(0, 9) == b"1"
        file.append(b"2")
        with pytest.raises(Dead):
            file.append(b"3")
        with pytest.raises(Dead):
            fs.exists("d")
        assert read_file(disk.file_system(Life()), "d/f") == b"12"

    def test_finally_repairs_nothing_on_a_dead_nodes_disk(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"0123")
        disk.arm_crash(1, applied=Applied.ALL)

        def product_code() -> None:
            try:
                file.truncate(1)
            finally:
                fs.unlink("d/f")

        with pytest.raises(Dead):
            product_code()
        assert read_file(disk.file_system(Life()), "d/f") == b"0"

    @pytest.mark.parametrize(("applied", "expected"), [(Applied.NOTHING, {b""}), (Applied.ALL, {b"abc"})])
    def test_how_much_of_the_struck_write_is_applied(self, applied: Applied, expected: set[bytes]) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.arm_crash(1, applied=applied)
        with pytest.raises(Dead):
            file.append(b"abc")
        assert {read_file(disk.file_system(Life()), "d/f")} == expected

    def test_a_drawn_share_is_any_prefix(self) -> None:
        seen = set()
        for seed in range(60):
            disk = new_disk(seed)
            _, file = with_durable_file(disk)
            disk.arm_crash(1)
            with pytest.raises(Dead):
                file.append(b"abc")
            seen.add(read_file(disk.file_system(Life()), "d/f"))
        assert seen == {b"", b"a", b"ab", b"abc"}

    def test_the_hook_runs_after_the_fence_and_before_dead_unwinds(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk, b"kept")
        disk.arm_crash(2, applied=Applied.ALL, hook=lambda: disk.lose_power("none"))
        file.append(b" lost")
        with pytest.raises(Dead):
            file.append(b" too")
        assert read_file(disk.file_system(Life()), "d/f") == b"kept"

    def test_a_partial_write_waits_for_its_file_and_stops_at_the_byte(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, path="d/0.log")
        disk.arm_partial_write(".log", 5)
        fs.open("d/0.index", OpenMode.CREATE).append(b"0123456789")
        with pytest.raises(Dead):
            file.append(b"0123456789")
        after = disk.file_system(Life())
        assert read_file(after, "d/0.log") == b"01234"
        after.open("d/0.log", OpenMode.WRITE).append(b"56")
        assert read_file(after, "d/0.log") == b"0123456"

    def test_a_partial_write_may_leave_the_file_as_long_as_if_all_had_been_written(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk, path="d/0.log")
        disk.arm_partial_write(".log", 4, rest=b"xyz")
        with pytest.raises(Dead):
            file.append(b"0123456789")
        assert read_file(disk.file_system(Life()), "d/0.log") == b"0123xyzxyz"

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_fail_raises_from_the_nth_call_once(self, number: int) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.fail(2, number, applied_bytes=2)
        file.append(b"abc")
        with pytest.raises(OSError) as raised:
            file.append(b"def")
        assert raised.value.errno == number
        file.append(b"ghi")
        assert file.read_at(0, 99) == b"abcdeghi"

    def test_two_faults_of_one_call_strike_it_and_the_next(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.fail(1)
        disk.fail(1, errno.ENOSPC)
        numbers = []
        for _ in range(2):
            with pytest.raises(OSError) as raised:
                file.append(b"x")
            numbers.append(raised.value.errno)
        assert numbers == [errno.EIO, errno.ENOSPC] and not disk.has_faults

    def test_fail_of_a_read(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"0123")
        disk.fail(2, errno.EIO, verbs={"read"}, path_suffix="f")
        file.append(b"4")
        assert file.read_at(0, 4) == b"0123"
        with pytest.raises(OSError):
            read_file(fs, "d/f")
        assert read_file(fs, "d/f") == b"01234"

    def test_what_a_failed_sync_held_is_lost_even_to_the_next_sync(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"first")
        file.append(b"LOST.")
        disk.fail(1, errno.EIO, verbs={"sync"})
        with pytest.raises(OSError):
            file.sync()
        # Who opens it again knows nothing of the error.
        file = fs.open(file.path, OpenMode.CREATE)
        file.append(b"later")
        file.sync()
        assert file.read_at(0, 99) == b"firstLOST.later"
        for mode in ALL_MODES:
            assert content_after(disk.snapshot(), mode) == b"first\0\0\0\0\0later"

    def test_disarm(self) -> None:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.arm_crash(1)
        disk.fail(1, errno.EIO)
        disk.disarm()
        file.append(b"x")
        assert file.read_at(0, 9) == b"x" and not disk.has_faults

    def test_operations_and_the_call_log_count_mutating_calls(self) -> None:
        disk = new_disk()
        disk.call_log = []
        fs = disk.file_system(Life())
        fs.make_directory("a/b")
        file = fs.open("a/b/f", OpenMode.CREATE)
        file.append(b"abc")
        file.read_at(0, 1)
        file.write_at(1, b"x")
        file.truncate(2)
        file.set_length(8)
        file.sync()
        file.close()
        fs.open("a/b/f", OpenMode.CREATE).close()
        fs.rename("a/b/f", "a/b/g")
        fs.set_modified("a/b/g", 5)
        fs.sync_directory("a/b")
        fs.unlink("a/b/g")
        fs.remove_directory("a/b")
        assert disk.call_log == [
            "make_directory a/b",
            "make_directory a/b",
            "create a/b/f",
            "append a/b/f 0 3",
            "write_at a/b/f 1 1",
            "truncate a/b/f 2",
            "set_length a/b/f 8",
            "sync a/b/f",
            "rename a/b/f a/b/g",
            "set_modified a/b/g 5",
            "sync_directory a/b",
            "unlink a/b/g",
            "remove_directory a/b",
        ]
        assert disk.operations == len(disk.call_log)


class TestSnapshots:
    def test_a_snapshot_of_a_disk_is_independent(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"synced")
        file.append(b"+")
        fs.rename("d/f", "d/g")
        twin = disk.snapshot()
        file.append(b"more")
        twin.lose_power("none")
        assert read_file(twin.file_system(Life()), "d/f") == b"synced"
        assert read_file(fs, "d/g") == b"synced+more"
        assert disk.pending_count() == 3

    def test_every_survivor_set_can_be_enumerated(self) -> None:
        disk = new_disk()
        fs, file = with_durable_file(disk, b"s")
        file.append(b"a")
        file.append(b"b")
        fs.rename("d/f", "d/g")
        pending = disk.pending_sequences()
        assert len(pending) == disk.pending_count() == 3
        states = []
        for kept in product([False, True], repeat=3):
            twin = disk.snapshot()
            chosen = {sequence for sequence, keep in zip(pending, kept, strict=True) if keep}
            twin.lose_power_keeping(chosen)
            after = twin.file_system(Life())
            (name,) = after.list("d")
            states.append((name, read_file(after, f"d/{name}")))
        contents = [b"s", b"s\0b", b"sa", b"sab"]
        assert states == [(name, content) for content in contents for name in ("f", "g")]

    def test_nothing_is_kept_of_files_that_no_name_can_bring_back(self) -> None:
        disk = new_disk()
        fs, _ = with_durable_file(disk)
        for _ in range(3):
            fs.open("d/t", OpenMode.CREATE).append(b"never synced")
            fs.unlink("d/t")
        assert disk.pending_count() == 9
        fs.sync_directory("d")
        assert disk.pending_count() == 0


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "write_at", "set_length", "truncate", "sync"]),
        st.integers(0, 9000),
        st.integers(0, 5000),
    ),
    max_size=12,
)


def apply_step(file: File, model: bytearray, step: Step, number: int) -> None:
    verb, position, size = step
    data = bytes([number + 1]) * size
    if verb == "append":
        file.append(data)
        model += data
    elif verb == "write_at" and size:
        file.write_at(position, data)
        model.extend(bytes(max(0, position + size - len(model))))
        model[position : position + size] = data
    elif verb == "set_length":
        file.set_length(position)
        del model[position:]
        model.extend(bytes(position - len(model)))
    elif verb == "truncate":
        file.truncate(min(position, len(model)))
        del model[position:]
    elif verb == "sync":
        file.sync()


@settings(max_examples=40)
@given(STEPS)
def test_a_file_is_its_model_and_power_losses_are_states_of_it(steps: list[Step]) -> None:
    disk = new_disk()
    _, file = with_durable_file(disk)
    model, durable, since_sync = bytearray(), b"", [b""]
    for number, step in enumerate(steps):
        apply_step(file, model, step, number)
        assert file.read_at(0, 1 << 20) == model
        if step[0] == "sync":
            durable, since_sync = bytes(model), []
        since_sync.append(bytes(model))
    assert disk.durable_bytes("d/f") == durable
    assert content_after(disk.snapshot(), "none") == durable
    assert content_after(disk.snapshot(), "all") == bytes(model)
    for seed in range(3):
        assert content_after(disk.snapshot(Draws(seed)), "prefix") in since_sync
        for mode in ("subset", "torn"):
            content = content_after(disk.snapshot(Draws(seed)), mode)
            assert content is not None and len(content) in {len(state) for state in since_sync}
    # The snapshots left the original as it was.
    assert file.read_at(0, 1 << 20) == model
