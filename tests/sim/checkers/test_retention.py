"""Logs of which retention deletes the oldest segments, under the checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.bugs.planting import Replacement, replaced
from sim.checkers.base import Jury, Violation
from sim.checkers.chain import Chain, Mark
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.log_starts import start_beyond
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import (
    Appended,
    BecameLeader,
    Created,
    DeletedSegment,
    Died,
    Elected,
    HighWatermark,
    LogStarted,
    Sighting,
)
from sim.disk import SimDisk
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: retention
duration: 9s
cluster:
  settings: {log.retention.check.interval.ms: 400, log.initial.task.delay.ms: 500}
topics:
  t: {config: {min.insync.replicas: 2, segment.bytes: 20000, retention.ms: 1500, file.delete.delay.ms: 500}}
  u: {config: {min.insync.replicas: 2, segment.bytes: 20000, retention.bytes: 30000}}
producers:
  - {topic: t, rate: 50/s, size: 600 B}
  - {topic: u, rate: 50/s, size: 600 B}
consumers:
  - {topic: t}
  - {topic: u}
steps:
  - {at: 3s, kill: leader(t/0), down: 2500ms}
  - {at: 6s, power: follower(u/0), keep: subset, down: 1s}
  - {at: 8s, power: all, keep: all, down: 300ms}
"""


def marks(*bases: int) -> tuple[Mark, ...]:
    return tuple(Mark(base, base + 5, 0, base, 5) for base in bases)


def judged(
    start: int, *deleted: tuple[int, int], committed: int = 10, leader_start: int = 0
) -> list[Violation]:
    """Return the violations when broker 1 deletes what is before `start`, of 15 records in segments of 5.

    `deleted` has the age and the bytes that are left after it of each segment. The log of broker 2 begins at
    `leader_start` before.
    """
    jury = jury_of_15_records(committed)
    if leader_start:
        jury.see(LogStarted(2, "t-0", leader_start))
    jury.see(LogStarted(1, "t-0", start, segments(*deleted)))
    left = list(jury.ghost.partition("t-0").image(1).chain.marks)
    assert left == [mark for mark in marks(0, 5, 10) if mark[0] >= start]
    return found_by_retention(jury)


def jury_of_15_records(committed: int) -> Jury:
    """A jury that has seen broker 1 append 15 records and commit those below `committed`."""
    jury = Jury(ghost := Ghost(), all_checkers(ghost), now_us=lambda: 0, on_violation=lambda found: None)
    jury.see(Created("t-0", 1, False, retention_ms=1000, retention_bytes=5000))
    jury.see(Elected("t-0", 1, 0, (1,), True))
    jury.see(Appended(1, "t-0", 0, marks(0, 5, 10)))
    jury.see(HighWatermark(1, "t-0", 0, committed, True))
    return jury


def segments(*deleted: tuple[int, int]) -> tuple[DeletedSegment, ...]:
    """Segments of five records from offset 0 on, with the age and the bytes left of each."""
    return tuple(DeletedSegment(5 * number, *numbers) for number, numbers in enumerate(deleted, 1))


def found_by_retention(jury: Jury) -> list[Violation]:
    return [found for found in jury.violations if found.checker == "retention"]


def test_rt5_a_segment_that_is_old_enough_may_be_deleted() -> None:
    assert not judged(5, (1001, 0))
    assert "1000 ms old" in judged(5, (1000, 0))[0].what


def test_rt6_a_segment_may_be_deleted_while_retention_bytes_are_left() -> None:
    assert not judged(10, (1, 5500), (1, 5000))
    assert "4999 bytes after it" in judged(10, (1, 5500), (1, 4999))[0].what


def test_rt4_one_job_may_delete_segments_below_the_leaders_log_start_and_old_ones_after_it() -> None:
    assert not judged(10, (1, 0), (1001, 0), leader_start=5)
    assert not judged(10, (1, 0), (1, 0), leader_start=10)
    assert "ended at 10 had a record 1000 ms old" in judged(10, (1, 0), (1000, 0), leader_start=5)[0].what
    assert "ended at 5 had a record 1 ms old" in judged(10, (1, 0), (1001, 0), leader_start=4)[0].what


def test_rt2_an_uncommitted_record_is_never_deleted() -> None:
    assert "committed are the records below 10" in judged(15, (9999, 9999))[0].what


def test_rt2_what_two_jobs_of_one_step_have_deleted_is_judged_once() -> None:
    """All of it may be lost, as after an unclean election; with the first job it is gone from what is known."""
    jury = jury_of_15_records(5)
    jury.ghost.partition("t-0").excused.update(dict.fromkeys(marks(5, 10)))
    for _ in range(2):
        jury.see(LogStarted(1, "t-0", 15, segments((1001, 0), (1001, 0), (1001, 0))))
    assert not found_by_retention(jury)


