"""The work of one process of a sweep. All that goes in and comes out is plain data."""

from __future__ import annotations

import logging

from sim.bugs import planted
from tests.crash.fault_sweep import FaultReport, sweep_faults
from tests.crash.faulty import FaultKind
from tests.crash.mistakes import MISTAKES
from tests.crash.sweep import Report, Sweep, Violation
from tests.crash.workloads import WORKLOADS

BY_NAME = {workload.name: workload for workload in WORKLOADS}
MISTAKES_BY_NAME = {mistake.name: mistake for mistake in MISTAKES}


def sweep(name: str, stride: int = 1) -> Report:
    logging.disable(logging.CRITICAL)
    return Sweep(BY_NAME[name], stride=stride).run()


def search(name: str) -> Violation | None:
    """Return the first violation that the mistake's workload shows, or None."""
    logging.disable(logging.CRITICAL)
    mistake = MISTAKES_BY_NAME[name]
    with planted(mistake):
        report = Sweep(BY_NAME[mistake.found_by], at_most=64, most_violations=1).run()
    return report.violations[0] if report.violations else None


def fail_calls(name: str, stride: int = 1) -> list[FaultReport]:
    logging.disable(logging.CRITICAL)
    return [sweep_faults(BY_NAME[name], kind, stride) for kind in FaultKind]
