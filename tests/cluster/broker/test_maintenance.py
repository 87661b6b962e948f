"""A broker's own work on its logs: retention, compaction, deletion of files, expiry of producers."""

from __future__ import annotations

import errno
from dataclasses import replace
from unittest.mock import patch

import pytest

from cluster.core.bounds import StepBounds
from cluster.core.broker.passes import Pass
from cluster.core.config import BrokerConfig
from cluster.core.effects import Effect, RunJob, SetTimer, Stop
from cluster.core.events import JobDone, Shutdown
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, RemoveTopicRecord, TopicConfigRecord, TopicRecord
from cluster.core.replica.replica import Replica
from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.errors import CorruptBatch, OutOfHandles
from storage.log import PartitionLog
from storage.log.retention import Retention
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import observed, of, only

T0 = TopicPartition("t", 0)
TOPIC_ID = "1f" * 16
LED_HERE = PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "400", "message.timestamp.type": "LogAppendTime"}
DELETE = {"segment.bytes": "400", "retention.ms": "60000", "message.timestamp.type": "LogAppendTime"}

USUAL = StepBounds()


def broker_with(
    configs: dict[str, str], *, has_cleaner: bool = True, steps: StepBounds = USUAL
) -> BrokerSetup:
    setup = BrokerSetup(log_cleaner_enable=has_cleaner, steps=steps)
    setup.boot()
    setup.metadata(TopicRecord(name="t", topic_id=TOPIC_ID, configs=tuple(configs.items())), LED_HERE)
    return setup


def log_of(setup: BrokerSetup) -> PartitionLog:
    return setup.broker.replicas()[T0].log


def produce(setup: BrokerSetup, *keys: int) -> list[Effect]:
    """Produce one batch of about 90 bytes for each key."""
    effects = []
    for key in keys:
        data = build_batch([Record(0, setup.now_ms, b"%d" % key, bytes(20))])
        asked = ProducePartition(topic_partition=T0, records=data)
        effects += setup.ask(ProduceRequest(acks=1, partitions=(asked,)))
    return effects


def names(setup: BrokerSetup) -> list[str]:
    return setup.disk.file_system(Life("eye")).list("data/t-0")


def keys_in(log: PartitionLog) -> list[bytes | None]:
    return [
        record.key
        for segment in log.local.segments
        for batch in segment.records.batches()
        for record in batch.records()
    ]


def run_jobs(setup: BrokerSetup, effects: list[Effect]) -> list[Effect]:
    """Run jobs until no more are asked for. Returns all effects."""
    everything = list(effects)
    while jobs := of(effects, RunJob):
        effects = [each for job in jobs for each in setup.finish(job)]
        everything += effects
    return everything


def timer_of(effects: list[Effect], key: str) -> int:
    (found,) = [timer.at_ms for timer in of(effects, SetTimer) if timer.key == key]
    return found


# Retention


def test_rt5_old_segments_are_deleted_at_the_check_and_the_next_one_is_set() -> None:
    setup = BrokerSetup()
    first = timer_of(setup.start(), "logs.retention")
    assert first == setup.now_ms + 30_000
    setup = broker_with(DELETE)
    produce(setup, *range(9))
    log = log_of(setup)
    assert len(log.local.segments) == 3
    effects = setup.fire("logs.retention", 60_000)
    assert observed(effects, "log.segments_deleted") == []
    effects = setup.fire("logs.retention", 1)
    assert timer_of(effects, "logs.retention") == setup.now_ms + 300_000
    assert observed(effects, "log.segments_deleted") == [
        {"topic_partition": "t-0", "segments": 3, "log_start_offset": 9}
    ]
    assert (log.log_start_offset, log.local.segments.base_offsets) == (9, [9])


