"""The answers to an append, and when they are sent (PRO)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.core.connection.pieces import MOST_FRAME_BYTES
from cluster.core.effects import Reply, RunJob
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    NO_LEADER,
    AlterPartitionRequest,
    ProducePartition,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.replica.roles import MOST_SET_BYTES
from storage.errors import StorageError
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import NO_CONFIGS, T0, Setup, observed, of, only, only_sent, produced


def leading(*, isr: tuple[int, ...] = (1, 2), configs: Mapping[str, str] = NO_CONFIGS) -> Setup:
    setup = Setup()
    setup.place(leader=1, isr=isr, configs=configs)
    return setup


def test_pro1_acks_0_gets_no_reply() -> None:
    setup = leading()
    asked = ProducePartition(topic_partition=T0, records=batch(b"a"))
    effects = setup.request(ProduceRequest(acks=0, partitions=(asked,)))
    assert of(effects, Reply) == []
    assert setup.values() == [b"a"]


def test_pro1_acks_1_is_answered_after_the_local_append() -> None:
    setup = leading()
    answer = setup.produce(b"a", b"b", acks=1)
    assert answer is not None
    assert (answer.error, answer.base_offset, answer.last_offset) == (ErrorCode.NONE, 0, 1)
    assert setup.high_watermark == 0


def test_pro1_acks_all_is_answered_when_the_high_watermark_has_passed_the_last_record() -> None:
    setup = leading()
    assert setup.produce(b"a", b"b") is None
    assert produced(setup.fetch_effects(2, 1)) is None
    effects = setup.fetch_effects(2, 2)
    answer = produced(effects)
    assert answer is not None
    assert (answer.error, answer.base_offset, answer.last_offset) == (ErrorCode.NONE, 0, 1)
    assert observed(effects, "produce.acknowledged") == [
        {"topic_partition": "t-0", "base_offset": 0, "last_offset": 1, "acks": -1}
    ]


def test_pro1_other_acks_are_refused() -> None:
    setup = leading()
    answer = setup.produce(b"a", acks=2)
    assert answer is not None and answer.error is ErrorCode.INVALID_REQUIRED_ACKS
    assert setup.end == 0


def test_pro2_too_few_in_sync_and_nothing_is_appended() -> None:
    setup = leading(isr=(1,), configs={"min.insync.replicas": "2"})
    answer = setup.produce(b"a")
    assert answer is not None and answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert setup.end == 0
    accepted = setup.produce(b"a", acks=1)
    assert accepted is not None and accepted.error is ErrorCode.NONE


def test_pro3_the_isr_shrank_while_it_waited_and_the_record_is_in_the_log() -> None:
    setup = leading(isr=(1, 2), configs={"min.insync.replicas": "2"})
    setup.produce(b"a")
    setup.replica.log.marks.update_high_watermark(1)
    effects = setup.place(leader=1, isr=(1,), partition_epoch=1)
    answer = produced(effects)
    assert answer is not None and answer.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert setup.values() == [b"a"]


def test_pro4_a_timeout_leaves_the_outcome_unknown() -> None:
    setup = leading()
    assert setup.produce(b"a", timeout_ms=1_000) is None
    answer = produced(setup.wait(1_000, "produce.expiry"))
    assert answer is not None and answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert produced(setup.fetch_effects(2, 1)) is None


def test_pro4_each_parked_request_has_its_own_deadline() -> None:
    setup = leading()
    setup.produce(b"a", timeout_ms=1_000)
    setup.now_ms += 500
    setup.produce(b"b", timeout_ms=1_000)
    assert len(of(setup.wait(500, "produce.expiry"), Reply)) == 1
    assert len(of(setup.wait(500, "produce.expiry"), Reply)) == 1


def test_pro5_becoming_follower_ends_waiting_requests_at_once() -> None:
    setup = leading()
    setup.produce(b"a")
    answer = produced(setup.place(leader=2, leader_epoch=1, partition_epoch=1))
    # The leader changed while the producer waited (KAFKA-2960).
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_id, answer.leader_epoch) == (2, 1)


def test_kip951_a_refusal_names_the_leader_that_is_known_as_the_whole_answer_leaves() -> None:
    """Another part of the request waits for its replication, and the partition gets a leader meanwhile."""
    setup, other = leading(), TopicPartition("t", 1)
    setup.place(leader=NO_LEADER, isr=(3,), topic_partition=other)
    parts = tuple(ProducePartition(topic_partition=each, records=batch(b"a")) for each in (other, T0))
    assert produced(setup.request(ProduceRequest(acks=-1, timeout_ms=30_000, partitions=parts))) is None
    setup.place(leader=3, isr=(3,), leader_epoch=1, partition_epoch=1, topic_partition=other)
    setup.fetch_effects(2, 0)
    answer = produced(setup.fetch_effects(2, 1))
    assert answer is not None and answer.topic_partition == other
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader_id, answer.leader_epoch) == (3, 1)


def test_pro5_deleting_the_partition_ends_waiting_requests() -> None:
    setup = leading()
    setup.produce(b"a")
    setup.manager.roles.remove(setup.replica)
    answer = produced(setup.settle())
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_e4_records_of_one_epoch_are_never_acknowledged_under_another() -> None:
    setup = leading(isr=(1, 2))
    setup.produce(b"a")
    answer = produced(setup.place(leader=1, isr=(1,), leader_epoch=3, partition_epoch=3))
    # The record itself is committed.
    assert setup.high_watermark == 1
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_pro7_a_retry_gets_the_offsets_of_the_first_time() -> None:
    setup = leading(isr=(1,))
    first = setup.produce(b"a", b"b", producer_id=5, base_sequence=0)
    setup.produce(b"c", producer_id=5, base_sequence=2)
    again = setup.produce(b"a", b"b", producer_id=5, base_sequence=0)
    assert first is not None and again is not None
    assert (again.error, again.base_offset, again.last_offset) == (ErrorCode.NONE, 0, 1)
    assert setup.values() == [b"a", b"b", b"c"]


def test_pro7_a_retry_waits_for_the_high_watermark_like_the_first() -> None:
    setup = leading(isr=(1, 2))
    assert setup.produce(b"a", producer_id=5, base_sequence=0) is None
    assert setup.produce(b"a", producer_id=5, base_sequence=0) is None
    # Both producers and the fetch are answered.
    assert len(of(setup.fetch_effects(2, 1), Reply)) == 3
    assert setup.end == 1


def test_txn1_a_gap_in_sequences_is_refused() -> None:
    setup = leading(isr=(1,))
    setup.produce(b"a", producer_id=5, base_sequence=0)
    answer = setup.produce(b"c", producer_id=5, base_sequence=2)
    assert answer is not None and answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_damaged_batch_is_refused_with_kafkas_code() -> None:
    setup = leading(isr=(1,))
    damaged = bytearray(batch(b"abcdef"))
    damaged[-2] ^= 1
    answer = setup.produce_bytes(bytes(damaged))
    assert answer is not None and answer.error is ErrorCode.CORRUPT_MESSAGE
    assert setup.end == 0


def test_a_batch_above_max_message_bytes_is_refused_with_kafkas_code() -> None:
    setup = leading(isr=(1,), configs={"max.message.bytes": "200"})
    answer = setup.produce(b"x" * 300)
    assert answer is not None and answer.error is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("asked", "taken"), [("200000000", MOST_SET_BYTES), ("5000000", 5_000_000)])
def test_lv19_a_leader_takes_no_set_that_no_answer_could_carry_whatever_the_topic_allows(
    asked: str, taken: int
) -> None:
    """A set that it builds again is checked against the same bound: a small one may be stored as a large one."""
    setup = leading(isr=(1,), configs={"max.message.bytes": asked, "compression.type": "uncompressed"})
    assert setup.replica.log.config.max_message_bytes == taken
    setup.place(leader=1, isr=(1,), configs={"max.message.bytes": asked, "flush.messages": "9"})
    assert setup.replica.log.config.max_message_bytes == taken


def test_what_a_leader_stores_fits_into_an_answer() -> None:
    assert MOST_SET_BYTES + (1 << 20) <= MOST_FRAME_BYTES


def test_no_batch_at_all_is_refused() -> None:
    answer = leading(isr=(1,)).produce_bytes(b"")
    assert answer is not None and answer.error is ErrorCode.INVALID_RECORD


def test_pro9_a_failed_append_is_no_answer_but_the_end() -> None:
    setup = leading(isr=(1,))
    setup.append(b"a")
    setup.disk.fail(1, errno.EIO)
    with pytest.raises(StorageError):
        # The broker stops on the disk error (KAFKA-10778).
        setup.produce(b"b")
    assert setup.replica.log.online.reason is not None


# With flush.messages=1


def test_with_flush_messages_1_even_acks_1_waits_for_the_own_flush() -> None:
    setup = leading(isr=(1,), configs={"flush.messages": "1"})
    effects = setup.request_append(b"a")
    assert produced(effects) is None
    assert only(effects, RunJob).kind == "flush"
    answer = produced(setup.run_jobs(effects))
    assert answer is not None and answer.error is ErrorCode.NONE


def test_with_flush_messages_1_appends_during_a_flush_share_the_next_one() -> None:
    setup = leading(isr=(1,), configs={"flush.messages": "1"})
    first = setup.request_append(b"a")
    assert of(setup.request_append(b"b"), RunJob) == []
    assert of(setup.request_append(b"c"), RunJob) == []
    after = setup.run_jobs(first)
    assert len(of(after, RunJob)) == 1
    assert len(of(after, Reply)) == 3
    assert setup.high_watermark == 3


def test_with_flush_messages_1_a_new_leader_flushes_what_it_found() -> None:
    setup = leading(isr=(1, 2))
    setup.append(b"a")
    setup.set_topic(replace(setup.image.topics["t"], configs=(("flush.messages", "1"),)))
    setup.replica.log.update_config(setup.manager.roles.config_of(setup.image.topics["t"]))
    effects = setup.place(leader=1, isr=(1,), leader_epoch=1, partition_epoch=1)
    assert setup.high_watermark == 0
    setup.run_jobs(effects)
    assert setup.high_watermark == 1


def test_an_isr_change_in_flight_does_not_delay_a_produce_that_does_not_need_it() -> None:
    setup = leading(isr=(1, 2))
    only_sent(setup.fetch_effects(3, 0), AlterPartitionRequest)
    assert setup.produce(b"a") is None
    setup.fetch(3, 1)
    answer = produced(setup.fetch_effects(2, 1))
    assert answer is not None and answer.error is ErrorCode.NONE