@pytest.mark.parametrize("is_excused", [True, False])
def test_rt2_a_batch_of_which_a_shorter_history_has_a_part_is_excused_as_a_whole(*, is_excused: bool) -> None:
    """A leader that was elected uncleanly has another batch there, which ends where the truth now does."""
    jury = jury_of_15_records(10)
    truth = jury.ghost.partition("t-0").truth
    truth.truncate_to(5)
    truth.extend([Mark(5, 7, 0, 99, 2)])
    if is_excused:
        jury.ghost.partition("t-0").excused.update(dict.fromkeys(marks(5)))
    jury.see(LogStarted(1, "t-0", 10, segments((1001, 0), (1001, 0))))
    assert len(found_by_retention(jury)) == (not is_excused)


def test_a_disk_that_lied_may_bring_back_what_a_cut_had_taken_in_place_of_what_came_after_it() -> None:
    jury = jury_of_15_records(10)
    image = jury.ghost.partition("t-0").image(1)
    earlier = Mark(5, 10, 0, 99, 5)
    jury.see(Died(1, "t-0", True, (*marks(0), earlier), 0, "a disk lied"))
    assert list(image.lost) == [*marks(10), *marks(5)] and image.lost_from == 5


def test_epc9_a_follower_that_begins_again_begins_where_its_leaders_log_begins() -> None:
    # Broker 2, without a record, is elected uncleanly: none is committed any more. Then broker 1 leads again.
    led_again: list[Sighting] = [
        LogStarted(1, "t-0", 15, segments((1001, 0), (1001, 0), (1001, 0))),
        Elected("t-0", 2, 1, (2,), False),
        Elected("t-0", 1, 2, (1,), False),
        BecameLeader(1, "t-0", 2, 15),
    ]

    def begins_again(start: int, *before: Sighting) -> list[Violation]:
        jury = jury_of_15_records(15)
        for sighting in (*before, LogStarted(2, "t-0", start)):
            jury.see(sighting)
        return found_by_retention(jury)

    assert not begins_again(15, *led_again)
    # Broker 3 holds a batch of an epoch that nobody follows any more: no leader compares what is below its start.
    others = Appended(3, "t-0", 0, (*marks(0, 5), Mark(10, 15, 1, 10, 5)))
    jury = jury_of_15_records(15)
    for sighting in (others, *led_again, LogStarted(3, "t-0", 15, segments((1001, 0), (1001, 0), (1001, 0)))):
        jury.see(sighting)
    assert not found_by_retention(jury)
    assert "committed are the records below 0" in begins_again(16, *led_again)[0].what
    # Nobody leads a log that begins there.
    assert "committed are the records below 0" in begins_again(15, *led_again[:-1])[0].what


def test_chains_agree_as_far_as_both_go_where_one_begins_later() -> None:
    truth = Chain(marks(0, 5, 10, 15))
    late = Chain(marks(10, 15), 10)
    assert late.agreed_end(truth) == truth.agreed_end(late) == 20
    assert Chain((), 10).agreed_end(truth) == 10
    assert Chain((), 30).agreed_end(truth) == 20
    assert Chain((Mark(10, 15, 0, 99, 5),), 10).agreed_end(truth) == 10
    assert late.begin_at(15) == list(marks(10)) and (late.start, late.end) == (15, 20)
    assert late.begin_at(20) == list(marks(15)) and (late.start, late.end) == (20, 20)


def run(seed: int = 1) -> RunResult:
    return run_scenario(parse_scenario(SCENARIO), seed)


def test_what_retention_has_deleted_is_no_loss() -> None:
    result = run()
    assert result.verdict is Verdict.HELD, result.violations
    told = "\n".join(result.story)
    assert "t-0: 1 old segments are deleted" in told and "u-0: 1 old segments are deleted" in told
    assert result.excused["retention has deleted it"] > 100


BEHIND = """\
scenario: behind-retention
duration: 8s
cluster: {brokers: 2, settings: {log.retention.check.interval.ms: 300, log.initial.task.delay.ms: 500}}
topics:
  t: {replicas: 2, config: {flush.messages: 1, segment.bytes: 16384, retention.ms: 800, file.delete.delay.ms: 0}}
producers:
  - {topic: t, rate: 50/s, size: 1000 B}
steps:
  - {at: 2500ms, kill: follower(t/0), down: 4s}
"""


def test_fet11_a_follower_behind_the_leaders_log_start_begins_again_there() -> None:
    result = run_scenario(parse_scenario(BEHIND), 1)
    assert result.verdict is Verdict.HELD, result.violations
    assert any("truncates from" in line for line in result.story)


