"""An orderly stop forgets the ends of the jobs that it overtakes: what they met counts all the same (AP16, LL5)."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from cluster.core.broker.maintenance import CLEANER_TIMER
from cluster.core.effects import RunJob, Stop
from cluster.core.events import JobDone, Shutdown
from cluster.core.messages import TopicPartition
from sim.disk.life import Life
from storage.disk.checkpoints import CleanShutdownFile
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.broker.test_flush_job import flushing
from tests.cluster.broker.two_directories import PARTITIONS, leading, placed, produce
from tests.cluster.replica.setup import of, only

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "400",
    "min_cleanable_dirty_ratio": "0.01",
    "message_timestamp_type": "LogAppendTime",
}


def stop(setup: BrokerSetup, *under_way: RunJob) -> str:
    """Let the broker stop in order after the jobs that are under way, whose ends it does not hear of any more.

    Returns the reason of its stop.
    """
    setup.broker.step(setup.now_ms, Shutdown())
    last = only(setup.fire("broker.shutdown", 10_000), RunJob)
    assert last.kind == "shutdown"
    for job in under_way:
        with suppress(OSError):
            job.work()
    last.work()
    return only(setup.broker.step(setup.now_ms, JobDone(job=last.job, error=None)), Stop).reason


def is_marked(setup: BrokerSetup, directory: str) -> bool:
    """Whether the directory has the mark of a clean stop."""
    return CleanShutdownFile(setup.disk.file_system(Life("eye")), directory).exists()


def compacting() -> tuple[BrokerSetup, RunJob]:
    """Returns a broker with two directories, and the job that writes the first new segment of a log in `one`."""
    setup = leading(**COMPACT)
    for _ in range(16):
        produce(setup, TopicPartition("t", 0))
    effects = setup.finish(only(setup.fire(CLEANER_TIMER, 15_000), RunJob))
    return setup, only(effects, RunJob)


def names(setup: BrokerSetup) -> list[str]:
    return setup.disk.file_system(Life("eye")).list("one/t-0")


def test_a_compaction_that_works_is_undone_and_both_directories_are_closed() -> None:
    setup, job = compacting()
    assert stop(setup, job) == "shutdown"
    assert is_marked(setup, "one") and is_marked(setup, "two")
    assert not any(name.endswith(".cleaned") for name in names(setup))


def test_ap16_a_compaction_on_a_directory_that_is_offline_spoils_the_stop_of_no_other() -> None:
    setup, job = compacting()
    setup.disk.break_directory("one")
    closing = of(produce(setup, PARTITIONS[0]), RunJob)
    assert list(placed(setup)) == ["two"]
    assert stop(setup, job, *closing) == "shutdown"
    assert is_marked(setup, "two") and not is_marked(setup, "one")


@pytest.mark.parametrize(("verb", "path"), [("sync", ".cleaned"), ("unlink", ".cleaned")])
def test_ap16_a_disk_error_of_a_compaction_leaves_its_directory_without_the_mark(
    verb: str, path: str
) -> None:
    setup, job = compacting()
    setup.disk.fail(1, errno.EIO, verbs={verb}, path_suffix=path)
    assert stop(setup, job) == "shutdown"
    assert is_marked(setup, "two") and not is_marked(setup, "one")


@pytest.mark.parametrize(("verb", "path"), [("sync", ".log"), ("sync_directory", "data/t-0")])
def test_ap16_a_flush_that_fails_meanwhile_is_not_tried_again_and_leaves_no_mark(
    verb: str, path: str
) -> None:
    setup, log, job = flushing()
    setup.disk.fail(1, errno.EIO, verbs={verb}, path_suffix=path)
    assert stop(setup, job) == "shutdown"
    assert not is_marked(setup, "data")
    assert log.online.reason is not None and "flush" in log.online.reason


def test_a_flush_that_finds_no_descriptor_is_done_by_the_stop() -> None:
    setup, _, job = flushing()

    def lacks() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    assert stop(setup, RunJob(job=job.job, kind=job.kind, work=lacks)) == "shutdown"
    assert is_marked(setup, "data")