def test_rt5_a_check_that_runs_out_of_descriptors_tells_what_it_has_deleted() -> None:
    setup = broker_with(DELETE)
    produce(setup, *range(9))
    log = log_of(setup)
    second = log.local.segments.base_offsets[1]
    delete_old = Retention.delete_old

    def runs_out(self: Retention, now_ms: int, *, at_most: int) -> int:
        delete_old(self, now_ms, at_most=1)
        raise OutOfHandles("too many open files")

    with patch.object(Retention, "delete_old", runs_out):
        effects = setup.fire("logs.retention", 60_001)
    assert observed(effects, "log.segments_deleted") == [
        {"topic_partition": "t-0", "segments": 1, "log_start_offset": second}
    ]


def test_rt5_many_old_segments_are_deleted_in_several_steps_within_one_check() -> None:
    setup = broker_with(DELETE)
    produce(setup, *range(95))
    log = log_of(setup)
    assert len(log.local.segments) == 24, log.local.segments.base_offsets
    setup.fire("logs.retention", 60_001)
    began_ms = setup.now_ms
    assert len(log.local.segments) == 24 - USUAL.segments
    # What comes meanwhile is served.
    produce(setup, 95)
    effects = setup.fire("logs.retention", 1)
    assert len(log.local.segments) == 1
    assert timer_of(effects, "logs.retention") == began_ms + 300_000


def test_rt5_with_small_bounds_a_step_deletes_two_segments() -> None:
    setup = broker_with(DELETE, steps=StepBounds(segments=2))
    produce(setup, *range(23))
    log = log_of(setup)
    left = [len(log.local.segments)]
    effects = setup.fire("logs.retention", 60_001)
    began_ms = setup.now_ms
    while timer_of(effects, "logs.retention") == setup.now_ms + 1:
        left.append(len(log.local.segments))
        effects = setup.fire("logs.retention", 1)
    # The last of them was active: an empty segment takes its place.
    assert left == [6, 4, 2, 1]
    assert len(log.local.segments) == 1
    assert timer_of(effects, "logs.retention") == began_ms + 300_000


@pytest.mark.parametrize("timer", ["logs.retention", "logs.producers"])
def test_rt5_ps13_a_pass_visits_as_many_logs_a_step_as_its_bounds_say(timer: str) -> None:
    setup = BrokerSetup(steps=StepBounds(logs=1, producers=1))
    setup.boot()
    setup.metadata(
        TopicRecord(name="t", topic_id=TOPIC_ID, configs=tuple(DELETE.items())),
        *(replace(LED_HERE, partition=partition) for partition in range(3)),
    )
    steps, effects = 1, setup.fire(timer, 0)
    while timer_of(effects, timer) == setup.now_ms + 1:
        steps, effects = steps + 1, setup.fire(timer, 1)
    assert steps == 3


def test_cl10_the_bounds_say_how_many_segments_a_compaction_swaps_for_one() -> None:
    def segments_left(swapped: int) -> int:
        setup = broker_with(COMPACT | {"segment.bytes": "4000"}, steps=StepBounds(swapped_segments=swapped))
        for number in range(9):
            produce(setup, number % 2)
            log_of(setup).flushes.roll(now_ms=setup.now_ms)
        run_jobs(setup, setup.fire("logs.cleaner", 15_000))
        return len(log_of(setup).local.segments)

    assert segments_left(1) > segments_left(3) > segments_left(128)


def test_rt5_a_check_of_many_logs_takes_several_steps() -> None:
    setup = BrokerSetup()
    setup.boot()
    visited: list[str] = []

    def visit(replica: Replica, now_ms: int, room: int) -> tuple[int, bool]:
        visited.append(replica.name)
        return 10, False

    setup.metadata(
        TopicRecord(name="t", topic_id=TOPIC_ID, configs=()),
        *(replace(LED_HERE, partition=partition) for partition in range(5)),
    )
    context = setup.broker.maintenance._context
    slices = Pass(context, "logs.retention", visit, interval_ms=300_000, room=20)
    slices.arm(setup.now_ms)
    for expected in (2, 4, 5):
        setup.fire("logs.retention", 1)
        assert len(visited) == expected
    assert visited == [f"t-{partition}" for partition in range(5)]


