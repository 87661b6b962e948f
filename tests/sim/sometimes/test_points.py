"""The points that a run reaches: each is noted from what a witness saw, and only then."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EpochEnd,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerResponse,
    ResponseBody,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.chain import Mark
from sim.checkers.ghost import Ghost
from sim.checkers.sightings import (
    Acknowledged,
    Appended,
    BecameFollower,
    BecameLeader,
    Created,
    DeletedSegment,
    Died,
    Elected,
    HighWatermark,
    IsrChanged,
    Loaded,
    LogStarted,
    Served,
    Sighting,
    Truncated,
    WaitedFor,
    Waits,
)
from sim.hosts.history import History, Outcome, ReadOperation
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from sim.sometimes.answers import points_of_answer
from sim.sometimes.points import POINTS, Reached
from sim.sometimes.seen import SightingPoints
from sim.sometimes.watched import note_end
from sim.world.network import PacketCounts
from tests.sim.runs.test_run import SMALL

T = TopicPartition("t", 0)
ONE, TWO = Mark(0, 5, 0, 11, 5), Mark(5, 9, 0, 12, 4)
THREE = Mark(9, 12, 2, 13, 3)
# Three replicas, of which the first leads epoch 0 and the third lacks a batch.
START: tuple[Sighting, ...] = (
    Created("t-0", 2, False),
    Elected("t-0", 1, 0, (1, 2, 3), True),
    BecameLeader(1, "t-0", 0, 0),
    BecameFollower(2, "t-0", 0, 1),
    Appended(1, "t-0", 0, (ONE, TWO), True),
    Appended(2, "t-0", 0, (ONE, TWO)),
    Appended(3, "t-0", 0, (ONE,)),
    HighWatermark(1, "t-0", 0, 5, True),
)
NEXT = Elected("t-0", 2, 1, (2, 3), True)
DEATHS = tuple(Died(broker, "t-0", False, (ONE,)) for broker in (1, 2, 3))


def reached(*sightings: Sighting) -> list[str]:
    """Returns the points that the last sighting reaches first."""
    found: list[list[str]] = []
    for end in (len(sightings) - 1, len(sightings)):
        ghost, points = Ghost(), Reached()
        watch = [SightingPoints(ghost, points)]
        jury = Jury(ghost, watch, now_us=lambda: 0, on_violation=lambda violation: None)
        for sighting in (*START, *sightings[:end]):
            jury.see(sighting)
        assert jury.violations == []
        found.append(points.names())
    return [name for name in found[1] if name not in found[0]]


@pytest.mark.parametrize(
    ("sightings", "names"),
    [
        ((NEXT,), ["elected-clean"]),
        ((Elected("t-0", 3, 1, (2, 3), True),), ["elected-clean", "elected-behind"]),
        ((Elected("t-0", 3, 1, (3,), False),), ["elected-unclean", "elected-behind", "elected-alone"]),
        ((Elected("t-0", 1, 1, (1, 2, 3), True),), ["elected-clean", "elected-again"]),
        ((Elected("t-0", -1, 1, (1,), True),), ["elected-none"]),
        ((IsrChanged("t-0", (1, 2)),), ["isr-shrank"]),
        ((IsrChanged("t-0", (1,)),), ["isr-shrank", "isr-below-minimum", "isr-of-leader"]),
        ((IsrChanged("t-0", (1, 2)), IsrChanged("t-0", (1, 2, 3))), ["isr-grew"]),
        ((WaitedFor(1, "t-0", 0, (1, 2, 3, 4)),), ["joiner-awaited"]),
        ((WaitedFor(1, "t-0", 0, (1, 2, 3)),), []),
        ((NEXT, Elected("t-0", 3, 2, (3,), True), BecameLeader(2, "t-0", 1, 9)), ["late-leader"]),
        ((NEXT, BecameLeader(2, "t-0", 1, 9)), []),
        ((NEXT, BecameFollower(3, "t-0", 0, 1)), ["late-follower"]),
        ((NEXT, Elected("t-0", 3, 2, (3,), True), BecameLeader(3, "t-0", 2, 5)), ["empty-epoch"]),
        ((NEXT, Appended(1, "t-0", 0, (Mark(9, 10, 0, 1, 1),), True)), ["late-append"]),
        ((Appended(1, "t-0", 0, (Mark(9, 10, 0, 1, 1),), True),), []),
        ((NEXT, HighWatermark(1, "t-0", 0, 9, True)), ["late-commit"]),
        ((NEXT, Acknowledged(1, "t-0", 5, 8, 1, (), 0)), ["late-acknowledgement"]),
        ((NEXT, Served(1, "t-0", 5, (ONE,))), ["late-answer"]),
        ((Served(1, "t-0", 5, (ONE,)),), []),
        ((Truncated(2, "t-0", 5, 1),), ["truncated"]),
        ((Truncated(2, "t-0", 9, 1),), []),
        ((Truncated(2, "t-0", 7, 1),), ["truncated", "truncated-into-batch"]),
        ((Truncated(2, "t-0", 0, 1),), ["truncated", "truncated-batches", "truncated-whole"]),
        (
            (Appended(2, "t-0", 2, (THREE,)), Truncated(2, "t-0", 5, 3)),
            ["truncated", "truncated-batches", "truncated-epochs"],
        ),
        ((Truncated(2, "t-0", 9, 1), Truncated(2, "t-0", 5, 1)), ["truncated", "truncated-again"]),
        ((Appended(3, "t-0", 2, (TWO, THREE)),), ["copied-epochs"]),
        ((LogStarted(2, "t-0", 5),), ["copied-from-start"]),
        ((LogStarted(2, "t-0", 5, (DeletedSegment(5, 900, 100),)),), ["retention"]),
        ((DEATHS[0],), ["leader-died"]),
        ((DEATHS[1],), []),
        ((DEATHS[2],), ["died-behind"]),
        ((DEATHS[2], DEATHS[1], DEATHS[0]), ["in-sync-died", "leader-died"]),
        ((Died(2, "t-0", True, (ONE, TWO)),), []),
        ((Died(2, "t-0", True, (ONE,)),), ["power-lost-batches"]),
        ((Died(2, "t-0", True, ()),), ["power-lost-batches", "power-lost-committed", "power-lost-all"]),
        ((DEATHS[1], Loaded(2, "t-0", (ONE,), ""), DEATHS[1]), ["died-early", "died-behind"]),
        ((DEATHS[1], Loaded(2, "t-0", (ONE,), ""), BecameFollower(2, "t-0", 0, 1), DEATHS[1]), ["died-behind"]),
        ((IsrChanged("t-0", (1, 2)), Acknowledged(1, "t-0", 0, 4, -1, (), 0)), ["minimum-acknowledged"]),
        ((Acknowledged(1, "t-0", 5, 8, -1, (), 0),), []),
        (
            (Acknowledged(1, "t-0", 5, 8, -1, (), 0), Acknowledged(1, "t-0", 0, 4, -1, (), 0)),
            ["duplicate-acknowledged"],
        ),
        ((Waits(1, "t-0", 0, 5, ((0, 8),)),), ["appends-waited"]),
    ],
)  # fmt: skip
def test_a_sighting_reaches_its_points_and_no_others(
    sightings: tuple[Sighting, ...], names: list[str]
) -> None:
    assert reached(*sightings) == [name for name in POINTS if name in names]


FOLLOWER = FetchRequest(replica_id=2, partitions=())
CONSUMER = FetchRequest(replica_id=-1, partitions=())
PRODUCE = ProduceRequest(acks=-1, partitions=())
BEAT = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0)


def fetched(error: ErrorCode = ErrorCode.NONE, diverging: EpochEnd | None = None) -> FetchResponse:
    part = FetchPartitionResponse(topic_partition=T, error=error, diverging=diverging)
    return FetchResponse(partitions=(part,))


def produced(error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(partitions=(ProducePartitionResponse(topic_partition=T, error=error),))


@pytest.mark.parametrize(
    ("request_body", "answer", "names"),
    [
        (FOLLOWER, fetched(), []),
        (FOLLOWER, fetched(diverging=EpochEnd(epoch=0, end_offset=5)), ["fetch-diverged"]),
        (CONSUMER, fetched(diverging=EpochEnd(epoch=0, end_offset=5)), ["consumer-diverged"]),
        (FOLLOWER, fetched(ErrorCode.FENCED_LEADER_EPOCH), ["fetch-fenced"]),
        (CONSUMER, fetched(ErrorCode.OFFSET_OUT_OF_RANGE), ["consumer-out-of-range"]),
        (FOLLOWER, fetched(ErrorCode.KAFKA_STORAGE_ERROR), ["fetch-failed-disk"]),
        (CONSUMER, fetched(ErrorCode.KAFKA_STORAGE_ERROR), []),
        (PRODUCE, produced(ErrorCode.NONE), []),
        (PRODUCE, produced(ErrorCode.NOT_ENOUGH_REPLICAS), ["produce-too-few"]),
        (PRODUCE, produced(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), []),
        (
            BEAT,
            AlterPartitionResponse(topic_partition=T, error=ErrorCode.NEW_LEADER_ELECTED),
            ["proposal-fenced"],
        ),
        (BEAT, AlterPartitionResponse(topic_partition=T), []),
        (BEAT, RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION), ["registered-twice"]),
        (BEAT, BrokerHeartbeatResponse(should_shut_down=True), ["leave-granted"]),
        (BEAT, BrokerHeartbeatResponse(), []),
    ],
)
def test_an_answer_reaches_the_point_of_its_error(
    request_body: FetchRequest | ProduceRequest | BrokerHeartbeatRequest,
    answer: ResponseBody,
    names: list[str],
) -> None:
    assert list(points_of_answer(request_body, answer)) == names


def read(offset: int, value: str) -> ReadOperation:
    return ReadOperation(
        consumer="consumer-1", partition="t-0", offset=offset, value=value, high_watermark=99, at_us=0
    )


@pytest.mark.parametrize(
    ("reads", "names"),
    [
        ([read(0, "a"), read(1, "b")], []),
        ([read(0, "a"), read(1, "b"), read(0, "a")], ["read-again"]),
        ([read(0, "a"), read(1, "a")], ["written-twice"]),
    ],
)
def test_the_end_of_a_run_shows_what_consumers_read_twice(
    reads: list[ReadOperation], names: list[str]
) -> None:
    points, history = Reached(), History()
    history.reads.extend(reads)
    note_end(points, history, Ghost(), PacketCounts())
    assert points.names() == names


def test_every_point_has_a_name_and_a_sentence() -> None:
    assert len(POINTS) >= 60
    assert all(name.replace("-", "").isalpha() and len(what) > 15 for name, what in POINTS.items())
    assert len(set(POINTS.values())) == len(POINTS)


def test_a_point_that_nobody_knows_is_no_point() -> None:
    with pytest.raises(AssertionError):
        Reached().note("nonsense")


@pytest.mark.slow
def test_who_watches_for_points_changes_no_event() -> None:
    points = Reached()
    watched = run_scenario(parse_scenario(SMALL), 7, reached=points)
    assert watched.trace_hash == run_scenario(parse_scenario(SMALL), 7).trace_hash
    assert "leader-died" in points.names()
    assert watched.operations[Outcome.OK.value] > 0
