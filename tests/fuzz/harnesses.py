"""One harness for each decoder: any bytes end in a value or in a documented error, never in anything else.

Hypothesis (`test_fuzz.py`), the kept corpus and atheris (`make fuzz`) drive the same functions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from storage.batch import CURRENT_MAGIC, RecordBatch, iterate_batches
from storage.batch.control_records import read_control_record
from storage.batch.legacy.messages import read_messages
from storage.batch.record import Record, decode_records
from storage.codec.compression import Compression, decompress
from storage.codec.varint import read_varint, read_varlong
from storage.config import LogConfig
from storage.disk.checkpoints import (
    CleanShutdownFile,
    LeaderEpochCheckpoint,
    MetaPropertiesFile,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from storage.disk.filesystem import FileSystem, OpenMode, join, read_file
from storage.errors import StorageError
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.index.transaction_index import unpack_entries
from storage.inspection.dump.decoders import (
    ClusterMetadataDecoder,
    offsets_decoder,
    share_group_state_decoder,
    transaction_log_decoder,
)
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.messages.layouts import CLUSTER_METADATA, GROUPS
from storage.inspection.messages.schema import schemas_of
from storage.inspection.stats import partition_stats
from storage.inspection.verify.directory import verify_log_directory
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from storage.producers.rows import decode_snapshot
from storage.segment.file_records import FileRecords
from storage.topics import check_topic_name, parse_directory_name
from tests.places import GOLDEN
from tests.storage.logs import DIRECTORY, NOW_MS, new_file_system

CORPUS = Path(__file__).parent / "corpus"
LIMIT_BYTES = 1 << 20
STEM = f"{0:020d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One decoder under test. `run` takes any bytes; `seeds` returns sound ones to start from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def _file_system_with(**files: bytes) -> FileSystem:
    """Return a file system with these files in the partition directory. `_` in a name means a dot."""
    file_system = new_file_system()
    for name, content in files.items():
        _write(file_system, join(DIRECTORY, name.replace("_", ".")), content)
    return file_system


def _write(file_system: FileSystem, path: str, content: bytes) -> None:
    file = file_system.open(path, OpenMode.CREATE)
    if content:
        file.write_at(0, content)
    file.close()


def one_line(error: StorageError) -> None:
    assert str(error) and "\n" not in str(error), error


def _consume(records: Iterator[Record]) -> None:
    for record in records:
        assert -(1 << 63) <= record.timestamp < 1 << 63, record


# Batches and records


def batches(data: bytes) -> None:
    """Read record batches of any magic."""
    try:
        for batch in iterate_batches(data):
            batch.is_valid()
            _look_at(batch)
    except StorageError:
        pass


def _look_at(batch: RecordBatch) -> None:
    repr(batch)
    assert batch.size_bytes > 0 and batch.last_offset is not None
    try:
        for record in batch.records(LIMIT_BYTES):
            if batch.is_control:
                read_control_record(record)
    except StorageError:
        pass


def records(data: bytes) -> None:
    """Decode records: the first byte chooses the codec, the second the number of records."""
    if len(data) < 2:
        return
    try:
        payload = decompress(Compression(data[0] % 5), data[2:], LIMIT_BYTES)
        assert len(payload) <= LIMIT_BYTES
        _consume(decode_records(payload, data[1], base_offset=5, base_timestamp=1 << 62, base_sequence=7))
    except StorageError:
        pass


def _codec(codec: Compression, magic: int = CURRENT_MAGIC) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        try:
            assert len(decompress(codec, data, LIMIT_BYTES, magic=magic)) <= LIMIT_BYTES
        except StorageError:
            pass

    return run


def legacy(data: bytes) -> None:
    try:
        for message in read_messages(data, 0, LIMIT_BYTES):
            repr(message.is_valid)
            message.record()
    except StorageError:
        pass


def varints(data: bytes) -> None:
    for read, bits in ((read_varint, 32), (read_varlong, 64)):
        try:
            value, position = read(data, 0)
        except (StorageError, IndexError):
            # An IndexError leaves it to the caller that the bytes end too early.
            continue
        assert -(1 << (bits - 1)) <= value < 1 << (bits - 1) and 0 < position <= len(data)


def _pair(data: bytes) -> tuple[bytes, bytes]:
    """Split the bytes in two; the first byte is the length of the first part."""
    if not data:
        return b"", b""
    return data[1 : 1 + data[0]], data[1 + data[0] :]


def control_records(data: bytes) -> None:
    key, value = _pair(data)
    try:
        read_control_record(Record(0, 0, key, value))
    except StorageError:
        pass


def messages(data: bytes) -> None:
    key, value = _pair(data)
    for decoder in (
        offsets_decoder(),
        transaction_log_decoder(),
        share_group_state_decoder(),
        ClusterMetadataDecoder(),
    ):
        for each in (Record(0, 0, key, value), Record(0, 0, key, None)):
            shown = decoder.show(each)
            assert all(text is None or "\n" not in text for text in shown), shown


# Files beside the log


def snapshots(data: bytes) -> None:
    try:
        decode_snapshot(data)
    except StorageError:
        pass


def transaction_indexes(data: bytes) -> None:
    try:
        assert len(list(unpack_entries(data, "x"))) <= len(data) // 34
    except StorageError:
        pass


def offset_indexes(data: bytes) -> None:
    file_system = _file_system_with(**{f"{STEM}_index": data})
    index = OffsetIndex(file_system, join(DIRECTORY, f"{STEM}.index"), 0, read_only=True)
    _look_up(index, (0, 1, 77, 1 << 31, 1 << 62))


def time_indexes(data: bytes) -> None:
    file_system = _file_system_with(**{f"{STEM}_timeindex": data})
    index = TimeIndex(file_system, join(DIRECTORY, f"{STEM}.timeindex"), 0, read_only=True)
    _look_up(index, (0, 1, NOW_MS, 1 << 62))


def _look_up(index: OffsetIndex | TimeIndex, targets: Iterable[int]) -> None:
    try:
        for target in targets:
            index.lookup(target)
        index.sanity_check()
    except StorageError:
        pass
    finally:
        index.close_handler()


def text_files(data: bytes) -> None:
    """Read the text files beside the logs."""
    names = ("a", "leader-epoch-checkpoint", "partition.metadata", "meta.properties", ".kafka_cleanshutdown")
    file_system = new_file_system()
    for name in names:
        _write(file_system, join(DIRECTORY, name), data)
    for read in (
        OffsetCheckpoint(file_system, join(DIRECTORY, "a")).read,
        LeaderEpochCheckpoint(file_system, join(DIRECTORY, names[1])).read,
        PartitionMetadataFile(file_system, DIRECTORY).read,
        MetaPropertiesFile(file_system, DIRECTORY).read,
        CleanShutdownFile(file_system, DIRECTORY).read,
    ):
        try:
            read()
        except StorageError as error:
            one_line(error)


def names(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for check in (parse_directory_name, check_topic_name):
        try:
            check(text)
        except StorageError:
            pass


# Tools


def dumps(data: bytes) -> None:
    """Dump files of every kind with the same content. The first byte chooses the options, the rest is the content."""
    if not data:
        return
    bits, content = data[0], data[1:]
    suffixes = ("log", "index", "timeindex", "txnindex", "snapshot")
    file_system = _file_system_with(**{f"{STEM}_{suffix}": content for suffix in suffixes})
    told: list[str] = []
    options = DumpOptions(
        print_data_log=bool(bits & 1),
        deep_iteration=bool(bits & 2),
        skip_record_metadata=bool(bits & 4),
        index_sanity_check=bool(bits & 8),
        verify_index_only=bool(bits & 16),
        json=bool(bits & 32),
        decoder=offsets_decoder() if bits & 64 else None,
    )
    paths = [join(DIRECTORY, f"{STEM}.{suffix}") for suffix in suffixes]
    dump_files(file_system, paths, options, write=lambda line: None, report=told.append)
    assert all("\n" not in line for line in told), told


def verifies(data: bytes) -> None:
    """Verify a partition. Each file's content follows its length in two bytes; the rest is the epoch checkpoint."""
    files: dict[str, bytes] = {}
    for name in (f"{STEM}_log", f"{STEM}_index", f"{STEM}_timeindex", f"{STEM}_txnindex", f"{STEM}_snapshot"):
        size = int.from_bytes(data[:2], "big")
        files[name], data = data[2 : 2 + size], data[2 + size :]
    files["leader-epoch-checkpoint"] = data
    file_system = _file_system_with(**files)
    before = {name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)}
    report = verify_partition(file_system, DIRECTORY, deep=True)
    assert all(each.message and "\n" not in each.message for each in report.problems), report.problems
    verify_log_directory(file_system, "logs")
    partition_stats(file_system, DIRECTORY)
    assert before == {
        name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)
    }