def test_rt3_files_stay_readable_under_another_name_for_the_configured_delay() -> None:
    setup = broker_with({**DELETE, "file.delete.delay.ms": "5000"})
    produce(setup, *range(5))
    first = log_of(setup).local.segments.first
    assert first is not None
    effects = setup.fire("logs.retention", 70_000)
    assert timer_of(effects, "logs.deletion") == setup.now_ms + 5_000
    gone = [name for name in names(setup) if name.endswith(".deleted")]
    assert f"{0:020d}.log.deleted" in gone
    assert len(list(first.records.batches())) > 0
    effects = setup.fire("logs.deletion", 4_999)
    assert of(effects, RunJob) == []
    run_jobs(setup, setup.fire("logs.deletion", 1))
    assert [name for name in names(setup) if name.endswith(".deleted")] == []


def test_rt3_files_of_a_shorter_delay_do_not_wait_for_those_of_a_longer_one() -> None:
    setup = broker_with({**DELETE, "file.delete.delay.ms": "300000"})
    produce(setup, *range(5))
    effects = setup.fire("logs.retention", 70_000)
    assert timer_of(effects, "logs.deletion") == setup.now_ms + 300_000
    shorter = {**DELETE, "file.delete.delay.ms": "5000"}
    setup.metadata(TopicConfigRecord(topic="t", configs=tuple(shorter.items())))
    produce(setup, *range(5))
    effects = setup.fire("logs.retention", 70_000)
    assert timer_of(effects, "logs.deletion") == setup.now_ms + 5_000


def test_retention_leaves_compacted_topics_to_the_cleaner() -> None:
    setup = broker_with({**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "60000"})
    produce(setup, *range(9))
    setup.fire("logs.retention", 70_000)
    assert log_of(setup).log_start_offset == 0
    run_jobs(setup, setup.fire("logs.cleaner", 0))
    assert log_of(setup).log_start_offset == 9


def test_retention_takes_compacted_topics_too_where_there_is_no_cleaner() -> None:
    policy = {"cleanup.policy": "compact,delete", "retention.ms": "60000"}
    setup = broker_with({**COMPACT, **policy}, has_cleaner=False)
    produce(setup, *range(9))
    setup.fire("logs.retention", 70_000)
    assert log_of(setup).log_start_offset == 9


def test_nothing_is_done_to_logs_whose_topic_is_not_known_yet() -> None:
    setup = broker_with({**DELETE, "retention.ms": "-1"})
    produce(setup, *range(9))
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    again.start()
    # The idle time is above the broker's own retention.
    again.now_ms += 8 * 86_400_000
    again.fire("logs.retention")
    again.fire("logs.cleaner")
    again.fire("logs.producers")
    assert again.broker._logs.directories.online[0].logs["t-0"].log_start_offset == 0


# Compaction


def test_cl4_the_cleaner_cleans_in_jobs_and_notes_how_far() -> None:
    setup = broker_with(COMPACT)
    produce(setup, *(number % 2 for number in range(12)))
    log = log_of(setup)
    effects = setup.fire("logs.cleaner", 15_000)
    assert [job.kind for job in of(effects, RunJob)] == ["compact"]
    # The unfinished round shows nothing.
    assert len(keys_in(log)) == 12
    everything = run_jobs(setup, effects)
    (told,) = observed(everything, "log.compacted")
    assert (told["topic_partition"], told["end_offset"]) == ("t-0", log.local.segments.active.base_offset)
    assert int(told["bytes_after"]) < int(told["bytes_before"])
    active = len(list(log.local.segments.active.records.batches()))
    assert len(keys_in(log)) == 2 + active
    assert setup.broker.maintenance.cleaners["data"].checkpoints == {
        ("t", 0): log.local.segments.active.base_offset
    }
    assert timer_of(everything, "logs.cleaner") == setup.now_ms + 15_000
    # Nothing is dirty.
    assert of(setup.fire("logs.cleaner", 15_000), RunJob) == []


