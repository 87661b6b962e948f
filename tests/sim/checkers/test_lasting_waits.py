"""Nobody waits in a broker under a role that has ended, or for what has come (PRO-1, PRO-5)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.outbox import Outbox
from cluster.core.replica.leader_appends import ACKS_ALL
from cluster.core.replica.purgatory import Purgatory
from cluster.core.replica.replica import Replica
from replog.testing import SimCluster
from sim.bugs.planting import Replacement, replaced
from sim.checkers.base import Jury
from sim.checkers.ghost import ASTRAY, Ghost
from sim.checkers.lasting_waits import LastingWaits, late_alarm, wrong_waits
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from storage.segment.place import LogOffsetMetadata
from tests.cluster.replica.setup import T0, Setup

CONSUMER, FOLLOWER = -1, 2


def wrong(change: Callable[[Setup, Replica], object], *, replica_id: int = CONSUMER) -> list[str]:
    """Returns what waits in vain once `change` was done to the only replica, and nobody was woken."""
    setup = Setup()
    setup.place(leader=1)
    setup.produce(b"a", acks=ACKS_ALL)
    # Both wait for what comes after the record, which nobody else has.
    setup.fetch_effects(replica_id, 1 if replica_id == FOLLOWER else 0, max_wait_ms=500)
    replica, manager = setup.replica, setup.manager

    def found() -> list[str]:
        appends = [(each.appended.topic_partition, each) for each in manager.appends.waiting()]
        return [what for _, what in wrong_waits(manager.context.replicas, appends, manager.fetches.purgatory)]

    assert found() == []
    change(setup, replica)
    return found()


def end_role(setup: Setup, replica: Replica) -> None:
    replica.leader = replica.follower = None


def remove(setup: Setup, replica: Replica) -> None:
    del setup.manager.context.replicas[T0]


def begin_epoch(setup: Setup, replica: Replica) -> None:
    replica.view = (replica.topic_id, replica.leader_epoch + 1)


def commit(setup: Setup, replica: Replica) -> None:
    replica.log.marks.maybe_increment_high_watermark(LogOffsetMetadata(1))


@pytest.mark.parametrize("change", [end_role, remove, begin_epoch])
@pytest.mark.parametrize("replica_id", [CONSUMER, FOLLOWER])
def test_pro5_nobody_waits_under_a_role_that_has_ended(
    change: Callable[[Setup, Replica], object], replica_id: int
) -> None:
    kinds = [what.partition(" waits: ")[0] for what in wrong(change, replica_id=replica_id)]
    assert kinds == ["an append", "a fetch"]


def test_pro1_no_append_waits_for_what_is_committed() -> None:
    assert wrong(commit) == ["an append waits: its offset is 0, and the high watermark 1"]


SCENARIO = """
scenario: waits
warm_up: 500ms
duration: 3s
topics:
  t: {partitions: 1, replicas: 3}
producers:
  - {topic: t, rate: 5/s}
"""


def test_pro1_a_run_whose_brokers_wake_nobody_fails() -> None:
    def make(original: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: None

    planted = Replacement(target="cluster.core.replica.leader_appends:LeaderAppends.on_touched", make=make)
    with replaced(planted):
        result = run_scenario(parse_scenario(SCENARIO), 1)
    assert "an append waits" in " ".join([each.what for each in result.violations])


def test_nobody_is_blamed_for_waits_at_a_high_watermark_that_damage_has_moved() -> None:
    cluster = SimCluster(seed=1)
    cluster.produce()
    node, jury = cluster._node(1), Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    assert isinstance(node.core, Broker)
    (topic_partition, replica), *_ = node.core.replicas().items()
    append = SimpleNamespace(view=replica.view, acks=ACKS_ALL, last_offset=replica.log.high_watermark - 1)

    def waiting(original: Callable[..., object]) -> Callable[..., object]:
        return lambda *_: [(topic_partition, append)]

    image = jury.ghost.partition(str(topic_partition)).image(1)
    with replaced(Replacement(target="cluster.core.broker.broker:Broker.waiting_appends", make=waiting)):
        for damage, count in ((ASTRAY, 0), ("", 1)):
            image.damage, waits = damage, LastingWaits(jury)
            waits.look([node])
            waits.look([node])
            assert len(jury.violations) == count, damage


@pytest.mark.parametrize("is_heap", [True, False])
def test_pro8_the_timer_of_what_waits_fires_by_the_first_deadline(*, is_heap: bool) -> None:
    outbox = Outbox()
    purgatory: Purgatory[Any] = Purgatory(outbox, "expiry", lambda now_ms, name: None, spare=1)
    for deadline_ms in (3, 4, 2, 0, 5, 1):
        purgatory.park(deadline_ms, [T0], deadline_ms=deadline_ms)
    with nullcontext() if is_heap else patch.object(heapq, "heapify"):
        for number in purgatory.numbers():
            if number % 3:
                purgatory.take(number)
    assert not late_alarm(purgatory)
    outbox.on_timer(0, "expiry")
    assert late_alarm(purgatory) == ("" if is_heap else "until 1, and the timer fires at 2")
    for now_ms in (1, 2):
        outbox.on_timer(now_ms, "expiry")
    assert not late_alarm(purgatory)
