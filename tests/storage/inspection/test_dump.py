"""The dump of files, byte for byte as Kafka's tool prints it."""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
import zlib
from pathlib import Path

import pytest

from replog.cli import main
from storage.batch import Compression, Record, build_batch
from storage.batch.legacy.builder import build_message_set
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, DumpStatus
from storage.inspection.verify.partition import verify_partition
from tests.golden.snapshots import Snapshot, encoded
from tests.places import GOLDEN
from tests.storage.inspection.dumps import DumpResult, dumped

EXPECTED = GOLDEN / "expected"
DIRECTORIES = sorted({str(path.parent.relative_to(EXPECTED)) for path in EXPECTED.glob("**/*.txt")})


def golden_dump(path: str) -> DumpResult:
    return dumped(path, options=DumpOptions(print_data_log=path.endswith(".log")))


@pytest.fixture
def in_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three batches of two records each: one plain, one of gzip, one plain."""
    path = tmp_path / "00000000000000000010.log"
    data = b""
    for index, codec in enumerate([Compression.NONE, Compression.GZIP, Compression.NONE]):
        offset = 10 + 2 * index
        pair = [Record(offset, 100, b"k", b"one"), Record(offset + 1, 101, None, b"two", (("h", None),))]
        data += build_batch(pair, base_offset=offset, compression=codec, partition_leader_epoch=1)
    path.write_bytes(data)
    return path


@pytest.mark.covers(
    "DumpLogSegmentsTest.testBatchAndRecordMetadataOutput",
    "DumpLogSegmentsTest.testPrintDataLog",
    "DumpLogSegmentsTest.testDumpIndexMismatches",
    "DumpLogSegmentsTest.testDumpTimeIndexErrors",
)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_t55_dump_equals_what_kafkas_tool_printed(directory: str, in_golden: None) -> None:
    for expected in sorted((EXPECTED / directory).glob("*.txt")):
        path = f"{directory}/{expected.stem}"
        told = golden_dump(path)
        assert told.output == expected.read_bytes(), path


@pytest.mark.parametrize("topic", ["shapes-none", "shapes-gzip", "index-full-rolls", "empty"])
def test_command_prints_kafkas_bytes_and_exits_with_0(
    topic: str, in_golden: None, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for expected in sorted((EXPECTED / "kafka-4.1" / "clean" / f"{topic}-0").glob("*x.txt"))[:4]:
        path = f"kafka-4.1/clean/{topic}-0/{expected.stem}"
        assert main(["dump", "--files", path]) == 0
        assert capfdbinary.readouterr() == (expected.read_bytes(), b"")
    log = f"kafka-4.1/clean/{topic}-0/00000000000000000000.log"
    assert main(["dump", "--print-data-log", "--files", log]) == 0
    assert capfdbinary.readouterr() == ((EXPECTED / f"{log}.txt").read_bytes(), b"")


@pytest.mark.parametrize(
    "path, error",
    [
        (
            "damaged/flipped-in-gzip-0/00000000000000000000.log",
            "at byte 0: the checksum of the batch at offset 0 does not match (stored 1514045229); then the "
            "gzip stream is damaged: Error -3 while decompressing data: incorrect data check; 7 batches with "
            "107 records follow",
        ),
        (
            "damaged/flipped-record-byte-0/00000000000000000009.log",
            "at byte 0: the checksum of the batch at offset 9 does not match (stored 3459253999); then a "
            "record of 16 bytes has fields of 12 bytes; 57 batches with 57 records follow",
        ),
        (
            "damaged/torn-tail-0/00000000000000000000.index",
            "at byte 40: offset 112 points to byte 197024 of the log, where no whole batch is; "
            "0 entries follow",
        ),
    ],
)
def test_damage_is_one_line_after_what_kafkas_tool_printed(path: str, error: str, in_golden: None) -> None:
    told = golden_dump(path)
    assert told.status is DumpStatus.DAMAGED
    assert told.output == (EXPECTED / f"{path}.txt").read_bytes()
    assert told.errors == [f"error: {path} {error}"]


def test_zeros_after_the_last_batch_are_damage(in_golden: None) -> None:
    path = "damaged/zero-tail-0/00000000000000000000.log"
    told = dumped(path)
    assert told.status is DumpStatus.DAMAGED and len(told.lines) == 12
    assert told.errors == [
        f"error: {path} at byte 1585: a size field of 0, below the least of 14; "
        "0 batches with 0 records follow, then 4096 bytes that are no batch"
    ]


def test_damage_without_deep_iteration_shows_every_batch(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    data[-1] ^= 1
    log.write_bytes(data)
    told = dumped(log)
    assert told.status is DumpStatus.DAMAGED
    assert [line.rsplit(" ", 1)[1] for line in told.lines[2:]] == ["false", "true", "false"]
    (error,) = told.errors
    assert "at byte 0: the checksum of the batch at offset 10" in error
    assert error.endswith("; 1 more batches are damaged")


def test_records_before_the_damaged_one_are_shown(log: Path) -> None:
    data = bytearray(log.read_bytes())
    second_record = 61 + data[61] // 2 + 1
    # The length reaches beyond the batch.
    data[second_record] = 0x7E
    log.write_bytes(data)
    told = dumped(log, options=DumpOptions(deep_iteration=True))
    assert [line.split()[2] for line in told.lines if line.startswith("|")] == ["10"]
    assert told.errors[0].endswith("bytes left; 2 batches with 4 records follow")


def test_next_file_is_dumped_after_a_damaged_or_missing_one(log: Path) -> None:
    told = dumped(log.with_name("1.log"), log)
    assert told.status is DumpStatus.UNUSABLE
    assert told.errors == [f"error: {log.with_name('1.log')}: No such file or directory"]
    assert len(told.lines) == 1 + 2 + 3


def test_deep_iteration_prints_records_without_their_data(log: Path) -> None:
    lines = dumped(log, options=DumpOptions(deep_iteration=True)).lines
    assert lines[3:5] == [
        "| offset: 10 CreateTime: 100 keySize: 1 valueSize: 3 sequence: -1 headerKeys: []",
        "| offset: 11 CreateTime: 101 keySize: -1 valueSize: 3 sequence: -1 headerKeys: [h]",
    ]


def test_skip_record_metadata_leaves_key_and_payload(log: Path) -> None:
    lines = dumped(log, options=DumpOptions(print_data_log=True, skip_record_metadata=True)).lines
    assert lines[3:5] == ["| key: k payload: one", " payload: two"]


@pytest.mark.covers("DumpLogSegmentsTest.testPrintDataLogPartialBatches")
def test_max_bytes_shows_whole_batches_only_and_reports_no_rest(log: Path) -> None:
    size_bytes = log.stat().st_size
    for max_bytes, count in ((0, 0), (90, 1), (size_bytes - 1, 2), (size_bytes, 3), (size_bytes + 9, 3)):
        told = dumped(log, options=DumpOptions(max_bytes=max_bytes))
        assert (len(told.lines), told.errors) == (2 + count, [])


def test_control_batches_show_their_marker_and_never_data(in_golden: None) -> None:
    path = "kafka-4.1/clean/transactions-0/00000000000000000009.log"
    lines = dumped(path, options=DumpOptions(print_data_log=True)).lines
    assert lines[3].endswith("headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 0")


def test_t55_index_that_disagrees_with_its_log_is_reported_newest_first(log: Path) -> None:
    index = log.with_suffix(".index")
    first, second, _ = (line.split(" position: ")[1].split()[0] for line in dumped(log).lines[2:])
    entries = [(1, int(first)), (2, int(second)), (3, int(second)), (4, int(first))]
    index.write_bytes(b"".join(a.to_bytes(4, "big") + b.to_bytes(4, "big") for a, b in entries) + bytes(16))
    told = dumped(index)
    assert told.status is DumpStatus.SOUND
    # The zeros of a preallocated tail are no entries.
    assert len(told.lines) == 1 + 4
    assert told.errors == [
        f"Mismatches in :{index}",
        "  Index offset: 14, log offset: 11",
        "  Index offset: 12, log offset: 13",
    ]
    assert dumped(index, options=DumpOptions(verify_index_only=True)).lines == [f"Dumping {index}"]


def test_time_index_that_disagrees_with_its_log_is_reported_in_order(log: Path) -> None:
    log.with_suffix(".index").write_bytes(b"")
    index = log.with_suffix(".timeindex")
    entries = [(101, 1), (101, 2), (90, 3), (200, 99)]
    index.write_bytes(b"".join(a.to_bytes(8, "big") + b.to_bytes(4, "big") for a, b in entries))
    told = dumped(index)
    assert told.status is DumpStatus.SOUND and told.lines[1] == "timestamp: 101 offset: 11"
    assert told.errors == [
        f"Found timestamp mismatch in :{index}",
        "  Index timestamp: 90, log timestamp: 101",
        f"Found out of order timestamp in :{index}",
        "  Index timestamp: 90, Previously indexed timestamp: 101",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 12, found log offset: 13",
        "Indexed offset: 109, found log offset: -1",
    ]


def test_t55_messages_of_old_magic_end_with_a_stray_brace(in_golden: None) -> None:
    told = dumped(
        "kafka-2.8/clean/v1-none-0/00000000000000000000.log", options=DumpOptions(deep_iteration=True)
    )
    assert all(line.endswith("}") for line in told.lines[3::2]) and "{" not in told.lines[3]
    assert told.lines[3].split(" isValid: ")[1].startswith("true crc: ")


def test_t55_an_unknown_magic_inside_a_wrapper_is_shown_in_the_layout_of_magic_1(log: Path) -> None:
    """The output is that of Kafka's tool."""
    inner = bytearray(build_message_set([Record(0, 1000, b"k", b"v")], magic=1))
    inner[16] = 0x58
    inner[12:16] = struct.pack(">I", zlib.crc32(inner[16:]))
    value = gzip.compress(inner)
    body = struct.pack(">bbqii", 1, 1, 1000, -1, len(value)) + value
    log.write_bytes(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body)
    told = dumped(log, options=DumpOptions(deep_iteration=True))
    assert (
        told.lines[-1]
        == "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 isValid: true crc: 3378628475}"
    )


