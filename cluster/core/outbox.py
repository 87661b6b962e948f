"""What one step asks of its shell, in order, and who waits for which answer.

The parts of a broker put their effects here; `Broker.step` hands the list out when the step has ended.
Calls and jobs are numbered in order, so a run is a function of its events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

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
from cluster.core.events import JobDone, Response, TransportError
from cluster.core.messages import RequestBody, ResponseBody

# Takes `now_ms` and the body.
OnAnswer = Callable[[int, ResponseBody | TransportError], None]
# Takes `now_ms` and what the job raised.
OnDone = Callable[[int, Exception | None], None]
# Takes `now_ms`.
OnTime = Callable[[int], None]


@final
class Outbox:
    """A handler is forgotten when it is called; an answer that nobody waits for is dropped."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._next_call = 0
        self._next_job = 0
        self._answers: dict[int, OnAnswer] = {}
        self._jobs: dict[int, OnDone] = {}
        self._timers: dict[str, OnTime] = {}

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def send(self, to: int, body: RequestBody, *, timeout_ms: int, then: OnAnswer) -> int:
        """`then` is called exactly once in this life; returns the number of the call."""
        self._next_call += 1
        self._answers[self._next_call] = then
        self._effects.append(Send(to=to, call=self._next_call, body=body, timeout_ms=timeout_ms))
        return self._next_call

    def reply(self, call: int, body: ResponseBody) -> None:
        self._effects.append(Reply(call=call, body=body))

    def set_timer(self, key: str, at_ms: int, then: OnTime) -> None:
        """Replaces a pending timer of the same key."""
        self._timers[key] = then
        self._effects.append(SetTimer(key=key, at_ms=at_ms))

    def cancel_timer(self, key: str) -> None:
        if self._timers.pop(key, None) is not None:
            self._effects.append(CancelTimer(key=key))

    def run_job(self, kind: str, work: Callable[[], None], then: OnDone) -> int:
        """Jobs run one at a time in the order of asking."""
        self._next_job += 1
        self._jobs[self._next_job] = then
        self._effects.append(RunJob(job=self._next_job, kind=kind, work=work))
        return self._next_job

    def learn_endpoint(self, node_id: int, host: str, port: int) -> None:
        self._effects.append(LearnEndpoint(node_id=node_id, host=host, port=port))

    def observe(self, kind: str, **values: int | str) -> None:
        self._effects.append(Observe(kind=kind, fields=tuple(values.items())))

    def stop(self, reason: str) -> None:
        self._effects.append(Stop(reason=reason))

    def on_response(self, now_ms: int, response: Response) -> None:
        then = self._answers.pop(response.call, None)
        if then is not None:
            then(now_ms, response.body)

    def on_job_done(self, now_ms: int, done: JobDone) -> None:
        then = self._jobs.pop(done.job, None)
        if then is not None:
            then(now_ms, done.error)

    def on_timer(self, now_ms: int, key: str) -> None:
        then = self._timers.pop(key, None)
        if then is not None:
            then(now_ms)

    def forget_all(self) -> None:
        """Nobody waits any more: the broker is ending."""
        self._answers.clear()
        self._jobs.clear()
        self._timers.clear()
