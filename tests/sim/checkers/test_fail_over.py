"""The deadlines on a fail-over: a silent leader is replaced, a leaderless partition gets a leader, and it leads."""

from __future__ import annotations

from typing import final

from sim.checkers.fail_over import FailOver
from sim.checkers.ghost import PartitionGhost

BEAT_MS = 400
# A leader is overdue after 1,800 ms of silence and a second more.
OVERDUE_MS = 2_800


@final
class Cluster:
    """Partition t-0 of brokers 1 to 3, led by broker 1 in epoch 0, whose heartbeats come every 400 ms or as told."""

    def __init__(self, beat_ms: int = BEAT_MS) -> None:
        self.beat_ms = beat_ms
        self.fail_over = FailOver(session_timeout_us=1_800_000, heartbeat_us=beat_ms * 1_000)
        self.partition = PartitionGhost("t-0")
        self.partition.isr = (1, 2, 3)
        self.active: tuple[int, ...] = (1, 2, 3)
        self.now_us = 0
        self.controller_since_us: int | None = 0
        self.metadata_offset = 10
        # Of the process of each broker that beats.
        self.epochs = {1: 1, 2: 2, 3: 3}
        # The brokers that have said that they cannot read the partition, and since when.
        self.unreadable: dict[int, int] = {}
        # The replicas of the partition while its topic allows unclean elections.
        self.unclean: dict[str, tuple[int, ...]] = {}
        self.lead(1)
        self.pass_time(OVERDUE_MS, beating=(1, 2, 3))

    def lead(self, leader: int, *, begins: bool = True) -> None:
        self.partition.leader, self.partition.epoch = leader, self.partition.epoch + 1
        if begins and leader >= 0:
            self.partition.begun_epoch = self.partition.epoch

    def restart(self, broker: int) -> None:
        self.fail_over.on_broker_started(broker)
        self.epochs[broker] += 10

    def pass_time(self, milliseconds: int, *, beating: tuple[int, ...]) -> list[str]:
        found: list[str] = []
        end_us = self.now_us + milliseconds * 1_000
        while self.now_us < end_us:
            for broker in beating:
                self.fail_over.on_heartbeat(broker, self.epochs[broker], self.metadata_offset, self.now_us)
            self.now_us += self.beat_ms * 1_000
            found += self.fail_over.look(
                {"t-0": self.partition},
                {"t-0": 9},
                self.active,
                self.now_us,
                controller_since_us=self.controller_since_us,
                unreadable={"t-0": self.unreadable},
                unclean=self.unclean,
            )
        return found


def test_a_leader_whose_heartbeats_come_is_not_overdue() -> None:
    assert Cluster().pass_time(9_000, beating=(1, 2, 3)) == []


def test_a_silent_leader_is_overdue_while_another_member_could_lead() -> None:
    cluster = Cluster()
    assert cluster.pass_time(2_400, beating=(2, 3)) == []
    assert cluster.pass_time(9_000, beating=(2, 3)) == [
        "t-0: broker 1 leads in epoch 0 and was not heard for 3.2 s, although in-sync broker 2 could lead"
    ]


def test_a_silent_leader_stays_while_no_other_member_could_lead() -> None:
    assert Cluster().pass_time(9_000, beating=()) == []
    alone = Cluster()
    alone.partition.isr = (1,)
    assert alone.pass_time(9_000, beating=(2, 3)) == []
    inactive = Cluster()
    inactive.active = (1,)
    assert inactive.pass_time(9_000, beating=(2, 3)) == []
    broken = Cluster()
    for broker in (2, 3):
        broken.fail_over.on_offline(broker, "t-0")
    assert broken.pass_time(9_000, beating=(2, 3)) == []
    broken.restart(2)
    assert len(broken.pass_time(9_000, beating=(2, 3))) == 1


def test_a_late_answer_to_the_process_before_is_no_sign_of_the_new_one() -> None:
    cluster = Cluster(beat_ms=1_000)
    cluster.partition.isr = (2,)
    cluster.lead(-1)
    cluster.fail_over.on_broker_started(2)
    assert cluster.pass_time(9_000, beating=(2,)) == []
    cluster.epochs[2] += 10
    assert len(cluster.pass_time(9_000, beating=(2,))) == 1


def test_a_broker_whose_process_is_new_could_not_lead_before() -> None:
    """What its disks do not give it is known only when it has read the metadata."""
    cluster = Cluster()
    cluster.partition.isr = (2,)
    cluster.fail_over.on_offline(2, "t-0")
    cluster.lead(-1)
    assert cluster.pass_time(2_400, beating=(2,)) == []
    cluster.restart(2)
    assert cluster.pass_time(400, beating=(2,)) == []
    assert len(cluster.pass_time(9_000, beating=(2,))) == 1
    # Also a process of which nothing was heard yet, soon after the last heartbeat of the one before.
    cut = Cluster(beat_ms=1_000)
    cut.partition.isr = (2,)
    cut.fail_over.on_offline(2, "t-0")
    cut.lead(-1)
    assert cut.pass_time(2_000, beating=(2,)) == []
    cut.restart(2)
    assert cut.pass_time(2_000, beating=()) == []
    # The silence of a leader counts from the last heartbeat of the process before.
    led = Cluster()
    led.restart(1)
    assert led.pass_time(2_400, beating=(2, 3)) == []