def test_cl4_small_bounds_split_a_round_into_more_jobs_and_change_nothing_of_its_outcome() -> None:
    def cleaned(steps: StepBounds) -> tuple[int, list[bytes | None], object]:
        setup = broker_with(COMPACT, steps=steps)
        produce(setup, *(number % 2 for number in range(23)))
        everything = run_jobs(setup, setup.fire("logs.cleaner", 15_000))
        jobs = [job for job in of(everything, RunJob) if job.kind == "compact"]
        return len(jobs), keys_in(log_of(setup)), setup.broker.maintenance.cleaners["data"].checkpoints

    few, keys, checkpoints = cleaned(StepBounds())
    many, same_keys, same_checkpoints = cleaned(
        StepBounds(planned_segments=1, swapped_segments=2, compacted_bytes=64)
    )
    assert (same_keys, same_checkpoints) == (keys, checkpoints)
    assert many > few


def test_cl4_after_a_round_the_next_log_is_cleaned_at_once() -> None:
    setup = broker_with(COMPACT)
    other = TopicRecord(name="u", topic_id="2f" * 16, configs=tuple(COMPACT.items()))
    setup.metadata(other, PartitionRecord(topic="u", partition=0, replicas=(1,), isr=(1,), leader=1))
    for topic in ("t", "u"):
        for number in range(12):
            data = build_batch([Record(0, setup.now_ms, b"%d" % (number % 2), bytes(20))])
            asked = ProducePartition(topic_partition=TopicPartition(topic, 0), records=data)
            setup.ask(ProduceRequest(acks=1, partitions=(asked,)))
    everything = run_jobs(setup, setup.fire("logs.cleaner", 15_000))
    told = observed(everything, "log.compacted")
    assert sorted(str(each["topic_partition"]) for each in told) == ["t-0", "u-0"]


def test_compaction_finds_its_checkpoint_again_after_a_crash() -> None:
    setup = broker_with(COMPACT)
    produce(setup, *(number % 2 for number in range(12)))
    run_jobs(setup, setup.fire("logs.cleaner", 15_000))
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    again.start()
    assert list(again.broker.maintenance.cleaners["data"].checkpoints) == [("t", 0)]


def begin_round(setup: BrokerSetup) -> RunJob:
    """Start a round. Returns the job that writes the first new segment."""
    produce(setup, *(number % 2 for number in range(12)))
    effects = setup.finish(only(setup.fire("logs.cleaner", 15_000), RunJob))
    assert any(name.endswith(".cleaned") for name in names(setup))
    return only(effects, RunJob)


def finish_as_it_ends(setup: BrokerSetup, job: RunJob) -> list[Effect]:
    """Run the job and report its end. It may fail, because its files may be deleted."""
    try:
        job.work()
    except OSError as error:
        return setup.broker.step(setup.now_ms, JobDone(job=job.job, error=error))
    return setup.broker.step(setup.now_ms, JobDone(job=job.job, error=None))


def assert_dropped(setup: BrokerSetup, effects: list[Effect]) -> None:
    assert of(effects, Stop) == [] and of(effects, RunJob) == []
    assert observed(effects, "log.compacted") == []
    assert not any(name.endswith(".cleaned") for name in names(setup))
    assert timer_of(effects, "logs.cleaner") == setup.now_ms + 15_000


def test_rt16_a_truncation_aborts_the_round_and_lowers_the_checkpoint() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.broker.manager.truncations.truncate(setup.now_ms, setup.broker.replicas()[T0], 5)
    assert_dropped(setup, setup.finish(job))
    assert log_of(setup).log_end_offset == 5
    assert keys_in(log_of(setup)) == [b"0", b"1", b"0", b"1", b"0"]
    setup.broker.maintenance.cleaners["data"]._update(("t", 0), 5)
    produce(setup, *(number % 2 for number in range(7)))
    setup.broker.manager.truncations.truncate(setup.now_ms, setup.broker.replicas()[T0], 6)
    base = log_of(setup).local.segments.active.base_offset
    assert setup.broker.maintenance.cleaners["data"].checkpoints[("t", 0)] == min(5, base)


