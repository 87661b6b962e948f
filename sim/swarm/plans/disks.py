"""Faults of machines: power losses, torn writes, failed and slow disks, and clocks that are set."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import AWAY_MS, DOWN_MS, Fault, Ground
from storage.topics import METADATA_TOPIC

# What a power loss keeps of the changes that were not synced: how often of twenty.
_KEEP = ("none",) * 5 + ("prefix",) * 4 + ("subset",) * 5 + ("torn",) * 5 + ("all",)
_SHIFTS = ("-60s", "-5s", "-2s", "-300ms", "300ms", "2s", "5s", "60s")


def keep_of(ground: Ground, choices: Choices, target: str) -> str:
    """Returns what the disk keeps: everything, where a loss would be outside of the budget.

    The controller syncs what it decides before it answers, so its disk may always lose the rest.
    """
    keep = choices.pick(_KEEP, "keep")
    return keep if ground.may_lose_writes or target == "controller" else "all"


def power_of(ground: Ground, choices: Choices, target: str) -> Part:
    """Returns a power loss of the target."""
    keep = keep_of(ground, choices, target)
    return {"power": target, "keep": keep, "down": choices.ms(DOWN_MS, "down")}


def end_of(ground: Ground, choices: Choices, target: str) -> Part:
    """Returns the end of a process, by a kill or by a power loss."""
    if choices.chance(40, "power"):
        return power_of(ground, choices, target)
    return {"kill": target, "down": choices.ms(DOWN_MS, "down")}


def _power(ground: Ground, choices: Choices) -> list[Part]:
    return [power_of(ground, choices, ground.node(choices))]


def _power_of_all(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a power loss of every broker at once, as of a rack."""
    return [power_of(ground, choices, "all")]


def _partial_write(ground: Ground, choices: Choices) -> list[Part]:
    if choices.chance(25, "controller"):
        return [decision_cut(choices)]
    step: Part = {
        "partial_write": ground.broker(choices.within("victim")),
        "log": ground.partition(choices.within("log"), lasting=bool(ground.lasting)),
        "byte": f"{choices.pick((0, 1, 10, 60, 61, 62, 70, 500), 'byte')} B",
        "down": choices.ms(DOWN_MS, "down"),
    }
    if choices.chance(50, "power"):
        keep = choices.pick(("none", "torn", "all", "all"), "keep")
        step |= torn_append(choices, keep if ground.may_lose_writes else "all")
    return [step]


def decision_cut(choices: Choices) -> Part:
    """Returns a controller that ends as it writes its next decision: mostly with all of a batch, which nobody knows.

    Without a power loss the next life finds what no disk keeps yet.
    """
    step: Part = {
        "partial_write": "controller",
        "log": f"{METADATA_TOPIC}/0",
        "byte": f"{choices.pick((0, 61, 100, 16_000, 16_000, 16_000, 16_000), 'bytes')} B",
        "down": choices.ms((1, 300, 1_500), "down"),
    }
    if choices.chance(40, "power"):
        step["keep"] = choices.pick(_KEEP, "keep")
    return step


def torn_append(choices: Choices, keep: str) -> Part:
    """Returns how a power loss leaves the append in which it strikes: nobody was told that this one is on a disk.

    In most seeds its header is there, and the file is as long as if all were: only the checksum shows that it is not.
    """
    if choices.chance(25, "short"):
        return {"keep": keep, "byte": f"{choices.pick((1, 10, 60, 61, 70, 500), 'bytes')} B"}
    byte = f"{choices.pick((61, 62, 70, 100, 200), 'whole bytes')} B"
    return {"keep": keep, "rest": choices.pick(("zeros", "garbage"), "rest"), "byte": byte}


def _break_disk(ground: Ground, choices: Choices) -> list[Part]:
    directories = ground.scenario.cluster.directories
    if ground.lasting and choices.chance(50, "of a log"):
        return [{"break_disk": ground.broker(choices), "log": ground.partition(choices, lasting=True)}]
    return [{"break_disk": ground.broker(choices), "directory": 1 + choices.below(directories, "directory")}]


def _may_break_disk(ground: Ground) -> bool:
    """Whether a directory may break: not where a flush of it may fail that takes the only copy of a record along."""
    topics = ground.scenario.topics.values()
    flushes = any(
        topic.replicas == 1 and ("flush.ms" in topic.config or "flush.messages" in topic.config)
        for topic in topics
    )
    return ground.may_lose_writes or not flushes


def _slow_disk(ground: Ground, choices: Choices) -> list[Part]:
    by = f"{choices.scale(100, 50_000, 'by')}us"
    return [{"slow_disk": ground.node(choices), "by": by, "for": choices.ms(AWAY_MS, "for")}]


def _hang_disk(ground: Ground, choices: Choices) -> list[Part]:
    return [{"hang_disk": ground.node(choices), "for": choices.ms((*AWAY_MS, 9_000), "for")}]


def _lack_descriptors(ground: Ground, choices: Choices) -> list[Part]:
    target = "all" if choices.chance(15, "all") else ground.broker(choices)
    left = "none" if choices.chance(60, "none") else "few"
    return [{"lack_descriptors": target, "left": left, "for": choices.ms(AWAY_MS, "for")}]


def _step_clock(ground: Ground, choices: Choices) -> list[Part]:
    is_of_client = choices.chance(30, "client")
    target = ground.client(choices) if is_of_client else ground.node(choices)
    return [{"step_clock": target, "by": choices.pick(_SHIFTS, "by")}]


def _freeze_clock(ground: Ground, choices: Choices) -> list[Part]:
    is_of_client = choices.chance(30, "client")
    target = ground.client(choices) if is_of_client else ground.node(choices)
    step: Part = {"freeze_clock": target, "for": choices.ms(AWAY_MS, "for")}
    return [step | {"catches_up": choices.chance(50, "catches up")}]


DISKS = (
    Fault(name="power", family="disk", percent=60, most=4, draw=_power),
    Fault(name="power-of-all", family="disk", percent=25, most=2, draw=_power_of_all),
    Fault(name="partial-write", family="disk", percent=50, most=3, draw=_partial_write),
    Fault(
        name="break-disk", family="disk", percent=35, most=1, draw=_break_disk, is_possible=_may_break_disk
    ),
    Fault(name="slow-disk", family="disk", percent=40, most=3, draw=_slow_disk),
    Fault(name="hang-disk", family="disk", percent=20, most=2, draw=_hang_disk),
    Fault(name="lack-descriptors", family="process", percent=30, most=3, draw=_lack_descriptors),
    Fault(name="step-clock", family="clock", percent=30, most=3, draw=_step_clock),
    Fault(name="freeze-clock", family="clock", percent=20, most=2, draw=_freeze_clock),
)
