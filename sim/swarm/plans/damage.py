"""Faults of disks that fail calls, and those that take what was synced: the latter in the profile `beyond` alone."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import AWAY_MS, DOWN_MS, DrawFault, Fault, Ground, chain

_SNAPSHOTS = "metadata.log.max.record.bytes.between.snapshots"


def _is_beyond(ground: Ground) -> bool:
    return ground.profile.excuses


def _fail_disk(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a disk that is full, read-only, or that fails reads and writes, for a while."""
    step: Part = {"fail_disk": ground.broker(choices), "for": choices.ms(AWAY_MS, "for")}
    match choices.pick(("full", "full", "read-only", "io", "io"), "error"):
        case "full":
            free = f"{choices.pick((0, 1, 61, 300, 5_000, 60_000), 'free')} B"
            return [step | {"error": "full", "free": free}]
        case "read-only":
            return [step | {"error": "read-only"}]
        case _:
            calls = choices.pick(("reads", "writes", "writes", "syncs", "all"), "calls")
            return [step | {"calls": calls if _is_beyond(ground) or calls == "reads" else "writes"}]


def _fail_controller(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a disk of the controller that takes no writes for a while, or fails as a snapshot is written."""
    # Without this setting, only a buggify point may let the controller write one.
    if choices.chance(60 if _SNAPSHOTS in ground.scenario.cluster.settings else 15, "snapshot"):
        return [{"fail_sync": "controller", "file": "metadata"}]
    step: Part = {"fail_disk": "controller", "for": choices.ms((100, 500, 1_000, 1_800), "for")}
    match choices.pick(("full", "read-only", "io"), "error"):
        case "full":
            return [step | {"error": "full", "free": f"{choices.pick((0, 61, 300, 5_000), 'free')} B"}]
        case "read-only":
            return [step | {"error": "read-only"}]
        case _:
            return [step | {"calls": "writes"}]


def _fail_sync(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a sync that fails, and in half of the seeds a power loss that shows what the disk lacks.

    In some seeds it is one of those with which the broker stops in order.
    """
    cache = choices.pick(("kept", "kept", "dropped"), "page cache")
    sync: Part = {"fail_sync": ground.broker(choices), **_left_by(ground, choices, cache)}
    if choices.chance(40, "as it stops"):
        return _as_it_stops(ground, choices, sync)
    return _with_power_loss(choices, sync, (500, 2_000, 4_000))


def _as_it_stops(ground: Ground, choices: Choices, sync: Part) -> list[Part]:
    """Returns a sync that fails as the broker stops in order, and its next start."""
    stop: Part = {"at": "+1ms", "stop": "S", "down": choices.ms(DOWN_MS, "down for")}
    return [sync | _of_log(ground, choices) | {"down": choices.ms(DOWN_MS, "down"), "as": "S"}, stop]


def _fails_closing(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a log that cannot be closed: its directory is not marked, and the next start recovers all logs of it."""
    cache = choices.pick(("kept", "dropped"), "page cache")
    sync: Part = {"fail_sync": ground.broker(choices), **_left_by(ground, choices, cache)}
    return _as_it_stops(ground, choices, sync)


def _of_log(ground: Ground, choices: Choices) -> Part:
    """Returns whose sync fails, of the end of a log: most of them have none before their broker closes them."""
    if not ground.lasting:
        return {}
    place = ground.partition(choices.within("log"), lasting=True)
    who = choices.pick(("leader", "follower") if ground.replicas(place) > 1 else ("leader",), "whose")
    return {"fail_sync": f"{who}({place})", "log": place}


def _left_by(ground: Ground, choices: Choices, cache: str) -> Part:
    """Returns what a sync that fails leaves: all of it to the next sync, unless losses are excused."""
    if _is_beyond(ground) and choices.chance(75, "clean"):
        return {"page_cache": cache}
    return {"pages": "dirty"}


def _with_power_loss(choices: Choices, sync: Part, gaps_ms: tuple[int, ...]) -> list[Part]:
    """Returns a sync that fails, and in half of the seeds a power loss after one of the gaps."""
    sync |= {"down": choices.ms(DOWN_MS, "down"), "as": "S"}
    if not choices.chance(50, "power"):
        return [sync]
    gap = choices.ms(gaps_ms, "gap")
    return [sync, {"at": f"+{gap}", "power": "S", "keep": "all", "down": choices.ms(DOWN_MS, "up")}]


def _fail_flush(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a flush of a log that fails, of which answers may wait, and in half of the seeds a power loss."""
    name = choices.pick(_flushed(ground), "topic")
    partition = f"{name}/{choices.below(ground.scenario.topics[name].partitions, 'partition')}"
    followers = ("follower",) if ground.replicas(partition) > 1 else ()
    who = choices.pick(("leader", "leader", *followers), "who")
    cache = choices.pick(("kept", "dropped"), "page cache")
    sync: Part = {"fail_sync": f"{who}({partition})", "log": partition, **_left_by(ground, choices, cache)}
    return _with_power_loss(choices, sync, (500, 1_000, 2_000))


def _flushed(ground: Ground) -> tuple[str, ...]:
    """Returns the topics that no step deletes and whose logs are flushed while they are appended to."""
    flushes = ("flush.messages", "flush.ms")
    topics = ground.scenario.topics
    return tuple(name for name in ground.lasting if any(each in topics[name].config for each in flushes))


def _may_fail_flush(ground: Ground) -> bool:
    return bool(_flushed(ground))


def _fail_job(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a sync that fails in a job, of a file that nobody was told of: appends and fetches meet no error."""
    file = choices.pick(("checkpoint", "checkpoint", "snapshot"), "file")
    return [_fail_sync_of(file, ground, choices)]


def _fail_cleaner(ground: Ground, choices: Choices) -> list[Part]:
    return [_fail_sync_of("cleaned", ground, choices)]


def _fail_sync_of(file: str, ground: Ground, choices: Choices) -> Part:
    return {"fail_sync": ground.broker(choices), "file": file, "down": choices.ms(DOWN_MS, "down")}


def _is_compacted(ground: Ground) -> bool:
    """Whether brokers compact logs."""
    return any(map(ground.is_compacted, ground.scenario.topics))


def _lie_syncs(ground: Ground, choices: Choices) -> list[Part]:
    gap = choices.ms((100, 1_000, 3_000), "gap")
    return [
        {"lie_syncs": ground.broker(choices), "for": choices.ms(AWAY_MS, "for"), "as": "S"},
        {"at": f"+{gap}", "power": "S", "keep": "all", "down": choices.ms(DOWN_MS, "down")},
    ]


def _wipe_disk(ground: Ground, choices: Choices) -> list[Part]:
    return [{"wipe_disk": ground.broker(choices), "down": choices.ms(DOWN_MS, "down")}]


def _restore_disk(ground: Ground, choices: Choices) -> list[Part]:
    gap = choices.ms((100, 1_000, 4_000), "gap")
    return [
        {"save_disk": ground.broker(choices), "as": "S"},
        {"at": f"+{gap}", "restore_disk": "S", "down": choices.ms(DOWN_MS, "down")},
    ]


def _rot(ground: Ground, choices: Choices) -> list[Part]:
    """Returns bytes that change at rest, and in half of the seeds a new process that reads what it recovers."""
    files = ("log",) * 12 + ("index",) * 3 + ("epochs", "producers", "checkpoints", "checkpoints")
    step: Part = {
        "rot": ground.broker(choices),
        "file": choices.pick(files, "file"),
        "extent": choices.pick(("bit",) * 12 + ("sector",) * 5 + ("block",) * 3, "extent"),
        "as": "R",
    }
    if choices.chance(50, "kill"):
        gap: Part = {"at": f"+{choices.pick((1, 100, 1_000), 'gap')}ms"}
        return [step, gap | {"kill": "R", "down": choices.ms(DOWN_MS, "down")}]
    return [step]


def _phantom_writes(verb: str) -> DrawFault:
    """Returns how writes that never arrive are drawn, with a power loss in most seeds, which shows it."""

    def draw(ground: Ground, choices: Choices) -> list[Part]:
        share = f"{choices.scale(1, 20, 'share')}%"
        step: Part = {verb: ground.broker(choices), "share": share, "for": choices.ms(AWAY_MS, "for")}
        gap, down = choices.ms((100, 1_000, 3_000), "gap"), choices.ms(DOWN_MS, "down")
        power: Part = {"at": f"+{gap}", "power": "S", "keep": "all", "down": down}
        return [step | {"as": "S"}, *([power] if choices.chance(70, "power") else [])]

    return draw


_lose_writes, _misdirect_writes = _phantom_writes("lose_writes"), _phantom_writes("misdirect_writes")

DAMAGE = (
    Fault(name="fail-disk", family="disk", percent=30, most=2, draw=_fail_disk),
    Fault(name="fail-sync", family="disk", percent=50, most=2, draw=_fail_sync),
    chain("fail-flush", _fail_flush, percent=60, possible=_may_fail_flush),
    chain("fails-closing", _fails_closing),
    Fault(name="fail-job", family="disk", percent=50, most=2, draw=_fail_job),
    Fault(name="fail-controller", family="disk", percent=80, most=2, draw=_fail_controller),
    # Above a hundred, because the shapes that are not about disks take a fifth of it or less.
    Fault(
        name="fail-cleaner", family="disk", percent=150, most=2, draw=_fail_cleaner, is_possible=_is_compacted
    ),
    Fault(name="lie-syncs", family="disk", percent=30, most=1, draw=_lie_syncs, is_possible=_is_beyond),
    Fault(name="wipe-disk", family="disk", percent=40, most=1, draw=_wipe_disk, is_possible=_is_beyond),
    Fault(name="restore-disk", family="disk", percent=40, most=1, draw=_restore_disk, is_possible=_is_beyond),
    Fault(name="rot", family="disk", percent=30, most=3, draw=_rot, is_possible=_is_beyond),
    Fault(name="lose-writes", family="disk", percent=40, most=1, draw=_lose_writes, is_possible=_is_beyond),
    Fault(
        name="misdirect-writes",
        family="disk",
        percent=40,
        most=1,
        draw=_misdirect_writes,
        is_possible=_is_beyond,
    ),
)
