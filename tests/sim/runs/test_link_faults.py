"""Links that are clogged, narrow or pick what they lose, connections half open, slow processors and bad starts."""

from __future__ import annotations

from io import BytesIO

import pytest

from cluster.core.controller.controller import Controller
from cluster.core.effects import Effect
from cluster.core.events import Event
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from sim.sometimes.points import Reached
from storage.batch import RecordBatch

HEAD = """\
scenario: links
duration: 6s
network: {transport: %s}
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s, acks: all}
consumers:
  - {topic: t}
steps:
"""


def run(steps: str, transport: str = "stream", seed: int = 1, *, reached: Reached | None = None) -> RunResult:
    result = run_scenario(parse_scenario(HEAD % transport + steps), seed, reached=reached)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return result


def has_line(result: RunResult, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in result.story)


@pytest.mark.parametrize("transport", ["stream", pytest.param("datagram", marks=pytest.mark.slow)])
def test_a_clogged_follower_leaves_the_isr_and_comes_back_with_the_burst(transport: str) -> None:
    result = run("  - {at: 2s, clog: follower(t/0) <-> others, for: 2500ms}\n", transport)
    assert has_line(result, "is fenced") and has_line(result, "4.500 s", "unclog follower(t/0) <-> others")


@pytest.mark.slow
def test_a_clog_without_an_end_ends_with_a_heal_and_with_the_run() -> None:
    steps = "  - {at: 2s, clog: broker 1 <-> others}\n  - {at: 3s, heal: all}\n"
    result = run(steps + "  - {at: 4s, clog: broker 2 <-> others}\n")
    assert has_line(result, "every replica agrees")


@pytest.mark.slow
def test_a_follower_behind_a_narrow_link_falls_behind() -> None:
    result = run("  - {at: 2s, narrow: follower(t/0) -> others, to: 60 B, for: 3s}\n")
    assert has_line(result, "carries 60 bytes a second") and has_line(result, "5.000 s", "is wide again")
    assert has_line(result, "is fenced") and has_line(result, "is unfenced")


def test_a_follower_whose_heartbeats_alone_are_lost_is_fenced() -> None:
    step = "lose: broker 1 -> controller, share: 100%, only: BrokerHeartbeat, for: 3s"
    result = run(f"  - {{at: 2s, {step}}}\n")
    assert has_line(result, "lose 100% of BrokerHeartbeat on broker 1 -> controller")
    assert has_line(result, "broker 1 is fenced")


@pytest.mark.slow
def test_a_lost_method_spares_the_others() -> None:
    step = "lose: broker 1 -> controller, share: 100%, only: AllocateProducerIds, for: 3s"
    assert not has_line(run(f"  - {{at: 2s, {step}}}\n"), "broker 1 is fenced")


@pytest.mark.parametrize("transport", ["stream", pytest.param("datagram", marks=pytest.mark.slow)])
@pytest.mark.parametrize("verb", ["cut", "clog"])
def test_a_leader_whose_proposals_alone_do_not_travel_keeps_the_follower_that_is_away(
    verb: str, transport: str
) -> None:
    steps = f"  - {{at: 2s, {verb}: leader(t/0) -> controller, only: AlterPartition, for: 2500ms}}\n"
    steps += "  - {at: 2s, cut: follower(t/0) -> leader(t/0), only: [Fetch], for: 2500ms}\n"
    result = run(steps, transport, reached=(points := Reached()))
    assert has_line(result, f"{verb} leader(t/0) -> controller, AlterPartition only")
    assert "packet-selected" in points.names()
    assert not has_line(result, "is fenced") and not has_line(result, "3.", "in sync are")


def test_a_fault_of_some_methods_is_the_same_run_again() -> None:
    steps = "  - {at: 2s, clog: leader(t/0) <-> others, only: [Fetch, Produce], for: 1s}\n"
    assert run(steps).trace_hash == run(steps).trace_hash


@pytest.mark.slow
@pytest.mark.parametrize("link", ["leader(t/0) -> clients", "clients -> leader(t/0)", "all -> others"])
def test_half_open_connections_are_found_out_and_nothing_is_lost(link: str) -> None:
    link = link.replace("all -> others", "follower(t/0) -> leader(t/0)")
    result = run(f"  - {{at: 2s, hang_up: {link}}}\n  - {{at: 4s, hang_up: {link}}}\n")
    assert has_line(result, "hang up") and result.operations["ok"] == sum(result.operations.values())


