"""Small lives of a log directory, one for each thing that writes. A crash may come at every call of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.disk.filesystem import OpenMode
from storage.log import PartitionLog
from storage.segment.replace import create_cleaned_segment, replace_segments
from tests.crash.model import Batch
from tests.crash.stage import CONFIG, ROOT, Recording, Stage
from tests.storage.logs import batch, produced

TOPIC_ID, OTHER_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "BBBBBBBBBBBBBBBBBBBBBQ"


@dataclass(frozen=True, slots=True)
class Workload:
    """A small life of a log directory; `what` says in words what it writes."""

    name: str
    what: str
    run: Callable[[Stage], None]


def record(workload: Workload, stage: Stage | None = None) -> Recording:
    stage = Stage() if stage is None else stage
    workload.run(stage)
    return stage.finish()


# Verbs: each is one operation.


def lead(stage: Stage, count: int = 2, *, epoch: int = 0, name: str = "t-0", size: int = 20) -> None:
    """Append one batch as the leader."""
    data = produced(count, value_bytes=size, timestamp=stage.now_ms)
    stage.now_ms += 10
    stage.step(
        f"append {count} as leader of epoch {epoch}",
        lambda: stage.log(name).append_as_leader(data, leader_epoch=epoch, now_ms=stage.now_ms),
    )


def follow(stage: Stage, counts: list[int], *, epoch: int, gap: int = 0, name: str = "t-0") -> None:
    """Append batches of `counts` records as a follower, `gap` offsets above the log end."""
    offset, parts = stage.log(name).log_end_offset + gap, []
    for count in counts:
        parts.append(batch(offset, count, epoch=epoch, timestamp=stage.now_ms, value_bytes=20 + epoch))
        offset += count
        stage.now_ms += 10
    stage.step(
        f"append {len(counts)} batches as follower in epoch {epoch}",
        lambda: stage.log(name).append_as_follower(b"".join(parts), leader_epoch=epoch, now_ms=stage.now_ms),
    )


def produce(stage: Stage, producer_id: int, sequence: int, *, epoch: int = 0) -> None:
    """Append one record of a producer as the leader."""
    data = produced(
        1,
        value_bytes=20,
        producer_id=producer_id,
        producer_epoch=0,
        sequence=sequence,
        timestamp=stage.now_ms,
    )
    stage.step(
        f"append {sequence} of producer {producer_id}",
        lambda: stage.log().append_as_leader(data, leader_epoch=epoch, now_ms=stage.now_ms),
    )


def flush(stage: Stage, name: str = "t-0") -> None:
    stage.step("flush", lambda: stage.log(name).flushes.flush())


def checkpoint(stage: Stage) -> None:
    stage.step("checkpoint recovery points", lambda: stage.manager.checkpoint_recovery_points())
    stage.step("checkpoint high watermarks", lambda: stage.manager.checkpoint_high_watermarks())


def truncate(stage: Stage, offset: int, name: str = "t-0") -> None:
    stage.step(
        f"truncate {name} to {offset}", lambda: stage.log(name).truncate_to(offset, now_ms=stage.now_ms)
    )


def with_topic(
    stage: Stage, batches: int, *, epoch: int = 0, flushed: bool = True, recorded: bool = True
) -> None:
    """Make a partition of `batches` batches of two records, then start the recording."""
    stage.step("create", lambda: stage.manager.create("t", 0, topic_id=TOPIC_ID))
    for _ in range(batches):
        lead(stage, epoch=epoch)
    if flushed:
        stage.log().flushes.flush()
        stage.manager.checkpoint_recovery_points()
    if recorded:
        stage.record()


# The workloads.


def append(stage: Stage) -> None:
    with_topic(stage, 2)
    lead(stage)
    produce(stage, 7, 0)
    lead(stage, epoch=1)
    follow(stage, [1, 2], epoch=1, gap=2)
    flush(stage)
    produce(stage, 7, 1, epoch=1)


def roll(stage: Stage) -> None:
    with_topic(stage, 4)
    for _ in range(4):
        lead(stage)
    stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
    lead(stage, epoch=2)
    stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
    stage.step("roll an empty segment", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
    checkpoint(stage)
    lead(stage, epoch=2)


def truncate_and_append(stage: Stage) -> None:
    with_topic(stage, 4)
    follow(stage, [2], epoch=1)
    follow(stage, [2], epoch=2)
    # The offset is inside a batch of epoch 1.
    truncate(stage, 9)
    follow(stage, [2, 1], epoch=3, gap=1)
    # The offset is below the recovery point that the checkpoint holds.
    truncate(stage, 6)
    follow(stage, [2], epoch=4)
    flush(stage)
    checkpoint(stage)
    truncate(stage, 7)


def truncate_many(stage: Stage) -> None:
    """Truncate two partitions below their recovery points, append to both, and die before any sync."""
    stage.step("create", lambda: stage.manager.create("t", 1, topic_id=TOPIC_ID))
    for _ in range(2):
        lead(stage, name="t-1")
    stage.log("t-1").flushes.flush()
    with_topic(stage, 3)
    truncate(stage, 2)
    truncate(stage, 2, name="t-1")
    follow(stage, [2, 2], epoch=1)
    follow(stage, [2], epoch=1, name="t-1")
    stage.step("die", stage.crash)
    # What the start takes for synced is then judged, too.
    stage.step("start", stage.start)


def truncate_segments(stage: Stage) -> None:
    with_topic(stage, 14)
    checkpoint(stage)
    truncate(stage, 10)
    follow(stage, [2, 2], epoch=1)
    flush(stage)
    truncate(stage, 3)
    follow(stage, [2], epoch=2)


def truncate_fully(stage: Stage) -> None:
    with_topic(stage, 9)
    stage.step(
        "start again at 30",
        lambda: stage.log().truncation.truncate_fully_and_start_at(30, now_ms=stage.now_ms),
    )
    follow(stage, [2], epoch=1)
    flush(stage)
    checkpoint(stage)
    stage.step(
        "start again at 20",
        lambda: stage.log().truncation.truncate_fully_and_start_at(20, now_ms=stage.now_ms),
    )
    follow(stage, [2], epoch=2)


def checkpoints(stage: Stage) -> None:
    with_topic(stage, 3, flushed=False)
    lead(stage)
    flush(stage)
    checkpoint(stage)
    lead(stage, epoch=1)
    stage.step("move the high watermark", lambda: stage.log().marks.update_high_watermark(8))
    stage.step("delete records below 5", lambda: stage.log().marks.maybe_increment_log_start_offset(5))
    stage.step("checkpoint log starts", lambda: stage.manager.checkpoint_log_start_offsets())
    stage.note_durable_start()
    checkpoint(stage)
    lead(stage, epoch=1)
    flush(stage)
    checkpoint(stage)


def run_job(log: PartitionLog, work: Callable[[], None]) -> None:
    """Do what a job of the log does; its node takes a log offline whose job fails."""
    with log.online.during("job", refuses=False):
        work()


def snapshot_job(stage: Stage) -> None:
    """Write snapshots by jobs, while producers change and the log is cut."""
    with_topic(stage, 1)
    stage.log().flushes.most_in_a_roll = 1
    for producer_id in (7, 8, 9):
        produce(stage, producer_id, 0)
    for sequence in (1, 2):
        stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
        snapshot = stage.log().flushes.begin_snapshot()
        assert snapshot is not None
        produce(stage, 7, sequence)
        checkpoint(stage)
        stage.step("job", partial(run_job, stage.log(), snapshot))
        produce(stage, 8, sequence)
        if sequence == 2:
            truncate(stage, stage.log().log_end_offset - 3)
            produce(stage, 9, 1)
        stage.step("done", stage.log().flushes.snapshot_done)
        checkpoint(stage)
        produce(stage, 10, sequence - 1)
    flush(stage)


def snapshots(stage: Stage) -> None:
    """Write with so many producers that a snapshot is larger than a sector and may be torn inside."""
    with_topic(stage, 1)
    offset = stage.log().log_end_offset
    parts = [
        batch(
            offset + i,
            1,
            producer_id=100 + i,
            producer_epoch=0,
            sequence=i,
            value_bytes=0,
            timestamp=stage.now_ms,
        )
        for i in range(14)
    ]
    for half in (parts[:7], parts[7:]):
        data = b"".join(half)
        stage.step(
            "append of many producers",
            lambda data=data: stage.log().append_as_follower(data, leader_epoch=0, now_ms=stage.now_ms),  # type: ignore[misc]
        )
    stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
    produce(stage, 113, 14)
    produce(stage, 7, 0)
    stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms), synced=True)
    truncate(stage, stage.log().log_end_offset - 1)


def stop_and_start(stage: Stage) -> None:
    with_topic(stage, 7)
    lead(stage, epoch=1)
    produce(stage, 7, 0, epoch=1)
    stage.step("stop", stage.stop, synced=True)
    stage.step("start", stage.start, synced=True)
    produce(stage, 7, 1, epoch=1)
    stage.step("die", stage.crash)
    stage.step("start", stage.start)
    lead(stage, epoch=2)
    stage.step("stop", stage.stop, synced=True)


def stop_small(stage: Stage) -> None:
    """Stop with one segment: its producers are known from the snapshot of the stop alone."""
    with_topic(stage, 1)
    produce(stage, 7, 0)
    stage.step("stop", stage.stop, synced=True)
    stage.step("start", stage.start, synced=True)
    produce(stage, 7, 1)
    stage.step("stop", stage.stop, synced=True)


def retention(stage: Stage) -> None:
    with_topic(stage, 15)
    stage.step("move the high watermark", lambda: stage.log().marks.update_high_watermark(30))
    stage.log().update_config(replace(stage.config, retention_bytes=800))
    stage.step("retention by size", lambda: stage.log().retention.delete_old(stage.now_ms))
    lead(stage, epoch=1)


def compaction(stage: Stage) -> None:
    """Compact to the last value of each of four keys. One of them keeps the first segment from ever being empty."""
    stage.step("create", lambda: stage.manager.create("t", 0, topic_id=TOPIC_ID))
    log = stage.log()
    for number in range(20):
        record = Record(
            offset=0,
            timestamp=stage.now_ms,
            key=b"key-%d" % (number % 3 if number else 9),
            value=b"%030d" % number,
        )
        log.append_as_leader(build_batch([record], base_offset=0), leader_epoch=0, now_ms=stage.now_ms)
        stage.now_ms += 10
    log.flushes.roll(now_ms=stage.now_ms)
    log.marks.update_high_watermark(log.log_end_offset)
    stage.manager.checkpoint_recovery_points()
    stage.step("prepare", lambda: log.update_config(replace(stage.config, cleanup_policy="compact")))
    stage.record()
    stage.step("compact", lambda: _compact(log, stage.now_ms), keeps_some=True)
    follow(stage, [2], epoch=1)


def _compact(log: PartitionLog, now_ms: int) -> None:
    offsets, config = log.compactions.cleanable_offsets(None, now_ms), CleanerConfig(dedupe_buffer_bytes=4096)
    try:
        for work in log.compactions.prepare(offsets, config, now_ms):
            work()
    except OSError as error:
        # The node's cleaner does the same.
        raise log.online.failed("compaction", error) from error


def delete(stage: Stage) -> None:
    stage.step("create", lambda: stage.manager.create("u", 0, topic_id=TOPIC_ID))
    lead(stage, name="u-0")
    with_topic(stage, 9)
    stage.step("delete", lambda: stage.manager.delete("t", 0))
    stage.step("create again", lambda: stage.manager.create("t", 0, topic_id=OTHER_TOPIC_ID))
    lead(stage, epoch=0)
    lead(stage, name="u-0", epoch=1)
    flush(stage)


def create(stage: Stage) -> None:
    stage.record()
    stage.step("create", lambda: stage.manager.create("t", 0, topic_id=TOPIC_ID))
    stage.step("create", lambda: stage.manager.create("t", 1))
    lead(stage)
    flush(stage)
    checkpoint(stage)


def swap(stage: Stage) -> None:
    """Replace two segments by two that hold half of the batches, as compaction and splits do."""
    with_topic(stage, 15)
    stage.step("swap", lambda: _halve(stage), keeps_some=True)
    lead(stage, epoch=1)


def _halve(stage: Stage, *, joined: bool = False) -> None:
    try:
        _replace_by_half(stage, joined)
    except OSError as error:
        raise stage.log().online.failed("swap", error) from error


def _replace_by_half(stage: Stage, joined: bool) -> None:
    log = stage.log()
    old = list(log.local.segments)[:2]
    coming = []
    for sources in [old] if joined else [[segment] for segment in old]:
        segment = sources[0]
        new = create_cleaned_segment(
            log.local.file_system, log.directory, segment.base_offset, stage.config, stage.now_ms
        )
        for data in (data for source in sources for data in source.records.batches()):
            if data.base_offset % 4:
                new.append(data.last_offset, data.tobytes())
        new.on_become_inactive()
        new.flush()
        new.records.set_modified(segment.records.modified_ms())
        coming.append(new)
    replace_segments(log.local.file_system, log.directory, log.local.segments, coming, old)


def swap_joined(stage: Stage) -> None:
    """Replace two segments by one, as compaction does: an old one that came back would be beside the new one."""
    with_topic(stage, 15)
    stage.step("swap", lambda: _halve(stage, joined=True), keeps_some=True)
    lead(stage, epoch=1)


def start_after_damage(stage: Stage) -> None:
    """Start on what a crash, an older broker and a careless hand leave. Each start repairs some of it and may die."""
    with_topic(stage, 9, recorded=False)
    for sequence in range(4):
        produce(stage, 7 + sequence % 2, sequence // 2, epoch=1)
    stage.step("roll", lambda: stage.log().flushes.roll(now_ms=stage.now_ms))
    stage.manager.checkpoint_recovery_points()
    for _ in range(3):
        lead(stage, epoch=1)
    whole = _damaged(stage, -2)
    file_system, directory = stage.disk.file_system(Life()), f"{ROOT}/t-0"
    logs = [name for name in file_system.list(directory) if name.endswith(".log")]
    file_system.open(f"{directory}/{logs[-1]}", OpenMode.WRITE).append(bytes(100))
    snapshots = [name for name in file_system.list(directory) if name.endswith(".snapshot")]
    file_system.open(f"{directory}/{snapshots[-1]}", OpenMode.WRITE).write_at(16, bytes(60))
    for suffix in ("index", "timeindex"):
        file_system.unlink(f"{directory}/{logs[0].removesuffix('log')}{suffix}")
    for name in ("777.index", "3.log.deleted", "0.log.cleaned"):
        number, _, suffix = name.partition(".")
        file_system.open(f"{directory}/{int(number):020d}.{suffix}", OpenMode.CREATE).append(b"x" * 30)
    stage.record(sound_to=whole[-2].base_offset)
    stage.step("start", stage.start)
    follow(stage, [2, 1], epoch=2)
    stage.step("die", stage.crash)
    stage.step("start", stage.start)
    flush(stage)


def damage_in_the_middle(stage: Stage) -> None:
    """Damage a bit of the first segment, for which no checkpoint vouches; three sound segments follow it."""
    with_topic(stage, 21, flushed=False, recorded=False)
    whole = _damaged(stage, 3)
    stage.record(sound_to=whole[3].base_offset)
    stage.step("start", stage.start)
    follow(stage, [2], epoch=1)


def _damaged(stage: Stage, number: int) -> tuple[Batch, ...]:
    """Kill the process and change a bit of the batch with that number. Returns all the batches."""
    whole = stage.models["t-0"].batches
    stage.crash()
    file_system, directory, target = stage.disk.file_system(Life()), f"{ROOT}/t-0", whole[number]
    for name in file_system.list(directory):
        if name.endswith(".log"):
            file = file_system.open(f"{directory}/{name}", OpenMode.WRITE)
            place = file.read_at(0, file.size()).find(target.data)
            if place >= 0:
                last = place + len(target.data) - 1
                file.write_at(last, bytes([file.read_at(last, 1)[0] ^ 1]))
            file.close()
    return whole


WORKLOADS = tuple(
    Workload(name, what, run)
    for name, what, run in (
        ("append", "as leader, as follower, of a producer, in a new epoch", append),
        ("roll", "by size, by hand, of an empty segment", roll),
        ("truncate", "inside a segment, and append another history", truncate_and_append),
        ("truncate-many", "two partitions, then append to both and die", truncate_many),
        ("truncate-segments", "segments are deleted from the end", truncate_segments),
        ("truncate-fully", "a follower starts again, empty", truncate_fully),
        ("checkpoint", "recovery points, high watermarks, log starts", checkpoints),
        ("snapshot", "of many producers, at rolls and truncations", snapshots),
        ("snapshot-job", "of many producers, by a job beside appends and a truncation", snapshot_job),
        ("stop-start", "orderly stops, a death, and the starts after them", stop_and_start),
        ("stop-small", "an orderly stop of one segment", stop_small),
        ("retention", "segments are deleted from the front", retention),
        ("create", "partitions with and without a topic id", create),
        ("delete", "a partition, and make it again", delete),
        ("swap", "segments replaced by compacted ones", swap),
        ("swap-joined", "two segments replaced by one", swap_joined),
        ("compaction", "a round of the cleaner", compaction),
        ("start", "start-up over damage and leftovers", start_after_damage),
        ("start-cut", "start-up over damage in the first of four segments", damage_in_the_middle),
    )
)

# The numbers of batches above count on this size.
assert CONFIG.segment_bytes == 700
