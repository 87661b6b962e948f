"""Room in a full buffer goes to the sender that has waited longest, so that small records starve no large one."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self, final

import pytest

from cluster.core.client.config import ProducerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.events import TimerFired
from cluster.shell.clients import AsyncProducer, Producer
from cluster.shell.clients.waiting_lines import ThreadLine, _Turn

NOWHERE = "127.0.0.1:1"
LIMIT_S = 20.0
# Two records of the size HALF fill it, and a small one fits beside one of them.
BUFFER = ProducerConfig(buffer_memory=1000, max_block_ms=60_000)
HALF, SMALL = bytes(380), bytes(10)
FULL_TEXT = "REQUEST_TIMED_OUT: the buffer stayed full for max.block.ms"


def free(producer: AsyncProducer, topic: str) -> None:
    """Ends the records of a topic at once, with an error: it can have no metadata."""
    producer.core.metadata.cache.errors[topic] = ErrorCode.INVALID_TOPIC_EXCEPTION
    producer.runtime.run(lambda now_ms: producer.core.step(now_ms, TimerFired(key="producer.wake")))


async def turns() -> None:
    """Lets all tasks go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(main: Callable[[AsyncProducer], Awaitable[None]], config: ProducerConfig = BUFFER) -> None:
    """Runs `main` with a producer whose buffer the topics `a` and `b` fill, until they are freed."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S), AsyncProducer(NOWHERE, config) as producer:
            # Records that wait for metadata would leave the buffer as a sender ends its wait.
            producer.core.waiting._max_block_ms = 60_000
            for topic in "ab":
                await producer.send(topic, HALF)
            await main(producer)
            await turns()
            await producer.abort()

    asyncio.run(limited())


def ask(producer: AsyncProducer, name: str, value: bytes, done: list[str]) -> asyncio.Task[None]:
    """Sends a record in a task, which notes its name once there was room."""

    async def send() -> None:
        await producer.send(name, value)
        done.append(name)

    return asyncio.create_task(send())


def test_a_record_that_fits_waits_for_a_larger_one_that_came_before() -> None:
    async def main(producer: AsyncProducer) -> None:
        done: list[str] = []
        ask(producer, "large", bytes(700), done)
        await turns()
        ask(producer, "small", SMALL, done)
        free(producer, "a")
        await turns()
        # There is room for the small one.
        assert producer._taken_bytes + 200 < BUFFER.buffer_memory and done == []
        free(producer, "b")
        await turns()
        assert done == ["large", "small"]

    run(main)


def test_room_for_several_is_for_the_first_of_them() -> None:
    async def main(producer: AsyncProducer) -> None:
        done: list[str] = []
        for name in "cdef":
            ask(producer, name, SMALL, done)
        await turns()
        free(producer, "a")
        await turns()
        assert done == ["c", "d", "e", "f"]
        assert producer._line.is_empty

    run(main)


@pytest.mark.parametrize("left", [0, 1])
def test_a_task_that_is_cancelled_leaves_the_line_to_the_others(left: int) -> None:
    async def main(producer: AsyncProducer) -> None:
        done: list[str] = []
        tasks = [ask(producer, "large", bytes(700), done), ask(producer, "larger", bytes(800), done)]
        tasks.append(ask(producer, "small", SMALL, done))
        await turns()
        tasks[left].cancel()
        tasks[1 - left].cancel()
        free(producer, "a")
        await turns()
        assert done == ["small"]
        assert producer._line.is_empty

    run(main)


def test_a_sender_that_gives_up_leaves_the_line_to_the_next() -> None:
    async def main(producer: AsyncProducer) -> None:
        done: list[str] = []
        large = ask(producer, "large", bytes(700), done)
        await turns()
        free(producer, "a")
        small = ask(producer, "small", SMALL, done)
        with pytest.raises(ClusterError, match=FULL_TEXT):
            await large
        await small
        assert done == ["small"]

    run(main, ProducerConfig(buffer_memory=1000, max_block_ms=20))


def test_only_the_first_presses_and_it_does_so_whenever_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(producer: AsyncProducer) -> None:
        pressed: list[int] = []
        monkeypatch.setattr(producer, "press", pressed.append)
        done: list[str] = []
        for name, size in (("large", 850), ("small", 300)):
            ask(producer, name, bytes(size - 96), done)
        await turns()
        assert pressed == [850]
        free(producer, "a")
        await turns()
        assert pressed == [850, 850]
        free(producer, "b")
        await turns()
        # There is room for the large one, and the small one is the first now.
        assert (pressed, done) == ([850, 850, 300], ["large"])

    run(main)


def test_room_that_a_press_makes_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(producer: AsyncProducer) -> None:
        monkeypatch.setattr(producer, "press", lambda _: free(producer, "a"))
        await asyncio.wait_for(producer.send("c", HALF), LIMIT_S)
        assert producer._line.is_empty

    run(main)


@final
class Senders:
    """A blocking producer whose buffer the topics `a` and `b` fill, and threads that send; `with` ends all."""

    def __init__(self, config: ProducerConfig = BUFFER) -> None:
        self.producer = Producer(NOWHERE, config)
        self.producer._producer.core.waiting._max_block_ms = 60_000
        for topic in "ab":
            self.producer.send(topic, HALF)
        self.threads: list[threading.Thread] = []
        # For each record that had room, the bytes that were taken then; for each other one, the error.
        self.taken_bytes: dict[str, int] = {}
        self.errors: dict[str, str] = {}

    def start(self, name: str, value: bytes) -> None:
        """Sends a record in a thread; returns once that waits for room, or has ended."""
        self.threads.append(threading.Thread(target=self._send, args=(name, value), daemon=True))
        self.threads[-1].start()
        self.until(lambda: self.waiting + len(self.taken_bytes) + len(self.errors) >= len(self.threads))

    def _send(self, name: str, value: bytes) -> None:
        try:
            self.producer.send(name, value)
            self.taken_bytes[name] = self.producer._taken_bytes
        except (ClusterError, RuntimeError) as error:
            self.errors[name] = str(error)

    @property
    def waiting(self) -> int:
        with self.producer._lock:
            return len(self.producer._line._turns)

    def free(self, topic: str) -> None:
        """Ends the records of a topic; returns once that is done."""

        async def end() -> None:
            free(self.producer._producer, topic)

        self.producer._loop.call(end())

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline_s

    def join(self) -> None:
        for thread in self.threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.__exit__(RuntimeError, RuntimeError("over"), None)
        self.join()


def test_a_record_of_a_thread_waits_for_a_larger_one_that_came_before() -> None:
    with Senders() as senders:
        senders.start("large", bytes(700))
        senders.start("small", SMALL)
        senders.free("a")
        assert senders.waiting == 2 and senders.taken_bytes == {}
        senders.free("b")
        senders.join()
        assert senders.taken_bytes["small"] == 796 + 106
        assert senders.producer._line.is_empty


def test_a_thread_that_gives_up_leaves_the_line_to_the_next() -> None:
    with Senders(replace(BUFFER, max_block_ms=100)) as senders:
        senders.start("large", bytes(700))
        senders.free("a")
        senders.start("small", SMALL)
        senders.join()
        assert senders.errors == {"large": FULL_TEXT}
        assert list(senders.taken_bytes) == ["small"]


def test_a_callback_does_not_wait_for_those_in_the_line() -> None:
    with Senders() as senders:
        senders.start("large", bytes(700))
        senders.free("a")

        async def call_back() -> None:
            senders.producer.send("c", SMALL)
            with pytest.raises(RuntimeError, match="called from a callback of this Producer"):
                senders.producer.send("c", bytes(700))

        senders.producer._loop.call(call_back())
        assert senders.waiting == 1


def test_the_first_thread_presses_whenever_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback may have sent what lingers again, and taken the room that has become free."""
    with Senders() as senders:
        pressed: list[int] = []
        monkeypatch.setattr(senders.producer._producer, "press", pressed.append)
        senders.start("large", bytes(700))
        senders.start("small", SMALL)
        senders.until(lambda: pressed == [796])
        senders.free("a")
        senders.until(lambda: pressed == [796, 796])
        # The record behind it has not pressed.
        assert (senders.waiting, pressed) == (2, [796, 796])


def test_a_turn_that_its_thread_has_left_is_nobodys() -> None:
    """An interrupt may strike a thread between the end of its wait and its way out of the line."""
    lock = threading.RLock()
    line = ThreadLine(lock)
    line._join(_Turn(lock))
    with lock:
        assert line.is_empty
        assert line.wait(lambda: True, LIMIT_S)


def test_the_handler_of_a_signal_does_not_wait_for_the_thread_that_it_interrupts() -> None:
    with Senders() as senders:

        def handle(*_: object) -> None:
            senders.free("a")
            senders.producer.send("c", SMALL)
            senders.free("b")

        def strike() -> None:
            senders.until(lambda: senders.waiting == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            thread = threading.Thread(target=strike, daemon=True)
            thread.start()
            senders.producer.send("large", bytes(700))
        finally:
            signal.signal(signal.SIGUSR1, before)
        thread.join(LIMIT_S)
        assert senders.producer._taken_bytes == 796 + 106
