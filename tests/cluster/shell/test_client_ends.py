"""A blocking client that ends oddly: from its own callback, from several threads, during sends, in a fork."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from cluster.core.client.config import ProducerConfig
from cluster.shell.clients import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryError,
    Producer,
    RecordMetadata,
)
from cluster.shell.forks import SPAWN

NOWHERE = "127.0.0.1:1"
LIMIT_S = 20.0
# A record fails as soon as the metadata of its topic did not come.
FAILS_AT_ONCE = ProducerConfig(max_block_ms=0, delivery_timeout_ms=40_000)
FAILS_SOON = ProducerConfig(max_block_ms=100, delivery_timeout_ms=40_000)


def in_threads(works: list[Callable[[], object]]) -> list[BaseException]:
    """Run each function in a thread of its own; returns what they raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return raised


def test_a_callback_that_calls_sys_exit_leaves_the_other_futures_to_end() -> None:
    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        first = producer.send("orders", b"v")
        first.add_done_callback(lambda _: sys.exit(1))
        assert isinstance(first.exception(LIMIT_S), DeliveryError)
        assert isinstance(producer.send("orders", b"v").exception(LIMIT_S), DeliveryError)


def test_close_in_a_callback_is_refused_and_the_client_goes_on() -> None:
    errors: list[BaseException] = []
    called = threading.Event()

    def close(producer: Producer) -> None:
        try:
            producer.close()
        except RuntimeError as error:
            errors.append(error)
        finally:
            called.set()

    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        producer.send("orders", b"v").add_done_callback(lambda _: close(producer))
        assert called.wait(LIMIT_S)
        assert isinstance(producer.send("orders", b"v").exception(LIMIT_S), DeliveryError)
    assert "called from a callback of this Producer" in str(errors[0])


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_several_threads_may_close_a_client(make: type[Producer | Consumer | Admin]) -> None:
    for _ in range(3):
        client = make(NOWHERE)
        assert in_threads([client.close] * 4) == []


def test_close_delivers_what_was_sent_while_others_close_too() -> None:
    producer = Producer(NOWHERE, FAILS_SOON)
    future = producer.send("orders", b"v")
    assert in_threads([producer.close] * 4) == []
    # It waited for its metadata until its time was up: no close cut that short.
    assert "REQUEST_TIMED_OUT" in str(future.exception(0))


def test_a_send_during_close_is_refused_and_not_a_record_that_fails() -> None:
    producer = Producer(NOWHERE, FAILS_SOON)
    futures: list[Future[RecordMetadata]] = []
    has_sent = threading.Event()

    def send_on() -> None:
        while True:
            futures.append(producer.send("orders", bytes(100)))
            has_sent.set()

    def close() -> None:
        assert has_sent.wait(LIMIT_S)
        producer.close()

    raised = in_threads([send_on, send_on, close])
    assert [str(error) for error in raised] == ["the Producer is closed"] * 2
    assert {str(future.exception(0)).split(":")[0] for future in futures} == {"REQUEST_TIMED_OUT"}


@pytest.mark.slow
def test_close_wakes_the_senders_that_wait_for_room() -> None:
    config = ProducerConfig(buffer_memory=500, max_block_ms=600, delivery_timeout_ms=40_000)
    with Producer(NOWHERE, config) as producer:
        future = producer.send("orders", bytes(100))
        raised = in_threads([lambda: producer.send("orders", bytes(250)), producer.close])
    assert [str(error) for error in raised] == ["the Producer is closed"]
    assert "REQUEST_TIMED_OUT" in str(future.exception(0))


