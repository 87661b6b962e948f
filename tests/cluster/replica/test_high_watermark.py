"""A leader's high watermark: when it moves, and when it must not (HWM)."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import AlterPartitionRequest
from cluster.core.metadata.records import TopicConfigRecord
from tests.cluster.replica.setup import NO_CONFIGS, Setup, observed, only_sent


def leading(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    records: int = 10,
    configs: Mapping[str, str] = NO_CONFIGS,
) -> Setup:
    setup = Setup()
    setup.place(leader=1, isr=isr, replicas=replicas, configs=configs)
    for number in range(records):
        setup.append(b"%d" % number)
    return setup


def test_hwm1_the_high_watermark_is_the_lowest_end_of_all_members() -> None:
    setup = leading()
    setup.fetch(2, 9)
    # Broker 3 has not fetched.
    assert setup.high_watermark == 0
    effects = setup.fetch_effects(3, 7)
    assert setup.high_watermark == 7
    assert observed(effects, "replica.high_watermark") == [
        {"topic_partition": "t-0", "leader_epoch": 0, "high_watermark": 7, "role": "leader"}
    ]


def test_hwm1_a_caught_up_outsider_that_may_join_is_waited_for() -> None:
    setup = leading(isr=(1, 2), records=0)
    # It is caught up, and proposed.
    setup.fetch(3, 0)
    setup.append(b"a")
    setup.fetch(2, 1)
    assert setup.high_watermark == 0
    setup.fetch(3, 1)
    assert setup.high_watermark == 1


def test_hwm1_an_outsider_that_cannot_join_holds_nothing_back() -> None:
    setup = leading(isr=(1, 2), records=0)
    setup.register(3, fenced=True)
    # A fenced broker that fetches is not waited for (KAFKA-15021).
    setup.fetch(3, 0)
    setup.append(b"a")
    setup.fetch(2, 1)
    assert setup.high_watermark == 1


def test_high_watermark_waits_for_a_joining_follower() -> None:
    setup = leading(isr=(1, 2), records=0)
    # A proposed member counts at once (HWM-2, KIP-497).
    send = only_sent(setup.fetch_effects(3, 0), AlterPartitionRequest)
    setup.append(b"a", b"b")
    # Broker 3 is no longer within the lag time, so it is the proposal alone that counts.
    setup.now_ms += 60_000
    setup.fetch(2, 2)
    assert setup.high_watermark == 0
    setup.answer_alter(send)
    assert setup.high_watermark == 0
    setup.fetch(3, 1)
    assert setup.high_watermark == 1


def test_hwm2_a_leaver_counts_until_its_leave_is_committed() -> None:
    setup = leading()
    setup.fetch(2, 10)
    setup.fetch(3, 4)
    setup.now_ms += 31_000
    setup.fetch(2, 10)
    send = only_sent(setup.wait(0, "isr.lag"), AlterPartitionRequest)
    setup.append(b"more")
    setup.fetch(2, 11)
    assert setup.high_watermark == 4
    setup.answer_alter(send)
    # The accepted change moves it (HWM-5, KAFKA-13091).
    assert setup.high_watermark == 11


def test_hwm3_nothing_is_committed_by_fewer_than_min_insync_replicas() -> None:
    setup = leading(isr=(1,), configs={"min.insync.replicas": "2"})
    # One replica is fewer than min.insync.replicas (KAFKA-15583).
    assert setup.high_watermark == 0
    setup.place(leader=1, isr=(1, 2), partition_epoch=1)
    setup.fetch(2, 10)
    assert setup.high_watermark == 10


def test_hwm5_a_lower_min_insync_replicas_commits_what_it_has_held_back() -> None:
    """No append need follow: a producer that waits is answered, and its consumers read."""
    setup = leading(isr=(1,), configs={"min.insync.replicas": "2"})
    assert setup.high_watermark == 0
    setup.replay(TopicConfigRecord(topic="t", configs=(("min.insync.replicas", "1"),)))
    assert setup.high_watermark == 10


def test_hwm3_a_topic_with_fewer_replicas_than_min_insync_replicas_asks_for_all_of_them() -> None:
    setup = leading(isr=(1,), replicas=(1,), configs={"min.insync.replicas": "2"})
    assert (setup.leader.min_isr, setup.high_watermark) == (1, 10)


def test_hwm4_the_high_watermark_never_falls() -> None:
    setup = leading(isr=(1, 2))
    setup.fetch(2, 8)
    setup.fetch(2, 3)
    assert setup.high_watermark == 8
    setup.place(leader=1, isr=(1, 2, 3), partition_epoch=1)
    setup.fetch(3, 1)
    assert setup.high_watermark == 8


def test_hwm5_an_append_commits_where_the_leader_is_alone() -> None:
    assert leading(isr=(1,)).high_watermark == 10


def test_hwm5_taking_leadership_evaluates_it() -> None:
    setup = leading()
    setup.place(leader=1, isr=(1,), leader_epoch=1, partition_epoch=1)
    assert setup.high_watermark == 10


def test_hwm6_a_new_leader_keeps_its_own_until_followers_fetch() -> None:
    setup = leading()
    for follower in (2, 3):
        setup.fetch(follower, 6)
    setup.place(leader=1, leader_epoch=1, partition_epoch=1)
    assert setup.high_watermark == 6
    setup.fetch(2, 10)
    setup.fetch(3, 10)
    assert setup.high_watermark == 10


def test_isr8_a_re_elected_leader_forgets_the_followers_progress_of_an_older_epoch() -> None:
    """Under another leader, followers may have cut what they had here (B-21). Epochs 1 to 4 came as one."""
    setup = leading()
    setup.fetch(2, 4)
    setup.fetch(3, 9)
    assert setup.high_watermark == 4
    setup.place(leader=1, isr=(1, 3), leader_epoch=5, partition_epoch=5)
    assert setup.leader.followers[3].log_end_offset == -1
    # It would be 9 if the offset of epoch 0 counted.
    assert setup.high_watermark == 4
    setup.fetch(3, 8, last_fetched_epoch=0)
    assert setup.high_watermark == 8


def test_a_flush_promise_holds_the_leaders_own_end_back() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1, 2), configs={"flush.messages": "1"})
    records = setup.request_append(b"a")
    setup.fetch(2, 1)
    # Broker 2 has flushed the record, the leader has not.
    assert setup.high_watermark == 0
    setup.run_jobs(records)
    assert setup.high_watermark == 1


def test_hwm1_the_high_watermark_does_not_wait_for_a_member_that_the_controller_removed() -> None:
    """The member's log directory failed: it was caught up a moment ago and is active, but will not fetch."""
    setup = leading()
    for follower in (2, 3):
        setup.fetch(follower, 10)
    setup.place(leader=1, isr=(1, 2), partition_epoch=1)
    setup.append(b"x")
    setup.fetch(2, 11)
    assert setup.high_watermark == 11
    setup.append(b"y")
    # Broker 3 is back: it may join, and is waited for.
    setup.fetch(3, 11)
    setup.fetch(2, 12)
    assert setup.high_watermark == 11


