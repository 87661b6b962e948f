"""The sessions of brokers: who sends heartbeats in time is not fenced or replaced, and is told what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from cluster.core.metadata.image import BrokerRegistration, MetadataImage
from sim.checkers.base import Jury
from sim.checkers.shutdowns import is_refused, is_signed


class Expected(NamedTuple):
    """What the answer to a heartbeat has to say, by the metadata after the step that has decided on it."""

    is_fenced: bool
    is_caught_up: bool
    should_shut_down: bool


@final
class BrokerSessions:
    """Judges each step of the controller by the brokers before and after it (BRK-3, BRK-4, BRK-9).

    A broker that is unfenced stays so, in the same life, for the session time-out from its last heartbeat on, unless it
    asks for its fence or its stop. One that wants to stay fenced is not unfenced (BRK-2), nor is one that is fenced and
    wants to stop: nothing holds it up. The answer to a heartbeat says what the step has decided.
    """

    name = "broker-sessions"

    def __init__(self, jury: Jury, timeout_ms: int) -> None:
        self._jury, self._timeout_ms = jury, timeout_ms
        # The end of the metadata and the brokers after the last step; None in a life that has had no step.
        self._end_offset = -1
        self._brokers: Mapping[int, BrokerRegistration] | None = None
        # The controller's time of the last heartbeat of each broker, by broker id and epoch.
        self._heard_ms: dict[tuple[int, int], int] = {}
        # What was decided on heartbeats whose answers wait for the disk, by call.
        self._expected: dict[int, Expected] = {}

    def on_died(self) -> None:
        """Receives the end of the controller's process; the next one begins each session again, with its full time."""
        self._end_offset, self._brokers = -1, None
        self._heard_ms.clear()
        self._expected.clear()

    def on_step(
        self, now_ms: int, events: Sequence[Event], effects: Sequence[object], image: MetadataImage
    ) -> None:
        """Receives a step of the controller; `image` has all that it has decided, durable or not."""
        if image.next_offset < self._end_offset:
            # A disk that fails ends the controller, and drops what was not durable.
            self.on_died()
        event = events[0]
        beat = (
            event.body if type(event) is Request and isinstance(event.body, BrokerHeartbeatRequest) else None
        )
        before = self._brokers
        if before is not None and image.brokers is not before:
            self._judge(now_ms, before, image.brokers, beat)
        self._end_offset, self._brokers = image.next_offset, image.brokers
        if (
            beat is not None
            and type(event) is Request
            and is_signed(beat, image)
            and not is_refused(event.call, effects)
        ):
            self._on_heartbeat(now_ms, event.call, beat, image.brokers[beat.broker_id], before)
        if self._expected:
            for effect in effects:
                if type(effect) is Reply and isinstance(effect.body, BrokerHeartbeatResponse):
                    self._on_answer(effect.call, effect.body)

    def _judge(
        self,
        now_ms: int,
        before: Mapping[int, BrokerRegistration],
        after: Mapping[int, BrokerRegistration],
        beat: BrokerHeartbeatRequest | None,
    ) -> None:
        for number, known in before.items():
            present = after[number]
            is_replaced = present.broker_epoch != known.broker_epoch
            if known.fenced or not (is_replaced or present.fenced):
                continue
            if beat is not None and beat.broker_id == number and _is_leaving(beat, known):
                continue
            heard_ms = self._heard_ms.get((number, known.broker_epoch))
            if heard_ms is not None and now_ms - heard_ms <= self._timeout_ms:
                how = "replaced" if is_replaced else "fenced"
                self._report(
                    number, known.broker_epoch, f"was {how} {now_ms - heard_ms} ms after a heartbeat"
                )

    def _on_heartbeat(
        self, now_ms: int, call: int, beat: BrokerHeartbeatRequest, broker: BrokerRegistration,
        before: Mapping[int, BrokerRegistration] | None,
    ) -> None:  # fmt: skip
        self._heard_ms[broker.broker_id, broker.broker_epoch] = now_ms
        if beat.want_fence and not broker.fenced:
            what = "asks for its fence, and is unfenced"
            self._jury.report(self.name, f"broker {broker.broker_id} in epoch {broker.broker_epoch} {what}")
        if before is None:
            return
        known = before[broker.broker_id]
        if known.fenced and beat.want_shutdown and not broker.fenced:
            what = "is fenced, asks for its stop, and is unfenced"
            self._jury.report(self.name, f"broker {broker.broker_id} in epoch {broker.broker_epoch} {what}")
        # One that stops is let go by any heartbeat, also by one that it sent before it was asked to stop.
        goes_on = known.in_controlled_shutdown and not known.fenced and not beat.want_fence
        self._expected[call] = Expected(
            is_fenced=broker.fenced,
            is_caught_up=beat.metadata_offset > beat.broker_epoch,
            should_shut_down=broker.fenced and (beat.want_shutdown or goes_on),
        )

    def _on_answer(self, call: int, body: BrokerHeartbeatResponse) -> None:
        expected = self._expected.pop(call, None)
        if expected is None or body.error is not ErrorCode.NONE:
            return
        found = Expected(body.is_fenced, body.is_caught_up, body.should_shut_down)
        if found != expected:
            self._jury.report(self.name, f"a heartbeat was answered with {found}; decided was {expected}")

    def _report(self, broker: int, epoch: int, what: str) -> None:
        text = f"broker {broker} in epoch {epoch} {what}, the time-out is {self._timeout_ms} ms"
        self._jury.report(self.name, text)


def _is_leaving(beat: BrokerHeartbeatRequest, known: BrokerRegistration) -> bool:
    """Whether the broker asks for its fence or its stop, or has asked for its stop before."""
    return beat.want_fence or beat.want_shutdown or known.in_controlled_shutdown
