"""Disks that hold something else than what was synced: what is judged no more, and what no damage excuses."""

from __future__ import annotations

import pytest

from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from storage.batch import RecordBatch

HEAD = """\
scenario: damage
duration: 9s
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2, segment.bytes: 8192%s}}
  u: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, clients: 2, rate: 25/s, acks: all}
  - {topic: u, rate: 10/s, acks: all}
consumers:
  - {topic: t}
  - {topic: u}
steps:
"""
FLUSHED = ", flush.messages: 1"
ROT = "  - {at: 5s, rot: leader(t/0), log: t/0, as: R}\n"
READ_AGAIN = "  - {at: 5500ms, kill: consumer 1, down: 100ms}\n"
COPY_AGAIN = "  - {at: 5500ms, wipe_disk: follower(t/0), down: 100ms}\n"
RECOVER = "  - {at: 5500ms, kill: R, down: 100ms}\n"


def run(steps: str, config: str = "", seed: int = 1) -> RunResult:
    return run_scenario(parse_scenario(HEAD % config + steps), seed)


def has_line(result: RunResult, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in result.story)


def ignore_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the mistake that no batch is checked."""
    monkeypatch.setattr(RecordBatch, "check_valid", lambda *_: None)


def test_a_partition_with_rot_is_given_up_and_the_others_are_judged() -> None:
    result = run(ROT + READ_AGAIN)
    assert result.verdict is Verdict.HELD, result.violations
    assert has_line(result, "5.000 s", "rot on the disk of broker-", "/t-0/", ".log, bytes")
    assert {excuse.partition for excuse in result.excuses} == {"t-0"}
    assert all("have changed on its disk" in excuse.reason for excuse in result.excuses)


def test_a_consumer_that_returns_what_rot_has_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_checksums(monkeypatch)
    result = run(ROT + READ_AGAIN)
    assert any(found.what.startswith("unsent-read") for found in result.violations), result.violations


@pytest.mark.parametrize(
    ("steps", "config"), [(COPY_AGAIN, ""), (RECOVER, FLUSHED)], ids=["copied", "recovered"]
)
def test_a_broker_refuses_what_rot_has_changed(steps: str, config: str) -> None:
    result = run(ROT + steps, config)
    assert result.verdict is Verdict.HELD, result.violations


@pytest.mark.parametrize(
    ("steps", "config", "words"),
    [(COPY_AGAIN, "", "appended"), (RECOVER, FLUSHED, "kept damage above its recovery point")],
    ids=["copied", "recovered"],
)
def test_a_broker_that_keeps_what_rot_has_changed_is_found(
    steps: str, config: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignore_checksums(monkeypatch)
    result = run(ROT + steps, config)
    found = [each.what for each in result.violations if each.checker == "damage"]
    assert found and words in found[0] and "the checksum is wrong" in found[0], result.violations


@pytest.mark.slow
@pytest.mark.parametrize("file", ["index", "epochs", "producers", "checkpoints"])
def test_rot_in_other_files_breaks_no_other_log(file: str) -> None:
    steps = f"  - {{at: 5s, rot: broker 2, file: {file}, extent: sector, as: R}}\n{RECOVER}"
    result = run(steps)
    assert result.verdict is Verdict.HELD, result.violations
    assert has_line(result, "rot on the disk of broker-2"), result.never_struck


def test_what_was_never_synced_cannot_rot() -> None:
    result = run(
        "  - {at: 3s, within: 1s, rot: leader(u/0), log: u/0}\n  - {at: 5s, kill: broker 1, down: 1ms}\n"
    )
    assert result.verdict is Verdict.HELD, result.violations
    assert result.never_struck == ("rot leader(u/0): its target did not exist",)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("rot: controller", "the controller is no broker"),
        ("rot: broker 1, log: x/0", "unknown topic 'x'"),
        ("rot: broker 1, log: t/0, file: checkpoints", "`log` and `file: checkpoints` exclude each other"),
        ("rot: broker 1, extent: page", "steps.0.extent"),
    ],
)
def test_a_bad_step_is_refused_with_its_line(step: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(f"{HEAD % ''}  - {{at: 2s, {step}}}\n", "bad.yaml")
    assert str(refused.value).startswith("bad.yaml:13: ") and words in str(refused.value)


def test_lost_writes_that_a_power_loss_shows_are_cut_off_and_copied_again() -> None:
    steps = "  - {at: 3s, lose_writes: leader(t/0), share: 30%, for: 2s, as: L}\n"
    result = run(steps + "  - {at: 5500ms, power: L, keep: all, down: 300ms}\n", FLUSHED)
    assert result.verdict is Verdict.HELD, result.violations
    assert has_line(result, "5.000 s", "writes arrives again")
    assert has_line(result, "recovery cuts") and not result.excuses and not result.excused


def test_a_misdirected_write_damages_what_it_lands_on() -> None:
    steps = "  - {at: 3s, misdirect_writes: leader(t/0), share: 10%, for: 2s, as: L}\n"
    result = run(steps + "  - {at: 5500ms, power: L, keep: all, down: 300ms}\n", FLUSHED)
    assert result.verdict is Verdict.HELD, result.violations
    assert has_line(result, "a write of broker-", "landed in data/")
    assert any(
        "belongs elsewhere" in excuse.reason or "have changed on its disk" in excuse.reason
        for excuse in result.excuses
    )


def test_a_leader_whose_high_watermark_cannot_be_looked_up_lives_on_and_is_not_judged_for_it() -> None:
    """Each flush that is done would let the high watermark rise; a rotten batch is in the place where it is."""
    text = """\
scenario: rot-below-the-high-watermark
duration: 6s
cluster: {brokers: 1, jobs: {flush: 5ms}}
topics:
  u: {replicas: 1, config: {flush.messages: 1, segment.bytes: 4423}}
producers:
- {topic: u, rate: 100/s}
steps:
- {at: 3s, rot: broker 1, file: log, extent: block}
"""
    result = run_scenario(parse_scenario(text, "rot.yaml"), 6)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert not any("has stopped" in line for line in result.story), result.story
