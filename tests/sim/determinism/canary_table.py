"""The table of canaries: which of the ten mistakes the proof of determinism notices, and how (`make canaries`)."""

from __future__ import annotations

import sys

from sim.determinism.double import DoubleRun, double_runs
from sim.determinism.guard import MachineUsed
from sim.scenario.loading import parse_scenario
from sim.scenario.model import Scenario
from sim.seed_range import Seeds
from tests.sim.determinism import canaries

TINY = """\
scenario: tiny
duration: 3s
topics:
  t: {config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 30/s}
consumers:
  - {topic: t}
steps:
  - {at: 2500ms, kill: leader(t/0), down: 200ms}
"""
HERE = "tests.sim.determinism.canary_table:tiny"
CANARIES = (
    "set_order", "address_order", "leaked_cache", "wall_clock", "unsorted_listing", "garbage", "thread",
    "protobuf_map", "float_sum", "environment",
)  # fmt: skip
# Without the guard a thread whose end is awaited has the same result each time: only the guard sees it.
ONLY_GUARDED = {"thread"}


def tiny(seed: int) -> Scenario:
    """Returns the same short scenario for every seed."""
    return parse_scenario(TINY)


def pairs(canary: str, *, is_guarded: bool) -> list[DoubleRun]:
    """Returns two double runs with the canary planted, or with none for an empty name."""
    plant = f"tests.sim.determinism.canaries:{canary}" if canary else ""
    return list(double_runs(HERE, Seeds(first=0, end=2), plant=plant, is_guarded=is_guarded))


def noticed(canary: str, *, is_guarded: bool) -> bool:
    """Whether two unguarded runs differ; with `is_guarded`, whether the guard ends a run and says what it asked for."""
    found = pairs(canary, is_guarded=is_guarded)
    if is_guarded:
        return any(pair.first.error.startswith(MachineUsed.__name__) for pair in found)
    return any(not pair.is_equal for pair in found)


def main() -> int:
    """Plant each canary and print what notices it. Returns the exit status: 0 if something notices each."""
    print(f"{'canary':<18}{'comparison':<12}{'guard':<7}mistake")
    count = 0
    for canary in CANARIES:
        by_comparison, by_guard = (noticed(canary, is_guarded=each) for each in (False, True))
        count += by_comparison or by_guard
        marks = ["yes" if each else "-" for each in (by_comparison, by_guard)]
        title = (getattr(canaries, canary).__doc__ or "").rstrip(".")
        print(f"{canary:<18}{marks[0]:<12}{marks[1]:<7}{title}", flush=True)
    print(f"{count} of {len(CANARIES)} canaries noticed")
    return 0 if count == len(CANARIES) else 1


if __name__ == "__main__":
    sys.exit(main())