def test_t56_index_of_sets_of_several_batches_mismatches_though_it_is_sound(log: Path) -> None:
    second = int(dumped(log).lines[3].split(" position: ")[1].split()[0])
    index = log.with_suffix(".index")
    # The entry is of the last two batches, written in one append.
    index.write_bytes((5).to_bytes(4, "big") + second.to_bytes(4, "big"))
    told = dumped(index)
    assert told.errors == [f"Mismatches in :{index}", "  Index offset: 15, log offset: 13"]
    assert told.status is DumpStatus.SOUND
    partition = log.parent / "t-0"
    partition.mkdir()
    for path in (log, index):
        path.rename(partition / f"{10:020d}{path.suffix}")
    found = verify_partition(OsFileSystem(), str(partition)).problems
    # The only problem is in the epochs: there is no checkpoint.
    assert [each.rule for each in found] == ["EP12"]


def test_t57_a_batch_without_producer_and_horizon(log: Path) -> None:
    line = dumped(log).lines[2]
    assert " lastSequence: -1 producerId: -1 " in line and " deleteHorizonMs: OptionalLong.empty " in line
    records = [Record(0, 7, b"k", None)]
    log.write_bytes(
        build_batch(records, producer_id=9, producer_epoch=1, base_sequence=4, delete_horizon_ms=5)
    )
    line = dumped(log).lines[2]
    assert " lastSequence: 4 producerId: 9 " in line and " deleteHorizonMs: OptionalLong[5] " in line