def test_sessions_begin_again_with_the_controller() -> None:
    cluster = Cluster()
    cluster.pass_time(2_400, beating=(2, 3))
    cluster.controller_since_us = cluster.now_us
    assert cluster.pass_time(2_400, beating=(2, 3)) == []
    assert len(cluster.pass_time(2_400, beating=(2, 3))) == 1


def test_nobody_is_elected_while_the_controller_does_not_run() -> None:
    """Its last answers say nothing about a time at which it was down or paused."""
    cluster = Cluster()
    assert cluster.pass_time(2_400, beating=(2, 3)) == []
    cluster.controller_since_us = None
    assert cluster.pass_time(800, beating=()) == []
    leaderless = Cluster()
    leaderless.lead(-1)
    leaderless.controller_since_us = None
    assert leaderless.pass_time(2_400, beating=(3,)) == []
    leaderless.controller_since_us = leaderless.now_us
    assert leaderless.pass_time(800, beating=(3,)) == []
    assert len(leaderless.pass_time(800, beating=(3,))) == 1


def test_a_heartbeat_that_the_controller_got_is_a_sign_of_life_without_an_answer() -> None:
    cluster = Cluster()
    cluster.pass_time(400, beating=(2, 3))
    cluster.fail_over.on_taken(1, cluster.now_us)
    assert cluster.pass_time(2_800, beating=(2, 3)) == []
    assert len(cluster.pass_time(400, beating=(2, 3))) == 1
    refused = Cluster()
    refused.pass_time(400, beating=(2, 3))
    refused.fail_over.on_taken(1, refused.now_us)
    refused.fail_over.on_refused(1)
    assert len(refused.pass_time(2_800, beating=(2, 3))) == 1


def test_a_partition_without_a_leader_is_overdue_while_a_member_could_lead() -> None:
    cluster = Cluster()
    cluster.lead(-1)
    assert cluster.pass_time(800, beating=(3,)) == []
    assert cluster.pass_time(9_000, beating=(3,)) == [
        "t-0: no leader since 3.2 s, although in-sync broker 3 could lead"
    ]
    waiting = Cluster()
    waiting.lead(-1)
    waiting.partition.isr = (2,)
    assert waiting.pass_time(9_000, beating=(1, 3)) == []


def test_an_elected_leader_that_has_read_its_election_leads() -> None:
    lagging = Cluster()
    lagging.lead(2, begins=False)
    lagging.metadata_offset = 9
    assert lagging.pass_time(9_000, beating=(1, 2, 3)) == []
    lagging.metadata_offset = 10
    assert lagging.pass_time(9_000, beating=(1, 2, 3)) == [
        "t-0: broker 2 has read that it leads in epoch 1, and does not lead"
    ]


def test_kip858_a_broker_that_cannot_read_the_partition_neither_leads_nor_is_in_sync_for_long() -> None:
    for broker, what in ((1, "leads in epoch 0"), (2, "is in the ISR [1, 2, 3]")):
        cluster = Cluster()
        cluster.unreadable[broker] = cluster.now_us
        assert cluster.pass_time(800, beating=(1, 2, 3)) == []
        found = cluster.pass_time(9_000, beating=(1, 2, 3))
        assert [each.partition(" and has told")[0] for each in found] == [f"t-0: broker {broker} {what}"]


def test_kip858_the_last_member_stays_in_sync_and_leads_nothing() -> None:
    cluster = Cluster()
    cluster.unreadable[1], cluster.partition.isr = cluster.now_us, (1,)
    cluster.fail_over.on_offline(1, "t-0")
    cluster.lead(-1)
    assert cluster.pass_time(9_000, beating=(1,)) == []
    without_controller = Cluster()
    without_controller.unreadable[1] = without_controller.now_us
    without_controller.controller_since_us = None
    assert without_controller.pass_time(9_000, beating=(1, 2, 3)) == []


def test_a_partition_whose_topic_allows_it_gets_an_unclean_leader_within_a_second() -> None:
    cluster = Cluster()
    cluster.partition.isr = (1,)
    cluster.active = (2, 3)
    cluster.lead(-1)
    assert cluster.pass_time(3_000, beating=(2, 3)) == []
    cluster.unclean = {"t-0": (1, 2, 3)}
    assert cluster.pass_time(800, beating=(2, 3)) == []
    [found] = cluster.pass_time(2_000, beating=(2, 3))
    assert "although broker 2 could lead" in found


def test_nobody_out_of_sync_has_to_lead_where_the_topic_allows_it_no_more() -> None:
    cluster = Cluster()
    cluster.partition.isr = (1,)
    cluster.active = (2, 3)
    cluster.lead(-1)
    cluster.unclean = {"t-0": (1, 2, 3)}
    assert cluster.pass_time(800, beating=(2, 3)) == []
    cluster.unclean = {}
    assert cluster.pass_time(4_000, beating=(2, 3)) == []