@pytest.mark.parametrize("how", ["cut", "deleted"])
def test_ap16_a_disk_error_counts_in_a_round_that_was_aborted_too(how: str) -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    if how == "cut":
        setup.broker.manager.truncations.truncate(setup.now_ms, setup.broker.replicas()[T0], 5)
    else:
        setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    effects = setup.finish(job, OSError(errno.EIO, "Input/output error"))
    assert len(of(effects, Stop)) == 1


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOENT])
def test_a_file_that_an_abort_has_closed_or_removed_is_no_disk_error(number: int) -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.broker.manager.truncations.truncate(setup.now_ms, setup.broker.replicas()[T0], 5)
    assert_dropped(setup, setup.finish(job, OSError(number, "gone")))


def test_truncating_everything_aborts_the_round() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.broker.manager.truncations.truncate_fully(setup.now_ms, setup.broker.replicas()[T0], 3)
    assert_dropped(setup, finish_as_it_ends(setup, job))


def test_cl23_a_topic_that_is_deleted_meanwhile_takes_the_round_with_it() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    effects = finish_as_it_ends(setup, job)
    assert of(effects, Stop) == []
    assert setup.broker.maintenance.cleaners["data"].checkpoints == {}


def test_a_topic_that_is_not_compacted_any_more_drops_the_round() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.metadata(TopicConfigRecord(topic="t", configs=(("cleanup.policy", "delete"),)))
    assert_dropped(setup, setup.finish(job))


def test_cl6_damage_makes_one_log_uncleanable_and_the_broker_continues() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    effects = setup.finish(job, CorruptBatch("x.log", 7, "damaged"))
    assert_dropped(setup, effects)
    assert observed(effects, "log.uncleanable") == [
        {"topic_partition": "t-0", "reason": "x.log at byte 7: damaged"}
    ]
    assert of(setup.fire("logs.cleaner", 15_000), RunJob) == []


def test_cl6_a_disk_that_fails_a_round_ends_the_broker() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    effects = setup.finish(job, OSError(errno.EIO, "input/output error"))
    assert "compaction" in only(effects, Stop).reason


def test_an_orderly_stop_removes_what_a_round_has_written() -> None:
    setup = broker_with(COMPACT)
    job = begin_round(setup)
    setup.broker.step(setup.now_ms, Shutdown())
    effects = setup.fire("broker.shutdown", 10_000)
    assert of(setup.finish(job), Stop) == []
    stopped = setup.finish(only(effects, RunJob))
    assert only(stopped, Stop).reason == "shutdown"
    assert not any(name.endswith(".cleaned") for name in names(setup))
    assert log_of(setup).log_end_offset == 12


def test_a_topic_of_the_same_name_begins_dirty() -> None:
    setup = broker_with(COMPACT)
    produce(setup, *(number % 2 for number in range(12)))
    run_jobs(setup, setup.fire("logs.cleaner", 15_000))
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.metadata(TopicRecord(name="t", topic_id="2f" * 16, configs=tuple(COMPACT.items())), LED_HERE)
    assert setup.broker.maintenance.cleaners["data"].checkpoints == {}
    produce(setup, *(number % 2 for number in range(12)))
    assert of(setup.fire("logs.cleaner", 15_000), RunJob) != []


# Producers


def test_ps13_idle_producers_are_forgotten() -> None:
    setup = broker_with({})
    data = build_batch(
        [Record(0, setup.now_ms, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    asked = ProducePartition(topic_partition=T0, records=data)
    setup.ask(ProduceRequest(acks=1, partitions=(asked,)))
    setup.fire("logs.producers", 86_399_999)
    assert list(log_of(setup).producers.producers) == [7]
    effects = setup.fire("logs.producers", 1)
    assert list(log_of(setup).producers.producers) == []
    assert timer_of(effects, "logs.producers") == setup.now_ms + 600_000


def test_the_defaults_are_kafkas() -> None:
    config = BrokerConfig(node_id=1)
    assert (config.log_initial_task_delay_ms, config.log_retention_check_interval_ms) == (30_000, 300_000)
    assert (config.log_cleaner_enable, config.log_cleaner_backoff_ms) == (True, 15_000)
    assert (config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_size) == (1 << 27, 1 << 19)
    assert config.producer_id_expiration_check_interval_ms == 600_000