def test_hwm1_the_high_watermark_does_not_wait_for_a_replica_that_may_not_join() -> None:
    setup = leading(isr=(1, 2))
    setup.fetch(2, 10)
    effects = setup.fetch_effects(3, 10)
    proposal = only_sent(effects, AlterPartitionRequest)
    setup.append(b"x")
    setup.fetch(2, 11)
    assert setup.high_watermark == 10
    setup.answer_alter(proposal, error=ErrorCode.INELIGIBLE_REPLICA)
    assert setup.high_watermark == 11


def test_hwm2_a_joiner_is_waited_for_though_the_controller_takes_out_another_member() -> None:
    """The high watermark waits for a joiner that this leader proposed, not for a member that the controller removed."""
    setup = leading()
    for follower in (2, 3):
        setup.fetch(follower, 10)
    # Broker 3 is out.
    setup.place(leader=1, isr=(1, 2), partition_epoch=1)
    # Broker 3 is proposed again.
    only_sent(setup.fetch_effects(3, 10), AlterPartitionRequest)
    # From here on the proposal alone counts.
    setup.now_ms += 60_000
    setup.append(b"x")
    setup.fetch(2, 11)
    assert setup.high_watermark == 10
    # The proposal was accepted, then 2 was taken out.
    setup.place(leader=1, isr=(1, 3), partition_epoch=2)
    assert setup.high_watermark == 10
    setup.place(leader=1, isr=(1, 3), partition_epoch=3)
    assert setup.high_watermark == 10
    setup.fetch(3, 11)
    assert setup.high_watermark == 11


def test_hwm2_a_joiner_that_may_have_been_let_in_is_waited_for() -> None:
    """The first copy of the proposal was accepted but its answer lost; the second is refused as superseded."""
    setup = leading(isr=(1, 2))
    setup.fetch(2, 10)
    first = only_sent(setup.fetch_effects(3, 10), AlterPartitionRequest)
    setup.answer(first.call, TransportError(reason="timed out"))
    second = only_sent(setup.wait(1_000, "isr.retry:t-0"), AlterPartitionRequest)
    setup.append(b"x")
    setup.fetch(2, 11)
    setup.answer_alter(second, error=ErrorCode.INVALID_UPDATE_VERSION)
    setup.now_ms += 60_000
    setup.fetch(2, 11)
    assert setup.high_watermark == 10


def behind_a_dead_follower() -> Setup:
    """Returns a leader that waits for broker 3, which was caught up while 2 was proposed, and has died since."""
    setup = Setup()
    setup.place(leader=1, replicas=(1, 2, 3), isr=(1,))
    setup.append(b"a")
    proposal = only_sent(setup.fetch_effects(2, 1, max_wait_ms=500), AlterPartitionRequest)
    setup.fetch_effects(3, 1, max_wait_ms=500)
    setup.answer_alter(proposal)
    assert setup.produce(b"b", acks=-1, producer_id=5, base_sequence=0) is None
    setup.fetch(2, 2)
    setup.register(3, fenced=True)
    assert (setup.high_watermark, setup.end) == (1, 2)
    return setup


def test_hwm5_a_dead_follower_that_was_caught_up_is_waited_for_as_long_as_it_does_not_lag() -> None:
    """It is in no ISR, so no change of the partition comes; nor need another append."""
    setup = behind_a_dead_follower()
    for _ in range(3):
        setup.wait(15_000, "isr.lag")
        setup.fetch(2, 2)
    assert setup.high_watermark == 2


def test_hwm5_the_retry_of_an_append_looks_again() -> None:
    setup = behind_a_dead_follower()
    setup.now_ms += 60_000
    setup.outbox.on_timer(setup.now_ms, "produce.expiry")
    setup.settle()
    assert setup.high_watermark == 1
    answer = setup.produce(b"b", acks=-1, producer_id=5, base_sequence=0)
    assert answer is not None and (answer.error, answer.base_offset) == (ErrorCode.NONE, 1)
    assert setup.high_watermark == 2
