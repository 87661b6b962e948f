"""A leader knows of its followers what their fetches said, and commits as much as that allows (LED-6, HWM-1)."""

from __future__ import annotations

import pytest

from sim.checkers.base import Jury
from sim.checkers.follower_progress import (
    NEVER_MS,
    CountedFetch,
    FollowerProgress,
    LeaderState,
    Progress,
    StepSeen,
)
from sim.checkers.ghost import Ghost

KEY = (1, 1, "t-0")
LEADER = object()
NOBODY: frozenset[int] = frozenset()
UNHEARD = Progress(-1, 0, -1)
AT_4 = Progress(4, 10, 7)

# Broker 1 leads epoch 3 with the members 2 and 3; its log ends at 4.
BEGIN = LeaderState(
    leader_epoch=3, partition_epoch=5, committed=frozenset([1, 2, 3]), joiners=NOBODY, leavers=NOBODY,
    followers={2: UNHEARD, 3: UNHEARD}, log_end_offset=4, own_end_offset=4, is_flush_promised=True, flushed_ms=0,
    high_watermark=0,
    min_insync_replicas=2, lag_time_max_ms=1_000, active={2: 7, 3: 7},
)  # fmt: skip
BOTH_AT_4 = BEGIN._replace(followers={2: AT_4, 3: AT_4}, high_watermark=4)
BEGUN = (BEGIN, StepSeen(0, is_new=True))
BOTH_FETCHED = (BOTH_AT_4, StepSeen(10, [CountedFetch(2, 4, 7), CountedFetch(3, 4, 7)]))

Story = list[tuple[LeaderState, StepSeen]]


def broken(story: Story) -> list[str]:
    """Return the rules that a story breaks, but for the time that a leaver has lagged: most take none of it."""
    return [each for each in all_broken(story) if each != FollowerProgress.leavers_name]


def all_broken(story: Story) -> list[str]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    progress = FollowerProgress(jury)
    for state, step in story:
        progress.on_step(KEY, LEADER, state, step)
    return [violation.checker for violation in jury.violations]


# The controller has removed 3 without being asked; the state of 3 is what the leader then knows of it.
def without_3(progress: Progress) -> LeaderState:
    return BOTH_AT_4._replace(
        partition_epoch=6, committed=frozenset([1, 2]), followers={2: AT_4, 3: progress}
    )


LEFT = AT_4._replace(caught_up_ms=NEVER_MS)


def joins_at(end: int, epoch_start: int) -> Story:
    """Return a story in which broker 3, which the controller has removed, fetches from `end` and is to join."""
    outside = without_3(LEFT)._replace(epoch_start_offset=epoch_start, log_end_offset=9, own_end_offset=9)
    # At its fetch before, at 10 ms, the log ended at 4.
    fetched = Progress(end, 10 if end >= 4 else NEVER_MS, 7)
    joining = outside._replace(followers={2: AT_4, 3: fetched}, joiners=frozenset([3]))
    return [BEGUN, BOTH_FETCHED, (outside, StepSeen(20)), (joining, StepSeen(30, [CountedFetch(3, end, 7)]))]


def stays_out_at(end: int, epoch_start: int = 4, *, before: bool = False, **after: object) -> Story:
    """Return that story, but nobody is proposed as broker 3 fetches; `before` says whether a proposal is on its way."""
    *begin, (outside, seen), (joining, step) = joins_at(end, epoch_start)
    left_out = joining._replace(joiners=NOBODY)._replace(**after)  # type: ignore[arg-type]
    return [*begin, (outside._replace(has_proposed=before), seen), (left_out, step)]


PROPOSED = BOTH_AT_4._replace(leavers=frozenset([3]))
# The log is longer, and 3 asks to join.
JOINING = without_3(LEFT)._replace(joiners=frozenset([3]))
WITHOUT_2_AT_6 = BOTH_AT_4._replace(
    partition_epoch=6, committed=frozenset([1, 3]), followers={2: LEFT, 3: Progress(6, 20, 7)},
    log_end_offset=6, own_end_offset=6,
)  # fmt: skip

