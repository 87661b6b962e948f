"""Directories written here, read by real Kafka: by its dump tool, by a broker that starts on them, by its consumer."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.batch import iterate_batches
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.checkpoints import PartitionMetadataFile
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.log import Isolation, PartitionLog
from tests.interop import judge
from tests.interop.judge import COMMITTED, UNCOMMITTED, Consumed, Json, dumped_here
from tests.interop.shapes import SHAPES, START_MS, Written, write_shape

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = [shape.name for shape in SHAPES]
# Nothing may change unseen by the test: no cleaner, no retention, and deletions only long after its end.
QUIET = ("log.cleaner.enable=false", "log.retention.check.interval.ms=3600000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Kafka's reading of the directory, and a copy of the directory from before."""

    data: Path
    # The copy, as replog left it.
    before: Path
    written: dict[str, list[Written]]
    stable: dict[str, int]
    consumed: Consumed
    complaints: list[str]
    log: str


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, kafka: None) -> Judged:
    data = tmp_path_factory.mktemp("written-here")
    with judge.broker(data, *QUIET) as broker:
        # The metadata must know the topics, or their logs are strays. Retention stays off because timestamps
        # are old.
        broker.clients("create", *({"name": each.name, "config": each.properties} for each in SHAPES))
    written, stable = _write_all(judge.log_directory(data))
    before = data / "before"
    shutil.copytree(judge.log_directory(data), before)
    with judge.broker(data, *QUIET) as broker:
        consumed = broker.consume(TOPICS)
        complaints, log = broker.complaints(), broker.log
    return Judged(
        data=data,
        before=before,
        written=written,
        stable=stable,
        consumed=consumed,
        complaints=complaints,
        log=log,
    )


def _write_all(directory: Path) -> tuple[dict[str, list[Written]], dict[str, int]]:
    """Replace the broker's empty logs by our own, with the same topic ids, and stop in order."""
    file_system = OsFileSystem()
    topic_ids: dict[str, str] = {}
    for shape in SHAPES:
        path = directory / f"{shape.name}-0"
        topic_id = PartitionMetadataFile(file_system, str(path)).read()
        assert topic_id is not None, shape.name
        topic_ids[shape.name] = topic_id
        shutil.rmtree(path)
    manager = LogManager(file_system, str(directory), LogConfig(), START_MS, Draws(1))
    manager.load(START_MS)
    written, stable = {}, {}
    for shape in SHAPES:
        log = manager.create(shape.name, 0, shape.config, topic_ids[shape.name], START_MS)
        writer = write_shape(shape, log)
        written[shape.name], stable[shape.name] = writer.found, writer.last_stable_offset
    assert manager.shutdown(now_ms=START_MS)
    return written, stable


def _described(record: Written, *, is_log_append_time: bool) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if is_log_append_time else "CreateTime",
        "leader_epoch": 0,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": [[name, None if value is None else value.hex()] for name, value in record.headers],
    }


def test_a_broker_starts_without_recovery_and_without_complaints_about_any_log(judged: Judged) -> None:
    assert "since clean shutdown file was found" in judged.log
    assert judged.complaints == []


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_reads_every_record_as_it_was_appended(topic: str, judged: Judged) -> None:
    records, summary = judged.consumed[topic, UNCOMMITTED]
    expected = [
        _described(each, is_log_append_time=topic == "ours-log-append-time") for each in judged.written[topic]
    ]
    assert records == expected
    assert summary["position"] == summary["end"]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_consumer_of_committed_transactions_reads_up_to_the_first_open_one(
    topic: str, judged: Judged
) -> None:
    records, summary = judged.consumed[topic, COMMITTED]
    visible = [each.offset for each in judged.written[topic] if each.is_committed]
    assert [record["offset"] for record in records] == visible
    assert summary["end"] == judged.stable[topic]


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_kafkas_dump_tool_prints_the_same_lines_of_every_file(kind: str, judged: Judged) -> None:
    paths = sorted(judged.before.glob(f"ours-*/*.{kind}"))
    theirs = judge.dumped(paths, print_data_log=kind == "log")
    ours = dumped_here(paths, print_data_log=kind == "log")
    assert len(theirs) == len(paths) > 2
    for path in map(str, paths):
        assert ours[path] == theirs[path], path


def test_what_kafka_leaves_reads_here_as_before(judged: Judged) -> None:
    """After Kafka's own orderly stop, the bytes of each log are still those written here."""
    directory = judge.log_directory(judged.data)
    for shape in SHAPES:
        ours, theirs = judged.before / f"{shape.name}-0", directory / f"{shape.name}-0"
        assert _logs(ours) == _logs(theirs), shape.name
        log = PartitionLog.open(OsFileSystem(), str(theirs), shape.config, clean=True, now_ms=START_MS)
        offsets = _offsets(log)
        log.close_handles()
        visible = {record.offset for record in judged.written[shape.name]}
        assert visible <= offsets, shape.name


def _logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def _offsets(log: PartitionLog) -> set[int]:
    found: set[int] = set()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_size=1 << 20, isolation=Isolation.LOG_END).records
        for batch in iterate_batches(data):
            found.update(record.offset for record in batch.records())
            offset = batch.last_offset + 1
    return found
