"""Kafka's own topics in a dump.

`dump_decoders.jsonl` holds messages of every type and version, some of them damaged, with the lines that the dump tool
of Apache Kafka 4.1 prints of them under --skip-record-metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from replog.cli import main
from storage.batch import Record, build_batch
from storage.batch.control_records import ControlType
from storage.errors import InvalidRecord
from storage.inspection.dump.decoders import (
    ClusterMetadataDecoder,
    RecordDecoder,
    offsets_decoder,
    share_group_state_decoder,
    transaction_log_decoder,
)
from storage.inspection.messages.decode import json_text
from storage.inspection.messages.layouts import CLUSTER_METADATA, CONTROL, GROUPS, SHARE_STATE, TRANSACTIONS
from storage.inspection.messages.schema import schemas_of

_FILE = Path(__file__).with_name("dump_decoders.jsonl")
VECTORS = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").rstrip("\n").split("\n")]
DECODERS: dict[str, Callable[[], RecordDecoder]] = {
    "offsets": offsets_decoder,
    "transaction-log": transaction_log_decoder,
    "share-group-state": share_group_state_decoder,
    "cluster-metadata": ClusterMetadataDecoder,
}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _line(decoder: RecordDecoder, record: Record) -> str:
    key, value = decoder.show(record)
    return ("" if key is None else f"| key: {key}") + ("" if value is None else f" payload: {value}")


@pytest.mark.covers(
    "DumpLogSegmentsTest.testOffsetsMessageParser",
    "DumpLogSegmentsTest.testShareGroupStateMessageParser",
    "DumpLogSegmentsTest.testDumpMetadataRecords",
)
@pytest.mark.parametrize("name", DECODERS)
def test_t55_messages_of_kafkas_topics_print_as_kafka_prints_them(name: str) -> None:
    vectors = [vector for vector in VECTORS if vector["decoder"] == name]
    assert len(vectors) > 10
    for vector in vectors:
        record = Record(vector["offset"], 0, _bytes(vector["key"]), _bytes(vector["value"]))
        assert _line(DECODERS[name](), record) == vector["line"], vector


def test_every_known_message_has_a_layout() -> None:
    counts = [
        len(schemas_of(each)) for each in (CONTROL, TRANSACTIONS, SHARE_STATE, GROUPS, CLUSTER_METADATA)
    ]
    assert counts == [5, 2, 4, 46, 26]


@pytest.mark.covers("DumpLogSegmentsTest.testOffsetsMessageParser")
def test_a_missing_key_ends_the_dump_of_a_coordinators_log() -> None:
    with pytest.raises(
        InvalidRecord, match=r"offset 7 using offset topic decoder \(message had a missing key\)"
    ):
        offsets_decoder().show(Record(7, 0, None, b""))


@pytest.mark.parametrize(
    "value, text",
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (1e-05, "1.0E-5"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1.5e300, "1.5E300"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_numbers_print_as_java_prints_doubles(value: float, text: str) -> None:
    assert json_text(value) == text


def test_a_frame_version_is_a_short_of_the_number_read() -> None:
    # The value is -959955628, whose lower half is 15700.
    record = Record(69, 0, None, bytes.fromhex("d4faa0b60c"))
    assert "unknown frame version 15700(only" in _line(ClusterMetadataDecoder(), record)


def test_text_is_escaped_as_jackson_does() -> None:
    assert json_text({"a\n\x01": ['"\\', None, True]}) == '{"a\\n\\u0001":["\\"\\\\",null,true]}'


def _control_batch(control_type: int, value: bytes) -> bytes:
    key = b"\0\0" + int(control_type).to_bytes(2, "big")
    return build_batch([Record(0, 5, key, value)], is_control=True)


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.covers("DumpLogSegmentsTest.testDumpMetadataSnapshot")
def test_a_snapshot_shows_its_control_records_unless_they_are_skipped(
    in_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = _control_batch(ControlType.SNAPSHOT_HEADER, bytes(10) + b"\0")
    data += _control_batch(ControlType.KRAFT_VERSION, b"\0\0\0\x01\0")
    data += _control_batch(ControlType.LEADER_CHANGE, b"\0\0\0\0\0\x01\x02\0\0\0\x01\0\x01\0")
    data += _control_batch(ControlType.KRAFT_VOTERS, b"\0\0\x01\0")
    data += _control_batch(ControlType.SNAPSHOT_FOOTER, b"\0\0\0")
    name = "00000000000000000007-0000000003.checkpoint"
    (in_directory / name).write_bytes(data)
    assert main(["dump", "--cluster-metadata-decoder", "--files", name]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == [f"Dumping {name}", "Snapshot end offset: 7, epoch: 3"]
    assert [line.partition("headerKeys: [] ")[2] for line in lines[3::2]] == [
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":0}',
        'KRaftVersion {"version":0,"kRaftVersion":1}',
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}',
        'KRaftVoters {"version":0,"voters":[]}',
        'SnapshotFooter {"version":0}',
    ]
    assert main(["dump", "--cluster-metadata-decoder", "--skip-record-metadata", "--files", name]) == 0
    assert capfd.readouterr().out.splitlines()[3::2] == [""] * 5


def test_a_control_record_of_an_unknown_type_is_shown_with_its_number(
    in_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"{0:020d}.log"
    (in_directory / name).write_bytes(_control_batch(9, b""))
    assert main(["dump", "--deep-iteration", "--files", name]) == 0
    assert capfd.readouterr().out.splitlines()[-1].endswith("headerKeys: [] controlType: UNKNOWN(9)")


def test_a_damaged_control_record_is_one_line(in_directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (in_directory / "bootstrap.checkpoint").write_bytes(_control_batch(ControlType.SNAPSHOT_HEADER, b"\0"))
    assert main(["dump", "--deep-iteration", "--files", "bootstrap.checkpoint"]) == 1
    told = capfd.readouterr()
    assert told.out.splitlines()[1] == "KRaft bootstrap snapshot"
    assert told.out.endswith(" headerKeys: []\n")
    assert told.err.count("\n") == 1 and "the value of a SNAPSHOT_HEADER record" in told.err


@pytest.mark.parametrize(
    "decoder, shown",
    [("IntegerDecoder", "257"), ("LongDecoder", "72339069014638592"), ("DefaultDecoder", "01" * 2)],
)
def test_decoder_classes_by_kafkas_names(
    decoder: str, shown: str, in_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    value = {
        "IntegerDecoder": b"\0\0\x01\x01",
        "LongDecoder": b"\x01\x01" + bytes(6),
        "DefaultDecoder": b"\x01\x01",
    }
    (in_directory / "0.log").write_bytes(build_batch([Record(0, 5, b"k", value[decoder])]))
    name = f"org.apache.kafka.tools.api.{decoder}"
    assert main(["dump", "--value-decoder-class", name, "--files", "0.log"]) == 0
    assert capfd.readouterr().out.endswith(f" key: k payload: {shown}\n")


def test_a_value_too_short_for_its_decoder_is_one_line(
    in_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (in_directory / "0.log").write_bytes(build_batch([Record(0, 5, b"k", b"abc")]))
    name = "org.apache.kafka.tools.api.IntegerDecoder"
    assert main(["dump", "--value-decoder-class", name, "--files", "0.log"]) == 1
    told = capfd.readouterr()
    # Kafka's tool prints up to here.
    assert told.out.endswith(" headerKeys: []\n")
    assert told.err == "error: 0.log at byte 0: 3 bytes are no integer; 0 batches with 0 records follow\n"