@pytest.mark.parametrize("link", ["all -> all", "all <-> others"])
def test_a_link_between_all_is_each_link_that_there_is(link: str) -> None:
    result = run(f"  - {{at: 2s, cut: {link}, for: 3s}}\n")
    assert has_line(result, "3.", "fenced") or has_line(result, "4.", "fenced"), result.story
    assert not result.violations


@pytest.mark.slow
def test_a_slow_processor_falls_behind_and_catches_up() -> None:
    result = run("  - {at: 2s, slow_cpu: follower(t/0), by: 900ms, for: 3s}\n")
    assert has_line(result, "takes 900 ms longer") and has_line(result, "5.000 s", "is fast again")
    assert (
        has_line(result, "is fenced")
        or has_line(result, "3.", "in sync are")
        or has_line(result, "4.", "in sync are")
    )


def test_a_process_dies_inside_its_start_and_the_one_after_it_recovers() -> None:
    result = run("  - {at: 2s, kill_start: leader(t/0), change: 2, down: 300ms}\n")
    assert has_line(result, "2.300 s", "ends inside its start") and has_line(
        result, "2.600 s", "start broker-"
    )
    assert has_line(result, "2.600 s", "is back after an unclean stop")


def test_a_process_dies_inside_a_change_on_its_disk_and_the_one_after_it_recovers() -> None:
    result = run("  - {at: 2s, kill_inside: leader(t/0), change: 3, down: 300ms}\n")
    assert has_line(result, "a death inside a change on the disk waits for broker-")
    assert has_line(result, "dies inside a change on its disk")
    assert has_line(result, "is back after an unclean stop")


def test_a_process_dies_inside_a_rename_in_a_log_as_a_new_epoch_is_noted() -> None:
    result = run(
        "  - {at: 2s, kill: leader(t/0), down: 300ms}\n"
        "  - {at: 2100ms, kill_inside: follower(t/0), log: t/0, renames: true, down: 300ms}\n"
    )
    assert has_line(result, "dies inside a rename in its log of t/0")


def test_a_process_dies_inside_a_rename_of_a_kind_of_file_only() -> None:
    for suffix, dies in ((".tmp", True), (".swap", False)):
        step = f"kill_inside: follower(t/0), log: t/0, renames: true, suffix: {suffix}, down: 300ms"
        result = run(
            f"  - {{at: 2s, kill: leader(t/0), down: 300ms}}\n  - {{at: 2100ms, {step}}}\n",
        )
        assert has_line(result, f"dies inside a rename of a file *{suffix} in its log of t/0") is dies, suffix


@pytest.mark.parametrize("change", [3, 4, 5])
def test_a_death_that_another_fault_has_forestalled_strikes_at_the_next_change(change: int) -> None:
    result = run(
        "  - {at: 2s, fail_sync: leader(t/0), file: checkpoint, down: 300ms}\n"
        f"  - {{at: 2s, kill_inside: leader(t/0), job: checkpoint, change: {change}, down: 300ms}}\n"
    )
    assert has_line(result, "inside a change of a job 'checkpoint'")


def test_two_deaths_wait_for_jobs_of_their_own_and_outlive_another_death() -> None:
    result = run(
        "  - {at: 2s, kill_inside: broker 2, job: checkpoint, change: 8, down: 300ms}\n"
        "  - {at: 2s, kill_inside: broker 2, job: checkpoint, change: 3, down: 300ms}\n"
        "  - {at: 2s, kill_inside: broker 2, job: compact, down: 300ms}\n"
    )
    deaths = [line for line in result.story if "broker-2 dies inside a change of a job 'checkpoint'" in line]
    assert len(deaths) == 2


