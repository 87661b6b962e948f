"""One process: a broker, a controller, or both, with one `start` and one `step`.

Broker and controller each number their own calls and jobs, and name their own timers. The node keeps them apart: even
numbers, and timers with a prefix, are the controller's. A request from one to the other never leaves the process.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import assert_never, final

from cluster.core.broker.broker import Broker
from cluster.core.controller.controller import Controller
from cluster.core.effects import (
    CancelTimer,
    Effect,
    LearnEndpoint,
    Observe,
    Reply,
    RunJob,
    Send,
    SetTimer,
    Stop,
)
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    RegisterBrokerRequest,
    RequestBody,
)

CONTROLLER_TIMERS = "controller/"
_CONTROLLER_BODIES = (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    RegisterBrokerRequest,
)
# A call of the broker in the same process reaches the controller with this number minus its own: below 0, and so
# different from the calls of the shell.
LOCAL_CALLS = -1


@final
class Node:
    """Runs a broker, a controller, or both. On shutdown the broker stops first: it needs the controller to leave."""

    def __init__(self, *, broker: Broker | None = None, controller: Controller | None = None) -> None:
        assert broker is not None or controller is not None
        self.broker = broker
        self.controller = controller
        # Events from broker to controller and back that are not handled yet; True marks those for the controller.
        self._local: deque[tuple[bool, Event]] = deque()
        self._now_ms = 0

    def start(self, now_ms: int) -> list[Effect]:
        """Starts the controller, then the broker. Raises what their `start` raises."""
        assert not self._local, self._local
        self._now_ms = now_ms
        effects: list[Effect] = []
        if self.controller is not None:
            effects += self._outward(self.controller.start(now_ms), is_controller=True)
        if self.broker is not None:
            effects += self._outward(self.broker.start(now_ms), is_controller=False)
        effects += self._run_local()
        assert not self._local, self._local
        return effects

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        self._now_ms = now_ms
        is_controller, inner = self._inward(event)
        effects = self._feed(is_controller, inner)
        return [*effects, *self._run_local()]

    def forget(self, call: int) -> None:
        """Drops what waits for a client that has left. Only one of both cores knows the call."""
        for core in (self.broker, self.controller):
            if core is not None:
                core.forget(call)

    def _feed(self, is_controller: bool, event: Event) -> list[Effect]:
        core = self.controller if is_controller else self.broker
        assert core is not None, event
        return self._outward(core.step(self._now_ms, event), is_controller=is_controller)

    def _run_local(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._local:
            effects += self._feed(*self._local.popleft())
        return effects

    def _inward(self, event: Event) -> tuple[bool, Event]:
        if self.broker is None or self.controller is None:
            return self.broker is None, event
        match event:
            case Request(body=body):
                return self.is_for_controller(body), event
            case Response(call=call):
                return call % 2 == 0, replace(event, call=call // 2)
            case JobDone(job=job):
                return job % 2 == 0, replace(event, job=job // 2)
            case TimerFired(key=key) if key.startswith(CONTROLLER_TIMERS):
                return True, TimerFired(key=key.removeprefix(CONTROLLER_TIMERS))
            case TimerFired() | Shutdown():
                return False, event
            case _:
                assert_never(event)

    def is_for_controller(self, body: RequestBody) -> bool:
        return isinstance(body, _CONTROLLER_BODIES)

    def _outward(self, effects: list[Effect], *, is_controller: bool) -> list[Effect]:
        if self.broker is None or self.controller is None:
            return effects
        translated = (self._translate(effect, is_controller) for effect in effects)
        return [effect for effect in translated if effect is not None]

    def _translate(self, effect: Effect, is_controller: bool) -> Effect | None:
        assert self.controller is not None
        match effect:
            case Send(to=to) if not is_controller and to == self.controller.node_id:
                assert effect.call > 0, effect
                self._local.append((True, Request(call=LOCAL_CALLS - effect.call, body=effect.body)))
                return None
            case Send():
                return replace(effect, call=self._number(effect.call, is_controller))
            case Reply(call=call) if is_controller and call < 0:
                self._local.append((False, Response(call=LOCAL_CALLS - call, body=effect.body)))
                return None
            case RunJob():
                return replace(effect, job=self._number(effect.job, is_controller))
            case SetTimer() | CancelTimer():
                return replace(effect, key=CONTROLLER_TIMERS + effect.key) if is_controller else effect
            case Stop(reason="shutdown") if not is_controller:
                # The broker has left the cluster, so the controller may stop too.
                self._local.append((True, Shutdown()))
                return None
            case Reply() | LearnEndpoint() | Observe() | Stop():
                return effect
            case _:
                assert_never(effect)

    def _number(self, number: int, is_controller: bool) -> int:
        return 2 * number if is_controller else 2 * number + 1
