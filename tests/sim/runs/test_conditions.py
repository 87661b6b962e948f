"""Steps that wait for an election, and for a leader that proposes that a replica joins the in-sync set."""

from __future__ import annotations

from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

HEAD = """\
scenario: conditions
duration: 9s
topics:
  t: {replicas: 3, config: {min.insync.replicas: 1}}
producers:
  - {topic: t, rate: 10/s}
steps:
"""


def run(*steps: str) -> RunResult:
    return run_scenario(parse_scenario(HEAD + "".join(f"  - {step}\n" for step in steps)), 1)


def line(result: RunResult, words: str) -> int:
    """Returns the place of the first line of the story that has these words."""
    return next(place for place, text in enumerate(result.story) if words in text)


def test_a_step_waits_for_the_next_leader_and_not_for_the_one_that_there_is() -> None:
    result = run("{at: 3s, kill: leader(t/0), down: 4s}", "{when: elected(t/0), pick: leader(t/0), as: Next}")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert line(result, "of epoch 1") < line(result, "Next is")


def test_a_step_that_only_waits_for_a_leader_tells_who_that_is() -> None:
    result = run("{at: 3s, kill: leader(t/0), down: 4s}", "{when: elected(t/0), pick: leader(t/0)}")
    assert line(result, "of epoch 1") < line(result, "leader(t/0) is broker-")
    assert not any("None" in text for text in result.story)


def test_a_joiner_that_stops_while_its_proposal_is_kept_back_is_refused() -> None:
    result = run(
        "{at: 3s, kill: follower(t/0), down: 50ms, as: F}",
        "{when: isr(t/0) < 3, clog: leader(t/0) -> controller, only: AlterPartition}",
        "{when: joining(t/0), stop: F, down: 300ms}",
        "{at: +1s, heal: all}",
    )
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    # The clog began before, when the follower left.
    assert line(result, "clog") < line(result, "stop, in order")
