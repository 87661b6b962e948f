"""Transactional batches: a leader takes none of a client, and a follower copies those that its leader has."""

from __future__ import annotations

import pytest

from cluster.core.effects import RunJob
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchRequest
from storage.batch import Compression, build_batch
from storage.batch.control_batches import build_end_transaction_marker
from storage.batch.legacy.builder import build_message
from storage.batch.record import Record
from storage.producers.entry import AppendOrigin
from storage.validation.work import STEP_RECORDS
from tests.cluster.broker.cluster_by_hand import START_MS, batch
from tests.cluster.replica.setup import T0, Setup, asked_of, observed, of, only_sent
from tests.cluster.replica.test_sliced_appends import Produced, large


def leading() -> Setup:
    setup = Setup()
    setup.place(leader=1, isr=(1,))
    return setup


def transactional(
    *,
    producer_id: int = 5,
    base_sequence: int = 0,
    count: int = 1,
    is_control: bool = False,
    compression: Compression = Compression.NONE,
) -> bytes:
    return build_batch(
        [Record(number, START_MS, b"key", b"open") for number in range(count)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
        is_transactional=True,
        is_control=is_control,
        compression=compression,
    )


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("behind", [b"", batch(b"incomplete")[:-1], batch(b"incomplete")[:5]], ids=len)
def test_txn9_a_transactional_batch_of_a_client_is_refused_and_nothing_is_appended(
    codec: Compression, behind: bytes
) -> None:
    setup = leading()
    answer = setup.produce_bytes(transactional(compression=codec) + behind)
    assert answer is not None and answer.error is ErrorCode.INVALID_TXN_STATE
    assert "transaction coordinator" in answer.message
    assert setup.end == 0 and setup.replica.log.marks.first_unstable is None
    # The producer has begun nothing: its other batches are taken.
    plain = setup.produce(b"plain", producer_id=5, base_sequence=0)
    assert plain is not None and (plain.error, plain.base_offset) == (ErrorCode.NONE, 0)


def test_txn9_a_transaction_that_is_open_in_the_log_does_not_go_on() -> None:
    setup = leading()
    # As Kafka has left it in the log.
    setup.replica.log.append_as_leader(transactional(), leader_epoch=0, now_ms=setup.now_ms)
    for sequence in (0, 1):
        answer = setup.produce_bytes(transactional(base_sequence=sequence))
        assert answer is not None and answer.error is ErrorCode.INVALID_TXN_STATE
    assert setup.end == 1


@pytest.mark.parametrize("is_busy", [False, True])
def test_txn9_a_transactional_batch_of_very_many_records_is_refused(is_busy: bool) -> None:
    case = Produced()
    if is_busy:
        case.produce(large())
    case.produce(transactional(count=STEP_RECORDS + 1, compression=Compression.GZIP))
    assert bool(of(case.effects, RunJob)) is is_busy
    case.run_all()
    end = STEP_RECORDS + 1 if is_busy else 0
    assert case.answers()[-1] == (ErrorCode.INVALID_TXN_STATE, -1, -1)
    assert case.setup.end == end


def test_a_damaged_batch_that_seems_transactional_is_refused_as_damaged() -> None:
    setup = leading()
    damaged = bytearray(batch(b"plain"))
    # The flag of a transaction.
    damaged[22] ^= 0x10
    answer = setup.produce_bytes(bytes(damaged))
    assert answer is not None and answer.error is ErrorCode.CORRUPT_MESSAGE
    assert setup.end == 0


@pytest.mark.parametrize("kind", ["abort", "commit", "other"])
def test_lv6_a_control_batch_of_a_client_is_refused(kind: str) -> None:
    setup = leading()
    if kind == "other":
        records = transactional(is_control=True)
    else:
        records = build_end_transaction_marker(
            is_commit=kind == "commit",
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=START_MS,
        )
    answer = setup.produce_bytes(records)
    assert answer is not None and answer.error is ErrorCode.INVALID_RECORD
    assert setup.end == 0


def test_a_message_of_an_older_format_is_never_transactional() -> None:
    setup = leading()
    # Where magic 2 has its flags is the first byte of the key.
    message = build_message(0, magic=0, timestamp=-1, key=b"product", value=b"v" * 40)
    assert message[22] & 0x10
    answer = setup.produce_bytes(message)
    assert answer is not None and answer.error is ErrorCode.NONE


def test_txn9_a_refusal_of_the_partition_comes_first() -> None:
    setup = Setup()
    setup.place(leader=2, isr=(1, 2))
    answer = setup.produce_bytes(transactional())
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_copies_transactional_batches_and_their_markers() -> None:
    setup = Setup()
    send = only_sent(setup.place(leader=2), FetchRequest)
    # As a leader has them that found them in its log.
    leader = leading()
    log = leader.replica.log
    log.append_as_leader(transactional(), leader_epoch=0, now_ms=leader.now_ms)
    opened = log.read(0, max_size=1 << 20).records
    effects = setup.answer_fetch(send, records=bytes(opened), log_end_offset=1)
    assert observed(effects, "replica.failed") == []
    unstable = setup.replica.log.marks.first_unstable
    assert setup.end == 1 and unstable is not None and unstable.offset == 0
    marker = build_end_transaction_marker(
        is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=leader.now_ms, origin=AppendOrigin.COORDINATOR)
    send = only_sent(effects, FetchRequest)
    assert asked_of(send).topic_partition == T0
    ended = log.read(1, max_size=1 << 20).records
    setup.answer_fetch(send, records=bytes(ended), high_watermark=2, log_end_offset=2)
    assert setup.end == 2 and setup.replica.log.marks.first_unstable is None
