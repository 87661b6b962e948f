"""A leader proposes to remove a member that does not keep up, in time (ISR-2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.messages import FetchPartition, FetchRequest, TopicPartition
from sim.bugs import Replacement, replaced
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.lagging import LaggingMembers, Led
from sim.run import Run, run_scenario
from sim.scenario.loading import parse_scenario

T0 = TopicPartition("t", 0)
LED, NEXT = Led(1, "t-0", "first", 0), Led(1, "t-0", "next", 0)
LAG_MS = 2_000
# The latest time at which a member that was caught up at 0 may still be in sync.
LAST_MS = 4_000


@dataclass
class Log:
    log_end_offset: int = 10


@dataclass
class Leading:
    """A replica that leads in epoch 0."""

    leader: object = "leads"
    topic_id: str = LED.topic_id
    leader_epoch: int = 0
    log: Log = field(default_factory=Log)


class Watched:
    """Broker 1 leads, with 2 in sync, which fetches at the log end at time 0."""

    def __init__(self) -> None:
        self.jury = Jury(ghost := Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.members, self.replica = LaggingMembers(self.jury, LAG_MS), Leading()
        self.partition = ghost.partition("t-0")
        self.partition.isr = (1, 2)
        self.fetch(10, 0)

    def fetch(self, offset: int, now_ms: int) -> None:
        asked = FetchPartition(
            topic_partition=T0, topic_id="id", fetch_offset=offset, current_leader_epoch=0, max_bytes=1
        )
        request = FetchRequest(replica_id=2, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(asked,))
        self.members.on_fetch(1, {T0: self.replica}, request, now_ms)

    def is_broken(self, now_ms: int, *, was_still: bool = False) -> bool:
        self.members.look(1, "t-0", self.partition, self.replica, now_ms, was_still=was_still)
        return bool(self.jury.violations)


def test_isr2_a_member_that_asks_for_nothing_is_proposed_to_leave_in_time() -> None:
    watched = Watched()
    watched.replica.log.log_end_offset = 20
    assert not watched.is_broken(LAST_MS)
    assert watched.is_broken(LAST_MS + 1)


def test_isr2_a_member_at_the_log_end_may_be_silent() -> None:
    assert not Watched().is_broken(LAST_MS + 1)


def test_fetches_count_for_a_topic_that_was_created_again() -> None:
    watched = Watched()
    watched.replica.topic_id = NEXT.topic_id
    watched.fetch(10, 0)
    assert not watched.is_broken(LAST_MS + 1)


def test_silence_in_a_deleted_topic_does_not_count_in_the_next_one_of_its_name() -> None:
    watched = Watched()
    watched.replica.log.log_end_offset = 20
    assert not watched.is_broken(LAST_MS)
    watched.replica.topic_id = NEXT.topic_id
    assert not watched.is_broken(LAST_MS + 1)
    assert not watched.is_broken(2 * LAST_MS + 1)
    assert watched.is_broken(2 * LAST_MS + 2)


def test_a_proposal_in_the_next_topic_of_the_name_counts_before_the_first_look_at_it() -> None:
    """Its leader waits for the answer of a controller that is away."""
    watched = Watched()
    assert not watched.is_broken(LAST_MS)
    watched.partition.name, watched.replica.topic_id = "t-0~2", NEXT.topic_id
    watched.members.on_proposed(NEXT)
    watched.replica.log.log_end_offset = 20
    assert not watched.is_broken(2 * LAST_MS)
    assert not watched.is_broken(4 * LAST_MS)


def test_a_proposal_in_a_deleted_topic_says_nothing_of_the_next_one_of_its_name() -> None:
    watched = Watched()
    watched.members.on_proposed(LED)
    assert not watched.is_broken(LAST_MS)
    watched.replica.topic_id, watched.replica.log.log_end_offset = NEXT.topic_id, 20
    assert not watched.is_broken(LAST_MS)
    assert watched.is_broken(2 * LAST_MS + 1)


def test_isr2_a_member_that_reaches_the_end_of_its_last_fetch_keeps_up() -> None:
    watched = Watched()
    watched.replica.log.log_end_offset = 20
    watched.fetch(10, 3_000)
    watched.replica.log.log_end_offset = 30
    assert not watched.is_broken(LAST_MS + 1)
    # From 10 on it has fetched nothing that was there at the fetch before.
    watched.fetch(15, 6_000)
    assert watched.is_broken(3_000 + LAST_MS + 1)


@pytest.mark.parametrize("what", ["proposes", "stood still"])
def test_a_leader_that_cannot_propose_is_judged_later(what: str) -> None:
    watched = Watched()
    watched.replica.log.log_end_offset = 20
    if what == "proposes":
        watched.members.on_proposed(LED)
    assert not watched.is_broken(LAST_MS + 1, was_still=what == "stood still")
    watched.members.on_committed(LED, LAST_MS + 1)
    assert not watched.is_broken(2 * LAST_MS)
    assert watched.is_broken(2 * LAST_MS + 2)


def test_a_member_that_has_just_joined_has_full_time() -> None:
    watched = Watched()
    watched.replica.log.log_end_offset = 20
    # It left and joined again between two looks.
    watched.members.on_proposed(LED)
    watched.members.on_committed(LED, LAST_MS)
    assert not watched.is_broken(LAST_MS + 1)


CUT = """
scenario: cut
duration: 8s
cluster: {settings: {replica.lag.time.max.ms: 1000}}
topics:
  t: {replicas: 2, config: {min.insync.replicas: 1}}
producers:
  - {topic: t, rate: 50/s, acks: 1}
steps:
  - {at: 3s, pick: leader(t/0), as: L}
  - {cut: "follower(t/0) <-> L"}
"""


@pytest.mark.slow
def test_a_run_shows_a_leader_that_keeps_a_silent_member() -> None:
    assert not run_scenario(parse_scenario(CUT), 1).violations

    def never(original: object) -> Any:
        return lambda leader, now_ms: None

    with replaced(Replacement(target="cluster.core.replica.leader:Leader.shrinkage", make=never)):
        result = run_scenario(parse_scenario(CUT), 1, stops_early=True)
    assert result.violations[0].checker == "lagging-members"


def test_a_leader_is_not_judged_after_a_warm_up_nor_while_the_call_of_its_last_proposal_is_open() -> None:
    """A fetch that was lost in the warm-up may be waited for as long as `replica.socket.timeout.ms`.

    An ISR may be adopted from the metadata while the answer to its proposal is lost.
    """
    scenario = parse_scenario("{scenario: quiet, warm_up: 9s, duration: 10s, topics: {t: {replicas: 2}}}")
    run = Run(scenario, 1, None, is_traced=False)
    run.begin()
    run.world.run_to(9_000_000)
    replica = next(
        found
        for node in run.cluster.brokers.values()
        if isinstance(node.core, Broker)
        for found in node.core.replicas().values()
        if found.leader is not None
    )
    assert replica.leader is not None
    led = Led(replica.leader.broker_id, "t-0", replica.topic_id, replica.leader_epoch)
    (number,) = set(run.ghost.partition("t-0").isr) - {led.broker}
    follower = run.lag._members._follower(led, number, 0)
    for looked, call, is_judged in ((9_000, None, False), (9_100, 5, False), (9_200, None, True)):
        follower.offset, follower.caught_up_ms, replica.leader.proposal_call = -1, 0, call
        run.lag.look(run.cluster.brokers, run.cluster.partitions, 1_000 * looked)
        assert bool(run.jury.violations) is is_judged, looked