@pytest.mark.covers("DumpLogSegmentsTest.testDumpEmptyIndex")
def test_sanity_mode_and_an_empty_index(log: Path) -> None:
    """An index without an entry is reported as empty before its sanity is checked."""
    index = log.with_suffix(".index")
    index.write_bytes(bytes(7))
    for options in (DumpOptions(), DumpOptions(index_sanity_check=True)):
        assert dumped(index, options=options).lines == [f"Dumping {index}", f"{index} is empty."]


def test_non_consecutive_offsets_are_reported_newest_first_and_only_in_deep_iteration(log: Path) -> None:
    batches = [build_batch([Record(at, 5, None, b"v")], base_offset=at) for at in (10, 12, 15)]
    log.write_bytes(b"".join(batches))
    assert dumped(log).errors == []
    assert dumped(log, options=DumpOptions(deep_iteration=True)).errors == [
        f"Non-consecutive offsets in {log}",
        "  12 is followed by 15",
        "  10 is followed by 12",
    ]


def test_bytes_after_the_last_batch_are_reported_in_kafkas_words(log: Path) -> None:
    size_bytes = log.stat().st_size
    with log.open("ab") as file:
        file.write(b"\0" * 17)
    told = dumped(log)
    assert told.lines[-1] == f"Found 17 invalid bytes at the end of {log.name}"
    assert told.status is DumpStatus.DAMAGED
    assert told.errors == [f"error: {log} at byte {size_bytes}: the last 17 bytes are no whole batch"]
    assert len(dumped(log, options=DumpOptions(max_bytes=size_bytes + 17)).lines) == 2 + 3


