"""A broker takes a log directory offline once a call on its disk has failed."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from sim.checkers.base import Jury
from sim.checkers.failed_disks import FailedDisks
from sim.checkers.ghost import Ghost
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from storage.directory.manager import LogManager

LIFE = (1, 1)
HALF_MADE = """
scenario: half-made
duration: 4s
cluster: {brokers: 3, directories: 2}
topics: {t: {partitions: 1, replicas: 3}}
producers: [{topic: t, rate: 20/s}]
steps:
- {at: 1s, pick: leader(t/0), as: H}
- {at: 2s, delete_topic: t}
- {at: 2010ms, fail_sync: H, file: partition, pages: dirty, down: 500ms}
- {at: 2500ms, create_topic: t}
"""
LOG = "/data-1/t-0/00000000000000000000.log"


class Broker:
    """Shows a checker the errors of one broker, which goes on with `online`."""

    def __init__(self, *online: str) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.disks = FailedDisks(self.jury)
        self.online = list(online)

    def step(self, *errors: str, life: tuple[int, int] = LIFE) -> list[str]:
        """Returns what is wrong with a step after which these calls have failed."""
        before = len(self.jury.violations)
        if self.disks.is_new(life, errors):
            self.disks.on_step(life, errors, self.online)
        assert all(each.checker == "failed-disks" for each in self.jury.violations)
        return [each.what for each in self.jury.violations[before:]]


def test_kafka_10778_no_directory_stays_online_after_an_error() -> None:
    broker = Broker("/data-1", "/data-2")
    (what,) = broker.step(LOG)
    assert what == f"broker 1 goes on with /data-1 although a call on {LOG} has failed"
    # It is said once.
    assert not broker.step(LOG)
    assert broker.step(LOG, "/data-2") == [
        "broker 1 goes on with /data-2 although a call on /data-2 has failed"
    ]


def test_kip112_a_directory_that_went_offline_is_given_up() -> None:
    broker = Broker("/data-2", "/data-10")
    assert not broker.step(LOG)
    assert not broker.step(LOG, LOG)


def test_ap16_what_a_job_has_met_is_judged_once_the_broker_was_told_of_its_end() -> None:
    disks = (broker := Broker("/data-1")).disks
    other = "/data-1/u-0/00000000000000000000.log"
    # The job has met the first error; the second one is of a step that came before the end of the job.
    disks.on_step(LIFE, [LOG, other], broker.online, {0})
    assert [each.what for each in broker.jury.violations] == [
        f"broker 1 goes on with /data-1 although a call on {other} has failed"
    ]
    assert disks.is_new(LIFE, [LOG, other])
    assert broker.step(LOG, other) == [f"broker 1 goes on with /data-1 although a call on {LOG} has failed"]
    assert not disks.is_new(LIFE, [LOG, other])


def test_another_life_begins_with_its_own_errors() -> None:
    broker = Broker("/data-2")
    assert not broker.step(LOG, LOG)
    broker.online = ["/data-1", "/data-2"]
    assert not broker.step(life=(1, 3))
    assert broker.step(LOG, life=(1, 3))
    assert broker.step(LOG, life=(2, 3))


def test_ap16_a_directory_of_which_no_call_has_failed_stays_online() -> None:
    broker = Broker("/data-1", "/data-2")
    broker.disks.on_offline(1, "/data-1", "no descriptor")
    assert [each.what for each in broker.jury.violations] == [
        "broker 1 takes /data-1 offline, of which no call has failed: no descriptor"
    ]


def stopped(*errors: str) -> list[str]:
    """Returns what is wrong with an orderly stop after those failed calls, in which `/data-1` was marked."""
    broker = Broker("/data-1")
    broker.disks.on_stopped(1, errors, ["/data-1"])
    return [each.what for each in broker.jury.violations]


def test_ll5_a_directory_of_which_a_call_has_failed_is_not_marked_as_stopped_in_order() -> None:
    assert stopped("/data-2/t-0/a", LOG, LOG) == [
        f"broker 1 marks /data-1 as stopped in order although a call on {LOG} has failed"
    ]


@pytest.mark.parametrize(
    "name", ["replication-offset-checkpoint.job.tmp", "recovery-point-offset-checkpoint"]
)
def test_ll5_a_directory_whose_checkpoint_could_not_be_written_is_not_marked(name: str) -> None:
    assert stopped(f"/data-1/{name}") == [
        f"broker 1 marks /data-1 as stopped in order although a call on /data-1/{name} has failed"
    ]


def test_ll5_a_directory_of_which_no_call_has_failed_is_marked_beside_one_of_which_one_has() -> None:
    disks = (broker := Broker()).disks
    # The life has not begun yet.
    disks.on_unmarked(LIFE, [LOG], ["/data-1", "/data-2"])
    disks.new_errors(LIFE, [])
    disks.on_unmarked(LIFE, [LOG], ["/data-1"])
    disks.on_unmarked(LIFE, [], ["/data-1", "/data-2"])
    assert not broker.jury.violations
    disks.on_unmarked(LIFE, [LOG], ["/data-1", "/data-2"])
    assert [each.what for each in broker.jury.violations] == [
        "broker 1 does not mark /data-2 as stopped in order, of which no call has failed, as one on "
        f"{LOG} has"
    ]


def test_ll5_what_fails_after_all_logs_are_closed_does_not_forbid_the_mark() -> None:
    assert not stopped("/data-1", "/data-1/.kafka_cleanshutdown", "/data-10/t-0/a")


def test_ll4_what_failed_in_a_step_is_looked_at_after_it_and_never_again() -> None:
    disks = Broker("/data-1").disks
    # A start has met the first one.
    assert not disks.new_errors(LIFE, [LOG])
    assert disks.new_errors(LIFE, [LOG, "/data-1"]) == ["/data-1"]
    assert not disks.new_errors(LIFE, [LOG, "/data-1"])
    assert not disks.new_errors((1, 3), [LOG])


def test_ll4_a_broker_makes_no_log_again_elsewhere_in_the_step_in_which_it_has_failed() -> None:
    scenario = parse_scenario(HALF_MADE, "half-made.yaml")
    assert not run_scenario(scenario, 3).violations

    def has_half_made(manager: LogManager, topic: str, partition: int) -> bool:
        return False

    with patch.object(LogManager, "has_half_made", has_half_made):
        (violation,) = run_scenario(scenario, 3).violations
    told = (
        "broker 2 has made in data-2 the log of which a call on data-1/t-0/partition.metadata.tmp has failed"
    )
    assert (violation.checker, violation.what) == ("failed-disks", told)
