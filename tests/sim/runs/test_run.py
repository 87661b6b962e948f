"""A seed is a run; a run ends in a verdict, a story and an exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.bugs import bugs
from sim.bundled import find_scenario
from sim.commands import sim
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.scenario.model import Scenario
from tests.places import ROOT

SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
SMALL = """\
scenario: small
warm_up: 500ms
duration: 3s
cluster: {settings: {broker.session.timeout.ms: 600, broker.heartbeat.interval.ms: 100}}
topics:
  t: {config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s}
consumers:
  - {topic: t}
network: {latency: 200us}
steps:
  - at: 1s
    power: leader(t/0)
    keep: torn
    down: 500ms
  - at: 1100ms
    pause: follower(t/0)
    for: 50ms
"""


def small(old: str = "", new: str = "") -> Scenario:
    assert old in SMALL
    return parse_scenario(SMALL.replace(old, new) if old else SMALL)


def lines_of(scenario: Scenario, seed: int = 7, bug: str | None = None) -> list[bytes]:
    """Return the trace without its first line, which names scenario and seed."""
    file = io.BytesIO()
    result = run_scenario(scenario, seed, trace_file=file, bug=bug)
    assert sha256(file.getvalue()).hexdigest() == result.trace_hash
    return file.getvalue().splitlines()[1:]


def test_one_seed_gives_one_trace_with_and_without_a_file() -> None:
    result = run_scenario(small(), 7)
    file = io.BytesIO()
    assert run_scenario(small(), 7, trace_file=file) == result
    assert sha256(file.getvalue()).hexdigest() == result.trace_hash
    assert result.verdict is Verdict.HELD, result.violations


def test_another_seed_gives_another_trace() -> None:
    assert lines_of(small(), 7) != lines_of(small(), 8)


def test_one_fault_removed_gives_another_trace() -> None:
    fault = SMALL[SMALL.index("  - at: 1100ms") :]
    assert lines_of(small()) != lines_of(small(fault, ""))


def test_one_latency_changed_gives_another_trace() -> None:
    assert lines_of(small()) != lines_of(small("latency: 200us", "latency: 201us"))


def test_one_bug_put_in_gives_another_trace_and_leaves_nothing() -> None:
    before = lines_of(small())
    assert lines_of(small(), bug="ack-before-high-watermark") != before
    assert lines_of(small()) == before


def test_the_trace_is_the_same_until_the_fault_that_was_removed() -> None:
    fault = SMALL[SMALL.index("  - at: 1100ms") :]
    with_fault, without = lines_of(small()), lines_of(small(fault, ""))
    first = next(
        index for index, pair in enumerate(zip(with_fault, without, strict=False)) if pair[0] != pair[1]
    )
    assert json.loads(with_fault[first])["at"] >= 1_100_000


def test_trace_lines_are_in_order_and_show_payload_checksums() -> None:
    lines = [json.loads(line) for line in lines_of(small())]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    produced = [
        line for line in lines if line["kind"] == "request" and line["body"]["is"] == "ProduceRequest"
    ]
    assert all("crc" in line["body"]["partitions"][0]["records"] for line in produced) and produced


def traces_of(path: Path, directory: Path, hash_seeds: tuple[str, ...]) -> list[bytes]:
    """Return traces of seed 7, each made in an interpreter of its own."""
    traces = []
    for hash_seed in hash_seeds:
        trace = directory / f"trace-{hash_seed}"
        command = [
            sys.executable,
            "-m",
            "replog",
            "sim",
            "run",
            str(path),
            "--seed",
            "7",
            "--trace",
            str(trace),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [*command, "--json"], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["trace_hash"] == sha256(trace.read_bytes()).hexdigest()
        traces.append(trace.read_bytes())
    return traces


def test_two_interpreters_with_different_hash_seeds_write_the_same_trace(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    first, second = traces_of(path, tmp_path, ("1", "2"))
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_no_scenario_depends_on_the_hash_seed(path: Path, tmp_path: Path) -> None:
    first, second, third = traces_of(path, tmp_path, ("0", "1", "4242"))
    assert first == second == third


@pytest.mark.slow
@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_each_scenario_holds(path: Path) -> None:
    for seed in range(3):
        result = run_scenario(path, seed)
        assert result.verdict is Verdict.HELD, (result.replay, result.violations, result.starved_because)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, bug in sorted(bugs().items()) if bug.found_by])
def test_each_bug_is_found_by_its_scenario(name: str) -> None:
    path = find_scenario(bugs()[name].found_by)
    assert any(run_scenario(path, seed, bug=name).verdict is Verdict.VIOLATED for seed in range(30))


def run_with(path: str, seeds: int = 4) -> list[RunResult]:
    return [run_scenario(ROOT / "scenarios" / f"{path}.yaml", seed) for seed in range(seeds)]


@pytest.mark.slow
def test_each_story_shows_what_its_scenario_is_about() -> None:
    for name, words in {
        "leader-crash": ("kill", "is elected leader", "is back after an unclean stop"),
        "torn-tail-power-loss": ("power loss (keep torn)", "recovery cuts", ".log at byte"),
        "divergence-truncation": ("truncates from", "by epoch"),
        "cut-leader-acks-1": ("cut ", "heal ", "truncates from"),
        "slow-follower-isr": ("slow ", "is fast again", "in sync are"),
        "all-power-loss": ("EXCUSED careless-0",),
        "rolling-restart": (
            "stop, in order, broker-3",
            "has stopped: shutdown",
            "is back after a clean stop",
        ),
        "controller-away": ("kill controller", "start controller again", "is elected leader of epoch 1"),
        "flapping-link": ("cut Shaky", "heal Shaky", "is elected leader of epoch 1"),
        "half-open-link": ("cut others -> Deaf", "heal others -> Deaf"),
        "consumer-follows": ("pause consumer-1", "consumer-1 goes on", "is elected leader of epoch 2"),
        "deleted-topic": ("delete topic t", "create topic t", "is back after an unclean stop"),
        "one-or-two-in-sync": ("alter topic one", "UNCLEANLY", "EXCUSED one-0"),
        "clean-stop-of-all": ("stop, in order, controller", "is back after a clean stop"),
    }.items():
        told = "\n".join(line for result in run_with(name) for line in result.story)
        for word in words:
            assert word in told, (name, word)


@pytest.mark.slow
def test_what_may_be_lost_is_lost_and_excused_where_no_flush_was_promised() -> None:
    results = run_with("all-power-loss")
    assert all(result.excused for result in results)
    assert {excuse.partition for result in results for excuse in result.excuses} == {"careless-0"}
    assert all(sum(result.excused.values()) > 0 for result in run_with("cut-leader-acks-1"))


@pytest.mark.slow
def test_after_one_accident_one_replica_in_sync_loses_what_two_refuse() -> None:
    for result in run_with("one-or-two-in-sync", seeds=2):
        assert {excuse.partition for excuse in result.excuses} == {"one-0"}
        assert sum(result.excused.values()) > 0


@pytest.mark.slow
def test_restarted_in_order_the_brokers_of_a_cluster_fail_no_send() -> None:
    for result in run_with("rolling-restart", seeds=2):
        assert result.operations["ok"] == sum(result.operations.values()) > 0, result.operations
        assert sum("has stopped: shutdown" in line for line in result.story) == 3


# The command


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(sim, ["run", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_command_prints_story_verdict_hash_and_replay(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    status, out, _ = invoke(str(path), "--seed", "7")
    assert status == 0
    assert "power loss (keep torn) at broker-" in out
    assert "verdict: held" in out and "trace hash: " in out
    assert f"replay: replog sim run {path} --seed 7" in out
    assert "power loss" not in invoke(str(path), "--seed", "7", "--no-story")[1]


def test_command_json_has_its_keys_and_the_traces_hash(tmp_path: Path) -> None:
    path, trace = tmp_path / "small.yaml", tmp_path / "trace"
    path.write_text(SMALL)
    status, out, _ = invoke(str(path), "--seed", "7", "--trace", str(trace), "--json")
    result = json.loads(out)
    assert status == 0
    assert set(result) >= {
        "scenario", "seed", "verdict", "trace_hash", "events", "simulated_ms", "violations", "replay",
    }  # fmt: skip
    assert result["trace_hash"] == sha256(trace.read_bytes()).hexdigest()


def test_command_ends_with_1_when_a_rule_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    status, out, _ = invoke(str(path), "--bug", "ack-before-high-watermark")
    assert status == 1
    assert "VIOLATED" in out and "--bug ack-before-high-watermark" in out


def test_command_ends_with_2_and_one_line_on_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SMALL.replace("duration: 3s", "duration: 5 parsecs"))
    status, out, error = invoke(str(path))
    assert (status, out) == (2, "")
    assert error.startswith(f"{path}:3: ") and error.count("\n") == 1
    path.write_text(SMALL)
    assert invoke(str(path), "--bug", "nonsense")[0] == 2
    assert invoke(str(tmp_path / "none.yaml"))[0] == 2
    assert invoke(str(path), "--trace", str(tmp_path / "none" / "trace"))[0] == 2


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (SMALL.replace("duration: 3s", "duration: 5 parsecs"), ()),
        (SMALL, ("--bug", "nonsense")),
        (SMALL, ("--trace", "none/trace", "--history", "none/history")),
    ],
)
@pytest.mark.parametrize("option", ["--trace", "--history"])
def test_command_empties_no_file_for_what_it_does_not_run(
    tmp_path: Path, text: str, options: tuple[str, ...], option: str
) -> None:
    path, kept = tmp_path / "bad.yaml", tmp_path / "kept"
    path.write_text(text)
    kept.write_text("of another run")
    assert invoke(str(path), *options, option, str(kept))[0] == 2
    assert kept.read_text() == "of another run"


def test_command_ends_with_3_when_the_run_proved_nothing(tmp_path: Path) -> None:
    path = tmp_path / "starved.yaml"
    path.write_text(SMALL.replace("  - at: 1100ms", "  - when: after-ack(t/0) >= 1000000"))
    status, out, _ = invoke(str(path))
    assert status == 3
    assert "verdict: starved (step 2 of 2 never struck)" in out
