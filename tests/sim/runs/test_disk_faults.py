"""Disks that fail calls, that lie, and that are lost: what a broker does then, and how its run is judged."""

from __future__ import annotations

import errno

import pytest

from cluster.core.controller.controller import Controller
from cluster.core.effects import Effect
from cluster.core.events import JobDone
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

HEAD = """\
scenario: disks
duration: 6s
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2, segment.bytes: 8192%s}}
producers:
  - {topic: t, clients: 2, rate: 25/s, acks: all}
consumers:
  - {topic: t}
steps:
"""
FLUSHED = ", flush.messages: 1"
COMPACTED = """\
scenario: compacted
duration: 4s
cluster: {settings: {log.cleaner.backoff.ms: 200}}
topics:
  t: {replicas: 3, config: {min.insync.replicas: 2, cleanup.policy: compact, segment.ms: 200}}
producers:
  - {topic: t, rate: 40/s, acks: all, keys: 3}
steps:
  - {at: 1500ms, fail_sync: leader(t/0), file: FILE, down: 200ms}
"""
# Several requests wait for the slow disk, and come in one turn.
GONE_IN_THE_SAME_TURN = """\
scenario: gone-in-the-same-turn
warm_up: 500ms
duration: 2s
converge: 30s
cluster: {brokers: 2, directories: 2}
topics:
  t: {replicas: 1, config: {flush.messages: 1}}
producers:
  - {topic: t, rate: 40/s, linger: 0ms}
seekers:
  - {topic: t, every: 10ms, out_of_range: earliest}
steps:
  - {at: 600ms, slow_disk: leader(t/0), by: 40ms, for: 1s}
  - {at: 1s, fail_disk: leader(t/0), calls: writes, for: 1s}
"""
# Each change of the metadata makes the next snapshot due.
SNAPSHOTS = """\
scenario: snapshots
duration: 6s
cluster: {settings: {metadata.log.max.record.bytes.between.snapshots: 1}}
topics: {t: {replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 20/s}]
steps:
  - {at: 1s, fail_sync: controller, file: metadata}
  - {at: 1100ms, stop: leader(t/0), down: 300ms}
  - {at: 5s, stop: controller, down: 100ms}
"""
# Of the last append the batch fits the disk, and its index entry does not.
STOPS_BY_ITSELF = """\
scenario: stops-by-itself
warm_up: 500ms
duration: 3s
converge: 30s
cluster: {brokers: 2}
topics:
  t: {replicas: 2, config: {cleanup.policy: compact, index.interval.bytes: 100, flush.messages: 1}}
producers:
  - {topic: t, rate: 40/s, size: 90 B, keys: 3}
steps:
  - {at: 1s, fail_disk: leader(t/0), for: 1s, error: full, free: 188 B}
"""


def run(steps: str, config: str = "", seed: int = 1) -> RunResult:
    result = run_scenario(parse_scenario(HEAD % config + steps), seed)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return result


def has_line(result: RunResult, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in result.story)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("error: full, free: 300 B", "No space left on device"),
        ("error: read-only", "Read-only file system"),
        ("calls: writes", "Input/output error"),
    ],
)
def test_a_broker_whose_disk_fails_ends_and_is_back_when_it_works_again(detail: str, words: str) -> None:
    result = run(f"  - {{at: 2s, fail_disk: leader(t/0), {detail}, for: 2s}}\n")
    assert has_line(result, "has stopped: data", words)
    assert has_line(result, "4.000 s", "works again") and has_line(result, "4.000 s", "start broker-")
    assert not result.excuses and not result.excused


@pytest.mark.parametrize("detail", ["error: full, free: 61 B", "error: read-only", "calls: writes"])
def test_the_controller_ends_when_its_disk_fails_and_is_back_when_it_works_again(detail: str) -> None:
    step = f"  - {{at: 2s, fail_disk: controller, {detail}, for: 2s}}\n"
    result = run(step + "  - {at: 2100ms, stop: leader(t/0), down: 300ms}\n")
    assert has_line(result, "controller   has stopped: metadata log")
    assert has_line(result, "4.000 s", "start controller again") and not result.excused