SMALL_CONFIG = LogConfig(segment_bytes=4096, segment_index_bytes=1024, index_interval_bytes=128)


@cache
def _golden_partition(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((GOLDEN / name).iterdir()) if path.is_file()}


RECOVERED = (
    "kafka-4.1/clean/transactions-0",
    "kafka-4.1/clean/compacted-transactions-0",
    "kafka-4.1/clean/log-start-moved-0",
    "kafka-2.8/clean/v1-none-0",
)
COMPARED = (".log", ".index", ".timeindex")
_EDIT = struct.Struct(">BHBB")


def recoveries(data: bytes) -> None:
    """Recover a damaged directory: the first byte chooses it, then come edits of 5 bytes: file, position, kind, value.

    A log that opens holds whole batches only, and a second recovery changes no byte of a log, its offsets and times.
    The rest may change, as with Kafka. The epochs of a segment recovered ahead of its turn are learned only by
    the second
    recovery (LL10). A snapshot at the log start, with the transactions open there, serves one recovery and is
    then deleted
    (PS16).
    """
    if not data:
        return
    files = dict(_golden_partition(RECOVERED[data[0] % len(RECOVERED)]))
    listed = sorted(files)
    for at in range(1, min(len(data) - _EDIT.size + 1, 60), _EDIT.size):
        _edit(files, listed, *_EDIT.unpack_from(data, at))
    file_system = new_file_system()
    for name, content in files.items():
        _write(file_system, join(DIRECTORY, name), content)
    try:
        end = _recover(file_system)
    except StorageError as error:
        one_line(error)
        return
    first = {name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)}
    _check_served(file_system)
    assert _recover(file_system) == end
    second = {name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)}
    segments = [name for name in sorted(first.keys() | second.keys()) if name.endswith(COMPARED)]
    changed = [name for name in segments if first.get(name) != second.get(name)]
    assert not changed, changed


