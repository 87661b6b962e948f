"""What a broker refuses at once has a reason in what it is, leads and knows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request, Shutdown
from cluster.core.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Header,
    IsrMember,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from cluster.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from cluster.core.metadata.shared_map import SharedMap
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.needless_refusals import ControllerRefusals, NeedlessRefusals

T0 = TopicPartition("t", 0)
FOLLOWER = BrokerRegistration(
    broker_id=2, broker_epoch=7, incarnation="i", host="", port=0, fenced=False, in_controlled_shutdown=False
)
IMAGE = MetadataImage(cluster_id="c", brokers={2: FOLLOWER}, next_offset=9)
ASKED = FetchPartition(topic_partition=T0, topic_id="id", fetch_offset=0, current_leader_epoch=5)
FETCH = FetchRequest(replica_id=2, broker_epoch=7, partitions=(ASKED,))
CONSUMER = FetchRequest(replica_id=-1, partitions=(ASKED,))
SETS = ProduceRequest(acks=-1, partitions=(ProducePartition(topic_partition=T0, topic_id="id", records=b""),))
LOOK_UP = ListOffsetsRequest(topic_partition=T0, topic_id="id", timestamp=-1, current_leader_epoch=5)

Asked = FetchRequest | ProduceRequest | ListOffsetsRequest


def held(**wrong: Any) -> Any:
    """Returns the replica of a leader of epoch 5, in sync with one of its two followers, of two that have to be."""
    log = SimpleNamespace(
        online=SimpleNamespace(reason=None),
        local=SimpleNamespace(config=SimpleNamespace(min_insync_replicas=2)),
    )
    return SimpleNamespace(
        **{
            "topic_id": "id", "leader_epoch": 5, "leader": object(), "follower": None, "replicas": (1, 2, 3),
            "committed_isr": (1, 2), "log": log,
        } | wrong
    )  # fmt: skip


def follows() -> Any:
    return held(leader=None, follower=object(), committed_isr=())


def is_needless(asked: Asked, error: ErrorCode, replica: Any = None, *, has_none: bool = False) -> bool:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    body: FetchResponse | ProduceResponse | ListOffsetsResponse
    match asked:
        case FetchRequest():
            body = FetchResponse(partitions=(FetchPartitionResponse(topic_partition=T0, error=error),))
        case ProduceRequest():
            body = ProduceResponse(partitions=(ProducePartitionResponse(topic_partition=T0, error=error),))
        case ListOffsetsRequest():
            body = ListOffsetsResponse(topic_partition=T0, error=error)
    replicas = {} if has_none else {T0: replica or held()}
    NeedlessRefusals(jury).on_reply(1, replicas, IMAGE, asked, body)
    return bool(jury.violations)


NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("asked", [FETCH, SETS, LOOK_UP])
def test_led2_only_who_does_not_lead_says_so(asked: Asked) -> None:
    assert is_needless(asked, NOT_LEADER)
    assert not is_needless(asked, NOT_LEADER, follows()) and not is_needless(asked, NOT_LEADER, has_none=True)
    assert not is_needless(asked, ErrorCode.NONE)


def test_con4_a_follower_serves_consumers() -> None:
    assert is_needless(CONSUMER, NOT_LEADER, follows())
    assert not is_needless(CONSUMER, NOT_LEADER, held(leader=None))


def test_led7_a_fetch_of_an_earlier_life_may_be_refused() -> None:
    assert not is_needless(replace(FETCH, broker_epoch=6), NOT_LEADER)


@pytest.mark.parametrize("asked", [FETCH, CONSUMER, LOOK_UP])
@pytest.mark.parametrize(
    ("epoch", "is_over", "is_ahead"), [(4, True, False), (5, False, False), (6, False, True)]
)
def test_led1_an_epoch_is_over_or_has_not_begun(
    asked: Asked, epoch: int, is_over: bool, is_ahead: bool
) -> None:
    if isinstance(asked, FetchRequest):
        asked = replace(asked, partitions=(replace(ASKED, current_leader_epoch=epoch),))
    elif isinstance(asked, ListOffsetsRequest):
        asked = replace(asked, current_leader_epoch=epoch)
    assert is_needless(asked, ErrorCode.FENCED_LEADER_EPOCH) is not is_over
    assert is_needless(asked, ErrorCode.UNKNOWN_LEADER_EPOCH) is not is_ahead


def test_led2_a_stranger_is_told_that_the_epoch_is_not_known() -> None:
    assert not is_needless(FETCH, ErrorCode.UNKNOWN_LEADER_EPOCH, held(replicas=(1, 3)))


@pytest.mark.parametrize("asked", [FETCH, SETS, LOOK_UP])
@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID])
def test_c1_only_another_topic_of_the_name_is_refused(asked: Asked, error: ErrorCode) -> None:
    assert is_needless(asked, error) and is_needless(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not is_needless(asked, error, held(topic_id="other"))


def test_pro2_enough_are_in_sync_unless_they_are_fewer_than_have_to_be() -> None:
    short = ErrorCode.NOT_ENOUGH_REPLICAS
    assert is_needless(SETS, short) and not is_needless(SETS, short, held(committed_isr=(1,)))
    # All replicas are enough, whatever is asked for; the leader alone is for acks=1.
    assert is_needless(SETS, short, held(replicas=(1,), committed_isr=(1,)))
    assert is_needless(replace(SETS, acks=1), short, held(committed_isr=(1,)))


LED = PartitionRegistration(
    topic_partition=T0, replicas=(1, 2, 3), isr=(1, 2), leader=2, leader_epoch=5, partition_epoch=8
)
TOPIC = TopicImage(name="t", topic_id="id", configs=(), partitions=SharedMap({0: LED}))
DECIDED = replace(IMAGE, topics=SharedMap({"t": TOPIC}))
HEADER = Header(cluster_id="c", broker_id=2, broker_epoch=7, incarnation="i")
MEMBERS = (IsrMember(broker_id=2, broker_epoch=7), IsrMember(broker_id=3, broker_epoch=4))
PROPOSAL = AlterPartitionRequest(
    header=HEADER, broker_id=2, broker_epoch=7, topic_partition=T0, topic_id="id", leader_epoch=5,
    partition_epoch=8, new_isr=MEMBERS,
)  # fmt: skip
BEAT = BrokerHeartbeatRequest(header=HEADER, broker_id=2, broker_epoch=7, metadata_offset=3)


def refused(
    asked: AlterPartitionRequest | BrokerHeartbeatRequest, error: ErrorCode, *, closes: bool = False
) -> bool:
    """Returns whether it breaks a rule that the controller refuses this at once."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    refusals = ControllerRefusals(jury)
    if closes:
        refusals.on_step([Shutdown()], [], DECIDED)
    is_proposal = isinstance(asked, AlterPartitionRequest)
    of_proposal = AlterPartitionResponse(topic_partition=T0, error=error)
    body = of_proposal if is_proposal else BrokerHeartbeatResponse(error=error)
    refusals.on_step([Request(call=1, body=asked)], [Reply(call=1, body=body)], DECIDED)
    return bool(jury.violations)