def test_a_batch_that_is_shorter_than_its_header_shows_the_header_that_kafka_reads(log: Path) -> None:
    """The batch's size field says 14. Kafka's tool reads producer, count and last offset from the bytes after it."""
    sound = dumped(log).lines
    data = bytearray(log.read_bytes())
    data[8:12] = (14).to_bytes(4, "big")
    log.write_bytes(data)
    told = dumped(log)
    expected = re.sub(r"size: \d+", "size: 26", sound[2]).replace("isvalid: true", "isvalid: false")
    assert told.lines[2] == expected and told.status is DumpStatus.DAMAGED
    log.with_suffix(".index").write_bytes((1).to_bytes(4, "big") + bytes(4))
    assert dumped(log.with_suffix(".index")).errors == [], "the last offset is the header's too"


def test_time_index_entry_of_records_that_cannot_be_read_is_damage(log: Path) -> None:
    log.with_suffix(".index").write_bytes(b"")
    data = bytearray(log.read_bytes())
    # This is the length of the first record.
    data[61] = 0x7E
    log.write_bytes(data)
    index = log.with_suffix(".timeindex")
    index.write_bytes(
        (101).to_bytes(8, "big") + (1).to_bytes(4, "big") + (101).to_bytes(8, "big") + b"\0\0\0\x03"
    )
    told = dumped(index)
    assert told.status is DumpStatus.DAMAGED
    assert told.errors[0].startswith(f"error: {index} at byte 0: offset 11 cannot be looked up: ")
    assert told.errors[0].endswith("; 1 entries follow")


def test_index_sanity_check_refuses_a_broken_length(log: Path) -> None:
    index = log.with_suffix(".index")
    options = DumpOptions(index_sanity_check=True)
    index.write_bytes(bytes(16))
    assert dumped(index, options=options).lines[1] == f"{index} passed sanity check."
    index.write_bytes(bytes(15))
    told = dumped(index, options=options)
    assert told.status is DumpStatus.DAMAGED
    assert told.errors == [f"error: {index}: 15 bytes are no multiple of an entry's 8"]


def test_damaged_snapshot_is_one_line(tmp_path: Path, in_golden: None) -> None:
    sound = Path("kafka-4.1/clean/transactions-0/00000000000000000067.snapshot").read_bytes()
    snapshot = tmp_path / "00000000000000000067.snapshot"
    for data, reason in (
        (sound[:9], "9 bytes are no producer snapshot"),
        (sound + b"x", "the checksum does not match"),
        (b"\0\2" + sound[2:], "snapshot version 2 is unknown"),
    ):
        snapshot.write_bytes(data)
        told = dumped(snapshot)
        assert told.status is DumpStatus.DAMAGED
        assert told.errors[0].startswith(f"error: {snapshot}: {reason}")


