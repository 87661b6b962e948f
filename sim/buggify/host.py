"""Points at the shell of a node or client: timers, turns, steps, jobs and messages."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from cluster.core.connection.outgoing import Answer
from cluster.core.events import TransportError
from cluster.core.messages import MetadataResponse, RequestBody, ResponseBody
from sim.buggify.buggify import Buggify
from sim.buggify.messages import is_lost, is_repeated, perturbed_reply, perturbed_request
from sim.buggify.strays import Stray, strays

_TOGETHER_US = 10_000
_FEW_CALLS = 3
# More than the hour by which a record may be ahead of its leader (KIP-1030), and all that clocks differ by.
_AHEAD_MS = 7_200_000
_BEHIND_MS = 2_000
_LOST = TransportError(reason="connection reset")


@final
class HostPoints:
    """The points at the shell of the node or client called `name`. Times are microseconds."""

    __slots__ = ("_metadata", "buggify", "compacted", "name")

    def __init__(self, buggify: Buggify, name: str, compacted: Collection[str] = ()) -> None:
        """Makes the points; `compacted` are the names of the topics that take no record without a key."""
        self.buggify, self.name, self.compacted = buggify, name, compacted
        # The last metadata that the client got, by the topics that it is about.
        self._metadata: dict[tuple[str, ...], MetadataResponse] = {}

    def timer_us(self, now_us: int, delay_us: int) -> int:
        """Returns in which time a timer fires that is due in `delay_us`: never earlier."""
        found_us = delay_us + self.buggify.more_us(40, "timer-late", self.name)
        if self.buggify.fires("timers-together", self.name):
            found_us += -(now_us + found_us) % _TOGETHER_US
        assert found_us >= delay_us, (found_us, delay_us)
        return found_us

    def timer_overtakes(self) -> bool:
        """Whether a timer that is due goes before the events that wait."""
        return self.buggify.fires("timer-overtakes", self.name)

    def gathering_us(self) -> int:
        """Returns how long an idle core waits for more events; 0 if it does not."""
        return self.buggify.more_us(2, "turn-waits", self.name)

    def turn_limit(self, waiting: int) -> int:
        """Returns how many of the requests that wait go into one step, at least one."""
        assert waiting > 0, waiting
        if waiting < 2 or not self.buggify.fires("turn-split", self.name):
            return waiting
        return self.buggify.between(1, waiting - 1, "turn-split", self.name)

    def step_us(self) -> int:
        """Returns how much longer a step takes."""
        return self.buggify.more_us(50, "step-slow", self.name)

    def start_us(self) -> int:
        """Returns how much longer a process takes to start."""
        return self.buggify.more_us(1_000, "start-slow", self.name)

    def most_calls(self) -> int | None:
        """Returns how many calls a life of the node takes at a time on each stream; None for the usual number."""
        if not self.buggify.fires("few-places", self.name):
            return None
        return self.buggify.between(1, _FEW_CALLS, "few-places", self.name)

    def most_of_a_method(self) -> int | None:
        """Returns how many unary calls of a method a life of the node has with a peer; None for the usual number."""
        if not self.buggify.fires("few-calls", self.name):
            return None
        return self.buggify.between(1, 2, "few-calls", self.name)

    def job_us(self, lasting_us: int, until_us: int) -> tuple[int, int]:
        """Returns how long a job takes, and after how much of that time its work is done."""
        assert 0 <= until_us <= lasting_us, (until_us, lasting_us)
        if self.buggify.fires("job-at-once", self.name):
            return 0, 0
        slow_us = self.buggify.more_us(200, "job-slow", self.name)
        lasting_us, until_us = lasting_us + 2 * slow_us, until_us + slow_us
        if self.buggify.fires("job-works-last", self.name):
            until_us = lasting_us
        lasting_us += self.buggify.more_us(200, "job-done-late", self.name)
        assert until_us <= lasting_us, (until_us, lasting_us)
        return lasting_us, until_us

    def overtaken_us(self) -> int:
        """Returns how long the end of a job waits at least as a replica begins a role, cuts its log or goes before."""
        return self.buggify.more_us(600, "job-overtaken", self.name)

    def works_before_end(self) -> bool:
        """Whether the first job that waits has just done its work when its process is killed or loses power."""
        return self.buggify.fires("job-before-crash", self.name)

    def request(self, body: RequestBody) -> RequestBody:
        """Returns the request that leaves instead of `body`."""
        return perturbed_request(self.buggify, self.name, body)

    def reply(self, body: ResponseBody) -> ResponseBody:
        """Returns the answer that leaves instead of `body`."""
        return perturbed_reply(self.buggify, self.name, body)

    def repeats(self, body: RequestBody) -> bool:
        """Whether a request that has arrived comes again right after."""
        return is_repeated(self.buggify, self.name, body)

    def strays(self, body: RequestBody) -> list[Stray]:
        """Returns the requests that arrive beside one, and must be refused."""
        return list(strays(self.buggify, self.name, body, self.compacted))

    def answer(self, body: Answer) -> Answer:
        """Returns what the core gets in place of an answer: the same, older metadata, or no answer."""
        if isinstance(body, TransportError):
            return body
        if isinstance(body, MetadataResponse):
            return self._metadata_of(body)
        return _LOST if is_lost(self.buggify, self.name, body) else body

    def _metadata_of(self, body: MetadataResponse) -> MetadataResponse:
        topics = tuple([topic.name for topic in body.topics])
        before = self._metadata.get(topics)
        if before is not None and self.buggify.fires("client-metadata-stale", self.name):
            return before
        self._metadata[topics] = body
        return body

    def burst(self) -> int:
        """Returns how many records a producer sends beside the one whose time has come."""
        if not self.buggify.fires("send-burst", self.name):
            return 0
        return self.buggify.between(1, 7, "send-burst", self.name)

    def lull_us(self) -> int:
        """Returns how much later than usual a producer sends its next record."""
        return self.buggify.more_us(2_000, "send-lull", self.name)

    def skew_ms(self) -> int:
        """Returns how far ahead of its clock a producer stamps its next record; less than 0 for a time that is over."""
        if self.buggify.fires("record-ahead", self.name):
            return _AHEAD_MS
        if self.buggify.fires("record-behind", self.name):
            return -self.buggify.between(1, _BEHIND_MS, "record-behind", self.name)
        return 0

    def flushes(self) -> bool:
        """Whether a producer asks to learn when all that it has sent has its outcome."""
        return self.buggify.fires("send-flush", self.name)

    def is_refused(self) -> bool:
        """Whether the first address of a client refuses it as it begins."""
        return self.buggify.fires("first-address-refuses", self.name)

    def subscribes(self) -> bool:
        """Whether a consumer that begins names its topic, and finds the partitions by itself."""
        return self.buggify.fires("topic-subscribed", self.name)

    def pause_us(self) -> int:
        """Returns how long a consumer pauses a partition that it has just read; 0 for not at all."""
        if not self.buggify.fires("reading-paused", self.name):
            return 0
        return 1_000 * self.buggify.between(1, 300, "reading-paused", self.name)

    def hangs_up(self) -> bool:
        """Whether the connection ends on which an answer has just come."""
        return self.buggify.fires("hang-up-after-answer", self.name)
