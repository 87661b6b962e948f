"""A broker takes a log directory offline once a call on its disk has failed."""

from __future__ import annotations

from sim.checkers.base import Jury
from sim.checkers.failed_disks import FailedDisks
from sim.checkers.ghost import Ghost

LIFE = (1, 1)
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