# Only 3, which is to join, lacks what is below 6.
WAITS_FOR_3 = BOTH_AT_4._replace(
    partition_epoch=6, committed=frozenset([1, 2]), joiners=frozenset([3]),
    followers={2: Progress(6, 20, 7), 3: LEFT}, log_end_offset=6, own_end_offset=6, active={},
)  # fmt: skip

# Broker 3 has left as it was proposed, not long after it was caught up with a shorter log.
LONGER = without_3(AT_4)._replace(log_end_offset=6, own_end_offset=6, leavers=NOBODY)
# And then sends nothing more, while 2 fetches what is longer.
OUTSIDE_AT_4 = LONGER._replace(followers={2: Progress(6, 40, 7), 3: AT_4})
DIES_OUTSIDE: Story = [
    BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15)), (without_3(AT_4), StepSeen(20)), (LONGER, StepSeen(30)),
    (OUTSIDE_AT_4, StepSeen(40, [CountedFetch(2, 6, 7)])), (OUTSIDE_AT_4, StepSeen(1_010, looks_at_lag=True)),
]  # fmt: skip
NEXT_EPOCH = BEGIN._replace(leader_epoch=4, followers={2: Progress(-1, 30, -1), 3: Progress(-1, 30, -1)})
TWO_BEGIN = NEXT_EPOCH._replace(
    committed=frozenset([1, 2]), followers={2: Progress(-1, 30, -1), 3: Progress(-1, NEVER_MS, -1)}
)

# The controller has removed both members.
ALONE = (
    BEGIN._replace(partition_epoch=6, committed=frozenset([1]), followers={
        2: Progress(-1, NEVER_MS, -1), 3: Progress(-1, NEVER_MS, -1)}),
    StepSeen(20),
)  # fmt: skip

# Broker 2 has fetched all, and is to join it.
ONE_JOINS = ALONE[0]._replace(
    joiners=frozenset([2]), followers={2: Progress(4, 30, 7), 3: Progress(-1, NEVER_MS, -1)}
)