def _too_early(original: Callable[..., Any]) -> Callable[..., Any]:
    def delete_expired(self: object, now_ms: int, at_most: int) -> Any:
        return original(self, now_ms + 600, at_most)

    return delete_expired


def _above_high_watermark(original: Callable[..., Any]) -> Callable[..., Any]:
    def deletable(self: Any, is_deletable: Callable[..., bool], at_most: int | None = None) -> Any:
        segments = list(self._local.segments)
        return segments[:-1] if len(segments) > 1 and is_deletable(segments[0], segments[1]) else []

    return deletable


@pytest.mark.parametrize(
    ("target", "make"), [("_delete_expired", _too_early), ("deletable", _above_high_watermark)]
)
def test_retention_that_deletes_too_much_is_found(target: str, make: Callable[..., Any]) -> None:
    with replaced(Replacement(target=f"storage.log.retention:Retention.{target}", make=make)):
        found = {violation.checker for violation in run().violations}
    assert "retention" in found


def test_a_disk_that_has_lied_may_make_a_segment_look_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have lost the time index of the segment, by which retention takes its age."""
    monkeypatch.setattr(SimDisk, "has_deceived", property(lambda disk: True))
    with replaced(Replacement(target="storage.log.retention:Retention._delete_expired", make=_too_early)):
        found = {violation.checker for violation in run().violations}
    assert "retention" not in found


def _beyond_the_next_segment(original: Callable[..., Any]) -> Callable[..., Any]:
    def maybe_increment(marks: Any, offset: int) -> Any:
        return original(marks, min(offset + 5, marks.high_watermark))

    return maybe_increment


def test_rt1_a_log_that_begins_in_memory_where_no_segment_does_is_noticed() -> None:
    target = "storage.log.marks:Marks.maybe_increment_log_start_offset"
    with replaced(Replacement(target=target, make=_beyond_the_next_segment)):
        result = run_scenario(parse_scenario(SCENARIO), 1, stops_early=True)
    violation = result.violations[0]
    assert violation.checker == "log-start", violation
    assert "begins at" in violation.what and "no log of the partition has begun after" in violation.what


def test_rt1_where_a_disk_has_damaged_a_log_no_start_is_judged() -> None:
    partition = PartitionGhost("t-0")
    assert start_beyond(partition, 1, 5)
    partition.greatest_start = 5
    assert not start_beyond(partition, 1, 5) and start_beyond(partition, 1, 6)
    partition.image(2).damage = "rot"
    assert not start_beyond(partition, 1, 6)


ALTERED = """\
scenario: altered-retention
warm_up: 500ms
duration: 4s
cluster: {brokers: 1, settings: {log.retention.check.interval.ms: 200, log.initial.task.delay.ms: 100}}
topics:
  t: {replicas: 1, config: {segment.bytes: 2000, retention.ms: 3600000, file.delete.delay.ms: 0}}
producers:
  - {topic: t, rate: 50/s, size: 200 B}
steps:
  - {at: 1s, alter_topic: t, config: {retention.ms: 900}}
  - {at: 2s, alter_topic: t, config: {retention.ms: ''}}
"""


def test_rt5_what_a_topic_keeps_is_the_least_of_all_that_its_steps_say() -> None:
    result = run_scenario(parse_scenario(ALTERED), 1)
    assert result.verdict is Verdict.HELD, result.violations
    assert any("old segments are deleted" in line for line in result.story)
    with replaced(Replacement(target="storage.log.retention:Retention._delete_expired", make=_too_early)):
        result = run_scenario(parse_scenario(ALTERED), 1, stops_early=True)
    assert "retention.ms is 900" in result.violations[0].what


# What is sent twice is deleted before the end.
TWICE = """\
scenario: twice-and-deleted
warm_up: 500ms
duration: 4s
cluster: {brokers: 2, settings: {log.retention.check.interval.ms: 200, log.initial.task.delay.ms: 100}}
network: {transport: datagram, duplicates: 20%}
topics:
  t: {replicas: 2, config: {segment.bytes: 4000, retention.ms: 600}}
producers:
  - {topic: t, rate: 30/s, records: 60, size: 100 B}
"""


def test_g2_what_a_leader_has_deleted_was_there_once() -> None:
    assert not run_scenario(parse_scenario(TWICE), 1).violations
    knows_none = Replacement(
        target="storage.producers.state:ProducerStateManager.find_duplicate", make=lambda _: lambda *_: None
    )
    takes_all = Replacement(target="storage.producers.entry:is_in_sequence", make=lambda _: lambda *_: True)
    with replaced(knows_none), replaced(takes_all):
        result = run_scenario(parse_scenario(TWICE), 1, stops_early=True)
    assert result.violations[0].checker == "producer-sequences"
    assert result.violations[0].at_us < 4_000_000
