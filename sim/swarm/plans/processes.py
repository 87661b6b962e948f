"""Faults of processes: they are killed, stopped and paused, at a time or at a point of their work."""

from __future__ import annotations

from sim.scenario.steps import BROKER_JOBS
from sim.swarm.choices import Choices, Part
from sim.swarm.plans.disks import keep_of
from sim.swarm.plans.ground import AWAY_MS, DOWN_MS, LAST, Fault, Ground

# So long before the end the last restart begins: most brokers are back then.
_LAST_RESTART_MS = 500


def _kill(ground: Ground, choices: Choices) -> list[Part]:
    return [{"kill": ground.node(choices), "down": choices.ms(DOWN_MS, "down")}]


def _kill_at_point(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a death before or after a job, such as a flush or a compaction."""
    side, kind = choices.pick(("before", "after"), "side"), choices.pick(BROKER_JOBS, "job")
    step: Part = {"kill": ground.broker(choices), "point": f"{side} {kind}"}
    return [step | {"down": choices.ms(DOWN_MS, "down")}]


def _kill_inside(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a death inside a change on the disk: of a job, such as a compaction, or of whatever comes next."""
    target = ground.broker(choices)
    step: Part = {"kill_inside": target, "down": choices.ms(DOWN_MS, "down")}
    if choices.chance(50, "in a job"):
        step |= inside(choices, is_compacted=any(map(ground.is_compacted, ground.scenario.topics)))
    else:
        step["change"] = choices.scale(1, 60, "change")
    if choices.chance(40, "power"):
        step["keep"] = keep_of(ground, choices, target)
    return [step]


def inside(choices: Choices, *, is_compacted: bool) -> Part:
    """Returns a kind of job, and a change of those that a few such jobs make; a compaction makes many."""
    jobs = ("compact", "compact", "checkpoint") if is_compacted else ("checkpoint", "flush", "delete")
    job = choices.pick(jobs, "job")
    return {"job": job, "change": choices.scale(1, 60 if job == "compact" else 8, "change in it")}


def _kill_again(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a death, and another one soon after the process is back: in its recovery, or in its first fetches."""
    down_ms = choices.pick((1, 50, 300), "first down")
    again_ms = down_ms + choices.scale(1, 600, "lives for")
    return [
        {"kill": ground.broker(choices), "down": f"{down_ms}ms", "as": "K"},
        {"at": f"+{again_ms}ms", "kill": "K", "down": choices.ms(DOWN_MS, "second down")},
    ]


def _kill_all(ground: Ground, choices: Choices) -> list[Part]:
    return [{"kill": "all", "down": choices.ms(DOWN_MS, "down")}]


def _stop(ground: Ground, choices: Choices) -> list[Part]:
    return [{"stop": ground.node(choices), "down": choices.ms(DOWN_MS, "down")}]


def _roll(ground: Ground, choices: Choices) -> list[Part]:
    """Returns an orderly stop of one broker after the other, as an upgrade makes it."""
    gap, down = choices.ms((100, 600, 1_500), "gap"), choices.ms((1, 300, 800), "down")
    steps: list[Part] = []
    for number in range(1, ground.brokers + 1):
        at: Part = {"at": f"+{gap}"} if steps else {}
        steps.append(at | {"stop": f"broker {number}", "down": down})
    return steps


def _rolling_restart(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a restart of all brokers in turn, of which some wait too short a time for each other."""
    down, patience = choices.ms((1, 300, 1_000), "down"), choices.ms((500, 3_000, 15_000), "patience")
    return [{"rolling_restart": "all", "down": down, "patience": patience}]


def _pause(ground: Ground, choices: Choices) -> list[Part]:
    return [{"pause": ground.node(choices), "for": choices.ms(AWAY_MS, "for")}]


def _kill_client(ground: Ground, choices: Choices) -> list[Part]:
    verb = choices.pick(("kill", "stop"), "verb")
    return [{verb: ground.client(choices), "down": choices.ms(DOWN_MS, "down")}]


def _lonely_client(ground: Ground, choices: Choices) -> list[Part]:
    """Returns brokers that are away as a client starts again, which tries one address after the other then."""
    away_count = choices.between(1, max(1, ground.brokers - 1), "away")
    first = choices.below(ground.brokers, "first")
    away = [1 + (first + index) % ground.brokers for index in range(away_count)]
    kills: list[Part] = [{"kill": f"broker {number}", "down": "2500ms"} for number in away]
    client: Part = {"kill": ground.client(choices), "down": choices.ms((1, 50, 300), "down")}
    return [*kills, {"at": "+50ms"} | client]


def _pause_client(ground: Ground, choices: Choices) -> list[Part]:
    return [{"pause": ground.client(choices), "for": choices.ms(AWAY_MS, "for")}]


def _kill_start(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a death, and another one inside the start after it, in the middle of recovery."""
    change = choices.scale(1, 40, "change")
    return [{"kill_start": ground.broker(choices), "change": change, "down": choices.ms(DOWN_MS[:5], "down")}]


def _slow_cpu(ground: Ground, choices: Choices) -> list[Part]:
    by = f"{choices.scale(100, 10_000, 'by')}us"
    return [{"slow_cpu": ground.node(choices), "by": by, "for": choices.ms(AWAY_MS, "for")}]


def _restart(ground: Ground, choices: Choices) -> list[Part]:
    return [{"restart": f"broker {1 + choices.below(ground.brokers, 'number')}"}]


def _restart_at_the_end(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a restart of all brokers after the other faults: what these have left on the disks is loaded again."""
    if choices.chance(50, "killed"):
        return [{"kill": "all", "down": choices.ms((1, 100), "down")}]
    steps: list[Part] = []
    for number in range(1, ground.brokers + 1):
        at: Part = {"at": "+50ms"} if steps else {}
        steps.append(at | {"stop": f"broker {number}", "down": "1ms"})
    return steps


PROCESSES = (
    Fault(name="kill", family="crash", percent=70, most=4, draw=_kill),
    Fault(name="kill-at-point", family="crash", percent=60, most=3, draw=_kill_at_point),
    Fault(name="kill-inside", family="crash", percent=60, most=3, draw=_kill_inside),
    Fault(name="kill-again", family="crash", percent=35, most=2, draw=_kill_again),
    Fault(name="kill-all", family="crash", percent=15, most=1, draw=_kill_all),
    Fault(name="stop", family="crash", percent=35, most=2, draw=_stop),
    Fault(name="roll", family="crash", percent=12, most=1, draw=_roll),
    Fault(name="pause", family="crash", percent=50, most=3, draw=_pause),
    Fault(name="kill-client", family="client", percent=35, most=2, draw=_kill_client),
    Fault(name="lonely-client", family="client", percent=80, most=1, draw=_lonely_client),
    Fault(name="pause-client", family="client", percent=30, most=2, draw=_pause_client),
    Fault(name="kill-start", family="crash", percent=40, most=2, draw=_kill_start),
    Fault(name="slow-cpu", family="crash", percent=30, most=2, draw=_slow_cpu),
    Fault(name="rolling-restart", family="crash", percent=10, most=1, draw=_rolling_restart),
    Fault(name="restart", family="crash", percent=10, most=1, draw=_restart),
    Fault(
        name="restart-at-the-end",
        family=LAST,
        percent=15,
        most=1,
        draw=_restart_at_the_end,
        lasts_ms=_LAST_RESTART_MS,
    ),
)
