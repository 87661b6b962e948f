"""What an open log holds in memory is what its files say (R3)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.replica.replica import Replica
from sim.bugs import Replacement, replaced
from sim.checkers.chain import Mark
from sim.checkers.log_state import (
    Greatest,
    Timed,
    age_findings,
    appended_epoch_findings,
    cleaned_findings,
    epoch_findings,
    greatest_findings,
    greatest_of,
    index_findings,
    size_findings,
    snapshot_findings,
    start_findings,
    topic_id_findings,
    total_findings,
    written_epoch_findings,
)
from sim.run import Run, run_scenario
from sim.scenario.loading import parse_scenario
from sim.witness.log_reader import LogReader
from sim.witness.open_logs import SegmentAges
from sim.witness.places import Place
from storage.config import LogConfig
from storage.index.time_index import TimestampOffset
from storage.log.appends import Appends
from storage.segment import LogSegment

MISSED = """
scenario: missed
duration: 9s
topics: {t: {partitions: 1, replicas: 3, config: {cleanup.policy: compact}}}
producers: [{topic: t, rate: 20/s, keys: 5, acks: 1}]
steps:
- {at: 1s, kill: follower(t/0), as: F}
- {when: isr(t/0) < 3, pick: leader(t/0)}
- {at: +100ms, stop: leader(t/0), down: 1ms}
- {when: elected(t/0), pick: leader(t/0)}
- {when: isr(t/0) >= 2, pick: leader(t/0)}
- {at: +500ms, stop: leader(t/0), down: 1ms}
- {when: elected(t/0), pick: leader(t/0)}
- {at: +1s, restart: F}
"""
# The second and the third batch have the same time, and the last one an earlier time.
BATCHES = [Timed(1, 40), Timed(3, 50), Timed(5, 50), Timed(7, 45)]


def found(held: Greatest, kept_until_ms: int = 50) -> list[str]:
    return list(greatest_findings(0, held, kept_until_ms, BATCHES))


def test_the_greatest_time_is_that_of_the_first_batch_that_has_it() -> None:
    assert greatest_of(BATCHES) == Greatest(50, 3)
    assert greatest_of([]) == Greatest(-1, -1)
    assert not found(Greatest(50, 3))
    assert found(Greatest(50, 5)) == [
        "the segment at 0 holds (50, 5) as its latest time; the first batch of that time ends at 3"
    ]


def test_a_segment_that_a_cut_made_forget_its_times_has_the_first_batch_since_then() -> None:
    for offset, is_wrong in ((5, False), (3, False), (4, True), (7, True)):
        held = Greatest(50, offset)
        assert bool(list(greatest_findings(0, held, 50, BATCHES, knows_times=False))) == is_wrong
    assert list(greatest_findings(0, Greatest(60, 9), 60, BATCHES, knows_times=False))


def test_the_time_of_a_record_that_was_cut_is_not_held() -> None:
    assert found(Greatest(60, 9)) == [
        "the segment at 0 holds (60, 9) as its latest time; its files have (50, 3)"
    ]


def test_an_earlier_time_is_held_only_if_retention_does_not_count_from_it() -> None:
    assert not found(Greatest(40, 1))
    assert found(Greatest(40, 1), 40) == ["the segment at 0 counts its age from 40; its latest time is 50"]


def test_a_segment_without_times_holds_none() -> None:
    assert not list(greatest_findings(0, Greatest(-1, 0), 7, [Timed(1, -1)]))
    assert not list(greatest_findings(0, Greatest(-1, 0), 7, []))


def test_a_started_log_begins_where_its_checkpoint_says_or_after_it() -> None:
    assert not list(start_findings(5, 5, 3))
    assert not list(start_findings(3, -1, 3))
    assert not list(start_findings(7, 5, 3))
    assert list(start_findings(3, 5, 3)) and list(start_findings(2, -1, 3))


def test_a_started_log_knows_no_epoch_beyond_its_end() -> None:
    assert not list(epoch_findings([(0, 0), (1, 4)], 0, 5, -1))
    assert list(epoch_findings([(0, 0), (1, 5)], 0, 5, -1))
    # It began to lead in the same step.
    assert not list(epoch_findings([(0, 0), (1, 5)], 0, 5, 1))
    # Retention has deleted all records of the epoch, and the start of the log is what is left of it.
    assert not list(epoch_findings([(0, 5)], 5, 5, -1))
    assert list(epoch_findings([(0, 5)], 4, 5, -1)) and list(epoch_findings([(0, 4), (1, 5)], 4, 5, -1))


def test_rt16_what_follows_a_cut_does_not_count_as_cleaned() -> None:
    assert not list(cleaned_findings(5, 5))
    assert list(cleaned_findings(6, 5))


def test_kafka_9892_a_run_shows_a_snapshot_of_producers_that_a_power_loss_may_tear() -> None:
    result = run_scenario("leader-crash", 1, bug="producer-snapshot-not-synced", stops_early=True)
    assert [each.checker for each in result.violations] == ["log-state"]
    assert "a snapshot of its producers that is not synced" in str(result.violations[0])


@pytest.mark.slow
def test_a_run_shows_a_cut_that_leaves_the_time_of_what_it_has_cut() -> None:
    def keeps(original: Any) -> Any:
        def truncate_to(segment: LogSegment, *arguments: Any) -> int:
            before = segment.max_timestamp
            removed_bytes = original(segment, *arguments)
            segment._max_timestamp = before
            return int(removed_bytes)

        return truncate_to

    target = "storage.segment.segment:LogSegment.truncate_to"
    with replaced(Replacement(target=target, make=keeps)):
        results = [run_scenario("divergence-truncation", seed, stops_early=True) for seed in range(3)]
    assert "log-state" in {each.checker for result in results for each in result.violations}


def test_ep6_a_cut_takes_epochs_from_the_file_too() -> None:
    assert not list(written_epoch_findings([0, 1], [0, 1]))
    assert not list(written_epoch_findings([], None)) and not list(written_epoch_findings([0], []))
    # Retention has dropped the first one, and a new one is not written yet.
    assert not list(written_epoch_findings([1, 2], [0, 1]))
    assert list(written_epoch_findings([0], [0, 1])) == ["knows no epoch above 0; its file has epoch 1"]
    assert list(written_epoch_findings([], [0]))


def test_ap9_an_append_of_several_epochs_notes_each_of_them() -> None:
    batches = [(5, 1), (6, 1), (7, 2), (9, 4)]
    known = {5: 1, 6: 1, 7: 2, 9: 4}
    assert not list(appended_epoch_findings(batches, known.get))
    assert list(appended_epoch_findings(batches, (known | {7: 1}).get)) == [
        "appends a batch of epoch 2 at 7; it knows epoch 1 there"
    ]
    unknown: dict[int, int] = {}
    assert list(appended_epoch_findings([(0, 0)], unknown.get)) == [
        "appends a batch of epoch 0 at 0; it knows epoch None there"
    ]


def test_ap9_a_compacted_log_is_judged_too() -> None:
    def without_all_but_the_last(log: Appends, starts: Any) -> None:
        noted(log, starts[-1:])

    noted = Appends._note_epochs
    scenario = parse_scenario(MISSED, "missed.yaml")
    assert not run_scenario(scenario, 1).violations
    with patch.object(Appends, "_note_epochs", without_all_but_the_last):
        violations = run_scenario(scenario, 1, stops_early=True).violations
    assert {each.checker for each in violations} == {"log-state"}
    assert "appends a batch of epoch" in violations[0].what


def test_ls4_only_an_empty_segment_takes_more_than_its_topic_allows() -> None:
    assert not list(size_findings(0, 5_000, 1_000)) and not list(size_findings(600, 1_000, 1_000))
    assert list(size_findings(600, 1_001, 1_000))


def test_rt6_a_log_counts_the_bytes_of_its_segments() -> None:
    assert not list(total_findings(700, 700))
    assert list(total_findings(900, 700)) == ["counts 900 bytes in its segments; their files have 700"]


def test_ps16_no_snapshot_of_producers_is_beyond_the_end_of_its_log() -> None:
    names = [f"{7:020d}.snapshot", f"{9:020d}.snapshot"]
    assert not list(snapshot_findings(names, 9))
    assert list(snapshot_findings(names, 8)) == [
        f"ends at 8; it has a snapshot of its producers {9:020d}.snapshot"
    ]


def test_ix16_no_index_has_an_entry_for_a_record_that_was_cut() -> None:
    assert not list(index_findings("offset", 8, 9))
    assert list(index_findings("time", 9, 9)) == ["ends at 9; its time index has an entry for offset 9"]


def test_kip516_the_directory_of_a_log_names_its_topic() -> None:
    assert not list(topic_id_findings("a", ["a"]))
    # A directory that is offline may have the log of an earlier topic.
    assert not list(topic_id_findings("a", ["b", "a"]))
    assert list(topic_id_findings("a", [None])) == ["is of the topic with id a; its directory names none"]
    assert list(topic_id_findings("a", ["b"])) == ["is of the topic with id a; its directory names b"]


def test_ls5_a_record_that_is_too_late_for_its_segment_begins_a_new_one() -> None:
    assert not list(age_findings(1_000, 1_500, 500)) and not list(age_findings(-1, 9_000, 500))
    assert list(age_findings(1_000, 1_501, 500)) == [
        "appends a record 501 ms later than those that its segment begins with; it rolls at 500 ms"
    ]


def test_ls5_the_age_of_a_segment_counts_from_the_batch_that_it_begins_with() -> None:
    config = LogConfig(segment_ms=500)

    def added(position: int, newest_ms: int, number: int = 7, path: str = "d/t-0/0.log") -> list[Place]:
        return [Place(Mark(0, 1, 0, 0, 1), path, number, position, 70, newest_ms)]

    ages = SegmentAges()
    # Of a segment of which nobody saw the beginning nothing is known.
    assert not list(ages.on_appended(1, added(70, 9_000), config))
    assert not list(ages.on_appended(1, added(0, 1_000), config))
    assert not list(ages.on_appended(1, added(70, 1_500), config))
    assert list(ages.on_appended(1, added(140, 1_501), config))
    # Another broker, another file of the name, and properties that have just changed.
    assert not list(ages.on_appended(2, added(140, 1_501), config))
    assert not list(ages.on_appended(1, added(140, 1_501, number=8), config))
    changed = LogConfig(segment_ms=500)
    assert not list(ages.on_appended(1, added(140, 1_501), changed))
    assert list(ages.on_appended(1, added(140, 1_501), changed))
    # The next segment begins again: with the first batch of a set, whose others may be later.
    first = [*added(0, 1_501, path="d/t-0/9.log"), *added(70, 2_100, path="d/t-0/9.log")]
    assert not list(ages.on_appended(1, first, changed))
    assert list(ages.on_appended(1, added(140, 2_002, path="d/t-0/9.log"), changed))
    assert not list(ages.on_appended(1, added(210, 1_501), changed))


BATCHED = """\
scenario: batched
warm_up: 500ms
duration: 2s
cluster: {brokers: 1}
topics: {t: {replicas: 1}}
producers: [{topic: t, rate: 40/s, linger: 50ms}]
"""


def batched() -> tuple[Run, Replica]:
    """Returns a run whose broker has appended for a second, and its replica."""
    run = Run(parse_scenario(BATCHED), 1)
    run.begin()
    run.world.run_to(1_500_000)
    core = run.cluster.brokers[1].core
    assert isinstance(core, Broker)
    (replica,) = core.replicas().values()
    return run, replica


def test_a_cut_of_a_segment_whose_latest_time_was_not_known_makes_it_forget_its_times() -> None:
    """It may be sealed before anybody looks, and its time index then has no entry of what is left (LS13)."""
    run, replica = batched()
    active, reader = replica.log.local.segments.active, run.logs.reader(1, "t-0")
    for known in (active.max_timestamp, TimestampOffset(-1, active.base_offset)):
        active._max_timestamp = known
        run.witness._open_logs.on_cut(1, replica, reader)
        assert run.logs.knows_times(1, active.path) is (known.timestamp >= 0)
    # A topic that is created again under the name has another segment there.
    run.logs.forget(2, "t-0")
    run.logs.forget(1, "t-1")
    assert not run.logs.knows_times(1, active.path)
    run.logs.forget(1, "t-0")
    assert run.logs.knows_times(1, active.path)


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_cut_inside_a_batch_may_have_made_its_segment_forget_its_times(*, is_inside: bool) -> None:
    run = Run(parse_scenario(BATCHED), 1)
    run.begin()
    run.world.run_to(1_500_000)
    for producer in run.cluster.producers:
        producer.finish()
    run.world.run_to(2_500_000)
    node = run.cluster.brokers[1]
    assert isinstance(node.core, Broker)
    (replica,) = node.core.replicas().values()
    active = replica.log.local.segments.active
    large = [each.base_offset for each in active.records.batches() if each.last_offset > each.base_offset]
    replica.log.truncate_to(large[-1] + is_inside, now_ms=node.clock.now_ms())
    assert run.logs.knows_times(1, active.path)
    run.witness._open_logs.look(node.core, "t-0", replica)
    assert run.logs.knows_times(1, active.path) is not is_inside
    assert not run.jury.violations


def test_what_a_disk_that_has_lied_has_of_times_is_not_known() -> None:
    """It may have lost an entry of a time index (RD8)."""
    run = Run(parse_scenario(BATCHED), 1)
    run.begin()
    run.world.run_to(1_500_000)
    is_readable, found = run.logs.first_as_late(1, "t-0", 0, 0)
    assert is_readable and found is not None and found[0] == 0
    run.cluster.brokers[1].disk._cache.has_deceived = True
    assert run.logs.first_as_late(1, "t-0", 0, 0) == (False, None)


@pytest.mark.parametrize("is_full", [True, False])
def test_a_cut_that_leaves_no_room_in_a_time_index_makes_its_segment_forget_its_times(
    monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """A life with shorter indexes may find as many entries as it has room for; a roll then leaves the last one out."""
    run, replica = batched()
    active, reader = replica.log.local.segments.active, run.logs.reader(1, "t-0")
    index = active.time_index
    assert index.last_entry.timestamp < active.max_timestamp.timestamp
    if is_full:
        monkeypatch.setattr(type(index), "max_entries", property(lambda it: it.entries))
    run.witness._open_logs.on_cut(1, replica, reader)
    assert run.logs.knows_times(1, active.path) is not is_full


@pytest.mark.parametrize("part", ["size", "topic-id"])
def test_a_look_at_a_log_shows_that_it_does_not_know_its_size_or_its_topic(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    run, replica = batched()
    core = run.cluster.brokers[1].core
    assert isinstance(core, Broker)
    run.witness._open_logs.look(core, "t-0", replica)
    assert not run.jury.violations
    if part == "size":
        replica.log.local.segments._older_bytes = 17
    else:
        monkeypatch.setattr(run.logs, "written_topic_ids", lambda broker, partition: [None])
    run.witness._open_logs.look(core, "t-0", replica)
    assert [each.checker for each in run.jury.violations] == ["log-state"]


@pytest.mark.parametrize("kind", ["offset", "time"])
def test_ix23_a_run_shows_a_cut_that_leaves_an_entry_in_an_index(kind: str) -> None:
    run, replica = batched()
    core = run.cluster.brokers[1].core
    assert isinstance(core, Broker)
    indexes, end = replica.log.local.segments.active.indexes, replica.log.log_end_offset
    if kind == "offset":
        indexes.offset.append(end, 0)
    else:
        indexes.time.maybe_append(indexes.time.last_entry.timestamp + 1, end)
    run.witness._open_logs.look(core, "t-0", replica)
    assert [each.checker for each in run.jury.violations] == ["log-state"]
    assert f"its {kind} index has an entry for offset {end}" in run.jury.violations[0].what


def test_a_disk_that_has_lied_may_have_brought_an_index_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that trusts the mark of a clean stop has it until the next append empties it (LL17)."""
    run, replica = batched()
    core = run.cluster.brokers[1].core
    assert isinstance(core, Broker)
    replica.log.local.segments.active.indexes.offset.append(replica.log.log_end_offset, 0)
    monkeypatch.setattr(run.cluster.brokers[1].disk._cache, "has_deceived", True)
    run.witness._open_logs.look(core, "t-0", replica)
    assert not run.jury.violations


@pytest.mark.parametrize("knows_times", [True, False])
def test_rt5_the_age_of_a_deleted_segment_counts_only_where_no_cut_made_it_forget_its_times(
    knows_times: bool,
) -> None:
    run, replica = batched()
    active, reader = replica.log.local.segments.active, run.logs.reader(1, "t-0")
    partition = run.ghost.partition("t-0")
    partition.retention_ms, partition.retention_bytes = 1_000, 1 << 30
    if not knows_times:
        run.logs.forget_times(1, active.path)
    deleted = ((active.path, 5, 1 << 62, 0),)
    with patch.object(LogReader, "deleted_segments", lambda reader: deleted):
        run.witness._on_segments_deleted(run.cluster.brokers[1], "t-0", {})
    assert reader.places
    assert [each.checker for each in run.jury.violations] == ["retention"] * knows_times
