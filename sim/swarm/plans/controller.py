"""Faults that take the controller away for long: what the profile `edge` is about."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import Fault, Ground

_LONG_MS = (3_000, 6_000, 12_000)


def _controller_away(ground: Ground, choices: Choices) -> list[Part]:
    """Returns an absence that lasts, in part of the seeds until everything is healed."""
    lasting = choices.ms(_LONG_MS, "for")
    match choices.pick(("kill", "power", "stop", "pause", "isolate"), "how"):
        case "pause":
            return [{"pause": "controller", "for": lasting}]
        case "isolate":
            until: Part = {} if choices.chance(30, "to the end") else {"for": lasting}
            return [{"isolate": "controller"} | until]
        case "power":
            keep = choices.pick(("none", "prefix", "subset", "torn"), "keep")
            return [{"power": "controller", "keep": keep, "down": lasting}]
        case verb:
            down: Part = {} if choices.chance(30, "to the end") else {"down": lasting}
            return [{verb: "controller"} | down]


CONTROLLER = (Fault(name="controller-away", family="controller", percent=100, most=2, draw=_controller_away),)
