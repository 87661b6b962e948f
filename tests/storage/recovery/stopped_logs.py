"""A log that has stopped, and changes to its files before it starts again."""

from __future__ import annotations

from sim.disk import SimFileSystem
from storage.disk.filesystem import OpenMode, join, read_file
from storage.log import PartitionLog
from storage.recovery.cut import RecoveryCut
from tests.storage.logs import DIRECTORY, THREE, append_each, batch, open_log, open_segment


def file_of(offset: int, suffix: str = "log") -> str:
    return join(DIRECTORY, f"{offset:020d}.{suffix}")


def names(file_system: SimFileSystem, ending: str = "") -> list[str]:
    return [name for name in file_system.list(DIRECTORY) if name.endswith(ending)]


def stopped(file_system: SimFileSystem, count: int = 12, *, clean: bool = False) -> None:
    """Write a log of single records, three a segment, then crash or stop it in order."""
    log = open_log(file_system, THREE)
    append_each(log, count)
    if clean:
        log.close()
    else:
        log.close_handles()


def poke(file_system: SimFileSystem, path: str, position: int, data: bytes) -> None:
    """Write `data` over what is there."""
    file = file_system.open(path, OpenMode.CREATE)
    file.write_at(position, data)
    file.close()


def put(file_system: SimFileSystem, path: str, data: bytes) -> None:
    """Write `data` in place of what is there."""
    file = file_system.open(path, OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, data)
    file.close()


def copy(file_system: SimFileSystem, old: str, new: str) -> None:
    poke(file_system, new, 0, read_file(file_system, old))


def raw_segment(
    file_system: SimFileSystem, base_offset: int, data: bytes, *, with_index: bool = True
) -> None:
    """Write a segment of the bytes `data`, with empty indexes or with none."""
    segment = open_segment(file_system, base_offset, THREE)
    segment.records.append(data)
    if with_index:
        assert segment.offset_index.entries == segment.time_index.entries == 0
        segment.offset_index.resize(0)
        segment.time_index.resize(0)
    segment.close_handlers()


def batches(*offsets: int) -> bytes:
    return b"".join(batch(offset) for offset in offsets)


def reopen(file_system: SimFileSystem, **fields: int | bool) -> tuple[PartitionLog, list[RecoveryCut]]:
    """Open the stopped log. Returns it with what recovery cut."""
    cuts: list[RecoveryCut] = []
    log = open_log(
        file_system,
        THREE,
        clean=bool(fields.get("clean", False)),
        recovery_point=int(fields.get("recovery_point", 0)),
        log_start_offset=int(fields.get("log_start_offset", 0)),
        cuts=cuts,
    )
    return log, cuts
