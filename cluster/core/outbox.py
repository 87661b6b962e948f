"""The effects of one step in order, and the handlers that wait for answers, jobs and timers.

The parts of a broker put their effects here; `Broker.step` returns the list at the end of the step.
Calls and jobs are numbered in order, so a run is a function of its events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from storage.values import maker

_send, _reply, _set_timer, _observe = maker(Send), maker(Reply), maker(SetTimer), maker(Observe)

# Takes `now_ms` and the body.
OnAnswer = Callable[[int, ResponseBody | TransportError], None]
# Takes `now_ms` and what the job raised.
OnDone = Callable[[int, Exception | None], None]
# Takes `now_ms`.
OnTime = Callable[[int], None]


@final
class Outbox:
    """Collects effects, and holds one handler for each call, job and timer.

    A handler is forgotten when it is called; an event without a handler is dropped.
    """

    def __init__(self) -> None:
        # What the observations rest on: the offset of the image that the broker acts on.
        self.metadata_offset = -1
        # The kinds of observations that nobody is to see: they are not made.
        self.hidden: frozenset[str] = frozenset()
        self._effects: list[Effect] = []
        self._next_call = 0
        self._next_job = 0
        self._answers: dict[int, OnAnswer] = {}
        self._jobs: dict[int, OnDone] = {}
        # What jobs have raised of whose end no handler has heard yet.
        self._unheard: dict[int, Exception] = {}
        self._timers: dict[str, OnTime] = {}

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def send(self, to: int, body: RequestBody, *, timeout_ms: int, then: OnAnswer) -> int:
        """Sends `body` to node `to`; `then` is called with the answer, exactly once. Returns the number of the call."""
        assert timeout_ms > 0, (to, timeout_ms)
        self._next_call += 1
        assert self._next_call not in self._answers, self._next_call
        self._answers[self._next_call] = then
        self._effects.append(_send(to=to, call=self._next_call, body=body, timeout_ms=timeout_ms))
        return self._next_call

    def reply(self, call: int, body: ResponseBody) -> None:
        self._effects.append(_reply(call=call, body=body))

    def set_timer(self, key: str, at_ms: int, then: OnTime) -> None:
        """Calls `then` at `at_ms` or soon after. Replaces a pending timer of the same key."""
        self._timers[key] = then
        self._effects.append(_set_timer(key=key, at_ms=at_ms))

    def cancel_timer(self, key: str) -> None:
        if self._timers.pop(key, None) is not None:
            self._effects.append(CancelTimer(key=key))

    def run_job(self, kind: str, work: Callable[[], None], then: OnDone) -> int:
        """Runs `work` off the step thread after all earlier jobs, then calls `then`. Returns the number of the job."""
        self._next_job += 1
        assert self._next_job not in self._jobs, self._next_job
        self._jobs[self._next_job] = then
        # A job without a handler has ended.
        assert len(self._jobs) <= self._next_job, (len(self._jobs), self._next_job)
        self._effects.append(
            RunJob(job=self._next_job, kind=kind, work=partial(self._work, self._next_job, work))
        )
        return self._next_job

    def _work(self, job: int, work: Callable[[], None]) -> None:
        """Does the work of a job, in the job."""
        try:
            work()
        except Exception as error:
            self._unheard[job] = error
            raise

    def unheard(self) -> list[Exception]:
        """Returns what jobs have raised of which no handler has heard, in their order. A job may ask, too."""
        return [self._unheard[job] for job in sorted(self._unheard)]

    def learn_endpoint(self, node_id: int, host: str, port: int) -> None:
        self._effects.append(LearnEndpoint(node_id=node_id, host=host, port=port))

    def observe(self, kind: str, **values: int | str) -> None:
        """Reports `kind` with its values, unless nobody is to see it."""
        if kind in self.hidden:
            return
        self._effects.append(
            _observe(kind=kind, fields=tuple(values.items()), metadata_offset=self.metadata_offset)
        )

    def stop(self, reason: str) -> None:
        self._effects.append(Stop(reason=reason))

    def on_response(self, now_ms: int, response: Response) -> None:
        then = self._answers.pop(response.call, None)
        if then is not None:
            then(now_ms, response.body)

    def on_job_done(self, now_ms: int, done: JobDone) -> None:
        then = self._jobs.pop(done.job, None)
        if then is not None:
            self._unheard.pop(done.job, None)
            then(now_ms, done.error)

    def on_timer(self, now_ms: int, key: str) -> None:
        then = self._timers.pop(key, None)
        if then is not None:
            then(now_ms)

    def forget_all(self) -> None:
        """Forgets all handlers, because the broker is ending: what comes later is dropped."""
        self._answers.clear()
        self._jobs.clear()
        self._timers.clear()
