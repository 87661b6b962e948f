"""What `log verify` says of the checkpoints and folders beside the logs, with and without a node that uses them."""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import OpenMode
from storage.inspection.verify.directory import OFFSET_CHECKPOINTS, verify_beside
from storage.inspection.verify.partition import PartitionReport
from tests.storage.logs import new_file_system

HEX = "a" * 32


def put(file_system: SimFileSystem, name: str, content: bytes) -> None:
    file = file_system.open(f"logs/{name}", OpenMode.CREATE)
    file.append(content)
    file.close()


def found(
    file_system: SimFileSystem, report: PartitionReport | None = None, *, in_use: bool = False
) -> list[tuple[str, str]]:
    """Return the name and the rule of each problem beside `topic-0`, which by default ends at 60."""
    known = report or PartitionReport(directory="logs/topic-0", log_end_offset=60)
    problems = verify_beside(file_system, "logs", [known], in_use=in_use)
    return [(each.path.removeprefix("logs/"), each.rule) for each in problems]


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_fl5_a_checkpoint_may_be_at_the_log_end_and_not_beyond_it(name: str) -> None:
    for offset, expected in ((60, []), (61, [(name, "FL5")])):
        file_system = new_file_system()
        put(file_system, name, b"0\n2\nmoved 1 99\ntopic 0 %d\n" % offset)
        assert found(file_system) == expected
        # The checkpoint was read after the log, to which the node has appended meanwhile.
        assert found(file_system, in_use=True) == []


def test_fl5_a_log_that_could_not_be_read_to_its_end_is_compared_with_no_checkpoint() -> None:
    file_system = new_file_system()
    put(file_system, OFFSET_CHECKPOINTS[0], b"0\n1\ntopic 0 61\n")
    unreadable = PartitionReport(directory="logs/topic-0", log_end_offset=60, error="permission denied")
    assert found(file_system, unreadable) == []


def test_files_of_the_directory_that_do_not_parse_are_named() -> None:
    file_system = new_file_system()
    put(file_system, OFFSET_CHECKPOINTS[1], b"0\n2\ntopic 0 5\n")
    put(file_system, "meta.properties", b"version=1\nnode.id=1\n")
    for in_use in (False, True):
        assert found(file_system, in_use=in_use) == [
            (OFFSET_CHECKPOINTS[1], "1.3"),
            ("meta.properties", "1.2"),
        ]


def test_folders_that_are_no_live_partitions_are_named_unless_a_node_is_about_to_delete_them() -> None:
    file_system = new_file_system()
    deleted, stray, future = (f"t-1.{HEX}-{suffix}" for suffix in ("delete", "stray", "future"))
    for name in (deleted, stray, future, "no partition", "remote-log-index-cache"):
        file_system.make_directory(f"logs/{name}")
    put(file_system, "x.tmp", b"")
    put(file_system, "a file", b"")
    kept = [("no partition", "LL3"), (future, "LL4"), (stray, "LL4")]
    assert found(file_system, in_use=True) == kept
    assert sorted(found(file_system)) == sorted([*kept, (deleted, "LL4"), ("x.tmp", "LL6")])
