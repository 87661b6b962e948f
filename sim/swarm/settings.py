"""Draws the settings of brokers and controller: times, and the limits at which they split, wait or refuse."""

from __future__ import annotations

from sim.scenario.settings import SETTINGS
from sim.swarm.choices import Choices

_KIB = 1 << 10


def draw_settings(choices: Choices) -> dict[str, int]:
    """Returns the properties that differ from the simulator's defaults; pairs of them agree with each other."""
    settings = {
        # In a run of seconds these tasks would otherwise never happen.
        "log.cleaner.backoff.ms": choices.scale(100, 2_000, "cleaner backoff"),
        "log.initial.task.delay.ms": choices.scale(100, 2_000, "initial task delay"),
        "log.retention.check.interval.ms": choices.scale(200, 2_000, "retention check"),
    }
    for percent, name, low, high in _LIMITS:
        if choices.chance(percent, f"has {name}"):
            settings[name] = choices.scale(low, high, name)
    return settings | _times(choices.within("times"))


# How often a limit is drawn, and from where to where.
_LIMITS = (
    (30, "replica.fetch.max.bytes", 200, 1_024 * _KIB),
    (30, "replica.fetch.response.max.bytes", 1 * _KIB, 1_024 * _KIB),
    (15, "replica.fetch.min.bytes", 1, 4 * _KIB),
    (20, "fetch.max.bytes", 1 * _KIB, 1_024 * _KIB),
    (30, "max.fetch.wait.ms", 50, 1_000),
    # With the high watermarks the starts of logs are written, which are soon those of their files again.
    (60, "replica.high.watermark.checkpoint.interval.ms", 100, 5_000),
    # A checkpoint is to be older than a truncation, and younger than a flush of what that takes.
    (70, "log.flush.offset.checkpoint.interval.ms", 50, 4_000),
    (40, "log.flush.start.offset.checkpoint.interval.ms", 100, 12_000),
    # Without it no topic is flushed by its time, and no log is cut while a flush of it is under way.
    (60, "log.flush.scheduler.interval.ms", 50, 2_000),
    (60, "controller.quorum.fetch.max.bytes", 500, 8 * _KIB),
    (35, "metadata.log.max.record.bytes.between.snapshots", 200, 8 * _KIB),
    (90, "metadata.max.batch.bytes", 4 * _KIB, 8 * _KIB),
    (15, "producer.id.block.size", 1, 1_000),
    (30, "controlled.shutdown.timeout.ms", 500, 8_000),
    (15, "producer.id.expiration.check.interval.ms", 200, 5_000),
    # Calls to one controller have time-outs that differ, so that a later call may be overdue before an earlier one.
    (40, "controller.socket.timeout.ms", 400, 3_000),
    (30, "replica.socket.timeout.ms", 900, 3_000),
)


def _times(choices: Choices) -> dict[str, int]:
    """Returns the times of sessions and of the in-sync set: short ones make elections, long ones make waiting."""
    times: dict[str, int] = {}
    if choices.chance(40, "session"):
        session_ms = choices.scale(900, 4_000, "session timeout")
        times["broker.session.timeout.ms"] = session_ms
        times["broker.heartbeat.interval.ms"] = session_ms // choices.pick((3, 4, 6), "heartbeats")
    # Who does not fetch is in sync for one and a half of these times, which is longer than most seeds with the default.
    if choices.chance(75, "lag"):
        times["replica.lag.time.max.ms"] = choices.scale(600, 4_000, "lag time")
    # Where fetches wait longer, fewer of them wait in vain, and a seed costs less.
    if choices.chance(70, "fetch wait"):
        # Not above the lag time, or an idle follower would leave the ISR.
        most_ms = times.get("replica.lag.time.max.ms", SETTINGS["replica.lag.time.max.ms"]) // 2
        times["replica.fetch.wait.max.ms"] = choices.scale(40, min(most_ms, 700), "fetch wait time")
    return times
