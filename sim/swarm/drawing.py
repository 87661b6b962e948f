"""Draws the whole scenario of a seed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from io import StringIO
from typing import final

from ruamel.yaml import YAML

from sim.scenario.model import Scenario, check_scenario
from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import Ground
from sim.swarm.plans.plan import Strike, draw_plan, steps_of
from sim.swarm.plans.shapes import draw_shape
from sim.swarm.profiles import Profile, draw_profile, over_budget
from sim.swarm.topology import draw_cluster, draw_network
from sim.swarm.workload import draw_workload
from storage.draws import Draws

NAME = "swarm"
# No aimed fault strikes before; faults with a time of their own come a little later.
_WARM_UP = "3s"
_END_MS = (7_000, 10_000, 10_000, 13_000, 13_000, 21_000)
_CONVERGE = "60s"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A drawn scenario: `parts` as its file has it, `scenario` as it is run, and what it was drawn from."""

    seed: int
    profile: Profile
    shape: str
    plan: tuple[Strike, ...]
    parts: Part
    scenario: Scenario

    def as_yaml(self) -> str:
        """Returns the file that `replog sim run` takes."""
        text = StringIO()
        head = (
            f"# Seed {self.seed}: profile {self.profile.value}, shape {self.shape}, {len(self.plan)} faults."
        )
        text.write(head + "\n")
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = None
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.width = 120
        yaml.dump(self.parts, text)
        return text.getvalue()


def draw(seed: int, profile: Profile | None = None, only: Collection[str] = ()) -> Drawn:
    """Draw the scenario of a seed. Without a profile it is drawn too; with `only`, faults of other kinds are left out.

    Neither changes another draw. The same seed is the same scenario.
    """
    choices = Choices(Draws(seed).child("swarm"))
    chosen = draw_profile(choices) if profile is None else profile
    quiet = _without_faults(choices, chosen)
    base = Scenario.model_validate(quiet)
    ground = Ground(scenario=base, profile=chosen, lasting=_lasting(choices, base))
    shape = draw_shape(choices)
    end_ms = base.duration // 1_000
    plan = draw_plan(ground, shape, choices.within("plan"), end_ms, only)
    parts = quiet | {"steps": steps_of(plan)}
    scenario = Scenario.model_validate(parts)
    _check(scenario, chosen)
    return Drawn(
        seed=seed, profile=chosen, shape=shape.name, plan=tuple(plan), parts=parts, scenario=scenario
    )


def _without_faults(choices: Choices, profile: Profile) -> Part:
    cluster = draw_cluster(choices.within("cluster"))
    brokers = cluster["brokers"]
    assert isinstance(brokers, int), brokers
    return {
        "scenario": NAME,
        "warm_up": _WARM_UP,
        "duration": f"{choices.pick(_END_MS, 'end')}ms",
        "converge": _CONVERGE,
        # Whether the moment of an aimed fault comes cannot be known when it is drawn.
        "strict": False,
        "excuses": profile.excuses,
        "cluster": cluster,
        "network": draw_network(choices.within("network")),
    } | draw_workload(choices.within("workload"), brokers, profile)


def _lasting(choices: Choices, scenario: Scenario) -> tuple[str, ...]:
    """Returns the topics that no step of this seed deletes, so that faults may wait for their leaders."""
    return tuple(
        name
        for name, topic in scenario.topics.items()
        if topic.exists and not choices.chance(25, f"{name} may be deleted")
    )


def _check(scenario: Scenario, profile: Profile) -> None:
    findings = list(check_scenario(scenario))
    assert not findings, findings
    beyond = list(over_budget(scenario, profile))
    assert not beyond, beyond
