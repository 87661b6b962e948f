"""The histories of simulated runs show no anomaly, unless a bug is planted: then they show its name."""

from __future__ import annotations

import io

import pytest

from sim.anomalies.check import AnomalyCheck
from sim.anomalies.history_file import HistoryFile
from sim.anomalies.operations import Operation
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

SMALL = """
scenario: small
duration: 4s
cluster: {brokers: 3}
topics: {t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2}}}
producers: [{topic: t, rate: 30/s}]
consumers: [{topic: t, clients: 2}]
steps:
  - {at: 2s, kill: leader(t/0), down: 1s}
"""


def anomalies_of(text: str, bug: str | None = None) -> set[str]:
    found: set[str] = set()
    file = io.BytesIO()
    run_scenario(parse_scenario(text), 7, bug=bug, history_file=file)
    file.seek(0)
    check = AnomalyCheck(lambda anomaly: found.add(anomaly.name))
    for each in HistoryFile("run", file).operations():
        if isinstance(each, Operation):
            check.take(each)
        else:
            check.move(each)
    check.finish()
    assert check.records_read > 100, check.records_read
    return found


@pytest.mark.slow
def test_history_of_a_run_with_a_crash_is_sound() -> None:
    assert not anomalies_of(SMALL)


@pytest.mark.slow
def test_history_of_a_run_whose_consumers_drop_records_names_them() -> None:
    assert anomalies_of(SMALL, "consumer-drops-record") == {"lost-write", "poll-skip"}
