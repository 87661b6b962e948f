"""A leader learns that it was replaced while more sets wait for their checks than one of its steps appends (PRO-6)."""

from __future__ import annotations

import pytest

from cluster.core.messages import TopicPartition
from cluster.core.replica.sliced_appends import SlicedAppends
from sim.bugs import install
from sim.run import Run, RunResult, Verdict
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: refused-sets
duration: 5s
cluster:
  jobs: {validate: 30ms}
  # Every set is checked in slices then.
  settings: {max.append.work: 0, broker.session.timeout.ms: 1000, broker.heartbeat.interval.ms: 200}
topics:
  t: {partitions: 1, replicas: 2, config: {min.insync.replicas: 1}}
producers:
  - {topic: t, clients: 4, rate: 12/s, acks: 1}
steps:
  - {at: 1s, pick: leader(t/0), as: L}
  - {cut: controller <-> L, for: 2s}
"""
SEED = 1
# More than ever wait.
MOST_BEGUN = 2_000


class Endless(BaseException):
    """A step that begins checks again and again. It is no Exception: a core that raised one would only be killed."""


def hand_over(patch: pytest.MonkeyPatch) -> tuple[RunResult, int]:
    """Returns how the run ended, and how many sets waited when the leader gave the partition up."""
    most, begun = 0, 0
    go_on, end_first = SlicedAppends._go_on, SlicedAppends._end_first

    def counted(sliced: SlicedAppends, now_ms: int) -> None:
        nonlocal most, begun
        begun = 0
        most = max([most, *[len(queue) for queue in sliced.queues.values()]])
        go_on(sliced, now_ms)

    def counted_end(sliced: SlicedAppends, now_ms: int, topic_partition: TopicPartition) -> None:
        nonlocal begun
        begun += 1
        if begun > MOST_BEGUN:
            raise Endless
        end_first(sliced, now_ms, topic_partition)

    patch.setattr(SlicedAppends, "_go_on", counted)
    patch.setattr(SlicedAppends, "_end_first", counted_end)
    return Run(parse_scenario(SCENARIO), SEED).go("refused-sets"), most


def test_pro6_a_leader_that_is_replaced_refuses_all_sets_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    result, most = hand_over(monkeypatch)
    # Most sends time out meanwhile: the run is starved, and nothing is violated.
    assert result.verdict is not Verdict.VIOLATED and most > 5


def test_pro6_is_found_by_this_run_when_the_mend_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with install("refusals-are-work"), pytest.raises(Endless):
        hand_over(monkeypatch)