PASSES: dict[str, Story] = {
    "the members fetch": [BEGUN, BOTH_FETCHED],
    "a member that did not ask to leave is not caught up": [
        BEGUN, BOTH_FETCHED, (without_3(LEFT), StepSeen(20)),
    ],
    "one that the leader proposed to remove is not forgotten": [
        BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15)), (without_3(AT_4), StepSeen(20)),
    ],
    "a joiner that was refused is not caught up": [
        BEGUN, BOTH_FETCHED, (without_3(LEFT), StepSeen(20)),
        (JOINING._replace(followers={2: AT_4, 3: AT_4._replace(caught_up_ms=21)}),
         StepSeen(21, [CountedFetch(3, 4, 7)])),
        (without_3(LEFT), StepSeen(22, refused_joiner=True)),
    ],
    "a follower outside holds back nothing once it is not active": [
        BEGUN, BOTH_FETCHED,
        (WITHOUT_2_AT_6._replace(high_watermark=6, active={3: 7}), StepSeen(20, [CountedFetch(3, 6, 7)])),
    ],
    "below min.insync.replicas nothing is committed": [
        BEGUN,
        (BEGIN._replace(partition_epoch=6, committed=frozenset([1]), followers={
            2: Progress(-1, NEVER_MS, -1), 3: Progress(-1, NEVER_MS, -1)}), StepSeen(20)),
    ],
    "it is not known whether an append came before the fetch": [
        BEGUN,
        (BEGIN._replace(followers={2: Progress(4, 0, 7), 3: UNHEARD}, log_end_offset=5, own_end_offset=5),
         StepSeen(10, [CountedFetch(2, 4, 7)], is_mixed=True, has_appended=True)),
    ],
    "nor at the fetch after that, which reaches the end of one of both": [
        BEGUN,
        (BEGIN._replace(followers={2: Progress(4, 0, 7), 3: UNHEARD}, log_end_offset=6, own_end_offset=6),
         StepSeen(10, [CountedFetch(2, 4, 7)], is_mixed=True, has_appended=True)),
        (BEGIN._replace(followers={2: Progress(5, 10, 7), 3: UNHEARD}, log_end_offset=6, own_end_offset=6),
         StepSeen(20, [CountedFetch(2, 5, 7)])),
    ],
    "a roll for a batch that is a repetition flushes what another job is to flush": [
        BEGUN, (BOTH_AT_4._replace(own_end_offset=3, high_watermark=3), BOTH_FETCHED[1]),
        (BOTH_AT_4._replace(high_watermark=3), StepSeen(20)),
    ],
    "such a roll and the end of a flush before it at one time of a coarse clock": [
        BEGUN, (BOTH_AT_4._replace(own_end_offset=3, high_watermark=3, flushed_ms=20), BOTH_FETCHED[1]),
        (BOTH_AT_4._replace(high_watermark=3, flushed_ms=20), StepSeen(20)),
    ],
    "a roll for the second batch of a step flushes the first": [
        BEGUN,
        (BEGIN._replace(partition_epoch=6, committed=frozenset([1]), min_insync_replicas=1, followers={
            2: Progress(-1, NEVER_MS, -1), 3: Progress(-1, NEVER_MS, -1)}, high_watermark=4), StepSeen(20)),
        (BEGIN._replace(partition_epoch=6, committed=frozenset([1]), min_insync_replicas=1, followers={
            2: Progress(-1, NEVER_MS, -1), 3: Progress(-1, NEVER_MS, -1)}, high_watermark=4, log_end_offset=6,
            own_end_offset=5), StepSeen(30, has_appended=True, is_long=True)),
    ],
    "with too few in sync a leader appends what it alone has to have": [
        BEGUN, ALONE, (ALONE[0]._replace(log_end_offset=5, own_end_offset=5), StepSeen(30, has_appended=True)),
    ],
    "in the step in which the others leave it may have appended before": [
        BEGUN, (ALONE[0]._replace(log_end_offset=5, own_end_offset=5),
                StepSeen(20, has_appended=True, is_for_all=True)),
    ],
    "a proposal names the life that has fetched, before the step or in it": [
        BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15, named_lives={2: 7})),
        (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}),
         StepSeen(16, [CountedFetch(2, 4, 9)], named_lives={2: 7})),
        (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}), StepSeen(17, named_lives={2: 9})),
    ],
    "kip903 made again it names the same lives, whatever has fetched since": [
        BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15, named_lives={2: 7})),
        (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}), StepSeen(16, [CountedFetch(2, 4, 9)])),
        (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}),
         StepSeen(17, named_lives={2: 7}, is_repeated=True)),
    ],
    "of a member that has not fetched in the epoch it names the life that the metadata has": [
        BEGUN, (BEGIN._replace(leavers=frozenset([3])), StepSeen(15, named_lives={2: 8})),
    ],
    "a leader who waits for nobody commits its log with its election": [
        (ALONE[0]._replace(min_insync_replicas=1, high_watermark=4), StepSeen(0, is_new=True)),
    ],
    "or cannot commit, as too few are in sync": [(ALONE[0], StepSeen(0, is_new=True))],
    "what min.insync.replicas has held back is committed as it is lowered": [
        ALONE, (ALONE[0]._replace(min_insync_replicas=1, high_watermark=4), StepSeen(20)),
    ],
    "or waits for one who has not fetched": [BEGUN, (BEGIN._replace(min_insync_replicas=1), StepSeen(20))],
    "another leader epoch knows nothing": [
        BEGUN, BOTH_FETCHED, (NEXT_EPOCH, StepSeen(30, is_new=True)),
    ],
    "an older fetch comes after a newer one in one step": [
        BEGUN, BOTH_FETCHED,
        (BOTH_AT_4._replace(followers={2: Progress(4, 10, 7), 3: Progress(6, 20, 7)}, high_watermark=6,
                            log_end_offset=6, own_end_offset=6),
         StepSeen(20, [CountedFetch(3, 6, 7), CountedFetch(2, 6, 7), CountedFetch(2, 4, 7)], is_long=True,
                  is_mixed=True)),
    ],
    "in a compacted log it rises over a gap": [
        BEGUN, ALONE, (ALONE[0]._replace(high_watermark=4, is_compacted=True), StepSeen(30)),
    ],
    "with who has joined there are enough to commit": [
        BEGUN, ALONE, (ONE_JOINS, StepSeen(30, [CountedFetch(2, 4, 7)])),
        (ONE_JOINS._replace(partition_epoch=7, committed=frozenset([1, 2]), joiners=NOBODY, high_watermark=4),
         StepSeen(40)),
    ],
    "who joins has reached the start of the leader epoch": joins_at(6, epoch_start=6),
    "or as much as its leader has committed, where its log names no start": joins_at(4, epoch_start=-1),
    "who has not reached the high watermark is not proposed": stays_out_at(3),
    "nor who has not reached the start of the leader epoch": stays_out_at(5, 6),
    "nor who is not active in the life that fetches": stays_out_at(5, active={3: 8}),
    "nor while another is": stays_out_at(5, leavers=frozenset([2])),
    "nor while a proposal is on its way that has its outcome": stays_out_at(5, has_proposed=True),
    "nor as its answer comes in the same step": stays_out_at(5, before=True),
    "who is not in sync fetches in a new life, before an append of the same step or after it": [
        BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15)), (without_3(AT_4), StepSeen(20)),
        (LONGER._replace(followers={2: Progress(6, 25, 7), 3: AT_4}), StepSeen(25, [CountedFetch(2, 6, 7)])),
        (LONGER._replace(followers={2: Progress(6, 25, 7), 3: Progress(4, 10, 9)}, log_end_offset=8, own_end_offset=8),
         StepSeen(30, [CountedFetch(3, 4, 9)], is_mixed=True, is_long=True, has_appended=True)),
    ],
    "who is not in sync is waited for until it lags": [
        *DIES_OUTSIDE, (OUTSIDE_AT_4._replace(high_watermark=6), StepSeen(1_011, looks_at_lag=True)),
    ],
    "who is not in sync has never been caught up": [(TWO_BEGIN, StepSeen(30, is_new=True))],
}  # fmt: skip