def test_a_transaction_index_of_zeros_is_one_line_of_damage(tmp_path: Path, in_golden: None) -> None:
    """A crash may leave zeros where entries were to be written; a sparse file may have billions of them."""
    sound = Path("kafka-4.1/clean/transactions-0/00000000000000000009.txnindex").read_bytes()
    assert len(sound) >= 34, len(sound)
    index = tmp_path / "00000000000000000009.txnindex"
    index.write_bytes(sound + bytes(3 * 34 + 1))
    told = dumped(index)
    assert len(told.lines) == 1 + len(sound) // 34
    assert told.status is DumpStatus.DAMAGED
    assert told.errors == [f"error: {index}: at byte {len(sound)}: zeros, no transaction; 2 entries follow"]


def test_t10_a_snapshot_is_dumped_in_the_order_of_its_entries(tmp_path: Path, in_golden: None) -> None:
    sound = Path("kafka-4.1/clean/transactions-0/00000000000000000067.snapshot").read_bytes()
    snapshot = tmp_path / "00000000000000000067.snapshot"
    dumps = []
    for entries in (Snapshot(sound).entries(), Snapshot(sound).entries()[::-1]):
        snapshot.write_bytes(encoded(entries))
        told = dumped(snapshot)
        assert told.status is DumpStatus.SOUND
        dumps.append(told.lines[1:])
    assert len(dumps[0]) == 2 and dumps[1] == dumps[0][::-1]


