"""The pytest plugin: fixtures for a simulated and for a real cluster, and the seed of a test.

| | |
| --- | --- |
| `sim_cluster` | makes a `SimCluster` with the seed of the test: `cluster = sim_cluster(brokers=5)` |
| `real_cluster` | makes and starts a `RealCluster` in a directory of the test: `cluster = real_cluster(nodes=3)` |
| `--replog-seed N` | the seed of every test that uses `sim_cluster`, 0 by default |
| `--replog-seeds A..B` | runs each of them with every seed from A to B, B excluded |

A simulated cluster that a test leaves is finished after it: everything is healed and the history is judged. A failed
test prints its story and the command that repeats it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import pytest

from replog.testing.real_cluster import RealCluster
from sim.seed_range import Seeds, check_seed

if TYPE_CHECKING:
    from replog.testing.sim_cluster import SimCluster

SEED = "--replog-seed"
SEEDS = "--replog-seeds"
FIXTURE = "sim_cluster"
_SEED_FIXTURE = "replog_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("replog")
    group.addoption(SEED, type=int, default=0, metavar="N", help="seed of tests with a simulated cluster")
    group.addoption(SEEDS, metavar="A..B", help="run them with every seed from A to B, B excluded")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse seeds that are none. Raises UsageError."""
    try:
        check_seed(config.getoption(SEED))
        if (text := config.getoption(SEEDS)) is not None:
            Seeds.parse(text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a simulated cluster once for each seed."""
    text = metafunc.config.getoption(SEEDS)
    if text is not None and FIXTURE in metafunc.fixturenames:
        seeds = Seeds.parse(text)
        metafunc.parametrize(_SEED_FIXTURE, range(seeds.first, seeds.end), ids=_seed_id, indirect=True)


@pytest.fixture
def replog_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test."""
    return int(getattr(request, "param", request.config.getoption(SEED)))


@final
class SimClusters:
    """The type of the fixture `sim_cluster`: makes the simulated clusters of one test, and keeps them for its end."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.made: list[SimCluster] = []

    def __call__(
        self,
        *,
        seed: int | None = None,
        brokers: int = 3,
        topics: Mapping[str, Mapping[str, object]] | None = None,
        settings: Mapping[str, int] | None = None,
        transport: Literal["stream", "datagram"] = "stream",
    ) -> SimCluster:
        """Returns a SimCluster with these arguments; its seed is that of the test, unless one is given."""
        # It is imported late: a plugin is loaded by every pytest of the environment.
        from replog.testing.sim_cluster import SimCluster

        cluster = SimCluster(
            seed=self.seed if seed is None else seed,
            brokers=brokers,
            topics=topics,
            settings=settings,
            transport=transport,
        )
        self.made.append(cluster)
        return cluster


@final
class RealClusters:
    """The type of the fixture `real_cluster`: makes and starts the real clusters of one test."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack, self._count = directory, stack, 0

    def __call__(self, *options: str, nodes: int = 3) -> RealCluster:
        """Returns a RealCluster that serves; `options` are those of `replog up`. Raises ClusterNotReady."""
        path = self._directory / f"cluster-{self._count}"
        self._count += 1
        return self._stack.enter_context(RealCluster(path, *options, nodes=nodes))


_CLUSTERS = pytest.StashKey[SimClusters]()


@pytest.fixture
def sim_cluster(request: pytest.FixtureRequest, replog_seed: int) -> Generator[SimClusters, None, None]:
    """A maker of simulated clusters; what the test leaves unfinished is finished and judged after it."""
    clusters = request.node.stash[_CLUSTERS] = SimClusters(replog_seed)
    yield clusters
    for cluster in clusters.made:
        cluster.leave()


@pytest.fixture
def real_cluster(tmp_path: Path) -> Generator[RealClusters, None, None]:
    """A maker of real clusters: each is started, and every process has ended after the test."""
    with ExitStack() as stack:
        yield RealClusters(tmp_path, stack)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the story and the command that repeats the run to the report of a failed test."""
    report = yield
    clusters = item.stash.get(_CLUSTERS, None)
    if report.failed and clusters is not None:
        for cluster in clusters.made:
            report.sections.append(("replog: the story of the run", "\n".join(cluster.story)))
        again = " ".join(["pytest", *map(shlex.quote, _arguments_again(item, clusters.seed))])
        report.sections.append(("replog: run it again with", again))
    return report


def _arguments_again(item: pytest.Item, seed: int) -> list[str]:
    """Returns the arguments of pytest that run the test again with the seed, in the directory of this call."""
    name, one_seed = _name_from_here(item), [SEED, str(seed)]
    parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    are_given = item.config.getoption(SEEDS) is not None
    # A test may have parameters of that name itself.
    if not are_given or not isinstance(item, pytest.Function) or _SEED_FIXTURE not in parameters:
        return [name, *one_seed]
    if next(iter(parameters)) != _SEED_FIXTURE:
        # The seed comes after parameters of fixtures, and cannot be told from the parameters around it.
        return [name, SEEDS, f"{seed}..{seed + 1}"]
    named = item.name.removeprefix(item.originalname)
    rest = named.removeprefix(f"[{_seed_id(seed)}").removeprefix("-").removesuffix("]")
    test = name.removesuffix(named)
    return [f"{test}[{rest}]" if rest else test, *one_seed]


def _name_from_here(item: pytest.Item) -> str:
    """Returns the name of a test with the path of its file as the directory has it in which pytest was called."""
    directory = item.config.invocation_params.dir
    if directory == item.config.rootpath:
        return item.nodeid
    _, colons, test = item.nodeid.partition("::")
    return os.path.relpath(item.path, directory) + colons + test


def _seed_id(seed: int) -> str:
    return f"seed{seed}"