FAILS: dict[str, tuple[str, Story]] = {
    "with too few in sync a leader appends what all in sync have to have": (
        "enough-to-append",
        [BEGUN, ALONE, (ALONE[0]._replace(log_end_offset=5, own_end_offset=5),
                        StepSeen(30, has_appended=True, is_for_all=True))],
    ),
    "who is about to join counts for min.insync.replicas": (
        "min-in-sync",
        [BEGUN, ALONE, (ONE_JOINS._replace(high_watermark=4), StepSeen(30, [CountedFetch(2, 4, 7)]))],
    ),
    "hwm2 the high watermark rises above who is about to join": (
        "high-watermark-early",
        [BEGUN, BOTH_FETCHED, (WAITS_FOR_3, StepSeen(20, [CountedFetch(2, 6, 7)])),
         (WAITS_FOR_3._replace(high_watermark=6), StepSeen(30))],
    ),
    "hwm2 it does so within a step of several events": (
        "high-watermark-early",
        [BEGUN, BOTH_FETCHED, (WAITS_FOR_3, StepSeen(20, [CountedFetch(2, 6, 7)])),
         (WAITS_FOR_3._replace(high_watermark=6), StepSeen(30, is_long=True))],
    ),
    "hwm1 the high watermark rises above a member": (
        "high-watermark-early",
        [BEGUN, (BEGIN._replace(followers={2: AT_4, 3: UNHEARD}, high_watermark=4),
                 StepSeen(10, [CountedFetch(2, 4, 7)]))],
    ),
    "hwm1 the high watermark rises above who is caught up and not in sync yet": (
        "high-watermark-early",
        [BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15)), (LONGER, StepSeen(20)),
         (LONGER._replace(followers={2: Progress(6, 30, 7), 3: AT_4}, high_watermark=6),
          StepSeen(30, [CountedFetch(2, 6, 7)]))],
    ),
    "who is not in sync begins as caught up": (
        "follower-progress",
        [(NEXT_EPOCH._replace(committed=frozenset([1, 2])), StepSeen(30, is_new=True))],
    ),
    "a member does not begin as caught up": (
        "follower-progress", [(TWO_BEGIN._replace(committed=frozenset([1, 2, 3])), StepSeen(30, is_new=True))],
    ),
    "a fetch that was refused has counted": (
        "follower-progress", [BEGUN, (BEGIN._replace(followers={2: AT_4, 3: UNHEARD}), StepSeen(10))],
    ),
    "a fetch has not counted": ("follower-progress", [BEGUN, (BEGIN, StepSeen(10, [CountedFetch(2, 4, 7)]))]),
    "a fetch below the end makes caught up": (
        "follower-progress",
        [BEGUN, (BEGIN._replace(followers={2: Progress(3, 10, 7), 3: UNHEARD}),
                 StepSeen(10, [CountedFetch(2, 3, 7)]))],
    ),
    "a member that was removed stays caught up": (
        "follower-progress", [BEGUN, BOTH_FETCHED, (without_3(AT_4), StepSeen(20))],
    ),
    "a joiner that was refused stays caught up": (
        "follower-progress",
        [BEGUN, BOTH_FETCHED, (JOINING, StepSeen(15)), (without_3(AT_4), StepSeen(20, refused_joiner=True))],
    ),
    "a proposal names a later life than the one that has fetched": (
        "proposed-lives", [BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15, named_lives={2: 9}))],
    ),
    "kip903 made again a proposal names the life that has fetched since": (
        "proposed-lives",
        [
            BEGUN, BOTH_FETCHED, (PROPOSED, StepSeen(15, named_lives={2: 7})),
            (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}), StepSeen(16, [CountedFetch(2, 4, 9)])),
            (PROPOSED._replace(followers={2: Progress(4, 16, 9), 3: AT_4}),
             StepSeen(17, named_lives={2: 9}, is_repeated=True)),
        ],
    ),
    "isr3 who joins has reached the high watermark and not the start of the leader epoch": (
        "proposed-joiners", joins_at(5, epoch_start=6),
    ),
    "kip841 who joins is not active": (
        "proposed-joiners",
        [*joins_at(6, epoch_start=6)[:2], *[
            (state._replace(active={}, inactive_joiners=state.joiners), step)
            for state, step in joins_at(6, epoch_start=6)[2:]
        ]],
    ),
    "isr3 who joins has not reached the high watermark": ("proposed-joiners", joins_at(3, epoch_start=0)),
    "isr3 who may join is not proposed as it fetches": ("late-joiners", stays_out_at(4)),
    "a leader epoch begins with what was known before": (
        "follower-progress",
        [BEGUN, BOTH_FETCHED, (BOTH_AT_4._replace(leader_epoch=4), StepSeen(30, is_new=True))],
    ),
    "the high watermark does not rise with a fetch": (
        "high-watermark-due", [BEGUN, (BOTH_AT_4._replace(high_watermark=3), BOTH_FETCHED[1])],
    ),
    "the high watermark does not rise with a flush": (
        "high-watermark-due",
        [BEGUN, (BOTH_AT_4._replace(own_end_offset=3, high_watermark=3), BOTH_FETCHED[1]),
         (BOTH_AT_4._replace(high_watermark=3, flushed_ms=20), StepSeen(20))],
    ),
    "the high watermark does not rise with the election of a leader who waits for nobody": (
        "high-watermark-due",
        [(ALONE[0]._replace(min_insync_replicas=1, high_watermark=3), StepSeen(0, is_new=True))],
    ),
    "the high watermark does not rise with the refusal of who was to join": (
        "high-watermark-due",
        [BEGUN, BOTH_FETCHED, (WAITS_FOR_3, StepSeen(20, [CountedFetch(2, 6, 7)])),
         (WAITS_FOR_3._replace(joiners=NOBODY), StepSeen(30, refused_joiner=True))],
    ),
    "the high watermark does not rise with a lower min.insync.replicas": (
        "high-watermark-due", [ALONE, (ALONE[0]._replace(min_insync_replicas=1), StepSeen(20))],
    ),
    "the high watermark does not rise where no flush is promised any more": (
        "high-watermark-due",
        [BEGUN, (BOTH_AT_4._replace(own_end_offset=3, high_watermark=3), BOTH_FETCHED[1]),
         (BOTH_AT_4._replace(high_watermark=3, is_flush_promised=False), StepSeen(20))],
    ),
    "the high watermark does not rise as the leader sees that who is not in sync lags": (
        "high-watermark-due", [*DIES_OUTSIDE, (OUTSIDE_AT_4, StepSeen(1_011, looks_at_lag=True))],
    ),
    "the high watermark does not rise with a smaller ISR": (
        "high-watermark-due",
        [BEGUN,
         (BEGIN._replace(followers={2: AT_4, 3: UNHEARD}), StepSeen(10, [CountedFetch(2, 4, 7)])),
         (BEGIN._replace(partition_epoch=6, committed=frozenset([1, 2]), followers={
             2: AT_4, 3: Progress(-1, NEVER_MS, -1)}), StepSeen(20))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_story_that_must_pass(name: str) -> None:
    assert broken(PASSES[name]) == []


@pytest.mark.parametrize("name", FAILS)
def test_story_that_must_fail(name: str) -> None:
    checker, story = FAILS[name]
    assert set(broken(story)) == {checker}


@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_broker_knew_as_leader_ends_with_its_lead_and_its_life(is_over: bool) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    progress = FollowerProgress(jury)
    progress.on_step(KEY, LEADER, *BEGUN)
    if is_over:
        progress.on_end(1)
    else:
        progress.on_follows(KEY)
    progress.on_step(KEY, LEADER, BOTH_AT_4, StepSeen(20))
    assert not jury.violations


@pytest.mark.parametrize(
    ("now_ms", "log_end", "fetches", "is_wrong"),
    [
        (1_011, 6, (), False),
        # It may lag for a second; it was caught up at 10 ms.
        (1_010, 6, (), True),
        # At the log end nobody lags, however long nothing has come.
        (5_000, 4, (), True),
        # A fetch of the same step may have come after the proposal.
        (1_011, 4, (CountedFetch(3, 4, 7),), False),
    ],
)
def test_isr2_who_is_proposed_to_leave_has_lagged_for_long_enough(
    now_ms: int, log_end: int, fetches: tuple[CountedFetch, ...], is_wrong: bool
) -> None:
    followers = {2: Progress(log_end, 20, 7), 3: AT_4}
    longer = BOTH_AT_4._replace(followers=followers, log_end_offset=log_end, own_end_offset=log_end)
    proposed = longer._replace(leavers=frozenset([3]))
    fetched = (longer, StepSeen(20, [CountedFetch(2, log_end, 7)]))
    story = [BEGUN, BOTH_FETCHED, fetched, (proposed, StepSeen(now_ms, fetches))]
    assert ("proposed-leavers" in all_broken(story)) is is_wrong


@pytest.mark.parametrize(
    ("end_of_2", "now_ms", "fetches", "is_wrong"),
    [
        (4, 1_011, (), True),
        # Who is at the end of the log keeps up; so may who fetches in this step.
        (6, 1_011, (), False),
        (4, 1_011, (CountedFetch(2, 4, 7),), False),
        # It has a second since it was caught up at 10 ms.
        (4, 1_010, (), False),
    ],
)
def test_isr2_all_that_lag_leave_with_one_proposal(
    end_of_2: int, now_ms: int, fetches: tuple[CountedFetch, ...], is_wrong: bool
) -> None:
    longer = BOTH_AT_4._replace(
        followers={2: Progress(end_of_2, 10, 7), 3: Progress(4, 9, 7)}, log_end_offset=6, own_end_offset=6
    )
    proposed = longer._replace(leavers=frozenset([3]))
    story = [BEGUN, (longer, StepSeen(20)), (proposed, StepSeen(now_ms, fetches))]
    assert ("proposed-leavers" in all_broken(story)) is is_wrong


def test_kip903_a_proposal_names_a_life_of_each_member_also_of_one_that_has_not_fetched() -> None:
    for named, is_wrong in ((7, False), (-1, True)):
        proposed = BEGIN._replace(leavers=frozenset([3]))
        story = [BEGUN, (proposed, StepSeen(1_015, named_lives={2: named}))]
        assert ("proposed-lives" in all_broken(story)) is is_wrong