def test_a_machine_loses_power_inside_a_change_that_a_job_makes() -> None:
    step = "{at: 2s, kill_inside: leader(t/0), job: checkpoint, change: 2, keep: all, down: 300ms}"
    result = run(f"  - {step}\n")
    assert has_line(result, "loses power (keep all) inside a change of a job 'checkpoint' on its disk")
    assert has_line(result, "is back after an unclean stop")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("kill_inside: producer 1", "producer 1 is a client"),
        ("kill_inside: controller, job: compact", "no job 'compact': write one of flush, snapshot"),
        ("lose: all -> others, share: 5%, only: Alter", "no method 'Alter': write one of "),
        ("clog: all -> others, only: [Fetch, Alter]", "no method 'Alter': write one of "),
        ("slow: all -> others, by: 1ms, only: [Fetch, Fetch]", "write each method once"),
        ("narrow: all -> others, to: 0 B", "write at least 1 B"),
        ("kill_start: producer 1, down: 1s", "producer 1 is a client"),
        ("clog: broker 9 -> others", "unknown node 'broker 9'"),
    ],
)
def test_a_bad_step_is_refused_with_its_line(step: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(f"{HEAD % 'stream'}  - {{at: 2s, {step}}}\n", "bad.yaml")
    assert str(refused.value).startswith("bad.yaml:11: ") and words in str(refused.value)


FLIPS = "  - {at: 2s, flip_bits: %s, share: 40%%, for: 3s}\n"


@pytest.mark.parametrize(
    "links",
    [
        "clients -> leader(t/0)",
        "leader(t/0) -> follower(t/0)",
        "leader(t/0) -> clients",
        "controller -> others",
    ],
)
def test_records_with_a_flipped_bit_are_refused_and_sent_again(links: str) -> None:
    trace = BytesIO()
    text = HEAD % "stream" + FLIPS % links + "  - {at: 2500ms, kill: leader(t/0), down: 100ms}\n"
    result = run_scenario(parse_scenario(text), 1, trace_file=trace)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert b'"flipped"' in trace.getvalue() and has_line(result, "5.000 s", "flips no bits any more")
    assert result.operations["ok"] == sum(result.operations.values())


def test_a_follower_that_takes_records_with_a_flipped_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordBatch, "check_valid", lambda *_: None)
    steps = FLIPS % "leader(t/0) -> follower(t/0)"
    result = run_scenario(parse_scenario(HEAD % "stream" + steps), 1)
    assert result.verdict is Verdict.VIOLATED


EVERYWHERE = "".join(
    f"  - {{at: 2s, flip_bits: {link}, share: 20%, for: 3s, where: WHERE}}\n"
    for link in ("leader(t/0) <-> others", "controller <-> others", "follower(t/0) <-> clients")
)


@pytest.mark.parametrize("transport", ["stream", "datagram"])
def test_messages_that_nobody_can_read_are_sent_again_and_nothing_is_lost(transport: str) -> None:
    result = run(EVERYWHERE.replace("WHERE", "structure"), transport, reached=(points := Reached()))
    assert "frame-unreadable" in points.names() and "frame-unchecked" not in points.names()
    assert result.operations["ok"] == sum(result.operations.values()) and has_line(
        result, "every replica agrees"
    )


@pytest.mark.parametrize("transport", ["stream", pytest.param("datagram", marks=pytest.mark.slow)])
def test_no_node_fails_by_a_bit_that_nobody_can_notice_and_nothing_else_is_judged(transport: str) -> None:
    steps = EVERYWHERE.replace("WHERE", "anywhere")
    for seed in range(3):
        result = run(steps, transport, seed, reached=(points := Reached()))
        assert "frame-unchecked" in points.names() and has_line(result, "only failures of nodes are judged")
    assert run(steps, transport, seed).trace_hash == result.trace_hash


def test_a_node_that_fails_after_a_bit_that_nobody_can_notice_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, begun_ms = Controller.step, list[int]()

    def step(controller: Controller, now_ms: int, event: Event) -> list[Effect]:
        begun_ms.append(now_ms)
        if now_ms >= begun_ms[0] + 4_000:
            raise RuntimeError("a frame has ended it")
        return whole(controller, now_ms, event)

    monkeypatch.setattr(Controller, "step", step)
    text = HEAD % "stream" + EVERYWHERE.replace("WHERE", "anywhere")
    result = run_scenario(parse_scenario(text), 1)
    assert has_line(result, "only failures of nodes are judged")
    assert {each.checker for each in result.violations} == {"no-failure"}
