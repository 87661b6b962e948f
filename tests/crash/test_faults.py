"""Every call of the disk fails once: the log is offline or one clear error is raised, and nothing synced is lost."""

from __future__ import annotations

import pytest

from tests.crash.fault_sweep import sweep_faults
from tests.crash.faulty import FaultKind
from tests.crash.jobs import BY_NAME


@pytest.mark.parametrize("kind", FaultKind)
def test_some_calls_of_some_workloads_fail(kind: FaultKind) -> None:
    for name in ("append", "truncate", "swap"):
        report = sweep_faults(BY_NAME[name], kind, 29)
        assert report.calls > 10
        assert report.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_call_of_every_workload_fails(name: str, kind: FaultKind) -> None:
    report = sweep_faults(BY_NAME[name], kind)
    assert report.problems == []
