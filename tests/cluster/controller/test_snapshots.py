"""Snapshots of the metadata: written beside the log, loaded at the start, skipped when damaged (KR-SNP)."""

from __future__ import annotations

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.metadata_damage import DamagedMetadataLog
from cluster.core.effects import RunJob, Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import AlterTopicConfigsRequest, CreateTopicRequest, DeleteTopicRequest
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import ClusterRecord
from cluster.core.metadata.snapshots import (
    decode_snapshot,
    encode_snapshot,
    image_of_snapshot,
    parse_snapshot_name,
    records_of_image,
    snapshot_file_name,
)
from sim.disk import SimDisk, SimFileSystem
from sim.disk.life import Dead, Life
from sim.disk.survival import PowerLoss
from storage.disk.filesystem import OpenMode, join, read_file
from storage.draws import Draws
from storage.errors import CorruptBatch, InvalidRecord
from tests.cluster.controller.setup import DIRECTORY, ControllerBench

LOG = f"{DIRECTORY}/__cluster_metadata-0"
# A snapshot after every few changes.
OFTEN = ControllerConfig(metadata_log_max_record_bytes_between_snapshots=2_000)


def eye(bench: ControllerBench) -> SimFileSystem:
    return bench.disk.file_system(Life("eye"))


def snapshots(bench: ControllerBench) -> list[str]:
    return [name for name in eye(bench).list(LOG) if parse_snapshot_name(name) is not None]


def rich(config: ControllerConfig = OFTEN) -> ControllerBench:
    """Return a controller whose image has something of everything."""
    bench = ControllerBench(config).unfenced(1, 2, 3)
    for number in range(20):
        bench.create(f"topic-{number}", partitions=3, replication_factor=3)
    bench.ask(AlterTopicConfigsRequest(name="topic-1", configs=(("retention.ms", "5"),)))
    bench.ask(DeleteTopicRequest(name="topic-2"))
    bench.fence(2)
    bench.register(2, "second")
    bench.heartbeat(2)
    return bench


def overwrite(bench: ControllerBench, name: str, data: bytes) -> None:
    file = eye(bench).open(join(LOG, name), OpenMode.CREATE)
    file.set_length(0)
    file.write_at(0, data)
    file.close()


