"""Runs every workload with its first call failing, then its second, its third … until a run passes."""

from __future__ import annotations

from dataclasses import dataclass

from storage.errors import StorageError
from storage.log import PartitionLog
from tests.crash.faulty import Fault, FaultKind, FaultyFileSystem
from tests.crash.model import batches_of, judge
from tests.crash.recovery import START_MS, start_and_check
from tests.crash.stage import Recording, Stage
from tests.crash.states import Loss
from tests.crash.workloads import Workload, record
from tests.storage.logs import produced

MANAGER_VERBS = ("checkpoint", "create", "delete", "start", "stop")


@dataclass(slots=True, kw_only=True)
class FaultReport:
    """The problems that one kind of fault showed in one workload."""

    workload: str
    kind: FaultKind
    calls: int
    problems: list[str]


def sweep_faults(workload: Workload, kind: FaultKind, stride: int = 1) -> FaultReport:
    """Run the workload once for each call after its preparation that may fail: call 1, 1 + `stride` and so on."""
    sound = record(workload)
    counting = Fault(kind, 0)
    _run(workload, counting)
    report = FaultReport(workload=workload.name, kind=kind, calls=counting.count, problems=[])
    for call in range(1, counting.count + 1, stride):
        fault = Fault(kind, call)
        problems = _problems_after(workload, fault, sound)
        report.problems += [f"call {call}, {fault.struck}: {problem}" for problem in problems]
    return report


def _run(workload: Workload, fault: Fault) -> tuple[Stage, BaseException | None]:
    """Run the workload with the fault. Returns its stage, and the error that stopped it or None."""
    stage = Stage(
        wrap=lambda disk, file_system: FaultyFileSystem(file_system, disk, fault), on_record=fault.arm
    )
    try:
        workload.run(stage)
        stage.finish()
    except (StorageError, OSError, ValueError, AssertionError) as error:
        return stage, error
    finally:
        fault.is_armed = False
    return stage, None


def _problems_after(workload: Workload, fault: Fault, sound: Recording) -> list[str]:
    stage, error = _run(workload, fault)
    stage.disk.observer = None
    expected = sound.expectations[min(len(stage.recording.expectations), len(sound.expectations) - 1)]
    problems = []
    if error is not None and not _is_clear(error, expected.operation):
        problems.append(f"{expected.operation} raised {type(error).__name__}: {error}")
    for loss in (Loss(None), Loss(())):
        disk = stage.disk.snapshot()
        loss.apply(disk)
        _, outcome = start_and_check(disk, stage.config)
        problems += [f"then {loss}: {each}" for each in outcome.problems or judge(expected, outcome.findings)]
    if error is not None and stage.is_alive:
        problems += _problems_of_the_living(stage)
    return problems


def _is_clear(error: BaseException, operation: str) -> bool:
    """Whether `error` is one that callers are promised.

    A log's verbs raise StorageError. Those of the log directory may also raise an OSError that names the file.
    """
    if isinstance(error, OSError):
        return error.filename is not None and operation.startswith(MANAGER_VERBS)
    return isinstance(error, StorageError)


def _problems_of_the_living(stage: Stage) -> list[str]:
    """Check that each log either takes appends and serves what it has, or is offline and says so."""
    problems = []
    for name, log in stage.manager.logs.items():
        try:
            _append_and_read(log)
        except StorageError as error:
            if log.online.reason is None:
                problems.append(f"{name} is not offline, but {error}")
        except (OSError, ValueError, AssertionError) as error:
            problems.append(f"{name} goes on and raises {type(error).__name__}: {error}")
    return problems


def _append_and_read(log: PartitionLog) -> None:
    end = log.log_end_offset
    log.append_as_leader(produced(1), leader_epoch=log.epochs.latest_epoch or 0, now_ms=START_MS)
    assert batches_of(log.read(end, max_size=1).records)[0].base_offset == end, end
    assert log.log_end_offset == end + 1, end
