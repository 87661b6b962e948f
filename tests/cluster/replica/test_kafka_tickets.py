"""Bugs of Kafka's history, by ticket: what a follower does with its log, and a broker with the logs it finds."""

from __future__ import annotations

import pytest

from cluster.core.effects import Effect, RunJob, Send
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchRequest
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from cluster.core.replica.follower import FetchState
from sim.disk.life import Life
from storage.disk.filesystem import read_file
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import T0, Setup, asked_of, diverging, of, only_sent, stamped


def following(leader_epoch: int = 0) -> tuple[Setup, Send]:
    """Broker 1 follows broker 2; its first fetch is in flight."""
    setup = Setup()
    return setup, only_sent(setup.place(leader=2, leader_epoch=leader_epoch), FetchRequest)


# A leader's log start within a batch


def starting_at(offset: int) -> tuple[Setup, Send]:
    """Return an empty follower that was sent to its leader's log start."""
    setup, send = following()
    out_of_range = {"error": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": offset, "log_end_offset": 20}
    effects = setup.answer_fetch(send, **out_of_range)
    assert (setup.replica.log.log_start_offset, setup.end) == (offset, offset)
    return setup, only_sent(effects, FetchRequest)


def test_kafka_6975_an_empty_follower_takes_a_batch_that_begins_below_the_leaders_log_start() -> None:
    setup, send = starting_at(7)
    records = stamped(5, 0, b"5", b"6", b"7", b"8") + stamped(9, 0, b"9")
    effects = setup.answer_fetch(send, records=records, log_start_offset=7, high_watermark=10)
    again = asked_of(only_sent(effects, FetchRequest))
    assert (again.fetch_offset, again.last_fetched_epoch) == (10, 0)
    log = setup.replica.log
    assert log.local.segments.base_offsets == [5]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 10, 10)


def test_kafka_6975_a_follower_that_has_records_does_not_start_again() -> None:
    setup, send = following()
    send = only_sent(setup.answer_fetch(send, records=stamped(0, 0, b"0", b"1")), FetchRequest)
    setup.answer_fetch(send, records=stamped(1, 0, b"1", b"2"))
    assert setup.values() == [b"0", b"1"]
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FAILED


@pytest.mark.parametrize("base_offset", [2, 3])
def test_kafka_6975_a_batch_that_ends_below_the_log_start_is_no_reason_to_start_again(
    base_offset: int,
) -> None:
    setup, send = starting_at(7)
    setup.answer_fetch(send, records=stamped(base_offset, 0, b"a", b"b", b"c", b"d"))
    assert setup.end == 7
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FAILED


# Two elections in quick succession


def test_kafka_6361_a_follower_that_missed_an_epoch_cuts_to_where_both_agree() -> None:
    """The leader has no epoch 2, the follower no epoch 1. An end offset alone would keep the follower's 12 to 14."""
    setup, send = following(leader_epoch=3)
    own = stamped(0, 0, *[b"c"] * 10) + stamped(10, 2, *[b"o"] * 5)
    send = only_sent(setup.answer_fetch(send, records=own), FetchRequest)
    assert asked_of(send).last_fetched_epoch == 2
    send = only_sent(setup.answer_fetch(send, diverging=diverging(1, 12)), FetchRequest)
    assert (setup.end, asked_of(send).last_fetched_epoch) == (10, 0)
    setup.answer_fetch(send, records=stamped(10, 1, b"l", b"l"))
    assert setup.values() == [b"c"] * 10 + [b"l"] * 2


# What a broker finds on its disk


def run_jobs(setup: BrokerSetup, effects: list[Effect]) -> None:
    for job in of(effects, RunJob):
        setup.finish(job)


def checkpoint(setup: BrokerSetup, name: str) -> bytes:
    return read_file(setup.disk.file_system(Life("eye")), f"data/{name}")


def test_kafka_1647_a_partition_without_a_leader_keeps_its_high_watermark_in_the_checkpoint() -> None:
    setup = BrokerSetup()
    setup.boot()
    topic = TopicRecord(name="t", topic_id="1f" * 16)
    setup.metadata(topic, PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1))
    log = setup.broker.replicas()[T0].log
    log.append_as_leader(stamped(0, 0, b"a", b"b"), leader_epoch=0, now_ms=setup.now_ms)
    log.marks.update_high_watermark(2)
    run_jobs(setup, setup.fire("checkpoint.high_watermark"))
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    # Before the metadata is known, no leader is.
    again.start()
    run_jobs(again, again.fire("checkpoint.high_watermark"))
    assert checkpoint(again, "replication-offset-checkpoint") == b"0\n1\nt 0 2\n"