def _edit(files: dict[str, bytes], listed: list[str], file: int, place: int, kind: int, value: int) -> None:
    name = listed[file % len(listed)]
    content = files.get(name, b"")
    at = place % (len(content) + 1)
    match kind % 6:
        case 0:
            files[name] = content[:at] + bytes([value]) + content[at + 1 :]
        case 1:
            files[name] = content[:at]
        case 2:
            files[name] = content[:at] + bytes([value]) * (value % 64) + content[at:]
        case 3:
            files.pop(name, None)
        case 4:
            files[name] = (
                content[:at] + bytes([content[at] ^ value]) + content[at + 1 :] if at < len(content) else b""
            )
        case _:
            files[name] = content + content[:at]


def _recover(file_system: FileSystem) -> int:
    log = PartitionLog.open(
        file_system,
        DIRECTORY,
        SMALL_CONFIG,
        log_start_offset=0,
        clean=False,
        now_ms=NOW_MS,
        report=lambda cut: None,
    )
    log.close()
    return log.log_end_offset


def _check_served(file_system: FileSystem) -> None:
    """Check that every batch of every segment is whole.

    Offsets may go back between index entries, as in Kafka (LS12).
    """
    for name in file_system.list(DIRECTORY):
        if name.endswith(".log"):
            log = FileRecords(file_system, join(DIRECTORY, name), read_only=True)
            end = 0
            for batch in log.batches():
                assert batch.is_valid(), (name, batch)
                end = batch.position + batch.size_bytes
            assert end == log.size_bytes, (name, end, log.size_bytes)
            log.close_handlers()


# Seeds


def _golden_logs() -> list[bytes]:
    """Return the first whole batches, at most 4 KiB, of logs of every format and codec."""
    found = []
    for path in sorted(GOLDEN.glob("kafka-*/clean/*/*.log")):
        content, end = path.read_bytes(), 0
        while len(content) >= end + 17:
            size = 12 + int.from_bytes(content[end + 8 : end + 12], "big")
            if end + size > 4096:
                break
            end += size
        if end:
            found.append(content[:end])
    return found[::6]