def test_kr_snp_5_a_snapshot_that_cannot_be_written_costs_nothing_and_the_next_one_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run_scenario(parse_scenario(SNAPSHOTS), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert has_line(result, "a sync of controller fails") and has_line(result, "has stopped: shutdown")
    whole = Controller._on_snapshot

    def forgets(self: Controller, now_ms: int, done: JobDone) -> list[Effect]:
        kept = self._snapshot
        effects = whole(self, now_ms, done)
        self._snapshot = kept if done.error is not None else None
        return effects

    monkeypatch.setattr(Controller, "_on_snapshot", forgets)
    result = run_scenario(parse_scenario(SNAPSHOTS), 1)
    # Nor does it end in order: it waits for that snapshot.
    assert {each.checker for each in result.violations} == {"snapshot-due", "orderly-stops"}


@pytest.mark.slow
def test_a_disk_that_fails_until_the_end_is_mended_then() -> None:
    result = run("  - {at: 2s, fail_disk: leader(t/0), calls: all}\n")
    assert has_line(result, "6.000 s", "start broker-") and not result.excused


@pytest.mark.slow
def test_one_directory_may_be_full_while_the_other_is_used() -> None:
    head = (HEAD % "").replace("topics:", "cluster: {directories: 2}\ntopics:", 1)
    text = head.replace("partitions: 1", "partitions: 2")
    step = "  - {at: 2s, fail_disk: broker 1, error: full, directory: 2, for: 1s}\n"
    result = run_scenario(parse_scenario(text + step), 1)
    assert result.verdict is Verdict.HELD, result.violations
    assert has_line(result, "broker-1", "log directory data-2 is offline", "No space left")
    assert has_line(result, "3.000 s", "start broker-1 again") or has_line(
        result, "broker-1", "is back after"
    )


def test_what_a_failed_sync_dropped_is_missing_after_the_next_power_loss_and_excused_in_words() -> None:
    steps = "  - {at: 2s, fail_sync: leader(t/0), log: t/0, down: 200ms}\n"
    power = "  - {at: +2500ms, power: all, keep: all, down: 300ms}\n"
    result = run(steps + power)
    assert has_line(result, "a sync of broker-") and has_line(result, "has stopped: data/t-0")
    assert any("had said to be durable" in excuse.reason for excuse in result.excuses)


@pytest.mark.parametrize(("file", "words"), [("checkpoint", "-checkpoint"), ("cleaned", "compaction failed")])
def test_a_sync_that_fails_in_a_job_takes_the_directory_offline_and_loses_nothing(
    file: str, words: str
) -> None:
    result = run_scenario(parse_scenario(COMPACTED.replace("FILE", file)), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert has_line(result, "a sync of broker-", "fails")
    assert has_line(result, "has stopped: data", words), result.story
    assert not result.excuses and not result.excused


@pytest.mark.slow
def test_a_machine_that_restarts_after_a_failed_sync_has_no_hole() -> None:
    step = "  - {at: 2s, fail_sync: leader(t/0), log: t/0, page_cache: dropped, down: 500ms}\n"
    result = run(step, FLUSHED)
    assert has_line(result, "the machine of broker-", "restarts, because a sync had failed")
    assert not result.excuses and not result.excused


@pytest.mark.slow
@pytest.mark.parametrize("config", ["", FLUSHED])
def test_a_disk_that_lied_about_its_syncs_is_found_out_by_a_power_loss(config: str) -> None:
    steps = "  - {at: 2s, lie_syncs: leader(t/0), for: 2s, as: L}\n"
    result = run(steps + "  - {at: +2500ms, power: L, keep: all, down: 300ms}\n", config)
    assert has_line(result, "4.000 s", "write again")
    assert any("had said to be durable" in excuse.reason for excuse in result.excuses)


OF_A_ROLL = """\
scenario: lie
warm_up: 500ms
duration: 4s
topics:
  t: {partitions: 1, replicas: 3, config: {segment.bytes: 400, flush.messages: 1}}
producers:
  - {topic: t, rate: 8/s, size: 100 B}
cluster: {settings: {log.flush.offset.checkpoint.interval.ms: 15}}
steps:
  - {at: 1000ms, lie_syncs: broker 2, for: 50ms}
  - {at: 1090ms, power: broker 2, keep: none, down: 300ms}
"""


@pytest.mark.parametrize("at_ms", [1_000, 1_200, 1_220, 1_240])
def test_a_disk_that_lied_about_a_roll_alone_has_lost_times_below_the_recovery_point(at_ms: int) -> None:
    """No batch is missing; later flushes put the recovery point above the segment, so no start repairs its index."""
    text = OF_A_ROLL.replace("1000ms", f"{at_ms}ms").replace("1090ms", f"{at_ms + 90}ms")
    assert run_scenario(parse_scenario(text, "lie.yaml"), 1).violations == ()


@pytest.mark.slow
def test_a_wiped_broker_copies_everything_again() -> None:
    result = run("  - {at: 2s, wipe_disk: leader(t/0), down: 300ms}\n", FLUSHED)
    assert has_line(result, "its disk is replaced by an empty one") and has_line(result, "from offset 0")
    assert not result.excused


def test_when_every_disk_is_wiped_the_loss_is_excused_by_that() -> None:
    result = run("  - {at: 3s, wipe_disk: all, down: 300ms}\n", FLUSHED)
    assert list(result.excused) == ["every in-sync replica lost it: a disk was replaced by an empty one"]


@pytest.mark.slow
def test_a_disk_comes_back_from_a_saved_image() -> None:
    steps = "  - {at: 2s, save_disk: all}\n  - {at: 4s, restore_disk: all, down: 300ms}\n"
    result = run(steps, FLUSHED)
    assert list(result.excused) == ["every in-sync replica lost it: a disk was set back to an older image"]
    lost = sum(result.excused.values())
    assert 50 < lost < result.operations["ok"] - 50


@pytest.mark.slow
def test_a_broker_that_cannot_start_from_its_damaged_disk_gets_an_empty_one_at_the_end() -> None:
    lies = "  - {at: 2s, lie_syncs: broker 2}\n  - {at: 2s, wipe_disk: broker 2, down: 300ms}\n"
    result = run(lies + "  - {at: 4s, power: broker 2, keep: all, down: 300ms}\n")
    assert has_line(result, "broker-2", "cannot start: data/meta.properties")
    assert has_line(
        result, "6.000 s", "cannot start from its damaged disk, which is replaced by an empty one"
    )


@pytest.mark.slow
def test_a_broker_that_cannot_make_its_directory_on_an_empty_disk_is_back_when_syncs_work_again() -> None:
    fails = "  - {at: 2s, fail_disk: broker 2, calls: syncs, for: 2s}\n"
    result = run(fails + "  - {at: 2500ms, wipe_disk: broker 2, down: 30ms}\n")
    assert has_line(result, "2.530 s", "broker-2", "cannot start: data: open failed: Input/output error")
    assert has_line(result, "4.000 s", "start broker-2 again")


@pytest.mark.slow
def test_a_broker_that_still_stops_at_the_end_gets_an_empty_disk_where_it_cannot_start_from_its_own() -> None:
    rot = "  - {at: 4s, rot: broker 2, log: t/0, file: epochs, extent: sector}\n"
    result = run(rot + "  - {at: 5990ms, stop: broker 2, down: 300ms}\n")
    assert has_line(result, "6.0", "broker-2", "cannot start: data/t-0/leader-epoch-checkpoint")
    assert has_line(result, "broker-2 cannot start from its damaged disk, which is replaced by an empty one")


@pytest.mark.slow
def test_a_broker_that_cannot_read_its_disk_at_start_ends_and_is_back_when_it_works_again() -> None:
    steps = "  - {at: 2s, fail_disk: broker 2, calls: reads, for: 2s}\n"
    result = run(steps + "  - {at: 2s, kill: broker 2, down: 300ms}\n")
    assert has_line(
        result, "2.300 s", "broker-2", "cannot start: data: read failed: data/meta.properties: Input/output"
    )
    assert has_line(result, "4.000 s", "works again") and has_line(result, "4.000 s", "start broker-2 again")
    assert not result.excuses and not result.excused


@pytest.mark.slow
def test_a_disk_without_a_saved_image_is_not_set_back() -> None:
    result = run(
        "  - {at: 3s, wipe_disk: broker 2, down: 1s}\n  - {at: 4s, within: 1s, restore_disk: broker 1}\n"
    )
    assert result.never_struck == ("restore_disk broker 1: its target did not exist",)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsync-fails", "disk-full", "wiped-broker"])
def test_the_bundled_scenarios_hold_with_any_seed(name: str) -> None:
    for seed in range(2):
        result = run_scenario(name, seed)
        assert result.verdict is Verdict.HELD, (result.replay, result.violations, result.starved_because)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("fail_disk: broker 1, error: full, calls: reads", "`calls` needs `error: io`"),
        ("fail_disk: broker 1, free: 3 B", "`free` needs `error: full`"),
        ("fail_disk: controller, directory: 1", "the controller is no broker: fail_disk needs one"),
        ("fail_sync: controller", "the controller is no broker: fail_sync needs one"),
        ("fail_sync: broker 1, file: metadata", "only the controller writes snapshots of the metadata"),
        ("fail_disk: broker 1, directory: 2", "the brokers have 1"),
        ("fail_disk: broker 9", "unknown node 'broker 9'"),
        ("fail_sync: broker 1, log: u/0", "unknown topic 'u'"),
        ("fail_sync: broker 1, log: t/0, file: cleaned", "give one of both"),
        ("wipe_disk: producer 1", "producer 1 is a client"),
        ("restore_disk: S", "no earlier step has `as: S`"),
    ],
)
def test_a_bad_step_is_refused_with_its_line(step: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(f"{HEAD % ''}  - {{at: 2s, {step}}}\n", "bad.yaml")
    assert str(refused.value).startswith("bad.yaml:10: ") and words in str(refused.value)


def test_a_full_disk_stores_what_fits_and_lets_files_go_away() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    life = disk.file_system(Life("first"))
    file = life.open("a", OpenMode.CREATE_NEW)
    disk.refuse(errno.ENOSPC, {"append", "create"}, free_bytes=5)
    file.append(b"abc")
    with pytest.raises(OSError) as full:
        file.append(b"defg")
    assert full.value.errno == errno.ENOSPC and file.read_at(0, 9) == b"abcde"
    with pytest.raises(OSError):
        life.open("b", OpenMode.CREATE_NEW)
    file.sync()
    life.unlink("a")
    assert disk.has_refused
    disk.mend()
    life.open("b", OpenMode.CREATE_NEW)
    assert not disk.has_faults


def test_a_sync_after_a_failed_one_says_success_and_writes_nothing_of_the_dropped_pages() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    fs = disk.file_system(Life("first"))
    file = fs.open("a", OpenMode.CREATE_NEW)
    fs.sync_directory("")
    told: list[str] = []
    disk.fail_next_sync("a", lambda: told.append("failed"))
    file.append(b"abc")
    with pytest.raises(OSError):
        file.sync()
    assert told == ["failed"] and not disk.deceives
    # Who opens it again knows nothing of the error.
    again = fs.open("a", OpenMode.CREATE)
    again.append(b"de")
    again.sync()
    assert disk.deceives
    assert disk.durable_bytes("a") == b"\0\0\0de"


def test_where_pages_stay_dirty_the_sync_after_a_failed_one_writes_them() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    fs = disk.file_system(Life("first"))
    file = fs.open("a", OpenMode.CREATE_NEW)
    fs.sync_directory("")
    disk.fail_next_sync("a", lambda: None, keeps_pages=True)
    file.append(b"abc")
    with pytest.raises(OSError):
        file.sync()
    assert disk.durable_bytes("a") == b""
    # The process that was told takes it for lost all the same.
    with pytest.raises(OSError):
        file.sync()
    again = fs.open("a", OpenMode.CREATE)
    again.append(b"de")
    again.sync()
    assert not disk.deceives
    assert disk.durable_bytes("a") == b"abcde"


GIVES_UP = """
scenario: gives-up
duration: 5s
topics:
  t: {partitions: 1, replicas: 3}
producers:
  - {topic: t, clients: 4, rate: 60/s, acks: all, linger: 0ms}
steps:
  - {at: 3s, slow_disk: leader(t/0), by: 5114us, for: 1800ms}
  - {at: 3200ms, fail_disk: leader(t/0), for: 1800ms, calls: writes}
"""


@pytest.mark.slow
def test_no_append_waits_at_a_broker_that_ends_in_the_step_that_commits_it() -> None:
    """A fetch and the append that meets the failed disk come in one step: nobody is answered, as in a crash."""
    result = run_scenario(parse_scenario(GIVES_UP), 1)
    assert result.verdict is Verdict.HELD, result.violations


def test_what_an_append_wrote_before_it_failed_may_be_in_a_compacted_log() -> None:
    result = run_scenario(parse_scenario(STOPS_BY_ITSELF, "stops-by-itself.yaml"), 1)
    assert has_line(result, "has stopped", "No space left", "index")
    assert not result.violations


def test_a_look_up_may_be_answered_in_the_turn_in_which_its_directory_fails() -> None:
    result = run_scenario(parse_scenario(GONE_IN_THE_SAME_TURN, "gone-in-the-same-turn.yaml"), 3)
    assert has_line(result, "t-0: offline here")
    assert not result.violations


FAILS_AS_IT_IS_DELETED = """\
scenario: failed-sync-of-a-deleted-log
duration: 5s
cluster: {brokers: 2, directories: 2, jobs: {flush: 200ms}}
topics:
  t: {partitions: 1, replicas: 2, config: {min.insync.replicas: 1, flush.messages: 1}}
  u: {partitions: 4, replicas: 2, config: {min.insync.replicas: 1}}
producers: [{topic: t, rate: 20/s, delivery_timeout: 3s}, {topic: u, rate: 20/s}]
steps:
  - {at: 2s, fail_sync: leader(t/0), log: t/0, pages: dirty, as: S}
  - {at: 2150ms, delete_topic: t}
"""


def test_ap16_a_sync_that_fails_in_a_flush_of_a_deleted_log_takes_its_directory() -> None:
    """Seed 199203465 of the drawn runs: the broker went on with the disk, as nobody waited for that flush any more."""
    result = run_scenario(parse_scenario(FAILS_AS_IT_IS_DELETED), 2)
    assert result.verdict is Verdict.HELD, result.violations
    assert "is offline" in "\n".join(result.story)
