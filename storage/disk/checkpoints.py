"""The small files beside the logs: what each contains, how it is read, how it is replaced.

| file                      | content                                                       |
| ------------------------- | ------------------------------------------------------------- |
| offset checkpoints        | `0`, the count, then `topic partition offset` a line          |
| `leader-epoch-checkpoint` | `0`, the count, then `epoch start_offset` a line              |
| `.kafka_cleanshutdown`    | `{"version":0,"brokerEpoch":N}`, no newline; its existence counts |
| `partition.metadata`      | `version: 0`, `topic_id: ID`, the last without a newline      |
| `meta.properties`         | Java properties: version, node.id, cluster.id, directory.id   |

Each is replaced as a whole: write a temporary file, sync it, rename it, sync the directory.
Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, CleanShutdownFileHandler,
PartitionMetadataFile, MetaProperties. A file that does not parse raises CorruptCheckpoint with file, line and
reason (Kafka throws IOException for a bad frame, NumberFormatException for a bad number in an entry: one
error here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from storage.disk.filesystem import File, FileSystem, OpenMode, dirname, join, replace_file, write_synced
from storage.errors import CorruptCheckpoint

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"

NO_BROKER_EPOCH = -1

_VERSION = 0
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
# Those of 2^63.
_MOST_DIGITS = 19
_LINE_END = re.compile(rb"\r\n|\r|\n")
_SLICE_BYTES = 1 << 18
_LONGEST_LINE = 1 << 16
_MOST_MARK_BYTES = 1 << 12
_SPACES = re.compile(r"[ \t\x0b\f]+")
_ZERO_TOPIC_ID = "A" * 22
# 16 bytes: the last character carries two bits.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")


def _number(path: str, line_number: int, text: str, limit: int, what: str) -> int:
    """Parse a decimal as Java's parseInt or parseLong does; `limit` is the greatest value. Raises CorruptCheckpoint."""
    # `int` itself fails for more than some thousand digits.
    if _NUMBER.fullmatch(text) and len(text.lstrip("+-0")) <= _MOST_DIGITS:
        value = int(text)
        if -limit - 1 <= value <= limit:
            return value
    raise CorruptCheckpoint(path, line_number, f"{what} is no number: {text[:40]!r}")


def _lines(file_system: FileSystem, path: str) -> Iterator[str]:
    """Yield lines as Java's BufferedReader does: with any of three line ends, which the last line may lack.

    The file is read in slices: whatever is there in place of a checkpoint, a line of it takes little memory. Raises
    OSError, CorruptCheckpoint for what is no UTF-8 and for a line that is too long.
    """
    file, number, at = file_system.open(path, OpenMode.READ), 0, 0
    try:
        for line, size_bytes in _raw_lines(file):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise CorruptCheckpoint(path, number, f"a line of more than {_LONGEST_LINE} bytes")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CorruptCheckpoint(path, number, f"not UTF-8 at byte {at + error.start}") from error
            yield text
            at += size_bytes
    finally:
        file.close()


def _raw_lines(file: File) -> Iterator[tuple[bytes, int]]:
    """Yield each line without its end, and its size with it; a line that is too long only up to where that is clear."""
    position, size, rest = 0, file.size(), b""
    while position < size and len(rest) <= _LONGEST_LINE:
        block = file.read_at(position, min(_SLICE_BYTES, size - position))
        if not block:
            break
        position += len(block)
        data, start = rest + block, 0
        for end in _LINE_END.finditer(data):
            # The second half of such an end may begin the next slice.
            if end.group() == b"\r" and end.end() == len(data) and position < size:
                break
            yield data[start : end.start()], end.end() - start
            start = end.end()
        rest = data[start:]
    if rest:
        yield rest, len(rest)


def _split(line: str) -> list[str]:
    """Split at white space as Java does: after a leading blank the first part is empty; trailing blanks are ignored."""
    parts = _SPACES.split(line)
    while len(parts) > 1 and parts[-1] == "":
        parts.pop()
    return parts


def _read_entries(file_system: FileSystem, path: str, width: int) -> list[tuple[int, list[str]]]:
    """Returns the line number and the parts of each entry; no entries if the file is missing, empty or ends after the
    version.

    Raises CorruptCheckpoint.
    """
    lines = _lines(file_system, path)
    try:
        version = next(lines, None)
    except FileNotFoundError:
        return []
    if version is not None and _number(path, 1, version, _INT_MAX, "the version") != _VERSION:
        raise CorruptCheckpoint(path, 1, f"unrecognised version {version}, expected {_VERSION}")
    count = next(lines, None)
    if count is None:
        return []
    expected = _number(path, 2, count, _INT_MAX, "the number of entries")
    entries = []
    for line_number, line in enumerate(lines, start=3):
        parts = _split(line)
        if len(parts) != width:
            raise CorruptCheckpoint(
                path, line_number, f"malformed line {line[:80]!r}, expected {width} parts"
            )
        entries.append((line_number, parts))
    if len(entries) != expected:
        raise CorruptCheckpoint(path, 2, f"{expected} entries announced, {len(entries)} found")
    return entries


