"""What one batch unpacks to is never held whole by whoever shows nothing of it, however little it takes in its file."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from replog.dump_command import dump
from storage.batch import Compression, Record, RecordBatch, iterate_batches
from storage.batch.cut_record import CutRecord
from storage.batch.legacy.builder import build_message_set
from storage.batch.pieces import HEADS_HELD
from storage.cleaner.keys import portions_of_keys
from storage.cleaner.rebuild import rebuild_batch
from storage.codec.varint import encode_varint
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.stats import partition_stats
from storage.inspection.verify.partition import verify_partition
from storage.segment.file_records import FileRecords
from tests.storage.hostile.produced_sets import framed, headers, one_key, one_value
from tests.storage.logs import NOW_MS

SEGMENT = f"{0:020d}.log"
# Of each input, whatever it unpacks to.
MOST_BYTES: Final = 64 << 20
MOST_TIMES: Final = 16
DEEP = DumpOptions(deep_iteration=True)
DATA = DumpOptions(print_data_log=True)


def dumped(directory: Path, options: DumpOptions) -> list[str]:
    lines: list[str] = []
    path = str(directory / SEGMENT)
    dump_files(OsFileSystem(), [path], options, write=lines.append, report=lines.append)
    return lines


def print_dump(directory: Path, options: DumpOptions) -> None:
    """Dump as the command does: the lines of large records are written in pieces."""

    def write(line: str) -> None:
        pass

    def write_pieces(pieces: Iterable[str]) -> None:
        for _ in pieces:
            pass

    path = str(directory / SEGMENT)
    dump_files(OsFileSystem(), [path], options, write=write, report=write, write_pieces=write_pieces)


def clean(directory: Path) -> None:
    for batch in iterate_batches((directory / SEGMENT).read_bytes()):
        for _ in portions_of_keys(batch):
            pass
        rebuild_batch(batch, [batch.base_offset], NOW_MS if batch.magic == 2 else None)


def search(directory: Path) -> None:
    records = FileRecords(OsFileSystem(), str(directory / SEGMENT), read_only=True)
    records.search_for_timestamp(NOW_MS)
    records.close()


TOOLS: dict[str, Callable[[Path], object]] = {
    "verify": lambda path: verify_partition(OsFileSystem(), str(path), deep=True),
    "stats": lambda path: partition_stats(OsFileSystem(), str(path)),
    "dump": lambda path: print_dump(path, DEEP),
    "dump as JSON": lambda path: print_dump(path, replace(DEEP, json=True)),
    "dump of data": lambda path: print_dump(path, DATA),
    "dump of data as JSON": lambda path: print_dump(path, replace(DATA, json=True)),
    "cleaner": clean,
    "search": search,
}
KINDS: dict[str, Callable[[int, Compression], bytes]] = {
    "one value": lambda size_bytes, codec: framed(one_value(size_bytes), 1, codec),
    "one key": lambda size_bytes, codec: framed(one_key(size_bytes), 1, codec),
    "keys": lambda size_bytes, codec: framed(one_key(1 << 16) * (size_bytes >> 16), size_bytes >> 16, codec),
    "headers": lambda size_bytes, codec: framed(headers(size_bytes // 2), 1, codec),
    "value of magic 1": lambda size_bytes, codec: build_message_set(
        [Record(0, NOW_MS, None, bytes(size_bytes))], magic=1, compression=codec
    ),
}


def peak_bytes(tool: Callable[[Path], object], directory: Path) -> int:
    tracemalloc.start()
    try:
        tool(directory)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def grown_bytes(tool: Callable[[Path], object], directory: Path) -> int:
    """Return by how much a child grows that runs the tool: this process has held the input unpacked."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            before = most_ever_held()
            tool(directory)
            os.write(writer, b"%d" % (most_ever_held() - before))
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as result:
        return int(result.read())


def most_ever_held() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


HELD = [(tool, kind) for tool in TOOLS for kind in KINDS]


