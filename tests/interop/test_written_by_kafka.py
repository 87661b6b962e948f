"""Directories that real Kafka wrote, read here: after an orderly stop, and after it was killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.batch import Record, RecordBatch, TimestampType, iterate_batches
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.checkpoints import LEADER_EPOCH_CHECKPOINT
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.index.transaction_index import AbortedTransaction
from storage.inspection.verify.directory import verify_log_directory
from storage.log import Isolation, PartitionLog
from storage.producers.snapshot import SNAPSHOT_SUFFIX
from storage.recovery.cut import RecoveryCut
from tests.golden.snapshots import Snapshot, encoded
from tests.interop import judge
from tests.interop.judge import COMMITTED, UNCOMMITTED, Broker, Consumed, Json
from tests.interop.shapes import START_MS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

QUIET = (
    "log.cleaner.enable=false",
    "log.retention.check.interval.ms=3600000",
    "log.flush.start.offset.checkpoint.interval.ms=200",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment.index.bytes": "1024", "index.interval.bytes": "256"}
TOPICS: dict[str, dict[str, str]] = {
    **{f"theirs-{codec}": SMALL for codec in CODECS},
    "theirs-log-append-time": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "theirs-transactions": {"segment.index.bytes": "256", "index.interval.bytes": "128"},
    "theirs-rolls": {"segment.index.bytes": "64", "index.interval.bytes": "200"},
    "theirs-moved-start": {"segment.index.bytes": "64", "index.interval.bytes": "100"},
    "theirs-performance": {},
    "theirs-empty": {},
}
MOVED_TO = 23
CHECKPOINT_S = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Log directories as Kafka left them, and what its own consumer had read from them."""

    killed: Path
    clean: Path
    data: Path
    consumed: Consumed


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, kafka: None) -> Given:
    data = tmp_path_factory.mktemp("written-by-kafka")
    broker = Broker(data, QUIET)
    try:
        _produce(broker)
        consumed = broker.consume(TOPICS)
        _wait_for_checkpoint(judge.log_directory(data) / "log-start-offset-checkpoint")
    finally:
        broker.stop(is_killed=True)
    killed = data / "killed"
    shutil.copytree(judge.log_directory(data), killed)
    with judge.broker(data, *QUIET):
        pass
    return Given(killed=killed, clean=judge.log_directory(data), data=data, consumed=consumed)


def _wait_for_checkpoint(path: Path) -> None:
    """Wait until the log start that was moved is on disk: a broker that is killed before forgets it."""
    deadline = time.monotonic() + CHECKPOINT_S
    while f"theirs-moved-start 0 {MOVED_TO}" not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, path
        time.sleep(0.1)


def _produce(broker: Broker) -> None:
    broker.clients("create", *({"name": name, "config": config} for name, config in TOPICS.items()))
    broker.clients("produce", *_productions())
    broker.clients("delete-before", {"name": "theirs-moved-start", "offset": MOVED_TO})
    judge.ask(
        *("run", "org.apache.kafka.tools.ProducerPerformance", "--topic", "theirs-performance"),
        *("--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.address}", "compression.type=lz4"),
    )


def _productions() -> Iterator[Json]:
    for codec in CODECS:
        yield _production(f"theirs-{codec}", _records(60), **{"compression.type": codec})
    yield _production("theirs-log-append-time", _records(40))
    yield _production("theirs-rolls", _records(120))
    yield _production("theirs-moved-start", _records(60), **{"enable.idempotence": "false"})
    transactions: list[list[object]] = []
    for number in range(10):
        verb = "abort" if number % 3 == 1 else "commit"
        transactions += [["begin"], *_records(4), [verb]]
    left: list[list[object]] = [["begin"], *_records(3), ["leave"]]
    yield _production("theirs-transactions", transactions, **{"transactional.id": "one"})
    yield _production("theirs-transactions", _records(5))
    patient = {"transactional.id": "two", "transaction.timeout.ms": "800000"}
    yield _production("theirs-transactions", left, **patient)
    yield _production("theirs-transactions", _records(5))


def _production(topic: str, steps: list[list[object]], **config: str) -> Json:
    return {"name": topic, "config": {"linger.ms": "0", "batch.size": "600", **config}, "steps": steps}


def _records(count: int) -> list[list[object]]:
    """Return sends of every kind. Here and there one ends a batch."""
    steps: list[list[object]] = []
    for number in range(count):
        key = None if number % 5 == 0 else f"key {number}".encode().hex()
        value = None if number % 11 == 7 else (f"value {number} " * (number % 9)).encode().hex()
        headers = [["h", "00ff"], ["h", None]] if number % 6 == 3 else []
        steps.append(["send", key, value, START_MS + 37 * number - 900 * (number % 4), headers])
        if number % 4 == 3:
            steps.append(["flush"])
    return steps


