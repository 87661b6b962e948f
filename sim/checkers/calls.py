"""The calls between nodes and clients, watched at both ends: what a connection promises to the cores on both sides."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, final

from cluster.core.connection.codec import STREAM_REQUESTS
from cluster.core.connection.outgoing import Answer
from cluster.core.effects import Send
from cluster.core.events import TransportError
from cluster.core.messages import RequestBody, ResponseBody
from cluster.shell.streams import CODEC
from sim.checkers.base import Jury
from sim.hosts.outbound import ENDED_BY_PEER
from sim.hosts.shell import Shell
from sim.world.network import BREAK_US, Transport
from sim.world.packets import Exchange

# How long calls fail at once after a failed attempt to connect: the first time, and at most. It grows by 1.6.
FIRST_WAIT_US, MOST_WAIT_US = 50_000, 1_000_000
# Clocks of nodes run at different speeds, and count whole milliseconds.
SLACK_US = 30_000
# Why calls fail whose node was not reached, and those after them that nobody tries to send.
_NOT_REACHED = ("connection refused", "connection timed out", "connection broken")
# How much later than its time-out a call may end: what a clock may lag, in hundredths of it, and a busy process.
LATE_PERCENT, LATE_US = 10, 500_000


class Sent(NamedTuple):
    """A call on its way."""

    target: int
    sent_us: int
    # None for a unary call.
    stream: Stream | None
    expects_reply: bool
    timeout_us: int


# In the place of a call without a reply that has reached the other core.
_ARRIVED = Sent(target=-1, sent_us=-1, stream=None, expects_reply=False, timeout_us=0)


@final
@dataclass(slots=True, eq=False)
class Stream:
    """One stream from its first call until a call on it has failed, as both cores see it."""

    life_number: int
    # The calls that have not reached the other core, and the answers that have not come back, in order.
    asked: deque[tuple[int, int, RequestBody]] = field(default_factory=deque)
    replied: deque[tuple[int, ResponseBody]] = field(default_factory=deque)
    # The calls that the other core has.
    reached: dict[Exchange, int] = field(default_factory=dict)
    has_ended: bool = False


@final
@dataclass(slots=True)
class Attempts:
    """The attempts to reach a node that failed, one after the other."""

    failures: int = 0
    last_us: int = 0
    # When a call timed out while the node was not reached: the attempt that it waited for may fail unseen after that.
    unseen_us: int = 0

    def may_fail_until_us(self, resumed_us: int) -> int:
        """Returns by when the last attempt has failed; `resumed_us` is when the last pause of the process ended."""
        if self.unseen_us <= self.last_us:
            return self.last_us
        return max(self.unseen_us, resumed_us) + BREAK_US

    @property
    def wait_us(self) -> int:
        """How long calls may fail at once after the last failure."""
        wait_us = FIRST_WAIT_US
        for _ in range(min(self.failures, 10) - 1):
            wait_us = min(wait_us * 8 // 5, MOST_WAIT_US)
        return wait_us


@final
class Calls:
    """Judges each call by what both its ends see.

    A call has one outcome, within its time-out, for which its connection asks to be woken in time. One that expects no
    reply has none once it is written; before that it may fail, once. A stream loses nothing before its end: calls
    arrive in order, answers come back in order, each to its own call. With one call that fails, all calls on its stream
    do. Nobody ends a stream as if all were answered while a call has no answer, also after the other side has sent its
    last call. While a node cannot be reached, calls fail at once for a short time only, which begins again at 50 ms
    once the node was reached.
    """

    name = "calls"

    def __init__(self, jury: Jury, transport: Transport, *, may_change: bool = False) -> None:
        """Calls that `may_change` on their way are not known again where they arrive: less is judged then."""
        self._jury = jury
        # Datagrams are lost and come twice by themselves.
        self._is_reliable = transport is Transport.STREAM and not may_change
        self._calls: dict[tuple[int, int, int], Sent] = {}
        self._streams: dict[tuple[int, int, str], Stream] = {}
        # By node, life and peer: who is started again knows of no attempt of its earlier life.
        self._attempts: dict[tuple[int, int, int], Attempts] = {}
        # The calls without a reply that have not failed, by node and life: all that have arrived have been written.
        self._silent: dict[tuple[int, int], dict[int, RequestBody]] = {}

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        """Receives a call as it leaves a core. One that expects no reply may fail before it is written."""
        now_us, stream = shell.world.now_us, None
        if isinstance(effect.body, STREAM_REQUESTS):
            key = (shell.node_id, target, CODEC.stream_of(effect.body).path)
            stream = self._streams.get(key)
            if stream is None or stream.has_ended or stream.life_number != shell.life_number:
                stream = self._streams[key] = Stream(shell.life_number)
            # A request for which nobody waits is not seen at the other core.
            if self._is_reliable and effect.expects_reply:
                stream.asked.append((effect.call, now_us, effect.body))
        if not effect.expects_reply:
            self._silent.setdefault((shell.node_id, shell.life_number), {})[effect.call] = effect.body
        self._calls[shell.node_id, shell.life_number, effect.call] = Sent(
            target, now_us, stream, effect.expects_reply, effect.timeout_ms * 1_000
        )

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a call without a reply as it reaches the other core: it was written, and cannot fail any more."""
        source = exchange.source
        silent = self._silent.get((source.node_id, source.life_number), {})
        for call, body in silent.items():
            if body == exchange.body:
                del silent[call]
                self._calls[source.node_id, source.life_number, call] = _ARRIVED
                return

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a call as it reaches the other core."""
        stream = self._streams.get((exchange.source.node_id, shell.node_id, exchange.path))
        if stream is None or stream.has_ended:
            return
        asked = stream.asked
        for place, (call, sent_us, body) in enumerate(asked):
            # One of an earlier stream may arrive after the first of a later one.
            if sent_us <= exchange.sent_us and body == exchange.body:
                stream.reached[exchange] = call
                for _ in range(place):
                    self._report(exchange.source.name, asked.popleft()[0], f"never reached {shell.name}")
                asked.popleft()
                return

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Receives an answer as it leaves the other core."""
        stream = self._streams.get((exchange.source.node_id, shell.node_id, exchange.path))
        call = None if stream is None else stream.reached.pop(exchange, None)
        if stream is not None and call is not None:
            stream.replied.append((call, body))

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        """Receives the outcome of a call as it reaches the core that sent it."""
        sent = self._calls.pop((shell.node_id, shell.life_number, call), None)
        if sent is _ARRIVED:
            self._report(
                shell.name, call, "expects no reply, has reached its node, and has failed after that"
            )
            return
        if sent is not None and not sent.expects_reply:
            self._silent[shell.node_id, shell.life_number].pop(call, None)
        if sent is not None:
            self._judge_time(shell, call, sent)
        if sent is None:
            self._report(shell.name, call, "was answered again")
        elif isinstance(body, TransportError):
            self._on_failed(shell, call, sent, body.reason)
        elif not sent.expects_reply:
            self._report(shell.name, call, "expects no reply, and was answered")
        else:
            self._attempts.pop((shell.node_id, shell.life_number, sent.target), None)
            if sent.stream is not None:
                self._on_answer(shell.name, call, sent.stream, body)

    def on_late_alarm(self, name: str, call: int, late_ms: int) -> None:
        """Receives a call that was just sent, and whose connection wants to be woken that long after its time-out."""
        self._report(
            name, call, f"would end {late_ms} ms after its time-out: its connection wakes no earlier"
        )

    def _judge_time(self, shell: Shell, call: int, sent: Sent) -> None:
        """Judge whether a call has ended with its time-out, as far as process and clock went on meanwhile."""
        # A connection of a process that stands still may end; no time-out of its calls does.
        if shell.paused or shell.clock.frozen_us is not None:
            return
        begun_us = max(sent.sent_us, shell.resumed_us, shell.still_until_us, shell.clock.thawed_us)
        lasted_us = shell.world.now_us - begun_us
        if lasted_us > sent.timeout_us * (100 + LATE_PERCENT) // 100 + LATE_US:
            what = f"has ended after {lasted_us // 1_000} ms; it had {sent.timeout_us // 1_000} ms"
            self._report(shell.name, call, what)

    def _on_answer(self, name: str, call: int, stream: Stream, body: ResponseBody) -> None:
        if stream.has_ended:
            self._report(name, call, "was answered after another call on its stream had failed")
        replied = stream.replied
        for place, (each, answer) in enumerate(replied):
            if each == call:
                for _ in range(place):
                    self._report(name, replied.popleft()[0], "was answered, and the answer is lost")
                replied.popleft()
                if answer != body:
                    self._report(name, call, "got the answer to another call")
                return

    def _on_failed(self, shell: Shell, call: int, sent: Sent, reason: str) -> None:
        stream, now_us = sent.stream, shell.world.now_us
        if now_us == sent.sent_us:
            if stream is not None:
                # Nobody has put it on a stream.
                stream.asked = deque([each for each in stream.asked if each[0] != call])
            if shell.hung_up_us == now_us:
                # The connection had just begun, and counts as an attempt that has failed.
                self._on_failed_attempt(shell, sent)
            elif reason in _NOT_REACHED:
                self._on_failed_at_once(shell, call, sent)
            # Else there was a connection: a process that goes on reads of its end, or of a stream's, in the moment in
            # which it sends.
            return
        if reason == ENDED_BY_PEER and self._is_reliable:
            self._report(shell.name, call, "has no answer, and the other side has ended its stream in order")
        if stream is not None and not reason.startswith("the answer is out of bounds"):
            stream.has_ended = True
        if reason in _NOT_REACHED:
            self._on_failed_attempt(shell, sent)
        elif reason.startswith("no answer"):
            self._on_time_out(shell, sent)

    def _on_failed_attempt(self, shell: Shell, sent: Sent) -> None:
        """Notes an attempt to connect; all calls that waited for it fail in the same moment."""
        attempts, now_us = (
            self._attempts.setdefault((shell.node_id, shell.life_number, sent.target), Attempts()),
            shell.world.now_us,
        )
        is_counted = attempts.last_us == now_us or attempts.last_us < sent.sent_us <= attempts.unseen_us
        attempts.failures += not is_counted
        attempts.last_us = now_us

    def _on_time_out(self, shell: Shell, sent: Sent) -> None:
        """Notes that a call has ended for which an attempt to connect may be under way; nobody may see it fail."""
        attempts = self._attempts.setdefault((shell.node_id, shell.life_number, sent.target), Attempts())
        # Calls that were sent before the first of them has timed out wait for one attempt.
        attempts.failures += attempts.unseen_us < sent.sent_us
        attempts.unseen_us = shell.world.now_us

    def _on_failed_at_once(self, shell: Shell, call: int, sent: Sent) -> None:
        """Judges a call for which nobody tried to reach the node."""
        attempts = self._attempts.get((shell.node_id, shell.life_number, sent.target))
        if attempts is None or shell.clock.frozen_us is not None or self._has_earlier(shell, sent):
            return
        failed_us = max(attempts.may_fail_until_us(shell.resumed_us), shell.clock.thawed_us)
        since_us = shell.world.now_us - failed_us
        if since_us > attempts.wait_us * 5 // 4 + SLACK_US:
            self._report(
                shell.name,
                call,
                f"failed at once, {since_us // 1_000} ms after {attempts.failures} attempts in a row; "
                f"{attempts.wait_us // 1_000} ms are the longest wait",
            )

    def _has_earlier(self, shell: Shell, sent: Sent) -> bool:
        """Whether an earlier call to the same node is open: its attempt may have failed in this very moment."""
        life = (shell.node_id, shell.life_number)
        return any(
            key[:2] == life and each.target == sent.target and each.sent_us < sent.sent_us
            for key, each in self._calls.items()
        )

    def _report(self, name: str, call: int, what: str) -> None:
        self._jury.report(self.name, f"call {call} of {name} {what}")