def _write_entries(file_system: FileSystem, path: str, entries: list[str]) -> None:
    replace_file(file_system, path, _text_of(entries))


def _text_of(entries: list[str]) -> bytes:
    text = f"{_VERSION}\n{len(entries)}\n" + "".join(f"{entry}\n" for entry in entries)
    return text.encode("utf-8")


def _create_if_missing(file_system: FileSystem, path: str) -> None:
    if not file_system.exists(path):
        file_system.open(path, OpenMode.CREATE).close()


@final
class OffsetCheckpoint:
    """One offset per partition; the file is created empty when missing. Kafka: OffsetCheckpointFile.

    Lines are written in order of topic and partition. Kafka writes them in the order of a hash map, and no reader
    relies on it.
    """

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system, self.path = file_system, path
        _create_if_missing(file_system, path)

    def read(self) -> dict[tuple[str, int], int]:
        """Returns the offsets by topic and partition; of two lines for one partition the later counts. Raises
        CorruptCheckpoint.
        """
        offsets = {}
        for line_number, (topic, partition, offset) in _read_entries(self._file_system, self.path, 3):
            key = (topic, _number(self.path, line_number, partition, _INT_MAX, "the partition"))
            offsets[key] = _number(self.path, line_number, offset, _LONG_MAX, "the offset")
        return offsets

    def write(self, offsets: Mapping[tuple[str, int], int]) -> None:
        _write_entries(self._file_system, self.path, _lines_of(offsets))

    def write_beside(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write a file beside the checkpoint, for `adopt`. The checkpoint itself may be written at the same time."""
        write_synced(self._file_system, self._beside, _text_of(_lines_of(offsets)))

    def adopt(self) -> None:
        """Put the file that `write_beside` has written in the place of the checkpoint.

        The name is not synced: after a power loss the checkpoint may be the one before.
        """
        self._file_system.rename(self._beside, self.path)

    @property
    def _beside(self) -> str:
        return self.path + ".job.tmp"


def _lines_of(offsets: Mapping[tuple[str, int], int]) -> list[str]:
    return [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]


@final
class LeaderEpochCheckpoint:
    """One leader epoch and its start offset per line; the file is created empty when missing.

    Kafka: LeaderEpochCheckpointFile.
    """

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system, self.path = file_system, path
        _create_if_missing(file_system, path)

    def read(self) -> list[tuple[int, int]]:
        """Returns the epochs and start offsets in file order, none of them negative. Raises CorruptCheckpoint."""
        entries = []
        for line_number, (epoch_text, offset_text) in _read_entries(self._file_system, self.path, 2):
            epoch = _number(self.path, line_number, epoch_text, _INT_MAX, "the epoch")
            start_offset = _number(self.path, line_number, offset_text, _LONG_MAX, "the start offset")
            if epoch < 0 or start_offset < 0:
                raise CorruptCheckpoint(
                    self.path, line_number, f"epoch {epoch} or offset {start_offset} is negative"
                )
            entries.append((epoch, start_offset))
        return entries

    def write(self, entries: Iterable[tuple[int, int]]) -> None:
        _write_entries(self._file_system, self.path, [f"{epoch} {offset}" for epoch, offset in entries])


@final
class CleanShutdownFile:
    """The mark of an orderly stop, with the broker epoch at that stop. Kafka: CleanShutdownFileHandler."""

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system, self.path = file_system, join(directory, CLEAN_SHUTDOWN_FILE)

    def exists(self) -> bool:
        return self._file_system.exists(self.path)

    def read(self) -> int | None:
        """Returns the broker epoch; None without an error if the file is missing, unreadable or empty (old brokers)."""
        try:
            content: object = json.loads(self._read_start())
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or "version" not in content:
            return None
        broker_epoch: object = content.get("brokerEpoch")
        return broker_epoch if type(broker_epoch) is int else None

    def _read_start(self) -> bytes:
        """Read as much as the mark may have: what is larger is none, and is not read whole."""
        file = self._file_system.open(self.path, OpenMode.READ)
        try:
            return file.read_at(0, _MOST_MARK_BYTES)
        finally:
            file.close()

    def write(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        replace_file(self._file_system, self.path, b'{"version":0,"brokerEpoch":%d}' % broker_epoch)

    def delete(self) -> bool:
        """Delete the file durably. Returns whether there was one.

        It is deleted before the logs are loaded, so that a crash during loading is not taken for an orderly stop
        (KAFKA-10471). Unlike Kafka we sync the directory: a power loss could bring the file back, and torn logs would
        be taken for sound.
        """
        try:
            self._file_system.unlink(self.path)
        except FileNotFoundError:
            return False
        self._file_system.sync_directory(dirname(self.path))
        return True


@final
class PartitionMetadataFile:
    """The topic id of a partition directory: 22 characters of URL-safe base64. Kafka: PartitionMetadataFile."""

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system, self.path = file_system, join(directory, PARTITION_METADATA_FILE)

    def exists(self) -> bool:
        return self._file_system.exists(self.path)

    def read(self) -> str | None:
        """Returns the topic id; None without a file. Accepts later versions of the file. Raises CorruptCheckpoint."""
        try:
            lines = list(_lines(self._file_system, self.path))
        except FileNotFoundError:
            return None
        fields = [self._field(line_number, line) for line_number, line in enumerate(lines[:2], start=1)]
        if len(fields) < 2:
            raise CorruptCheckpoint(self.path, len(fields) + 1, "the file ends here, expected two lines")
        if _number(self.path, 1, fields[0], _INT_MAX, "the version") < 0:
            raise CorruptCheckpoint(self.path, 1, f"unrecognised version {fields[0]}")
        if not _TOPIC_ID.fullmatch(fields[1]) or fields[1] == _ZERO_TOPIC_ID:
            raise CorruptCheckpoint(self.path, 2, f"invalid topic id {fields[1][:40]!r}")
        return fields[1]

    def _field(self, line_number: int, line: str) -> str:
        parts = re.split(r":[ \t\x0b\f]+", line)
        if len(parts) != 2:
            raise CorruptCheckpoint(self.path, line_number, f"malformed line {line[:80]!r}")
        return parts[1]

    def write(self, topic_id: str) -> None:
        assert _TOPIC_ID.fullmatch(topic_id) and topic_id != _ZERO_TOPIC_ID, topic_id
        replace_file(self._file_system, self.path, f"version: {_VERSION}\ntopic_id: {topic_id}".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a log directory; the directory of another node or cluster must not be opened.

    Kafka: MetaProperties.
    """

    node_id: int
    cluster_id: str | None = None
    directory_id: str | None = None


@final
class MetaPropertiesFile:
    """`meta.properties`: version 1 is written; version 0 (`broker.id`, optional `cluster.id`) is read as well."""

    __slots__ = ("_file_system", "path")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system, self.path = file_system, join(directory, META_PROPERTIES_FILE)

    def read(self) -> MetaProperties | None:
        """Returns the properties; None without a file. Raises CorruptCheckpoint."""
        try:
            lines = list(_lines(self._file_system, self.path))
        except FileNotFoundError:
            return None
        properties = {}
        for line_number, line in enumerate(lines, start=1):
            text = line.strip()
            if text and text[0] not in "#!":
                name, separator, value = text.partition("=")
                if not separator:
                    raise CorruptCheckpoint(self.path, line_number, f"malformed line {text[:80]!r}")
                properties[name.strip()] = (line_number, value.strip())
        return self._parse(properties)

    def _parse(self, properties: Mapping[str, tuple[int, str]]) -> MetaProperties:
        line_number, version_text = properties.get("version", (0, "0"))
        version = _number(self.path, line_number, version_text, _INT_MAX, "the version")
        if version not in (0, 1):
            raise CorruptCheckpoint(self.path, line_number, f"unrecognised version {version}")
        required = ("broker.id",) if version == 0 else ("node.id", "cluster.id")
        for name in required:
            if name not in properties:
                raise CorruptCheckpoint(
                    self.path, None, f"{name} is missing, which version {version} requires"
                )
        id_line, id_text = properties[required[0]]
        return MetaProperties(
            node_id=_number(self.path, id_line, id_text, _INT_MAX, f"the {required[0]}"),
            cluster_id=properties.get("cluster.id", (0, None))[1],
            directory_id=properties.get("directory.id", (0, None))[1],
        )

    def write(self, properties: MetaProperties) -> None:
        """Replace the file durably by one of version 1."""
        assert properties.node_id >= 0 and properties.cluster_id, properties
        lines = [f"cluster.id={properties.cluster_id}"]
        if properties.directory_id is not None:
            lines.append(f"directory.id={properties.directory_id}")
        lines += [f"node.id={properties.node_id}", "version=1"]
        replace_file(self._file_system, self.path, "".join(f"{line}\n" for line in lines).encode())