@pytest.mark.parametrize("asked", [PROPOSAL, BEAT])
def test_ctl4_only_who_is_not_the_registered_process_is_told_so(
    asked: AlterPartitionRequest | BrokerHeartbeatRequest,
) -> None:
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert refused(asked, stale) and not refused(asked, ErrorCode.NONE)
    for header in (replace(HEADER, incarnation="j"), replace(HEADER, cluster_id="d"), None):
        assert not refused(replace(asked, header=header), stale)
    assert not refused(replace(asked, broker_epoch=6), stale)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, {"leader_epoch": 4}),
        (ErrorCode.INVALID_UPDATE_VERSION, {"partition_epoch": 7}),
        (ErrorCode.NOT_CONTROLLER, {"partition_epoch": 9}),
        (ErrorCode.INVALID_REQUEST, {"new_isr": MEMBERS[1:]}),
        (ErrorCode.UNKNOWN_TOPIC_ID, {"topic_id": "other"}),
    ],
)
def test_ctl1_a_proposal_is_refused_for_what_is_wrong_with_it(
    error: ErrorCode, wrong: dict[str, Any]
) -> None:
    assert refused(PROPOSAL, error) and not refused(replace(PROPOSAL, **wrong), error)


def test_a_controller_that_closes_refuses_all() -> None:
    assert not refused(PROPOSAL, ErrorCode.NOT_CONTROLLER, closes=True)
