"""The high watermark that an answer states, and the one that a log begins a life with."""

from __future__ import annotations

import pytest

from sim.bugs.planting import Replacement, replaced
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.told_marks import LOADED, STATED, LoadedMarks, StatedMarks
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from storage.disk.checkpoints import HIGH_WATERMARK_CHECKPOINT

P = "t-0"
CORE = object()


class Court:
    """A jury whose time a test sets."""

    def __init__(self) -> None:
        self.now_us = 0
        self.jury = Jury(Ghost(), [], now_us=lambda: self.now_us, on_violation=lambda violation: None)

    @property
    def found(self) -> list[str]:
        return [each.checker for each in self.jury.violations]


@pytest.mark.parametrize(("stated", "is_wrong"), [(4, True), (5, False), (7, False), (8, False), (9, True)])
def test_led5_a_leader_states_a_high_watermark_of_the_step(stated: int, is_wrong: bool) -> None:
    court = Court()
    marks = StatedMarks(court.jury)
    marks.on_answer(1, CORE, P, 3, 5, 5)
    court.now_us = 10
    # Another answer of the same step was made before the high watermark rose.
    marks.on_answer(1, CORE, P, 3, 5, 8)
    marks.on_answer(1, CORE, P, 3, stated, 8)
    assert court.found == [STATED] * is_wrong


@pytest.mark.parametrize(("core", "epoch"), [(object(), 3), (CORE, 4)])
def test_another_life_or_epoch_may_begin_lower(core: object, epoch: int) -> None:
    court = Court()
    marks = StatedMarks(court.jury)
    marks.on_answer(1, CORE, P, 3, 5, 5)
    court.now_us = 10
    marks.on_answer(1, core, P, epoch, 2, 2)
    assert court.found == []


@pytest.mark.parametrize(
    ("checkpoint", "high_watermark", "log_end", "is_wrong"),
    [
        (150, 150, 200, False),
        (150, 0, 200, True),
        (150, 120, 120, False),
        (-1, 0, 200, False),
        (150, 149, 150, True),
    ],
)
def test_hwm8_a_log_begins_with_its_checkpoint_or_its_end(
    checkpoint: int, high_watermark: int, log_end: int, is_wrong: bool
) -> None:
    court = Court()
    marks = LoadedMarks(court.jury)
    marks.on_loaded(1, P, checkpoint)
    marks.on_role(1, P, high_watermark, log_end)
    # What later roles begin with is another matter.
    marks.on_role(1, P, 0, 200)
    assert court.found == [LOADED] * is_wrong


def test_a_process_that_ended_before_its_first_role_is_forgotten() -> None:
    court = Court()
    marks = LoadedMarks(court.jury)
    marks.on_loaded(1, P, 150)
    marks.on_ended(1)
    marks.on_role(1, P, 0, 200)
    assert court.found == []


ALONE = """\
scenario: alone-again
duration: 8s
cluster: {settings: {replica.high.watermark.checkpoint.interval.ms: 200}}
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 1}}
producers:
- {topic: t, rate: 60/s}
steps:
- {at: 4s, kill: all}
- {at: 5s, restart: all}
"""


def test_hwm8_a_high_watermark_that_no_start_takes_from_the_checkpoint_is_found() -> None:
    scenario = parse_scenario(ALONE)
    assert run_scenario(scenario, 1).violations == ()
    forgets = Replacement(
        target="storage.directory.manager:_read_or_nothing",
        make=lambda original: (
            lambda checkpoint: (
                {} if checkpoint.path.endswith(HIGH_WATERMARK_CHECKPOINT) else original(checkpoint)
            )
        ),
    )
    with replaced(forgets):
        found = run_scenario(scenario, 1).violations
    assert LOADED in {each.checker for each in found}