def _golden(pattern: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found = {path.read_bytes()[:4096] for path in sorted(GOLDEN.glob(pattern))}
        return sorted(found, key=lambda content: (len(content), content))[:12]

    return seeds


def _golden_payloads() -> list[bytes]:
    found = []
    for log in _golden_logs():
        for batch in iterate_batches(log):
            if batch.magic == CURRENT_MAGIC:
                codec = bytes([batch.attributes & 7, max(batch.record_count, 0) & 0xFF])
                found.append(codec + log[batch.start + 61 : batch.start + batch.size_bytes])
    return found[::9]


def _codec_seeds(codec: Compression) -> Callable[[], list[bytes]]:
    return lambda: [each[2:] for each in _golden_payloads() if each[0] == codec] or [b"\0"]


def _legacy_seeds() -> list[bytes]:
    return [log for log in _golden_logs() if log[16] < CURRENT_MAGIC]


def _message_seeds() -> list[bytes]:
    types = (*schemas_of(GROUPS), *schemas_of(CLUSTER_METADATA))
    return [
        b"\x08\0\x01\0\x01a\0\x01b\0\0\0\x05" + bytes(20),
        b"\0\x01\x02\0\x02a" + bytes(16),
        bytes(len(types)),
    ]


def _verify_seeds() -> list[bytes]:
    found = []
    for name in ("transactions-0", "idempotent-0"):
        stem = GOLDEN / "kafka-4.1/clean" / name
        log = max(stem.glob("*.log"), key=lambda path: path.stat().st_size)
        parts = [log.read_bytes()[:3000]]
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path = log.with_suffix(suffix)
            parts.append(path.read_bytes() if path.exists() else b"")
        found.append(b"".join(len(part).to_bytes(2, "big") + part for part in parts) + b"0\n1\n0 0\n")
    return found


HARNESSES = {
    "batches": Harness(run=batches, seeds=_golden_logs),
    "records": Harness(run=records, seeds=_golden_payloads),
    "gzip": Harness(run=_codec(Compression.GZIP), seeds=_codec_seeds(Compression.GZIP)),
    "snappy": Harness(run=_codec(Compression.SNAPPY), seeds=_codec_seeds(Compression.SNAPPY)),
    "lz4": Harness(run=_codec(Compression.LZ4), seeds=_codec_seeds(Compression.LZ4)),
    "lz4-magic-0": Harness(run=_codec(Compression.LZ4, magic=0), seeds=_codec_seeds(Compression.LZ4)),
    "zstd": Harness(run=_codec(Compression.ZSTD), seeds=_codec_seeds(Compression.ZSTD)),
    "legacy": Harness(run=legacy, seeds=_legacy_seeds),
    "varints": Harness(run=varints, seeds=lambda: [b"\x96\x01", b"\xff" * 10]),
    "control-records": Harness(run=control_records, seeds=lambda: [b"\x04\0\0\0\x01\0\0\0\0\0\x05"]),
    "messages": Harness(run=messages, seeds=_message_seeds),
    "snapshots": Harness(run=snapshots, seeds=_golden("kafka-4.1/clean/*/*.snapshot")),
    "transaction-indexes": Harness(run=transaction_indexes, seeds=_golden("kafka-4.1/clean/*/*.txnindex")),
    "offset-indexes": Harness(run=offset_indexes, seeds=_golden("kafka-4.1/*/*/*.index")),
    "time-indexes": Harness(run=time_indexes, seeds=_golden("kafka-4.1/*/*/*.timeindex")),
    "text-files": Harness(
        run=text_files,
        seeds=lambda: [
            *_golden("kafka-4.1/clean/*checkpoint")(),
            *_golden("kafka-4.1/clean/*/partition.metadata")()[:2],
            b'{"version":0,"brokerEpoch":5}',
            b"version=1\nnode.id=1\ncluster.id=abc\n",
        ],
    ),
    "names": Harness(run=names, seeds=lambda: [b"topic-0", b"a.b-3." + b"0" * 32 + b"-delete"]),
    "dumps": Harness(run=dumps, seeds=lambda: [b"\x01" + log for log in _golden_logs()]),
    "verifies": Harness(run=verifies, seeds=_verify_seeds),
    "recoveries": Harness(
        run=recoveries, seeds=lambda: [bytes([number]) + bytes(10) for number in range(len(RECOVERED))]
    ),
}


def corpus(name: str) -> list[Path]:
    """Return the inputs that fuzzing once found a bug with."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
