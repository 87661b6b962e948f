"""Any calls of the file port, drawn: both disks answer each alike, and have the same tree afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from storage.disk.filesystem import File, Lock, OpenMode, ReadMap
from tests.ports.file_world import Desk, real_desk, seen_of, simulated_desk

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"])
SIZES = st.integers(-1, 12)
Pair = tuple[File, File]


class BothDisks(RuleBasedStateMachine):
    """The kernel's file system and the simulated disk, with files that are open on both."""

    def __init__(self) -> None:
        super().__init__()
        self._ends = ExitStack()
        self.real: Desk = self._ends.enter_context(real_desk())
        self.simulated: Desk = self._ends.enter_context(simulated_desk())
        # The maps of each file: no other handle may cut it, which only the simulated disk notices.
        self.maps: list[tuple[ReadMap, ReadMap]] = []
        self.locks: list[tuple[Lock, Lock]] = []

    files = Bundle[Pair]("files")

    def alike(self, call: Callable[[Desk], object]) -> object:
        """Make a call on both disks. Returns what both answer."""
        real, simulated = seen_of(lambda: call(self.real)), seen_of(lambda: call(self.simulated))
        assert real == simulated, (real, simulated)
        return real

    def alike_of(self, pair: Pair, call: Callable[[File], object]) -> object:
        """Make a call of a file on both disks."""
        real, simulated = seen_of(lambda: call(pair[0])), seen_of(lambda: call(pair[1]))
        assert real == simulated, (real, simulated)
        return real

    @rule(target=files, name=NAMES, mode=st.sampled_from(OpenMode), can_rest=st.booleans())
    def opens(self, name: str, mode: OpenMode, can_rest: bool) -> Pair | MultipleResults[Pair]:
        opened: list[File] = []
        found = self.alike(lambda desk: opened.append(desk.fs.open(desk.path(name), mode, can_rest=can_rest)))
        if found != "done":
            return multiple()
        pair = (opened[0], opened[1])
        for file in pair:
            self._ends.callback(file.close)
        return pair

    @rule(pair=files, position=SIZES, size=SIZES)
    def reads(self, pair: Pair, position: int, size: int) -> None:
        self.alike_of(pair, lambda file: file.read_at(position, size))
        self.alike_of(pair, lambda file: file.size())

    @rule(pair=files, position=SIZES, data=st.binary(max_size=9))
    def writes(self, pair: Pair, position: int, data: bytes) -> None:
        self.alike_of(pair, lambda file: file.write_at(position, data))

    @rule(pair=files, data=st.binary(max_size=9))
    def appends(self, pair: Pair, data: bytes) -> None:
        self.alike_of(pair, lambda file: file.append(data))

    @rule(pair=files, size=SIZES, may_grow=st.booleans())
    def resizes(self, pair: Pair, size: int, may_grow: bool) -> None:
        if not self.maps:
            self.alike_of(pair, lambda file: file.set_length(size) if may_grow else file.truncate(size))

    @rule(pair=files)
    def maps_a_file(self, pair: Pair) -> None:
        maps: list[ReadMap] = []
        if self.alike_of(pair, lambda file: maps.append(file.map_for_reading())) == "done":
            self.maps.append((maps[0], maps[1]))

    @rule()
    def compares_and_ends_the_maps(self) -> None:
        for real, simulated in self.maps:
            assert bytes(real.view) == bytes(simulated.view)
            real.close()
            simulated.close()
        self.maps.clear()

    @rule(pair=files)
    def rests(self, pair: Pair) -> None:
        self.alike_of(pair, lambda file: file.sync())
        self.alike_of(pair, lambda file: file.rest())

    @rule(pair=files)
    def closes(self, pair: Pair) -> None:
        self.alike_of(pair, lambda file: file.close())

    @rule(old=NAMES, new=NAMES)
    def renames(self, old: str, new: str) -> None:
        self.alike(lambda desk: desk.fs.rename(desk.path(old), desk.path(new)))

    @rule(name=NAMES, verb=st.sampled_from(["make_directory", "remove_directory", "sync_directory", "list"]))
    def uses_a_directory(self, name: str, verb: str) -> None:
        self.alike(lambda desk: getattr(desk.fs, verb)(desk.path(name)))

    @rule(name=NAMES, verb=st.sampled_from(["unlink", "exists", "stat"]))
    def uses_a_name(self, name: str, verb: str) -> None:
        self.alike(lambda desk: getattr(desk.fs, verb)(desk.path(name)))

    @rule(name=NAMES)
    def locks_a_file(self, name: str) -> None:
        locks: list[Lock] = []
        if self.alike(lambda desk: locks.append(desk.fs.lock(desk.path(name)))) == "done":
            self.locks.append((locks[0], locks[1]))

    @rule()
    def releases_the_locks(self) -> None:
        for pair in self.locks:
            for lock in pair:
                lock.release()
        self.locks.clear()

    @invariant()
    def both_have_the_same_tree(self) -> None:
        assert self.real.tree() == self.simulated.tree()

    def teardown(self) -> None:
        self.compares_and_ends_the_maps()
        self.releases_the_locks()
        self._ends.close()


QUICK = settings(
    max_examples=8, stateful_step_count=18, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def test_both_disks_answer_drawn_calls_alike() -> None:
    run_state_machine_as_test(BothDisks, settings=QUICK)


@pytest.mark.slow
def test_both_disks_answer_many_drawn_calls_alike() -> None:
    longer = settings(QUICK, max_examples=100, stateful_step_count=50)
    run_state_machine_as_test(BothDisks, settings=longer)
