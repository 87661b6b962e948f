"""A look-up by time runs as a job: its partition may be deleted, or get another leader, before it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.core.effects import Effect, Reply, RunJob
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import (
    EpochEnd,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.disk.filesystem import FileSystem
from storage.disk.os_filesystem import OsFileSystem
from storage.segment.file_records import FileRecords
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of, only, only_sent
from tests.cluster.replica.test_sliced_appends import large
from tests.storage.logs import NOW_MS

TOPIC_ID, T0 = "1f" * 16, TopicPartition("t", 0)


class RealDisk:
    """The real disk, where a closed file is one: a simulated file tells its reader so in another way."""

    def file_system(self, life: object) -> FileSystem:
        return OsFileSystem()


def searching(path: Path, *names: str) -> tuple[BrokerSetup, RunJob]:
    """Returns a broker that leads a partition of two segments, and the job of a look-up in the second one."""
    directories = tuple(f"{path}/{name}" for name in names)
    setup = BrokerSetup(RealDisk(), directories=directories)  # type: ignore[arg-type]
    setup.now_ms = max(setup.now_ms, NOW_MS)
    finish_all(
        setup,
        setup.boot(
            RegisterBrokerRecord(broker_id=2, incarnation="2" * 32, host="h", port=9002, fenced=False),
            TopicRecord(name="t", topic_id=TOPIC_ID, configs=()),
            PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=1),
        ),
    )
    for data in (batch(b"a"), batch(b"b"), None, large()):
        if data is None:
            setup.broker.replicas()[T0].log.flushes.roll(now_ms=setup.now_ms)
            continue
        request = ProduceRequest(acks=1, partitions=(ProducePartition(topic_partition=T0, records=data),))
        finish_all(setup, setup.ask(request))
    job = only(setup.ask(ListOffsetsRequest(topic_partition=T0, timestamp=NOW_MS)), RunJob)
    assert job.kind == "search"
    return setup, job


def finish_all(setup: BrokerSetup, effects: list[Effect]) -> None:
    for job in of(effects, RunJob):
        finish_all(setup, setup.finish(job))


def end(setup: BrokerSetup, job: RunJob) -> ListOffsetsResponse:
    """Let the job do its work, and returns what the broker answers then."""
    error: Exception | None = None
    try:
        job.work()
    except Exception as raised:
        error = raised
    (reply,) = of(setup.broker.step(setup.now_ms, JobDone(job=job.job, error=error)), Reply)
    assert isinstance(reply.body, ListOffsetsResponse)
    return reply.body


def cut(setup: BrokerSetup) -> None:
    """Let broker 2 lead, which has the record at offset 0 only."""
    change = PartitionChangeRecord(topic="t", partition=0, leader=2, isr=(2,))
    send = only_sent(setup.metadata(change), FetchRequest)
    answer = FetchPartitionResponse(
        topic_partition=T0, high_watermark=0, log_start_offset=0, log_end_offset=1,
        diverging=EpochEnd(epoch=0, end_offset=1), leader_epoch=1,
    )  # fmt: skip
    setup.answer(send.call, FetchResponse(partitions=(answer,)))
    assert setup.broker.replicas()[T0].log.log_end_offset == 1


def test_a_topic_that_is_deleted_before_its_search_ends_nothing_else(tmp_path: Path) -> None:
    setup, job = searching(tmp_path, "one")
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert end(setup, job).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setup.broker.online_directories


def test_a_log_that_is_cut_before_its_search_ends_nothing_else(tmp_path: Path) -> None:
    setup, job = searching(tmp_path, "one")
    cut(setup)
    assert end(setup, job).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setup.broker.online_directories


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_a_log_that_is_cut_while_it_is_searched_takes_no_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    setup, job = searching(tmp_path, *names)
    search = FileRecords.search_for_timestamp

    def cut_meanwhile(records: FileRecords, *arguments: object, **named: object) -> object:
        cut(setup)
        return search(records, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(FileRecords, "search_for_timestamp", cut_meanwhile)
    assert end(setup, job).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(setup.broker.online_directories) == len(names)
