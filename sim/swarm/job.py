"""One seed of a campaign: its scenario is drawn and run, and its row says what came of it."""

from __future__ import annotations

import gc
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, final

from sim.run import run_scenario
from sim.sometimes.points import Reached
from sim.swarm.drawing import NAME, draw
from sim.swarm.profiles import Profile
from sim.swarm.rows import wrong_in_run

# The seed that the parent draws before any process is forked.
_WARM_SEED = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmJob:
    """What every seed of a campaign shares. With `is_full` a run goes on after its first violation.

    `buggify` says whether buggify points are on; without it, that is drawn. With `is_search` only the verdict is asked
    for, so a run notes no points and has no trace hash.
    """

    profile: Profile | None = None
    only: tuple[str, ...] = ()
    bug: str | None = None
    is_full: bool = False
    buggify: bool | None = None
    is_search: bool = False

    @property
    def title(self) -> str:
        return NAME

    def run(self, seed: int) -> dict[str, Any]:
        """Draw and run the seed. Returns the row of the result, with its profile, shape, faults and points reached."""
        drawn = draw(seed, self.profile, self.only, buggify=self.buggify)
        reached = None if self.is_search else Reached()
        result = run_scenario(
            drawn.scenario, seed, bug=self.bug, stops_early=not self.is_full, reached=reached,
            is_traced=not self.is_search,
        )  # fmt: skip
        row = result.as_json() | {"replay": self.replay(seed)}
        if result.starved_because:
            row["starved_because"] = result.starved_because
        row |= {
            "profile": drawn.profile.value,
            "shape": drawn.shape,
            "faults": [strike.kind for strike in drawn.plan],
            "points": [] if reached is None else reached.names(),
        }
        return row

    def replay(self, seed: int) -> str:
        """Returns the commands that write the scenario of a seed to a file and run it."""
        profile = f" --profile {self.profile.value}" if self.profile is not None else ""
        only = f" --only {','.join(self.only)}" if self.only else ""
        points = "" if self.buggify is None else " --buggify" if self.buggify else " --no-buggify"
        bug = f" --bug {self.bug}" if self.bug is not None else ""
        early = "" if self.is_full else " --stop-early"
        file = f"{NAME}-{seed}.yaml"
        return (
            f"replog sim swarm --describe {seed}{profile}{only}{points} > {file} && "
            f"replog sim run {file} --seed {seed}{bug}{early}"
        )

    def identity(self) -> dict[str, object]:
        """Returns what rows of one file must have in common."""
        shared: dict[str, object] = {
            "profile": self.profile.value if self.profile is not None else None,
            "only": list(self.only),
            "bug": self.bug,
            "full": self.is_full,
        }
        return shared if self.buggify is None else shared | {"buggify": self.buggify}

    def wrong_in(self, row: dict[str, Any]) -> str:
        """Returns the name of a member that the row of a seed must have otherwise; empty if there is none."""
        return wrong_in_run(row)


def parse_only(names: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """Returns the kinds of faults in the order of the catalogue. Raises ValueError for an unknown one."""
    for name in names:
        if name not in known:
            raise ValueError(f"unknown fault {name!r}: write {', '.join(known)}")
    return tuple(name for name in known if name in names)


def warm(job: SwarmJob) -> None:
    """Draw one seed in this process, so that those that are forked from it share what that has loaded."""
    draw(_WARM_SEED, job.profile, job.only, buggify=job.buggify)
    # A collection in a child would write to, and so copy, the memory that it shares.
    gc.collect()
    gc.freeze()
