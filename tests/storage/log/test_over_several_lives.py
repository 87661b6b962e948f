"""Protections that show over more than one life of a log, or more than one batch of an append."""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.draws import Draws
from storage.errors import InvalidTransactionState
from tests.storage.logs import NOW_MS, batch, new_file_system, open_log


def started(file_system: SimFileSystem) -> LogManager:
    manager = LogManager(file_system, "data", LogConfig(), NOW_MS, Draws(1))
    manager.load(NOW_MS)
    return manager


def test_ll1_the_mark_of_a_clean_stop_serves_one_start() -> None:
    file_system = new_file_system()
    started(file_system).shutdown(broker_epoch=7, now_ms=NOW_MS)
    second = started(file_system)
    assert (second.was_clean, second.previous_broker_epoch) == (True, 7)
    # The second life ends in a crash.
    second.close_handles()
    third = started(file_system)
    assert (third.was_clean, third.previous_broker_epoch) == (False, None)


def test_ps9_a_set_that_is_refused_in_its_middle_leaves_no_trace_of_any_producer() -> None:
    log = open_log(new_file_system())
    sound = batch(0, 1, producer_id=7, producer_epoch=0, sequence=0)
    opening = batch(1, 1, producer_id=8, producer_epoch=0, sequence=0, is_transactional=True)
    outside = batch(2, 1, producer_id=8, producer_epoch=0, sequence=1)
    with pytest.raises(InvalidTransactionState):
        log.append_as_follower(sound + opening + outside, leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 0
    assert dict(log.producers.producers) == {}
    assert log.producers.ongoing_transactions == []
