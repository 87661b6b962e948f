"""Every field of every format at and beyond its bounds, for every tool: a result or one clear error, in little time."""

from __future__ import annotations

import os
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch import format as batch_format
from storage.config import LONG_MAX
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import OffsetsExhausted, StorageError
from storage.index import offset_index, time_index, transaction_index
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from tests.storage.hostile.formats import (
    INDEXES,
    Damaged,
    batches,
    control_records,
    fields_of,
    index_entries,
    legacy_fields,
    legacy_messages,
    message_of,
    records,
    snapshot_fields,
    snapshots,
    texts,
    with_payload,
)
from tests.storage.hostile.tools import READERS, WRITERS, make_sound
from tests.storage.logs import DIRECTORY, NOW_MS, SMALL, batch, marker, new_file_system, produced

SEGMENT = f"{0:020d}"
MOST_SECONDS = 1.0
MOST_BYTES = 64 << 20
CHECKPOINTS = (
    "t-0/leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "t-0/partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
)


@pytest.fixture(scope="module")
def sound() -> Iterator[Path]:
    """A small log directory, in memory where the machine has such a place: thousands of starts sync their files."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        path = Path(place) / "data"
        make_sound(path, 4)
        (path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
        yield path


def one_record() -> bytes:
    return build_batch([Record(offset=0, timestamp=NOW_MS, key=None, value=b"")], partition_leader_epoch=0)


def logs(content: bytes) -> Iterator[Damaged]:
    """Yield a `.log` whose first batch is damaged; the other batches follow."""
    first = one_record()
    idempotent = build_batch(
        [Record(offset=0, timestamp=NOW_MS, key=b"k", value=None)],
        partition_leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    damaged = chain(
        batches(first),
        batches(idempotent),
        batches(with_payload(first, first[61:], Compression.ZSTD)),
        batches(marker(9, is_commit=False, offset=0, epoch=0)),
        control_records(marker(9, is_commit=True, offset=0, epoch=0)),
        *(records(first, codec) for codec in Compression),
    )
    for each in damaged:
        yield Damaged(each.what, each.content + content[len(first) :])


def old_logs(content: bytes) -> Iterator[Damaged]:
    """Yield a `.log` whose first batch is a damaged message of magic 0 or 1; the other batches follow."""
    rest = content[len(one_record()) :]
    for magic in (0, 1):
        for each in legacy_messages(magic):
            yield Damaged(f"magic {magic}: {each.what}", each.content + rest)


OLD_LOG = "t-0/messages of magic 0 and 1"
FILES: dict[str, Callable[[bytes], Iterator[Damaged]]] = {
    f"t-0/{SEGMENT}.log": logs,
    OLD_LOG: old_logs,
    **{f"t-0/{SEGMENT}{suffix}": partial(index_entries, module=module) for suffix, module in INDEXES.items()},
    "t-0/snapshot": snapshots,
    **dict.fromkeys(CHECKPOINTS, texts),
}


def place_of(directory: Path, name: str) -> Path:
    if name == "t-0/snapshot":
        return max((directory / "t-0").glob("*.snapshot"))
    if name == OLD_LOG:
        return directory / "t-0" / f"{SEGMENT}.log"
    return directory / name


def peak_bytes() -> int:
    """Return the most memory that this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def check(tool: Callable[[Path], object], directory: Path, damaged: Damaged) -> float:
    """Run the tool. Return its seconds; anything but a result or an error of one line fails."""
    begun = time.thread_time()
    try:
        tool(directory)
    except (StorageError, OSError) as error:
        shown = str(error)
        assert shown and "\n" not in shown and len(shown) < 1000, (damaged.what, shown[:300])
    return time.thread_time() - begun


def slowest(
    name: str, tool: Callable[[Path], object], sound: Path, *, writes: bool, every: int
) -> tuple[float, int]:
    """Run the tool over every damaged form of the file. Return its longest seconds, and the number of forms."""
    copy, longest, count = sound.parent / "copy", 0.0, 0
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(sound, copy)
    content = place_of(sound, name).read_bytes()
    for number, damaged in enumerate(FILES[name](content)):
        if number % every:
            continue
        if writes:
            shutil.rmtree(copy)
            shutil.copytree(sound, copy)
        place_of(copy, name).write_bytes(damaged.content)
        for is_clean in (True, False) if writes else (True,):
            if not is_clean:
                (copy / ".kafka_cleanshutdown").unlink(missing_ok=True)
            try:
                longest = max(longest, check(tool, copy, damaged))
            except (StorageError, OSError, AssertionError):
                raise
            except Exception as error:
                raise AssertionError(f"{name}: {damaged.what}") from error
        count += 1
    return longest, count


@pytest.mark.slow
@pytest.mark.parametrize("tool", [*READERS, *WRITERS])
@pytest.mark.parametrize("name", FILES)
def test_no_value_of_a_field_breaks_a_tool(name: str, tool: str, sound: Path) -> None:
    before = peak_bytes()
    run = READERS.get(tool) or WRITERS[tool]
    seconds, count = slowest(name, run, sound, writes=tool in WRITERS, every=1)
    grown = peak_bytes() - before
    print(f"{tool} of {name}: {count} forms, {seconds * 1e3:.0f} ms at most, {grown >> 20} MiB more")
    assert seconds < MOST_SECONDS
    assert grown < MOST_BYTES


@pytest.mark.parametrize("name", FILES)
def test_a_sample_of_values_breaks_no_verify(name: str, sound: Path) -> None:
    slowest(name, READERS["verify"], sound, writes=False, every=37)


def test_the_tables_of_the_formats_are_complete() -> None:
    """A row that the generator cannot read would be tried by nobody."""
    for module, size in (
        (batch_format, batch_format.HEADER_SIZE),
        (offset_index, offset_index.ENTRY.size),
        (time_index, time_index.ENTRY.size),
        (transaction_index, transaction_index.ENTRY.size),
    ):
        fields = fields_of(module)
        assert [field.at for field in fields] == [
            sum(each.size for each in fields[:index]) for index in range(len(fields))
        ], module
        assert sum(field.size for field in fields) == size, module
    assert sum(field.size for field in snapshot_fields()) == 10 + 46
    for magic in (0, 1):
        fields = legacy_fields(magic)
        sound = message_of(magic)
        assert len(fields) == 7 + magic and fields[-1].at + 4 + len(b"value") == len(sound), fields


def test_a_number_of_very_many_digits_is_out_of_range_and_no_error_of_the_language(sound: Path) -> None:
    copy = sound.parent / "digits"
    shutil.copytree(sound, copy)
    (copy / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {'9' * 5000}\n")
    report = verify_partition(OsFileSystem(), f"{copy}/t-0")
    assert any("is no number" in problem.message for problem in report.problems)
    shutil.rmtree(copy)


def test_a_log_that_ends_at_the_last_possible_offset_refuses_an_append() -> None:
    file_system, last = new_file_system(), bytearray(batch())
    struct.pack_into(">q", last, 0, LONG_MAX)
    file = file_system.open(f"{DIRECTORY}/{SEGMENT}.log", OpenMode.CREATE)
    file.write_at(0, bytes(last))
    file.close()
    log = PartitionLog.open(file_system, DIRECTORY, SMALL, clean=False, now_ms=NOW_MS)
    assert log.log_end_offset == LONG_MAX + 1
    with pytest.raises(OffsetsExhausted):
        log.append_as_leader(produced(), leader_epoch=1, now_ms=NOW_MS)
    assert log.online.reason is None
