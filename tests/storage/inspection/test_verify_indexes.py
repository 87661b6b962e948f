"""What `log verify` says of each entry of an offset or a time index that contradicts its `.log`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.disk.filesystem import OpenMode, join
from storage.index import offset_index, time_index
from storage.inspection.verify.partition import verify_partition
from tests.storage.logs import DIRECTORY, NOW_MS, SIZE, SMALL, append_each, batch, new_file_system, open_log

RULES = {"IX13", "IX14", "IX17", "IX20", "IX21", "IX24", "LS14", "LL10"}
BASE = 100


def found(
    name: str, content: bytes | None, *, is_last: bool = True, in_use: bool = False
) -> list[tuple[int | None, str]]:
    """Verify a segment of four records, each ten milliseconds later, with this index. Return what concerns it."""
    file_system = new_file_system()
    records = b"".join(batch(BASE + each, timestamp=NOW_MS + 10 * each) for each in range(4))
    files = {f"{BASE:020d}.log": records, f"{BASE:020d}.index": offsets((1, SIZE))}
    if not is_last:
        files[f"{BASE + 4:020d}.log"] = b""
    name = f"{BASE:020d}.{name}"
    for each, data in {**files, name: content}.items():
        if data is not None:
            file = file_system.open(join(DIRECTORY, each), OpenMode.CREATE)
            file.append(data)
            file.close()
    problems = verify_partition(file_system, DIRECTORY, in_use=in_use).problems
    assert all(each.path == join(DIRECTORY, name) for each in problems if each.rule in RULES)
    return [(each.position, each.rule) for each in problems if each.rule in RULES]


def offsets(*entries: tuple[int, int]) -> bytes:
    """Return an offset index of these relative offsets and positions."""
    return b"".join(offset_index.ENTRY.pack(*entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    """Return a time index of these times after that of the first record, and relative offsets."""
    return b"".join(time_index.ENTRY.pack(NOW_MS + later_ms, relative) for later_ms, relative in entries)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (offsets((1, SIZE), (3, 3 * SIZE)), []),
        (offsets((0, 0), (1, SIZE)), []),
        (offsets((1, SIZE + 1)), [(0, "IX14")]),
        (offsets((1, 4 * SIZE)), [(0, "IX14")]),
        # Its last byte is 0, as the unused tail is.
        (offsets((1, SIZE), (3, 256)), [(8, "IX14")]),
        (offsets((0, SIZE)), [(0, "IX14")]),
        (offsets((1, SIZE), (1, SIZE)), [(8, "IX13")]),
        (offsets((3, 3 * SIZE), (2, 2 * SIZE)), [(8, "IX13")]),
        (offsets((-1, 0)), [(0, "IX13"), (0, "IX14")]),
        (offsets((1, SIZE)) + bytes(3), [(8, "IX17")]),
        (offsets((1, SIZE)) + bytes(16), []),
    ],
)
def test_ix14_an_offset_index_leads_to_the_batches(content: bytes, expected: list[tuple[int, str]]) -> None:
    assert found("index", content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (times((0, 0), (10, 1), (30, 3)), []),
        (times((10, 1), (20, 2)), []),
        # No batch up to the offset has the timestamp.
        (times((10, 0)), [(0, "IX21")]),
        (times((11, 1)), [(0, "IX21")]),
        # A batch up to the offset has a later one.
        (times((9, 1)), [(0, "IX21")]),
        (times((0, 0), (20, 3)), [(12, "IX21")]),
        (times((30, 4)), [(0, "IX21")]),
        (times((30, 3)), []),
        (times((0, 0), (0, 0)), [(12, "IX20")]),
        (times((20, 2), (10, 1)), [(12, "IX20")]),
        (times((0, -1)), [(0, "IX20"), (0, "IX21")]),
        (times((0, 0)) + bytes(5), [(12, "IX24")]),
        (times((0, 0)) + bytes(24), []),
    ],
)
def test_ix21_a_time_index_has_the_greatest_timestamp_up_to_each_offset(
    content: bytes, expected: list[tuple[int, str]]
) -> None:
    assert found("timeindex", content) == expected


@pytest.mark.parametrize(("name", "entry"), [("index", offsets((1, SIZE))), ("timeindex", times((0, 0)))])
def test_ls14_only_the_last_segment_may_have_an_index_with_an_unused_tail(name: str, entry: bytes) -> None:
    tail = entry + bytes(len(entry))
    assert found(name, tail) == []
    assert found(name, tail, is_last=False) == [(len(entry), "LS14")]
    assert found(name, entry, is_last=False) == []


def test_ll10_only_the_last_segment_may_lack_its_offset_index() -> None:
    assert found("index", None) == []
    assert found("index", None, is_last=False) == [(None, "LL10")]
    assert found("timeindex", None, is_last=False) == []


@pytest.mark.parametrize("is_closed", [False, True])
def test_ix16_what_a_truncation_leaves_in_the_index_of_a_live_segment_is_no_problem(is_closed: bool) -> None:
    """Other batches stand where the entries lead that were cut off."""
    file_system = new_file_system()
    log = open_log(file_system, replace(SMALL, segment_bytes=100 * SIZE, index_interval_bytes=SIZE))
    append_each(log, 20, epoch=1)
    log.truncate_to(5, now_ms=NOW_MS)
    append_each(log, 3, epoch=2, value_bytes=30)
    if is_closed:
        log.close()
    assert verify_partition(file_system, DIRECTORY, in_use=not is_closed).problems == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_ix16_what_a_truncation_leaves_may_fill_the_index(suffix: str) -> None:
    """An index of few entries may be full of such as are cut off; a recovery fills it without a roll."""
    left = {"index": offsets((1, SIZE + 1)), "timeindex": times((11, 1))}[suffix]
    assert found(suffix, left) and not found(suffix, left, in_use=True)
    assert found(suffix, left, is_last=False, in_use=True)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_ix14_the_index_of_a_closed_log_is_judged_to_its_end(suffix: str) -> None:
    wrong = {"index": offsets((1, SIZE + 1)), "timeindex": times((11, 1))}[suffix]
    unused = bytes(len(wrong))
    assert found(suffix, wrong) and not found(suffix, wrong + unused)
    # Of a segment that is not the last all entries count.
    assert len(found(suffix, wrong + unused, is_last=False)) > 1
