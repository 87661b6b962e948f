"""The high watermarks that leaders state in answers, and those that logs begin a life with."""

from __future__ import annotations

from typing import NamedTuple, final

from sim.checkers.base import Jury

STATED = "stated-marks"
LOADED = "loaded-marks"


class _Seen(NamedTuple):
    """The high watermarks of a leader in one epoch of one life of a topic, that of `replica`, which never fall (HWM-3).

    `latest` was seen at `at_us`, `before` is the last one of an earlier moment.
    """

    epoch: int
    replica: object
    before: int
    latest: int
    at_us: int


@final
class StatedMarks:
    """A leader states its high watermark in each answer to a fetch: as it was at some moment of the step (LED-5).

    Followers commit by it, and hand it on when they lead; consumers read up to it.
    """

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._seen: dict[tuple[int, str], _Seen] = {}

    def on_answer(
        self, broker: int, replica: object, partition: str, epoch: int, stated: int, high_watermark: int
    ) -> None:
        """Receives what an answer states, as it leaves the leader, and the leader's high watermark then."""
        now_us, seen = self._jury.now_us(), self._seen.get((broker, partition))
        if seen is None or seen.epoch != epoch or seen.replica is not replica:
            seen = _Seen(epoch, replica, 0, high_watermark, now_us)
        elif now_us > seen.at_us:
            seen = _Seen(epoch, replica, seen.latest, high_watermark, now_us)
        else:
            seen = seen._replace(latest=high_watermark)
        self._seen[broker, partition] = seen
        if not seen.before <= stated <= high_watermark:
            what = f"states high watermark {stated}; it was {seen.before} before, and is {high_watermark}"
            self._jury.report(STATED, f"{partition}: broker {broker} {what}")


@final
class LoadedMarks:
    """A log begins with the high watermark of its checkpoint, or at its start or end where that is beyond (HWM-8).

    A leader of too few replicas may not raise it: consumers would not read again what they have read.
    """

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By broker and partition: the checkpoint that a start has found, until the first role.
        self._checkpoints: dict[tuple[int, str], int] = {}

    def on_loaded(self, broker: int, partition: str, checkpoint: int) -> None:
        """Receives a log that a start has opened, and what the checkpoint of high watermarks says of it, or -1."""
        self._checkpoints[broker, partition] = checkpoint

    def on_ended(self, broker: int) -> None:
        """Receives the end of a broker's process, of which the next start knows nothing."""
        for key in [each for each in self._checkpoints if each[0] == broker]:
            del self._checkpoints[key]

    def on_role(self, broker: int, partition: str, high_watermark: int, log_end: int) -> None:
        """Receives the marks of a replica after the step in which a role of it has begun."""
        checkpoint = self._checkpoints.pop((broker, partition), -1)
        if high_watermark < min(checkpoint, log_end):
            what = f"begins with high watermark {high_watermark} and log end {log_end}; its checkpoint has {checkpoint}"
            self._jury.report(LOADED, f"{partition}: broker {broker} {what}")