@pytest.mark.parametrize(("tool", "kind"), [each for each in HELD if each[1] != "headers"])
def test_a_large_record_is_not_held(tool: str, kind: str, tmp_path: Path) -> None:
    codec = Compression.GZIP if kind.endswith("magic 1") else Compression.ZSTD
    (tmp_path / SEGMENT).write_bytes(KINDS[kind](4 << 20, codec))
    assert peak_bytes(TOOLS[tool], tmp_path) < 2 << 20


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(Compression)[1:])
@pytest.mark.parametrize(("tool", "kind"), HELD)
def test_a_batch_that_unpacks_to_very_much_takes_little_memory(
    tool: str, kind: str, codec: Compression, tmp_path: Path
) -> None:
    if kind.endswith("magic 1") and codec is Compression.ZSTD:
        pytest.skip("zstd does not exist in magic 1")
    batch = KINDS[kind](120 << 20 if kind != "headers" else 4 << 20, codec)
    (tmp_path / SEGMENT).write_bytes(batch)
    grown = grown_bytes(TOOLS[tool], tmp_path)
    print(f"{tool}, {kind}, {codec.label}: {len(batch)} bytes take {grown >> 20} MiB")
    assert grown < MOST_BYTES + MOST_TIMES * len(batch)


def test_sizes_and_header_keys_of_a_large_record_are_shown_though_it_is_not_held(tmp_path: Path) -> None:
    value = bytes(1 << 17)
    fields = b"\x00\x00\x00\x01" + encode_varint(len(value)) + value + b"\x04\x02a\x02x\x02b\x01"
    (tmp_path / SEGMENT).write_bytes(
        framed(encode_varint(len(fields)) + fields, 1, Compression.ZSTD),
    )
    shown = dumped(tmp_path, DEEP)[-1]
    assert shown.endswith(f"keySize: -1 valueSize: {len(value)} sequence: -1 headerKeys: [a,b]"), shown
    as_json = dumped(tmp_path, replace(DEEP, json=True))[-1]
    assert f'"key_size_bytes": null, "value_size_bytes": {len(value)}' in as_json
    assert '"header_keys": ["a", "b"]' in as_json


def test_a_large_record_of_which_a_part_is_held_is_that_record() -> None:
    batch = framed(one_value(1 << 17), 1, Compression.ZSTD)
    view = RecordBatch(batch, 0, len(batch))
    (whole,) = view.records()
    (cut,) = view.records(held=HEADS_HELD)
    assert isinstance(cut, CutRecord) and not isinstance(whole, CutRecord)
    assert whole.value == bytes(1 << 17) and cut.value == bytes(64)
    assert (cut.key_size, cut.value_size) == (-1, 1 << 17)
    assert cut._replace(value=None) == whole._replace(value=None)


@pytest.mark.parametrize("codec", Compression)
def test_cl18_a_kept_large_record_is_copied_as_it_is(codec: Compression) -> None:
    batch = framed(one_value(1 << 17) + one_value(3), 2, codec)
    rebuilt = rebuild_batch(RecordBatch(batch, 0, len(batch)), [0], NOW_MS - 5)
    before = list(RecordBatch(batch, 0, len(batch)).records())
    assert list(RecordBatch(rebuilt, 0, len(rebuilt)).records()) == before


def test_a_line_of_any_length_is_printed_whole(tmp_path: Path) -> None:
    value = "é\udcff".encode("utf-8", "replace") * (1 << 20)
    fields = b"\x00\x00\x00\x01" + encode_varint(len(value)) + value + b"\x00"
    path = tmp_path / SEGMENT
    path.write_bytes(framed(encode_varint(len(fields)) + fields + one_value(3), 2, Compression.ZSTD))
    lines = CliRunner().invoke(dump, ["--files", str(path), "--print-data-log"]).stdout.splitlines()
    assert lines[-2].endswith(f" payload: {value.decode()}")
    assert lines[-1].startswith("| offset: 0 ") and lines[-1].endswith(" payload: \0\0\0")
