"""Planted damage in logs, histories and log lines, which the checkers must find in a run on processes."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import final

import pytest

from cluster.core.messages import TopicPartition
from replog.real.admin import Place
from replog.real.ground import Ground
from replog.real.judge import DiskJudge
from replog.real.processes import Process
from replog.real.watch import Watch
from sim.checkers.sightings import Elected
from sim.hosts.history import History, Outcome, ReadOperation, SendOperation
from sim.scenario.loading import parse_scenario
from storage.batch import build_batch
from storage.batch.record import Record

SCENARIO = parse_scenario(
    "scenario: s\ncluster: {brokers: 2}\ntopics: {t: {replicas: 2}}\nproducers: [{topic: t}]\n"
)
T0 = TopicPartition("t", 0)


def batch(offset: int, value: str, *, epoch: int = 0) -> bytes:
    record = Record(offset, 5, None, value.encode())
    return build_batch([record], base_offset=offset, partition_leader_epoch=epoch)


SOUND = (batch(0, "a"), batch(1, "b"))


@final
class Court:
    """A run of two brokers whose processes have ended: broker 1 was elected for epoch 0, and again for epoch 1."""

    def __init__(self, data: Path) -> None:
        self.data, self.history, self.story = data, History(), list[str]()
        self.watch = Watch(
            SCENARIO, data, self.history, lambda: 0, on_violation=lambda found: None,
            note=lambda who, what: self.story.append(what),
        )  # fmt: skip
        self.watch.lives.begin("t", "id")
        for epoch in (0, 1):
            self.watch.jury.see(Elected("t-0", 1, epoch, (1, 2), True))

    def write(self, broker: int, *batches: bytes) -> None:
        folder = self.data / f"broker-{broker}" / "log-1" / "t-0"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_bytes(b"".join(batches))

    def sent(self, value: str, offset: int) -> None:
        """Note a record that was acknowledged to acks=all."""
        operation = SendOperation(
            producer="producer-1", value=value, acks=-1, is_idempotent=True, invoked_us=0
        )
        self.history.sends.append(operation)
        self.history.finish(operation, Outcome.OK, at_us=1, partition="t-0", offset=offset, error="NONE")

    def read(self, *values: str) -> None:
        """Note that a consumer has read these values from the start of the log on."""
        for offset, value in enumerate(values):
            self.history.reads.append(
                ReadOperation(
                    consumer="c", partition="t-0", offset=offset, value=value, high_watermark=offset + 1, at_us=2,
                    after=offset - 1,
                )
            )  # fmt: skip
        self.history.positions["c", "t-0"] = len(values)

    def found(self, ends: Sequence[int] = (2, 2)) -> set[str]:
        """Judge the logs whose brokers say that they have committed up to `ends`. Returns the names of the rules."""
        judge = DiskJudge(SCENARIO, self.data, self.watch, self.history)
        places = {(T0, broker): Place(end, end) for broker, end in enumerate(ends, 1)}
        judge.judge([T0], {"t-0": (1, 2)}, places)
        return {each.checker for each in self.watch.jury.violations}


@pytest.fixture
def court(tmp_path: Path) -> Court:
    return Court(tmp_path)


def test_equal_logs_that_hold_what_was_acknowledged_and_read_break_no_rule(court: Court) -> None:
    for broker in (1, 2):
        court.write(broker, *SOUND)
    court.sent("a", 0)
    court.sent("b", 1)
    court.read("a")
    assert court.found() == set()


def test_an_acknowledged_record_that_no_log_holds_is_found(court: Court) -> None:
    for broker in (1, 2):
        court.write(broker, *SOUND)
    for offset, value in enumerate("abc"):
        court.sent(value, offset)
    assert court.found() == {"history"}


def test_a_record_that_was_read_and_is_another_one_at_the_end_is_found(court: Court) -> None:
    for broker in (1, 2):
        court.write(broker, *SOUND)
    court.sent("a", 0)
    court.sent("b", 1)
    court.read("a", "a")
    assert court.found() == {"history"}


def test_a_follower_whose_batch_has_other_bytes_than_its_leaders_is_found(court: Court) -> None:
    court.write(1, *SOUND)
    court.write(2, SOUND[0], batch(1, "x"))
    court.sent("a", 0)
    court.sent("b", 1)
    assert {"log-matching", "committed-prefix", "replicas-agree"} <= court.found()


def test_a_follower_whose_tail_is_missing_is_found(court: Court) -> None:
    court.write(1, *SOUND)
    court.write(2, SOUND[0])
    court.sent("a", 0)
    court.sent("b", 1)
    assert {"replicas-agree", "high-watermark"} <= court.found()


def test_a_batch_with_a_wrong_checksum_is_found(court: Court) -> None:
    court.write(1, *SOUND)
    court.write(2, SOUND[0], SOUND[1][:-1] + b"?")
    court.sent("a", 0)
    court.sent("b", 1)
    assert "replicas-agree" in court.found()


def test_a_batch_of_an_epoch_that_nobody_was_elected_for_is_found(court: Court) -> None:
    for broker in (1, 2):
        court.write(broker, SOUND[0], batch(1, "b", epoch=7))
    court.sent("a", 0)
    court.sent("b", 1)
    assert "one-leader" in court.found()


def test_a_broker_that_leads_without_being_elected_is_found_in_its_log_lines(court: Court) -> None:
    line = "2026-01-01 00:00:00,000 INFO cluster.shell.runtime replica.became_leader topic_partition=t-0 "
    (court.data / "broker-2.txt").write_text(f"{line}leader_epoch=1 log_end_offset=0 metadata_offset=4\n")
    court.watch.look()
    assert {each.checker for each in court.watch.jury.violations} == {"one-leader"}
    assert court.story == ["t-0: leads epoch 1 from offset 0"]


def test_records_that_the_leader_of_an_unclean_election_lacks_are_excused(court: Court) -> None:
    court.watch.jury.see(Elected("t-0", 2, 2, (2,), False))
    line = "2026-01-01 00:00:00,000 INFO cluster.shell.runtime replica.became_leader topic_partition=t-0 "
    (court.data / "broker-2.txt").write_text(f"{line}leader_epoch=2 log_end_offset=1\n")
    court.watch.look()
    (excuse,) = court.watch.ghost.excuses
    assert (excuse.partition, excuse.start, excuse.reason) == ("t-0", 1, "unclean election of broker 2")


def ground_of(court: Court) -> tuple[Ground, Process]:
    """Returns the ground of a run, and its broker 1, which has served."""
    ground = Ground(SCENARIO, 0, court.data, court.history, court.watch, lambda: 0, lambda count: [])
    process = Process("broker-1", ground, court.data / "broker-1.txt", lambda: [])
    ground.nodes["broker-1"] = process
    ground.on_line(process, b'{"event": "ready", "port": 1}')
    return ground, process


def test_a_node_that_cannot_start_again_is_a_violation(court: Court) -> None:
    ground, process = ground_of(court)
    ground.on_line(process, b'{"event": "failed", "reason": "no room", "is_unusable_input": false}')
    (found,) = court.watch.jury.violations
    assert (found.checker, found.what) == ("no-failure", "broker-1 could not start again: no room")


@pytest.mark.parametrize(
    ("is_asked", "is_killed", "status", "is_violation"),
    [
        (False, False, -6, True),
        (False, False, 0, True),
        (True, False, 1, True),
        (True, False, -signal.SIGSEGV, True),
        (True, False, -signal.SIGTERM, False),
        (True, False, 0, False),
        (True, True, -9, False),
    ],
)
def test_a_process_that_ends_unasked_or_not_in_order_is_a_violation(
    court: Court, is_asked: bool, is_killed: bool, status: int, is_violation: bool
) -> None:
    ground, process = ground_of(court)
    process.is_asked, process.is_killed = is_asked, is_killed
    ground.on_ended(process, status)
    assert [each.checker for each in court.watch.jury.violations] == ["no-failure"] * is_violation
