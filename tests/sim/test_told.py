"""What a line of the world is about: each step tells its faults, their ends and its notes in known words."""

from __future__ import annotations

import pytest

from sim.run import RunResult, run_scenario
from sim.scenario.loading import parse_scenario
from sim.scenario.steps import VERB_NAMES
from sim.told import Told, is_fault, told_as

# Every verb, and each choice of it that has words of its own; all that may end by itself does so.
EVERY_STEP = """
scenario: every-step
duration: 60s
cluster: {directories: 2}
topics:
  t: {replicas: 3, config: {min.insync.replicas: 2}}
  u: {replicas: 2, exists: false}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
steps:
  - {at: 2s, pick: leader(t/0), as: First}
  - {at: 2s, pick: controller}
  - {at: 2s, cut: "broker 1 -> broker 2", only: [Fetch], for: 100ms}
  - {at: 2s, isolate: broker 2, except: clients, for: 100ms}
  - {at: 2s, slow: clients -> broker 1, by: 3ms, only: [Produce], for: 100ms}
  - {at: 2s, lose: all -> all, share: 10%, for: 100ms}
  - {at: 2s, lose: "broker 1 <-> others", share: 10%, only: [Fetch, Produce], for: 100ms}
  - {at: 2s, clog: "broker 1 <-> others", for: 100ms}
  - {at: 2s, clog: "broker 1 <-> others", only: [Fetch], for: 100ms}
  - {at: 2s, narrow: "broker 2 <-> others", to: 1 MiB, for: 100ms}
  - {at: 2s, flip_bits: "broker 2 <-> others", share: 5%, for: 100ms}
  - {at: 2s, flip_bits: "broker 3 -> others", share: 5%, where: structure, for: 100ms}
  - {at: 2s, flip_bits: "controller -> others", share: 1%, where: anywhere, for: 100ms}
  - {at: 2s, hang_up: "broker 1 -> broker 2"}
  - {at: 3s, cut: "broker 1 <-> broker 2"}
  - {at: 3s, heal: broker 1}
  - {at: 3s, slow_disk: all, by: 1ms, for: 100ms}
  - {at: 3s, hang_disk: broker 3, for: 100ms}
  - {at: 3s, lack_descriptors: broker 1, for: 100ms}
  - {at: 3500ms, lack_descriptors: broker 2, left: none, for: 100ms}
  - {at: 3s, slow_cpu: producer 1, by: 1ms, for: 100ms}
  - {at: 3s, step_clock: consumer 1, by: 5ms}
  - {at: 3s, step_clock: consumer 1, by: -5ms}
  - {at: 3s, freeze_clock: broker 1, for: 100ms}
  - {at: 3s, freeze_clock: broker 2, for: 100ms, catches_up: false}
  - {at: 3s, lag_metadata: broker 3, for: 100ms}
  - {at: 3s, create_topic: u, leader: broker 2}
  - {at: 4s, alter_topic: u, config: {retention.ms: 100000}}
  - {at: 4s, delete_topic: u}
  - {at: 4s, pause: broker 3, for: 100ms}
  - {at: 5s, kill: leader(t/0)}
  - {at: 5100ms, kill: all}
  - {at: 6s, restart: all}
  - {at: 10s, kill: broker 2, point: before checkpoint, down: 1s}
  - {at: 10s, kill_inside: broker 3, down: 1s}
  - {at: 12s, power: broker 1, keep: torn, down: 1s}
  - {at: 16s, stop: follower(t/0), down: 1s}
  - {at: 20s, partial_write: leader(t/0), log: t/0, byte: 7 B, rest: zeros, keep: all, down: 1s}
  - {at: 24s, kill_start: broker 2, change: 2, down: 1s}
  - {at: 28s, break_disk: broker 3, log: t/0}
  - {at: 29s, break_disk: broker 2, directory: 2}
  - {at: 32s, rolling_restart: all, patience: 2s}
"""
# Steps that damage what disks hold or say, of which others may know nothing.
EVERY_DAMAGE = """
scenario: every-damage
duration: 25s
topics: {t: {replicas: 3, config: {min.insync.replicas: 2, flush.messages: 1}}}
producers: [{topic: t, rate: 50/s}]
consumers: [{topic: t}]
steps:
  - {at: 2s, save_disk: broker 1}
  - {at: 3s, fail_disk: broker 2, error: io, calls: reads, for: 100ms}
  - {at: 4s, fail_sync: broker 3, log: t/0, down: 1s}
  - {at: 6s, lie_syncs: broker 2, for: 100ms}
  - {at: 7s, lose_writes: broker 2, share: 1%, for: 100ms}
  - {at: 8s, misdirect_writes: broker 2, share: 50%, for: 500ms}
  - {at: 9s, rot: broker 2, file: log}
  - {at: 10s, restore_disk: broker 1, down: 500ms}
  - {at: 14s, wipe_disk: broker 3, down: 500ms}
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("First is broker-2, leader(t/0)", Told.NOTE),
        ("all is broker-1, broker-2, broker-3", Told.NOTE),
        ("step 2 gave up waiting for after-ack(t) >= 5", Told.NOTE),
        ("step 2 gave up: kill leader(t/0): its target did not exist", Told.NOTE),
        ("kill broker-1, the leader(t/0): it is down already", Told.NOTE),
        ("VIOLATED no-failure: broker-1 raised\na second line", Told.NOTE),
        ("heal everything; the cluster has to agree now", Told.NOTE),
        ("the machine of broker-1 restarts, because its disk hangs", Told.END),
        ("the clock of broker-1 runs again, from where it stood", Told.END),
        ("heal all links", Told.END),
        ("unclog broker 2 <-> others", Told.END),
        ("will kill broker-1 before its next flush", Told.FAULT),
        ("kill broker-1 before flush", Told.FAULT),
        ("truncate t-0 of broker-1 to 10", Told.FAULT),
        ("power loss (keep none) at broker-1", Told.FAULT),
        ("broker-1 will write 7 bytes of its next batch of t-0 and die (keep None)", Told.FAULT),
    ],
)
def test_ends_and_notes_are_no_faults(what: str, told: Told) -> None:
    assert told_as(what) is told
    assert is_fault(what) is (told is Told.FAULT)


def test_words_that_no_step_tells_are_taken_for_a_fault() -> None:
    assert told_as("the moon rises") is None and is_fault("the moon rises")


def told_of(result: RunResult) -> list[str]:
    """Returns what the world has told."""
    return [line[27:] for line in result.story if not line[14:26].strip()]


@pytest.mark.slow
@pytest.mark.parametrize("text", [EVERY_STEP, EVERY_DAMAGE], ids=["steps", "damage"])
def test_each_step_tells_in_known_words(text: str) -> None:
    result = run_scenario(parse_scenario(text, "every.yaml"), 1)
    told = told_of(result)
    assert [what for what in told if told_as(what) is None] == []
    assert [what for what in result.never_struck if not what.endswith("it was down already")] == []


def test_the_scenarios_of_every_step_have_every_verb() -> None:
    steps = [step for text in (EVERY_STEP, EVERY_DAMAGE) for step in parse_scenario(text, "every.yaml").steps]
    assert {step.verb for step in steps} == set(VERB_NAMES)
