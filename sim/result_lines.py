"""The lines that tell the result of a run, in the simulator or on processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from sim.checkers.base import Violation
from sim.judgement import Verdict


class Result(Protocol):
    """What both kinds of runs end with."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def violations(self) -> Sequence[Violation]: ...
    @property
    def operations(self) -> Mapping[str, int]: ...
    @property
    def excused(self) -> Mapping[str, int]: ...
    @property
    def excused_sends(self) -> Mapping[str, int]: ...
    @property
    def starved_because(self) -> str: ...
    @property
    def never_struck(self) -> Sequence[str]: ...


def operation_lines(result: Result) -> Iterator[str]:
    """Yields how the sends ended, what is lost or failed and excused, and the faults that never struck."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in result.operations.items() if count)
    yield f"sends: {counts or 'none'}"
    for reason, count in result.excused.items():
        yield f"lost and excused: {count} acknowledged records: {reason}"
    for reason, count in result.excused_sends.items():
        yield f"failed and excused: {count} sends: {reason}"
    if result.never_struck:
        yield f"faults that never struck: {len(result.never_struck)}"
    for what in result.never_struck:
        yield f"never struck: {what}"


def verdict_lines(result: Result) -> Iterator[str]:
    """Yields each violation, and the verdict with the reason why a run is starved."""
    for violation in result.violations:
        yield f"VIOLATED at {violation.at_us / 1e6:.3f} s: {violation.checker}: {violation.what}"
    why = f" ({result.starved_because})" if result.starved_because else ""
    yield f"verdict: {result.verdict.value}{why}"
