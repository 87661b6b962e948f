"""Runs a core on asyncio: the clock, timers, jobs and sends of the real world around `start` and `step`.

Every call of the core is made on the loop's thread, one event at a time, never from inside a step. Jobs run on one
other thread. An exception from the core ends the node, because the core's state is not known any more.
"""

from __future__ import annotations

# First, because gRPC reads its settings when it is imported.
# isort: off
from cluster.shell import engine  # noqa: F401

# isort: on
import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, Protocol, final, runtime_checkable

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
from cluster.core.messages import RequestBody, ResponseBody
from cluster.shell.transport import Address, Answers, Peers
from storage.values import maker

logger = logging.getLogger(__name__)

_request, _response = maker(Request), maker(Response)

Answer = Callable[[ResponseBody], None]
# These come once for each batch and would drown the log lines on roles, truncations and faults.
_FREQUENT = frozenset({"replica.appended", "replica.high_watermark", "produce.acknowledged"})
# A wall clock that falls behind by more has been set back.
SET_BACK_S = 1.0


# An entry of a core takes `now_ms` and returns effects.
Entry = Callable[[int], Iterable[Effect | object]]


class Core(Protocol):
    """A core as the runtime sees it. A client's core also returns notices for its user, which go to `notify`."""

    def step(self, now_ms: int, event: Event) -> Sequence[Effect | object]: ...


@runtime_checkable
class ManyStepping(Protocol):
    """A core that takes several events in one step, and handles their common consequences once."""

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[Effect | object]: ...


@runtime_checkable
class Forgetting(Protocol):
    """A core with requests that wait in it, which it can drop when their sender has left."""

    def forget(self, call: int) -> None: ...


@final
class Clock:
    """Milliseconds since the Unix epoch that never decrease: the wall clock's, unless it was set back.

    A wall clock that is set ahead is followed: so late a machine learns the time after it has booted, or slept, which
    the loop's clock does not count. One that is set back is not: until it has caught up, the loop's clock counts on.
    """

    __slots__ = ("_ahead_s", "_loop_s", "_wall_ahead_s", "_wall_s")

    def __init__(self, loop_s: Callable[[], float], wall_s: Callable[[], float] = time.time) -> None:
        """`loop_s` and `wall_s` return seconds: the loop's clock, which never falls, and those since the Unix epoch."""
        self._loop_s, self._wall_s = loop_s, wall_s
        # How far this clock is ahead of the loop's, and how far the wall clock is, as of its last step.
        self._ahead_s = self._wall_ahead_s = wall_s() - loop_s()

    def now_ms(self) -> int:
        """Returns the time, which is never behind the wall clock, and logs once where that has fallen behind."""
        # The wall clock is read first: a thread that has to wait between the two must not count the wait twice.
        wall_s = self._wall_s()
        loop_s = self._loop_s()
        ahead_s = wall_s - loop_s
        if ahead_s > self._wall_ahead_s:
            self._wall_ahead_s = ahead_s
            if ahead_s > self._ahead_s:
                self._ahead_s = ahead_s
        elif ahead_s < self._wall_ahead_s - SET_BACK_S:
            self._on_behind()
        # Neither of the two ever falls, so their sum does not.
        return int((self._ahead_s + loop_s) * 1000)

    def loop_time(self, at_ms: int) -> float:
        """Returns the time of the loop's clock, in seconds, at which `now_ms` has certainly reached `at_ms`.

        After a step ahead `now_ms` reaches it earlier.
        """
        return (at_ms + 1) / 1000 - self._ahead_s

    def _on_behind(self) -> None:
        """Logs that the wall clock was set back, unless only this process stood still between two readings."""
        ahead_s = self._wall_s() - self._loop_s()
        if ahead_s < self._wall_ahead_s - SET_BACK_S:
            self._wall_ahead_s = ahead_s
            behind_ms = round((self._ahead_s - ahead_s) * 1000)
            logger.warning("wall clock set back: the time of this process goes on behind_ms=%d", behind_ms)


