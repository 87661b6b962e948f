"""The names of one segment's files: its base offset in 20 digits and a suffix for each kind. Kafka: LogFileUtils."""

from __future__ import annotations

from typing import Final

from storage.disk.filesystem import basename, dirname, join
from storage.errors import ForeignDirectory
from storage.topics import FUTURE_SUFFIX, directory_name, parse_directory_name

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def offset_name(offset: int) -> str:
    """The offset in 20 digits, so that names sort in the order of offsets."""
    return f"{offset:020d}"


def log_path(directory: str, base_offset: int, suffix: str = "") -> str:
    return join(directory, offset_name(base_offset) + LOG_SUFFIX + suffix)


def deleted_path_in_live_directory(path: str) -> str | None:
    """The path of a `.deleted` file after its `-future` directory took its live name; None for other paths (LS22)."""
    if not path.endswith(DELETED_SUFFIX):
        return None
    directory = dirname(path)
    try:
        future = parse_directory_name(basename(directory))
    except ForeignDirectory:
        return None
    if future.suffix != FUTURE_SUFFIX:
        return None
    parent, name = dirname(directory), directory_name(future.topic, future.partition)
    return join(join(parent, name) if parent else name, basename(path))