def flip(bench: ControllerBench, name: str) -> None:
    data = bytearray(read_file(eye(bench), join(LOG, name)))
    data[len(data) // 2] ^= 0x10
    overwrite(bench, name, bytes(data))


def test_krsnp1_the_name_has_the_exclusive_end_and_the_epoch() -> None:
    assert snapshot_file_name(123, 4) == "00000000000000000123-0000000004.checkpoint"
    assert parse_snapshot_name("00000000000000000123-0000000004.checkpoint") == (123, 4)
    for other in ("leader-epoch-checkpoint", "123-4.checkpoint", f"{snapshot_file_name(1, 1)}.tmp"):
        assert parse_snapshot_name(other) is None


def test_krsnp5_an_image_survives_its_snapshot_and_gains_nothing() -> None:
    image = rich().controller.image
    data = encode_snapshot(records_of_image(image), epoch=3, timestamp_ms=5, max_bytes=4 << 10)
    snapshot = decode_snapshot(data, end_offset=image.next_offset, epoch=3)
    assert image_of_snapshot(snapshot) == image
    empty = encode_snapshot(records_of_image(MetadataImage()), epoch=0, timestamp_ms=5, max_bytes=4 << 10)
    assert image_of_snapshot(decode_snapshot(empty, end_offset=0, epoch=0)) == MetadataImage()


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    image = rich().controller.image
    data = encode_snapshot(records_of_image(image), epoch=3, timestamp_ms=5, max_bytes=4 << 10)
    for size_bytes in range(0, len(data), 293):
        with pytest.raises((InvalidRecord, CorruptBatch)):
            decode_snapshot(data[:size_bytes], end_offset=9, epoch=3)
    for place in range(20, len(data), 293):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises((InvalidRecord, CorruptBatch)):
            decode_snapshot(bytes(damaged), end_offset=9, epoch=3)


def test_snapshots_are_written_as_the_log_grows_and_the_two_newest_are_kept() -> None:
    bench = rich()
    ends = [each["end_offset"] for each in bench.observed("metadata.snapshot_written")]
    assert len(ends) > 3 and not bench.observed("metadata.snapshot_failed")
    kept = [parse_snapshot_name(name) for name in snapshots(bench)]
    assert [each[0] for each in kept if each is not None] == ends[-2:]
    assert not [name for name in eye(bench).list(LOG) if name.endswith(".tmp")]


def test_a_start_loads_the_newest_snapshot_and_replays_from_its_end() -> None:
    bench = rich()
    image = bench.controller.image
    newest = snapshots(bench)[-1]
    end_offset, epoch = parse_snapshot_name(newest) or (0, 0)
    assert 0 < end_offset < image.next_offset
    bench.crash_and_restart()
    assert bench.controller.image == image and not bench.observed("metadata.snapshot_skipped")
    # What only the snapshot says shows that it was loaded.
    snapshot = decode_snapshot(read_file(eye(bench), join(LOG, newest)), end_offset=end_offset, epoch=epoch)
    records = [ClusterRecord(cluster_id="of the snapshot"), *snapshot.records[1:]]
    overwrite(bench, newest, encode_snapshot(records, epoch=epoch, timestamp_ms=1, max_bytes=4 << 10))
    bench.crash_and_restart()
    assert bench.controller.image.cluster_id == "of the snapshot"
    assert bench.controller.image.topics == image.topics


@pytest.mark.parametrize("count", [1, 2])
def test_a_damaged_snapshot_is_skipped_with_its_reason(count: int) -> None:
    bench = rich()
    image = bench.controller.image
    damaged = list(reversed(snapshots(bench)))[:count]
    for name in damaged:
        flip(bench, name)
    bench.crash_and_restart()
    skipped = [str(each["reason"]) for each in bench.observed("metadata.snapshot_skipped")]
    assert [reason.split(": ")[0] for reason in skipped] == [join(LOG, name) for name in damaged]
    assert bench.controller.image == image


def test_a_log_that_ends_before_its_snapshot_is_refused() -> None:
    bench = rich()
    overwrite(bench, snapshot_file_name(99_999, 0), read_file(eye(bench), join(LOG, snapshots(bench)[-1])))
    with pytest.raises(DamagedMetadataLog, match="offsets up to 99999 were committed"):
        bench.crash_and_restart()


def due_snapshot(bench: ControllerBench) -> RunJob:
    """Create topics until a snapshot is due. Returns its job, which has not run."""
    for number in range(99):
        bench.step(CreateTopicRequest(name=f"due-{number}"))
        while bench.jobs:
            job = bench.jobs.pop(0)
            if job.kind == "snapshot":
                return job
            job.work()
            bench.finish(job)
    raise AssertionError("no snapshot is due")


def test_a_snapshot_that_cannot_be_written_costs_nothing() -> None:
    bench = ControllerBench(OFTEN).unfenced(1)
    effects = bench.finish(due_snapshot(bench), OSError(28, "No space left on device"))
    assert not any(isinstance(each, Stop) for each in effects)
    (failed,) = bench.observed("metadata.snapshot_failed")
    assert "No space" in str(failed["reason"])
    assert bench.create("after").error is ErrorCode.NONE
    image = bench.controller.image
    bench.crash_and_restart()
    assert bench.controller.image == image
    # The next one is tried after as many bytes again.
    due_snapshot(bench)


def test_an_orderly_stop_waits_for_the_snapshot_that_is_written() -> None:
    bench = ControllerBench(OFTEN).unfenced(1)
    job = due_snapshot(bench)
    assert not bench.shut_down()
    job.work()
    assert bench.finish(job)[-1] == Stop(reason="shutdown")


def test_changes_after_a_snapshot_was_prepared_are_not_in_it() -> None:
    bench = ControllerBench(OFTEN).unfenced(1)
    job, image = due_snapshot(bench), bench.controller.image
    bench.create("later")
    job.work()
    bench.finish(job)
    (name,) = snapshots(bench)
    end_offset, epoch = parse_snapshot_name(name) or (0, 0)
    data = read_file(eye(bench), join(LOG, name))
    assert image_of_snapshot(decode_snapshot(data, end_offset=end_offset, epoch=epoch)) == image


def run_until_death(disk: SimDisk, call: int) -> list[str]:
    """Return the topics whose creation was acknowledged before the `call`-th mutating call killed the controller."""
    told: list[str] = []
    disk.arm_crash(call)
    try:
        bench = ControllerBench(OFTEN, disk=disk).unfenced(1)
        for number in range(4):
            assert bench.create(f"topic-{number}", partitions=12).error is ErrorCode.NONE
            told.append(f"topic-{number}")
    except Dead:
        pass
    return told


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "prefix", "subset", "torn", "all"])
def test_krsnp1_a_death_at_any_call_leaves_a_snapshot_whole_or_absent(mode: PowerLoss) -> None:
    loaded = 0
    for call in range(1, 300):
        disk = SimDisk(Draws(call), lambda: 0)
        told = run_until_death(disk, call)
        disk.disarm()
        disk.lose_power(mode)
        bench = ControllerBench(OFTEN, disk=disk)
        assert set(told) <= set(bench.controller.image.topics), (call, told)
        assert not bench.observed("metadata.snapshot_skipped"), call
        loaded += bool(snapshots(bench))
        if len(told) == 4:
            break
    assert len(told) == 4 and loaded > 10, loaded