def said_in_a_fork(work: Callable[[], object]) -> str:
    """Returns with which message `work` raises RuntimeError in a fork of this process; fails if it does not end."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT_S))
        try:
            work()
        except RuntimeError as error:
            os.write(write_end, str(error).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read_end) as reader:
        said = reader.read()
    assert status == 0, (status, said)
    return said


def test_a_client_in_a_fork_says_so_and_waits_for_nothing() -> None:
    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        said = said_in_a_fork(lambda: producer.send("orders", b"v"))
        assert said_in_a_fork(producer.close) == ""
    assert said == f"the Producer was made before a fork: {SPAWN}"


async def start_and_close(make: type[AsyncProducer | AsyncConsumer | AsyncAdmin]) -> None:
    async with make(NOWHERE):
        pass


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_a_client_that_is_new_in_a_fork_of_a_process_with_one_is_refused(
    make: type[Producer | Consumer | Admin],
) -> None:
    # From here on the process has a channel.
    Producer(NOWHERE).close()

    def in_the_fork() -> None:
        try:
            make(NOWHERE)
        finally:
            # It leaves no thread behind.
            assert threading.active_count() == 1

    said = said_in_a_fork(in_the_fork)
    assert said.startswith(
        f"no {make.__name__} can run in this process, which was forked from one with a client: "
    )
    assert said.endswith(SPAWN)


@pytest.mark.parametrize("make", [AsyncProducer, AsyncConsumer, AsyncAdmin])
def test_an_asyncio_client_is_refused_in_such_a_fork_too(
    make: type[AsyncProducer | AsyncConsumer | AsyncAdmin],
) -> None:
    Producer(NOWHERE).close()
    said = said_in_a_fork(lambda: asyncio.run(start_and_close(make)))
    assert said.startswith(f"no {make.__name__} can run in this process")


@pytest.mark.slow
def test_a_process_that_is_forked_before_the_first_client_may_have_one() -> None:
    program = (
        "import os\n"
        "from replog import DeliveryError, Producer, ProducerConfig\n"
        "child = os.fork()\n"
        "config = ProducerConfig(max_block_ms=0)\n"
        f"with Producer({NOWHERE!r}, config) as producer:\n"
        f"    failure = producer.send('orders', b'v').exception({LIMIT_S})\n"
        "assert isinstance(failure, DeliveryError), failure\n"
        "assert child == 0 or os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=3 * LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_between_the_record_and_the_call_of_the_loop_leaves_no_record_that_nobody_passes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Producer(NOWHERE, FAILS_AT_ONCE) as producer:
        loop = producer._loop

        def interrupted(work: Callable[[], None]) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(loop, "soon", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send("orders", b"1")
        assert producer._taken_bytes == 0
        assert isinstance(producer.send("orders", b"2").exception(LIMIT_S), DeliveryError)


# An interrupt that strikes in the end of an object is told so, and goes no further.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_while_records_are_sent_take_no_room_and_leave_no_future_open() -> None:
    """A signal strikes anywhere in `send`, as Ctrl-C in a notebook does; the producer is used again after it."""
    producer = Producer(NOWHERE, FAILS_AT_ONCE)
    struck = 0
    with interrupts() as begin:
        for number in range(60):
            try:
                begin(0.0005 + 0.00001 * number)
                # The first of them are enough: the buffer need not be full.
                for _ in range(500):
                    producer.send("orders", b"v")
                begin(0)
            except KeyboardInterrupt:
                struck += 1
    assert struck > 0
    assert isinstance(producer.send("orders", b"last").exception(LIMIT_S), DeliveryError)
    producer.flush()
    assert producer._taken_bytes == 0
    producer.close()


@contextmanager
def interrupts() -> Iterator[Callable[[float], None]]:
    """Yields what lets a KeyboardInterrupt strike this thread after so many seconds; never, after 0."""

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    def begin(after_s: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, after_s)

    before = signal.signal(signal.SIGALRM, strike)
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_longest_block_that_kafka_takes_is_no_overflow() -> None:
    config = ProducerConfig(max_block_ms=(1 << 63) - 1, buffer_memory=1000)
    producer = Producer(NOWHERE, config)
    producer.send("orders", bytes(600))
    raised: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("orders", bytes(600))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    # What is there before the wait would be raised at once.
    thread.join(0.2)
    assert thread.is_alive() and raised == []
    producer.__exit__(RuntimeError, RuntimeError("over"), None)
    thread.join(LIMIT_S)
    assert [type(each) for each in raised] == [RuntimeError]