def test_unknown_codec_is_named_with_its_batch(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[22] |= 7
    log.write_bytes(data)
    told = dumped(log, options=DumpOptions(deep_iteration=True))
    assert told.status is DumpStatus.UNUSABLE
    (error,) = told.errors
    assert error.startswith(f"error: {log} at byte 0: the checksum of the batch at offset 10 does not match")
    assert error.endswith("; then compression codec 7 is unknown; 2 batches with 4 records follow")


def test_sequences_of_a_damaged_header_are_javas(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[53:57] = (-2097153).to_bytes(4, "big", signed=True)
    log.write_bytes(data)
    line = dumped(log).lines[2]
    assert " baseSequence: -2097153 lastSequence: -2097152 " in line


def test_json_has_an_object_a_line(log: Path) -> None:
    told = dumped(log, options=DumpOptions(print_data_log=True, json=True))
    rows = [json.loads(line) for line in told.lines]
    assert [row["kind"] for row in rows[:5]] == ["file", "log", "batch", "record", "record"]
    assert rows[2]["base_offset"] == 10 and rows[2]["is_valid"] is True
    assert rows[4] == {
        "kind": "record",
        "offset": 11,
        "timestamp": 101,
        "key_size_bytes": None,
        "value_size_bytes": 3,
        "sequence": -1,
        "header_keys": ["h"],
        "key": None,
        "value": "two",
    }


def test_json_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(build_batch([Record(0, 0, b"\xff\x00", b"")]))
    told = dumped(path, options=DumpOptions(print_data_log=True, json=True))
    assert json.loads(told.lines[3])["key"] == {"base64": "/wA="}


def test_json_names_every_kind_of_file(in_golden: None) -> None:
    folder = "kafka-4.1/clean/transactions-0/00000000000000000009"
    kinds = set()
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        rows = [json.loads(line) for line in dumped(folder + suffix, options=DumpOptions(json=True)).lines]
        kinds |= {row["kind"] for row in rows}
    assert kinds == {"file", "log", "batch", "offset_entry", "time_entry", "aborted_transaction", "producer"}


def test_dump_changes_nothing_and_needs_no_right_to_write(log: Path) -> None:
    index = log.with_suffix(".index")
    index.write_bytes(bytes(80))
    for path in (log, index):
        path.chmod(0o444)
        os.utime(path, (5, 5))
    log.parent.chmod(0o555)
    try:
        dumped(log, index)
        assert sorted(path.name for path in log.parent.iterdir()) == [index.name, log.name]
        assert all(path.stat().st_mtime == 5 for path in (log, index))
    finally:
        log.parent.chmod(0o755)


@pytest.mark.covers("DumpLogSegmentsTest.testDumpRemoteLogMetadataNoFilesFlag")
@pytest.mark.parametrize(
    "arguments, error",
    [
        pytest.param([], 'Missing required argument "[files]"', id="no files"),
        pytest.param(["--files", ""], "--files '' has an empty name", id="empty"),
        pytest.param(
            ["--files", "a.log,,b.log"], "--files 'a.log,,b.log' has an empty name", id="empty in list"
        ),
        pytest.param(["--file", "a.log"], "No such option '--file'.", id="abbreviated"),
        pytest.param(
            ["--files", "a.log", "--max-bytes", "-1"], "Invalid value for '--max-bytes'", id="negative"
        ),
        pytest.param(
            ["--files", "a.log", "--remote-log-metadata-decoder"],
            "--remote-log-metadata-decoder is refused: there is no tiered storage here",
            id="decoder",
        ),
        pytest.param(
            ["--files", "a.log", "--value-decoder-class", "my.Decoder"],
            "the decoder class my.Decoder is not one of org.apache.kafka.tools.api.StringDecoder, ",
            id="class",
        ),
    ],
)
def test_bad_option_is_one_line_and_status_2(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {error}") and captured.err.count("\n") == 1


UNKNOWN = "not a type of file that dump knows: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint"


@pytest.mark.covers("DumpLogSegmentsTest.testDumpRemoteLogMetadataNoSuchFileException")
@pytest.mark.parametrize(
    "name, error",
    [
        ("none.log", "error: none.log: No such file or directory"),
        ("none.txt", "error: none.txt: No such file or directory"),
        ("file.txt", f"error: file.txt: {UNKNOWN}"),
        ("name", f"error: name: {UNKNOWN}"),
        ("partition.metadata", "error: partition.metadata: a text file, which can be read as it is"),
        (
            "recovery-point-offset-checkpoint",
            "error: recovery-point-offset-checkpoint: a text file, which can be read as it is",
        ),
        (
            "t-0",
            "error: t-0: a directory, not a file: name the files in it, for example t-0/00000000000000000000.log",
        ),
        ("notes.log", "error: notes.log: the name has no base offset"),
        ("00.log/", "error: '00.log/' is not the name of a file"),
        ("00.index", "error: 00.log: No such file or directory"),
        ("1.checkpoint", "error: 1.checkpoint: the name has no end offset and epoch"),
    ],
)
def test_bad_file_is_one_line_and_status_2(
    name: str,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t-0").mkdir()
    for present in ("notes.log", "00.index", "1.checkpoint", "file.txt", "name"):
        Path(present).write_bytes(b"")
    for present in ("partition.metadata", "recovery-point-offset-checkpoint"):
        Path(present).write_bytes(b"0\n")
    assert main(["dump", "--files", name]) == 2
    assert capfd.readouterr().err == f"{error}\n"


@pytest.mark.covers("DumpLogSegmentsTest.testDumpRemoteLogMetadataIoException")
def test_directory_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "00.log").mkdir()
    told = dumped(tmp_path / "00.log")
    assert told.status is DumpStatus.UNUSABLE
    assert told.errors == [f"error: {tmp_path / '00.log'}: Is a directory"]


def test_decoder_class_of_kafka_prints_data(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    decoder = "org.apache.kafka.tools.api.StringDecoder"
    assert main(["dump", "--files", str(log), "--value-decoder-class", decoder]) == 0
    assert capfd.readouterr().out.count(" payload: ") == 6


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000000.index"])
def test_a_file_of_another_program_under_a_name_of_ours_is_damaged(tmp_path: Path, name: str) -> None:
    """Before, the status of such a log was 0: its text was too short for a batch of the size that it seemed to name."""
    (tmp_path / "00000000000000000000.log").write_bytes(
        b"a text that someone has put here, of some length\n" * 3
    )
    (tmp_path / "00000000000000000000.index").write_bytes(b"a text here, 32 bytes in length\n")
    told = dumped(tmp_path / name)
    assert told.status is DumpStatus.DAMAGED
    assert len(told.errors) == 1 and told.errors[0].startswith(f"error: {tmp_path / name} at byte 0: ")
