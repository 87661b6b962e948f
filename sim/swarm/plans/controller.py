"""Faults that take the controller away for long: what the profile `edge` is about."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import Fault, Ground, has_followers
from sim.swarm.plans.isr_chains import SESSION, setting

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


def _dies_unseen(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that dies while the controller is away, and stays away for long after that is back.

    The next controller has never heard of it, and elects another leader all the same.
    """
    partition = ground.partition(choices, lasting=True)
    away_ms = choices.pick((600, 1_500, 3_000), "away")
    gap: Part = {"at": f"+{choices.pick((1, 100, 400), 'gap')}ms"}
    down = f"{away_ms + 2 * setting(ground, SESSION) + 3_000}ms"
    return [
        {choices.pick(("kill", "stop"), "how"): "controller", "down": f"{away_ms}ms"},
        gap | {"kill": f"leader({partition})", "down": down},
    ]


CONTROLLER = (
    Fault(name="controller-away", family="controller", percent=100, most=2, draw=_controller_away),
    Fault(
        name="dies-unseen",
        family="controller",
        percent=50,
        most=1,
        draw=_dies_unseen,
        is_possible=has_followers,
        lasts_ms=5_000,
    ),
)
