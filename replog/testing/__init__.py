"""Tools for tests of programs that use a replicated log: a simulated cluster driven step by step, and a real one.

| name | what it is |
| --- | --- |
| `SimCluster` | a simulated cluster of the very code that serves; time passes in `advance`, checkers always look on |
| `RuleViolated` | the AssertionError of a checker, with the story of the run |
| `Outcome` | what became of a record that `SimCluster.produce` sent |
| `RealCluster` | `replog up` as a child process on free ports |
| `SimClusters`, `RealClusters` | the types of the fixtures `sim_cluster` and `real_cluster` (need pytest) |
| `ClusterNotReady` | a `RealCluster` that ended before it could serve |
| `strategies` | Hypothesis strategies for faults and whole scenarios (needs hypothesis) |
| `SimClusterMachine` | a `RuleBasedStateMachine` that strikes a `SimCluster` (needs hypothesis) |

The pytest plugin `replog.testing.plugin` comes with the package: fixtures `sim_cluster` and `real_cluster`, options
`--replog-seed` and `--replog-seeds`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replog.testing import strategies as strategies
    from replog.testing.machine import SimClusterMachine as SimClusterMachine
    from replog.testing.plugin import RealClusters as RealClusters
    from replog.testing.plugin import SimClusters as SimClusters
    from replog.testing.real_cluster import ClusterNotReady as ClusterNotReady
    from replog.testing.real_cluster import RealCluster as RealCluster
    from replog.testing.sim_cluster import RuleViolated as RuleViolated
    from replog.testing.sim_cluster import SimCluster as SimCluster
    from sim.hosts.history import Outcome as Outcome

# Each name is loaded when it is first used: only two of them need Hypothesis, and two pytest.
_HOMES = {
    "ClusterNotReady": "replog.testing.real_cluster",
    "Outcome": "sim.hosts.history",
    "RealCluster": "replog.testing.real_cluster",
    "RealClusters": "replog.testing.plugin",
    "RuleViolated": "replog.testing.sim_cluster",
    "SimCluster": "replog.testing.sim_cluster",
    "SimClusterMachine": "replog.testing.machine",
    "SimClusters": "replog.testing.plugin",
}

__all__ = [
    "ClusterNotReady",
    "Outcome",
    "RealCluster",
    "RealClusters",
    "RuleViolated",
    "SimCluster",
    "SimClusterMachine",
    "SimClusters",
    "strategies",
]


def __getattr__(name: str) -> object:
    if name == "strategies":
        return importlib.import_module("replog.testing.strategies")
    if name not in _HOMES:
        raise AttributeError(f"module 'replog.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
