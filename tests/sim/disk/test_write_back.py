"""Pages that become durable by themselves: each alone, in any order, and never with what a process sees changed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.buggify.buggify import Buggify
from sim.buggify.disks import DiskPoints
from sim.disk.file import FileNode
from sim.disk.survival import keep_chosen
from sim.disk.write_back import PAGE_BYTES, write_page_back
from storage.draws import Draws
from tests.sim.disk.disks import ALL_MODES, content_after, new_disk, with_durable_file


def node_of(*writes: tuple[int, bytes]) -> FileNode:
    node = FileNode(1, 0)
    for sequence, (position, data) in enumerate(writes, start=1):
        node.write(sequence, position, data)
    return node


def durable(node: FileNode) -> bytes:
    twin = node.duplicate()
    keep_chosen(twin, lambda sequence: False)
    return twin.read(0, twin.length)


def test_a_page_may_be_durable_before_the_one_in_front_of_it() -> None:
    node = node_of((0, b"a" * PAGE_BYTES), (PAGE_BYTES, b"b" * PAGE_BYTES))
    assert write_page_back(node, 1)
    assert durable(node) == bytes(PAGE_BYTES) + b"b" * PAGE_BYTES
    assert node.read(0, 2 * PAGE_BYTES) == b"a" * PAGE_BYTES + b"b" * PAGE_BYTES


def test_of_a_write_over_three_pages_the_one_in_the_middle_may_be_durable() -> None:
    data = bytes(each % 251 for each in range(2 * PAGE_BYTES))
    node = node_of((100, data))
    assert write_page_back(node, 1)
    assert durable(node) == bytes(PAGE_BYTES) + data[PAGE_BYTES - 100 : 2 * PAGE_BYTES - 100]
    assert node.read(100, len(data)) == data


def test_each_page_is_found_and_then_nothing_is_left_to_write_back() -> None:
    node = node_of((10, b"x" * 3 * PAGE_BYTES))
    assert [write_page_back(node, number) for number in (5, 0, 7, 3, 1)] == [True, True, True, True, False]
    assert durable(node) == node.read(0, node.length)


def test_what_a_failed_sync_has_lost_is_not_written_back() -> None:
    node = node_of((0, b"lost"))
    node.lose_pending()
    assert not write_page_back(node, 0) and durable(node) == b""


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3 * PAGE_BYTES), st.integers(1, 2 * PAGE_BYTES)),
        st.tuples(st.just("cut"), st.integers(0, 4 * PAGE_BYTES), st.just(0)),
        st.tuples(st.just("page"), st.integers(0, 9), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(CHANGES)
def test_a_process_sees_what_it_wrote_and_a_power_loss_that_keeps_all_loses_nothing(
    changes: list[tuple[str, int, int]],
) -> None:
    plain, node = FileNode(1, 0), FileNode(1, 0)
    for sequence, (kind, place, size) in enumerate(changes, start=1):
        for each in (plain, node):
            if kind == "write":
                each.write(sequence, place, bytes([sequence]) * size)
            elif kind == "cut":
                each.resize(sequence, place)
        if kind == "page":
            write_page_back(node, place)
    assert node.read(0, node.length) == plain.read(0, plain.length)
    keep_chosen(node, lambda sequence: True)
    assert node.read(0, node.length) == plain.read(0, plain.length)


@settings(max_examples=40, deadline=None)
@given(CHANGES)
def test_once_every_page_is_written_back_a_power_loss_takes_nothing(
    changes: list[tuple[str, int, int]],
) -> None:
    node = FileNode(1, 0)
    for sequence, (kind, place, size) in enumerate(changes, start=1):
        if kind == "write":
            node.write(sequence, place, bytes([sequence]) * size)
        elif kind == "page":
            write_page_back(node, place)
    while write_page_back(node, 0):
        pass
    assert durable(node) == node.read(0, node.length)


def test_a_page_survives_every_power_loss_once_the_kernel_has_written_it() -> None:
    for mode in ALL_MODES:
        disk = new_disk()
        _, file = with_durable_file(disk)
        disk.points = DiskPoints(Buggify(Draws(1), ("page-written-back",), percent=100), "node-1")
        file.append(b"x" * 100)
        assert content_after(disk, mode) == b"x" * 100, mode


def test_a_disk_whose_syncs_lie_writes_no_page_back() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk, b"old")
    disk.points = DiskPoints(Buggify(Draws(1), ("page-written-back",), percent=100), "node-1")
    disk.let_syncs_lie(True)
    file.append(b" new")
    assert content_after(disk, "none") == b"old"
