"""Spoiled sets: a leader refuses each of them and appends nothing, and takes the set that they are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.messages import ProducePartition, ProduceRequest, ProduceResponse, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from sim.buggify.buggify import Buggify
from sim.buggify.spoiled_sets import spoiled
from sim.buggify.strays import SET, strays
from storage.batch import Record, build_batch
from storage.draws import Draws
from tests.cluster.broker.setup import BrokerSetup

T0 = TopicPartition("t", 0)


def leading(**configs: str) -> BrokerSetup:
    setup = BrokerSetup()
    dotted = tuple((key.replace("_", "."), value) for key, value in configs.items())
    setup.boot(
        TopicRecord(name="t", topic_id="1f" * 16, configs=dotted),
        PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    return setup


def request(*values: bytes, acks: int = 1) -> ProduceRequest:
    records = [Record(offset, 1_000_000, b"k", value) for offset, value in enumerate(values)]
    data = build_batch(records) if records else b""
    return ProduceRequest(
        acks=acks, timeout_ms=1_000, partitions=(ProducePartition(topic_partition=T0, records=data),)
    )


def outcome(setup: BrokerSetup, body: ProduceRequest) -> ErrorCode:
    (reply,) = [each.body for each in setup.ask(body) if isinstance(each, Reply)]
    assert isinstance(reply, ProduceResponse)
    return reply.partitions[0].error


def kinds(count: int, *, compacted: tuple[str, ...] = (), codec: int = 0) -> list[tuple[ProduceRequest, str]]:
    """Returns each kind of spoiled set once, of as many records, in one of the codecs."""
    found: dict[str, ProduceRequest] = {}
    for kind in range(10):

        def pick(most: int, kind: int = kind) -> int:
            return {1: 0, 4: codec}.get(most, kind % most)

        made = spoiled(request(*[b"%d" % number for number in range(count)]), pick, compacted)
        assert made is not None
        found.setdefault(made[1], made[0])
    return [(body, why) for why, body in found.items()]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("count", [1, 3])
def test_ap2_lv3_a_leader_refuses_each_spoiled_set_and_appends_nothing(count: int, codec: int) -> None:
    setup = leading()
    log = setup.broker.replicas()[T0].log
    found = kinds(count, codec=codec)
    assert len(found) == 7
    for body, why in found:
        assert outcome(setup, body) is not ErrorCode.NONE, why
        assert log.log_end_offset == 0, why
    assert outcome(setup, request(b"0", b"1")) is ErrorCode.NONE
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", range(4))
def test_a_compacted_topic_takes_no_record_without_a_key(codec: int) -> None:
    setup = leading(cleanup_policy="compact")
    (keyless,) = [body for body, why in kinds(2, compacted=("t",), codec=codec) if "without a key" in why]
    assert outcome(setup, keyless) is ErrorCode.INVALID_RECORD
    assert setup.broker.replicas()[T0].log.log_end_offset == 0
    assert outcome(leading(), keyless) is ErrorCode.NONE


def test_what_has_no_set_or_no_answer_is_not_spoiled() -> None:
    damaged = ProducePartition(topic_partition=T0, records=bytes(70))
    for body in (
        request(b"0", acks=0),
        request(),
        ProduceRequest(acks=1, timeout_ms=1, partitions=()),
        ProduceRequest(acks=1, timeout_ms=1, partitions=(damaged,)),
    ):
        assert spoiled(body, lambda count: 0, ()) is None


@pytest.mark.parametrize("place", [*range(8, 12), *range(16, 75)])
def test_a_set_that_was_damaged_on_its_way_is_not_spoiled(place: int) -> None:
    """No checksum covers the offset and the leader epoch of a batch."""
    (sound,) = request(b"0").partitions
    data = bytearray(sound.records)
    data[min(place, len(data) - 1)] ^= 0x40
    damaged = ProduceRequest(acks=1, timeout_ms=1, partitions=(replace(sound, records=bytes(data)),))
    assert spoiled(damaged, lambda count: 0, ()) is None


def test_the_point_puts_a_spoiled_set_beside_a_produce() -> None:
    buggify = Buggify(Draws(1), (SET,), percent=100)
    (stray,) = strays(buggify, "node-1", request(b"0"))
    assert stray.why.startswith("with a set ") and isinstance(stray.body, ProduceRequest)
    assert list(strays(buggify, "node-1", request(b"0", acks=0))) == []
    assert list(strays(Buggify(Draws(1), ()), "node-1", request(b"0"))) == []
