"""A log opened on almost nothing, and on files of old brokers. Rules RD9, T27; Kafka: UnifiedLogTest."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.batch.legacy.builder import build_message_set
from storage.batch.record import Record
from storage.codec.compression import Compression
from storage.errors import StorageError
from storage.log.online import Online
from storage.log.reads import MAX_TIMESTAMP
from storage.segment.live_files import offset_of_name
from storage.validation.analysis import analyze
from tests.storage.logs import NOW_MS, append_each, batch, new_file_system, open_log, produced, read_offsets


@pytest.mark.covers("UnifiedLogTest.testLoadPartitionDirWithNoSegmentsShouldNotThrow")
def test_kafka_8564_a_directory_to_be_deleted_opens_without_segments() -> None:
    directory = "logs/topic-0.0123456789abcdef0123456789abcdef-delete"
    file_system = new_file_system()
    file_system.make_directory(directory)
    assert open_log(file_system, directory=directory).local.segments.base_offsets == [0]


def test_a_directory_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"directory: expected a str, got PosixPath: write str\(directory\)"):
        open_log(new_file_system(), directory=Path("logs/topic-0"))  # type: ignore[arg-type]


@pytest.mark.covers("UnifiedLogTest.testLogReinitializeAfterManualDelete")
def test_kafka_8306_an_empty_directory_starts_at_its_checkpointed_log_start() -> None:
    log = open_log(new_file_system(), log_start_offset=500)
    assert log.log_start_offset == log.log_end_offset == log.high_watermark == 500
    append_each(log, 1)
    assert read_offsets(log) == [500]


@pytest.mark.covers("UnifiedLogTest.testAppendToOrReadFromLogInFailedLogDir")
def test_ap16_once_offline_each_verb_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(new_file_system())
    append_each(log, 1)

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(log.local.segments.active.records), "append", failing)
    with pytest.raises(StorageError):
        append_each(log, 1)
    monkeypatch.undo()
    verbs: list[Callable[[], object]] = [
        lambda: log.append_as_leader(produced(), leader_epoch=0, now_ms=NOW_MS),
        lambda: log.append_as_follower(batch(1), leader_epoch=0, now_ms=NOW_MS),
        lambda: log.read(0, max_size=10),
        lambda: log.flushes.roll(now_ms=NOW_MS),
        lambda: log.flushes.flush(),
        lambda: log.truncate_to(0, now_ms=NOW_MS),
        lambda: log.truncation.truncate_fully_and_start_at(0, now_ms=NOW_MS),
        lambda: log.retention.delete_old(NOW_MS),
        lambda: log.close(),
    ]
    for verb in verbs:
        with pytest.raises(StorageError, match="offline"):
            verb()


@pytest.mark.covers("LocalLogTest.testOffsetFromFile")
@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted"])
def test_a_files_offset_is_the_number_before_its_first_dot(kind: str) -> None:
    assert offset_of_name(f"{23423423:020d}{kind}") == 23423423


# Files of old brokers


def old_set(*timestamps: int, magic: int) -> bytes:
    """Return a gzip wrapper around one message for each timestamp, from offset 0 on."""
    return build_message_set(
        [Record(offset, timestamp, b"k", b"v") for offset, timestamp in enumerate(timestamps)],
        magic=magic,
        compression=Compression.GZIP,
    )


def test_t27_the_last_offset_of_a_wrapper_is_used_for_its_first() -> None:
    """Only decompression shows the first offset.

    A follower does without, so it also takes a gap below the last one.
    """
    data = old_set(NOW_MS, NOW_MS + 1, NOW_MS + 2, magic=1)
    analysis = analyze(data, leader_epoch=0)
    assert (analysis.first_offset, analysis.last_offset) == (2, 2)
    assert analysis.roll_offset == 2 - (2**31 - 1)
    log = open_log(new_file_system())
    log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    assert read_offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("is_old_first", [True, False])
def test_ap11_the_format_of_the_first_batch_decides_where_a_set_may_begin(is_old_first: bool) -> None:
    old = build_message_set([Record(7, NOW_MS, b"k", b"v")], magic=1, base_offset=7)
    data = old + batch(8) if is_old_first else batch(6) + old
    found = analyze(data, leader_epoch=0)
    expected = found.last_offset - (2**31 - 1) if is_old_first else 6
    assert (found.roll_offset, found.last_offset) == (expected, 8 if is_old_first else 7)


def test_kafka_7897_a_batch_of_an_old_format_forgets_the_epochs() -> None:
    log = open_log(new_file_system())
    append_each(log, 1, epoch=5)
    data = build_message_set([Record(1, NOW_MS, b"k", b"v")], magic=1, base_offset=1)
    log.append_as_follower(data, leader_epoch=5, now_ms=NOW_MS)
    assert log.epochs.latest_epoch is None


def test_rd9_records_of_magic_0_have_no_time_to_be_found_by() -> None:
    """Kafka before 4.0 refuses to look (UnsupportedForMessageFormat); 4.1 finds nothing."""
    log = open_log(new_file_system())
    log.append_as_follower(
        build_message_set([Record(0, -1, b"k", b"v")], magic=0), leader_epoch=0, now_ms=NOW_MS
    )
    assert log.reads.offset_for_timestamp(0) is None
    assert log.local.segments.active.max_timestamp.timestamp == -1
    latest = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
    assert latest is None or latest.timestamp == -1


@pytest.mark.parametrize("refuses", [False, True])
def test_ap16_the_reason_why_a_log_is_offline_is_the_first_one(refuses: bool) -> None:
    """What the failure of a step within makes of the step around it says less."""
    online = Online("d")
    with pytest.raises(StorageError, match="flush failed"), online.during("truncate", refuses=refuses):
        with online.during("flush"):
            raise OSError(errno.EIO, "broken")
    assert online.reason is not None and online.reason.startswith("flush failed")