def _load(directory: Path) -> tuple[LogManager, list[RecoveryCut]]:
    cuts: list[RecoveryCut] = []
    manager = LogManager(OsFileSystem(), str(directory), LogConfig(), START_MS, Draws(1), report=cuts.append)
    manager.load(START_MS, config_of=lambda topic: LogConfig.from_properties(TOPICS.get(topic, {})))
    return manager, cuts


def _read(log: PartitionLog, isolation: Isolation) -> list[Json]:
    """Return the records that a consumer sees, in the form of the Java consumer's."""
    log.marks.update_high_watermark(log.log_end_offset)
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        fetched = log.read(offset, max_size=1 << 20, isolation=isolation)
        if not fetched.records:
            break
        batches = [each for each in iterate_batches(fetched.records) if each.next_offset > offset]
        found += [
            _described(batch, record)
            for batch in _visible(batches, fetched.aborted_transactions or ())
            for record in batch.records()
            if record.offset >= offset
        ]
        offset = batches[-1].next_offset
    return found


def _visible(
    batches: list[RecordBatch], transactions: tuple[AbortedTransaction, ...]
) -> Iterator[RecordBatch]:
    """Yield the records without markers, and without those of aborted transactions."""
    waiting = sorted(transactions, key=lambda each: each.first_offset)
    aborted: set[int] = set()
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if batch.is_control:
            aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            yield batch


def _described(batch: RecordBatch, record: Record) -> Json:
    is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if is_append_time else "CreateTime",
        "leader_epoch": batch.partition_leader_epoch,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": [[name, None if value is None else value.hex()] for name, value in record.headers],
    }


@pytest.fixture(params=["clean", "killed"])
def copied(request: pytest.FixtureRequest, given: Given, tmp_path: Path) -> Path:
    target = tmp_path / "logs"
    shutil.copytree(given.clean if request.param == "clean" else given.killed, target)
    return target


def test_every_log_opens_without_a_cut_and_reads_as_kafkas_consumer_reads_it(
    copied: Path, given: Given
) -> None:
    manager, cuts = _load(copied)
    for topic in TOPICS:
        log = manager.get(topic, 0)
        assert log is not None, topic
        for isolation, kafkas in ((Isolation.LOG_END, UNCOMMITTED), (Isolation.TXN_COMMITTED, COMMITTED)):
            records, _ = given.consumed[topic, kafkas]
            assert _read(log, isolation) == records, (topic, kafkas)
    assert cuts == []
    start = manager.logs["theirs-moved-start-0"].log_start_offset
    assert start == MOVED_TO
    manager.close_handles()


def test_verify_finds_every_log_sound(given: Given) -> None:
    reports, beside = verify_log_directory(OsFileSystem(), str(given.clean), deep=True)
    problems = [(problem.path, problem.message) for report in reports for problem in report.problems]
    assert problems == [] and beside == []
    assert {Path(report.directory).name for report in reports} >= {f"{topic}-0" for topic in TOPICS}


def test_recovery_of_a_killed_broker_leaves_the_same_bytes_as_kafkas(given: Given, tmp_path: Path) -> None:
    """Kafka and replog start on the killed directory and stop in order: logs and indexes are equal.

    Snapshots hold the same entries. Kafka's second life has an epoch of its own, in which nothing was written.
    """
    target = tmp_path / "logs"
    shutil.copytree(given.killed, target)
    manager, _ = _load(target)
    assert manager.shutdown(now_ms=START_MS)
    for topic in TOPICS:
        ours, theirs = _files(target / f"{topic}-0"), _files(given.clean / f"{topic}-0")
        epochs = ours.pop(LEADER_EPOCH_CHECKPOINT).splitlines()[2:]
        assert theirs.pop(LEADER_EPOCH_CHECKPOINT).splitlines()[2:][: len(epochs)] == epochs, topic
        assert ours == theirs, topic


def _files(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each file; for a sound producer snapshot, its entries by producer id."""
    contents = {name: (directory / name).read_bytes() for name in sorted(os.listdir(directory))}
    return {
        name: encoded(Snapshot(content).entries()) if name.endswith(SNAPSHOT_SUFFIX) else content
        for name, content in contents.items()
    }


def test_a_broker_starts_on_logs_that_replog_recovered(given: Given, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(given.killed, judge.log_directory(data))
    manager, _ = _load(judge.log_directory(data))
    assert manager.shutdown(now_ms=START_MS)
    with judge.broker(data, *QUIET) as broker:
        consumed = broker.consume(TOPICS)
        complaints, log = broker.complaints(), broker.log
    assert "since clean shutdown file was found" in log
    assert complaints == []
    for key, (records, _) in given.consumed.items():
        assert consumed[key][0] == records, key