@final
class Timers:
    """Named timers on the loop; setting a name again replaces its timer."""

    def __init__(self, clock: Clock, fire: Callable[[str], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._loop = asyncio.get_running_loop()
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, key: str, at_ms: int) -> None:
        self.cancel(key)
        self._handles[key] = self._loop.call_at(self._clock.loop_time(at_ms), self._on_time, key)

    def cancel(self, key: str) -> None:
        if handle := self._handles.pop(key, None):
            handle.cancel()

    def cancel_all(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _on_time(self, key: str) -> None:
        del self._handles[key]
        self._fire(key)


@final
class Runtime:
    """Runs one core until it stops: call `start` once, `ask` for each incoming request, `shut_down`, then `close`."""

    def __init__(
        self,
        core: Core,
        *,
        bootstrap: Sequence[Address] = (),
        observe: Callable[[Observe], None] | None = None,
        notify: Callable[[object], None] | None = None,
    ) -> None:
        self._core = core
        # The check is made once, because a check against a protocol costs more than a small step.
        self._many: ManyStepping | None = core if isinstance(core, ManyStepping) else None
        self._forgetting: Forgetting | None = core if isinstance(core, Forgetting) else None
        self._loop = asyncio.get_running_loop()
        self.clock = Clock(self._loop.time)
        self.peers = Peers(self._on_answers, bootstrap=bootstrap)
        self.stopped: asyncio.Future[Stop] = self._loop.create_future()
        self._timers = Timers(self.clock, self._on_timer)
        self._jobs = ThreadPoolExecutor(max_workers=1, thread_name_prefix="jobs")
        self._answers: dict[int, Answer] = {}
        self._arrived: list[Request] = []
        self._calls = 0
        # Is called after the requests of a turn were passed to the core.
        self.after_turn: Callable[[], None] = _do_nothing
        self.started = asyncio.Event()
        self._observe = observe or log_observation
        self._notify = notify or _refuse

    def start(self, entry: Entry | None = None) -> None:
        """Runs the core's own `start`, if it has one. Raises what `start` raises: the node cannot start then."""
        assert not self.started.is_set(), "started twice"
        for effect in entry(self.clock.now_ms()) if entry is not None else ():
            self._carry_out(effect)
        self.started.set()

    def feed(self, event: Event) -> None:
        """Runs one step and carries out its effects, after all requests that arrived before. Ignored once stopped."""
        self._drain()
        self._step(event)

    def _step(self, event: Event) -> None:
        self.run(lambda now_ms: self._core.step(now_ms, event))

    def ask(self, body: RequestBody, answer: Answer) -> int:
        """Passes a request from outside to the core and returns its call number.

        `answer` is called at most once, and never after the core has stopped.
        """
        self._calls += 1
        call = self._calls
        assert call not in self._answers, call
        self._answers[call] = answer
        self._arrive(_request(call=call, body=body))
        return call

    def ask_without_reply(self, body: RequestBody) -> None:
        """Passes a produce request with acks=0 to the core, which sends no reply to it."""
        self._calls += 1
        self._arrive(Request(call=self._calls, body=body))

    def _arrive(self, request: Request) -> None:
        """Collects the requests of two turns of the loop, to pass them to the core in one step if it takes several.

        The streams are read one turn apart. Waiting for the second turn merges their requests into one step and the
        answers into one message per stream. It saves a third of the CPU time per batch under load, and costs tens of
        microseconds at rest.
        """
        if not self._arrived:
            self._loop.call_soon(self._loop.call_soon, self._drain)
        self._arrived.append(request)

    def _drain(self) -> None:
        if not self._arrived:
            return
        arrived, self._arrived = self._arrived, []
        # Every request that has a number is in its turn, in the order of the numbers.
        last = arrived[-1].call
        assert last == self._calls, (last, self._calls)
        assert last - arrived[0].call == len(arrived) - 1, (arrived[0].call, last, len(arrived))
        self._step_all(arrived)
        self.after_turn()

    def _step_all(self, events: Sequence[Event]) -> None:
        """Passes events that arrived together to the core, in one step if it takes several."""
        if (core := self._many) is not None:
            self.run(lambda now_ms: core.steps(now_ms, events))
        else:
            for event in events:
                self._step(event)

    def forget(self, call: int) -> None:
        """Drops the core's reply to `call`, because its caller has left, and what waits for it in the core."""
        core = self._forgetting
        if self._answers.pop(call, None) is None or core is None:
            return
        # A request that arrived a moment ago would be parked after it was forgotten.
        self._drain()

        def tell(_: int) -> tuple[()]:
            core.forget(call)
            return ()

        # The step before may have ended the core.
        self.run(tell)

    def shut_down(self) -> None:
        self.feed(Shutdown())

    async def close(self) -> None:
        """Stops the runtime: waits for the jobs, closes the peers, and never calls the core again."""
        self._stop(Stop(reason="closed"))
        await self._loop.run_in_executor(None, self._jobs.shutdown)
        await self.peers.close()

    def run(self, advance: Entry) -> None:
        """Calls an entry of the core, such as a client's `send`, and carries out its effects. Ignored once stopped."""
        if self.stopped.done():
            return
        try:
            for effect in advance(self.clock.now_ms()):
                self._carry_out(effect)
        except Exception as error:
            logger.exception("the core failed")
            self._stop(Stop(reason=f"{type(error).__name__}: {error}"))

    def _carry_out(self, effect: Effect | object) -> None:
        match effect:
            case Send():
                self.peers.send(effect)
            case Reply():
                if answer := self._answers.pop(effect.call, None):
                    answer(effect.body)
            case Observe():
                self._observe(effect)
            case SetTimer():
                self._timers.set(effect.key, effect.at_ms)
            case CancelTimer():
                self._timers.cancel(effect.key)
            case RunJob():
                self._run_job(effect)
            case LearnEndpoint():
                self.peers.learn(effect.node_id, effect.host, effect.port)
            case Stop():
                self._stop(effect)
            case _:
                self._notify(effect)

    def _run_job(self, effect: RunJob) -> None:
        future = self._jobs.submit(effect.work)
        job = effect.job
        future.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_job_done, job, done.exception())
        )

    def _on_job_done(self, job: int, error: BaseException | None) -> None:
        if error is None or isinstance(error, Exception):
            self.feed(JobDone(job=job, error=error))
        else:
            self._stop(Stop(reason=f"a job raised {error!r}"))

    def _on_answers(self, answers: Answers) -> None:
        """Passes the answers of one frame to the core, after all requests that arrived before."""
        self._drain()
        self._step_all([_response(call=call, body=body) for call, body in answers])

    def _on_timer(self, key: str) -> None:
        self.feed(TimerFired(key=key))

    def _stop(self, effect: Stop) -> None:
        if self.stopped.done():
            return
        self._timers.cancel_all()
        self._answers.clear()
        self.stopped.set_result(effect)


def _do_nothing() -> None:
    """Waits for no turn."""


def _refuse(effect: object) -> NoReturn:
    raise TypeError(f"no shell carries out {effect!r}")


def unlogged_observations() -> frozenset[str]:
    """Returns the kinds that `log_observation` does not log now: a core need not make them for it."""
    return frozenset() if logger.isEnabledFor(logging.DEBUG) else _FREQUENT


def log_observation(effect: Observe) -> None:
    """Logs an observation of the core as one line; those that come with each batch at DEBUG, others at INFO."""
    level = logging.DEBUG if effect.kind in _FREQUENT else logging.INFO
    if logger.isEnabledFor(level):
        fields = " ".join(f"{name}={value}" for name, value in effect.fields)
        if effect.metadata_offset >= 0:
            fields += f" metadata_offset={effect.metadata_offset}"
        logger.log(level, "%s %s", effect.kind, fields)
