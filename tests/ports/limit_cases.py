"""Scripts of calls that meet a limit or bytes that are no message, and what sets them up in both worlds."""

from __future__ import annotations

import pytest

from cluster.core.connection import rooms
from cluster.core.messages import BrokerEndpoint, MetadataResponse
from cluster.shell import server, streams, transport
from tests.ports.call_cases import Script, answered, asked, keep, release
from tests.ports.call_cores import Ask
from tests.ports.call_world import CallWorld

GARBAGE = b"\xff\xff\xff garbage"
FEW_CALLS = 8
SMALL_BYTES = 100_000


def few_places(patch: pytest.MonkeyPatch) -> None:
    """Lets a connection have a few calls of each kind in flight."""
    patch.setattr(rooms, "MOST_CALLS", FEW_CALLS)


def small_messages(patch: pytest.MonkeyPatch) -> None:
    """Lowers the size above which no message is sent or received."""
    for module, name in ((transport, "CHANNEL_OPTIONS"), (server, "SERVER_OPTIONS")):
        options = dict(getattr(module, name))
        for verb in ("send", "receive"):
            options[f"grpc.max_{verb}_message_length"] = SMALL_BYTES
        patch.setattr(module, name, tuple(options.items()))
    patch.setattr(streams, "MAX_MESSAGE_BYTES", SMALL_BYTES)


async def some_asked(world: CallWorld, least: int) -> None:
    """Wait until the server has so many requests."""
    await world.until(lambda: len(world.server.asked) >= least)


async def calls_beyond_the_limit_of_a_stream_wait_in_order(world: CallWorld) -> object:
    few_places(world.patch)
    world.server.keeps = True
    for number in range(30):
        world.send(Ask(number=number))
    counts = []
    await asked(world, FEW_CALLS - 1)
    for number in range(30):
        counts.append(len(world.server.asked))
        release(world, number)
        await answered(world, number)
        await asked(world, min(number + FEW_CALLS, 29))
    return counts, world.server.asked, world.clients[0].answers


async def unary_calls_beyond_the_limit_wait(world: CallWorld) -> object:
    few_places(world.patch)
    world.server.keeps = True
    world.send(*[Ask(number=number, kind="alone") for number in range(30)])
    counts = []
    for number in range(30):
        await some_asked(world, min(number + FEW_CALLS, 30))
        counts.append(len(world.server.asked))
        release(world, world.server.asked[number])
    return counts, sorted(await answered(world, *range(30)))


async def a_client_that_does_not_read_is_not_served_without_end(world: CallWorld) -> object:
    few_places(world.patch)
    world.send(Ask(number=40, kind="alone"))
    await answered(world, 40)
    world.stop_reading()
    for number in range(40):
        world.send(Ask(number=number, kind="fetch", size_bytes=200_000))
    await some_asked(world, FEW_CALLS)
    # The other client is served meanwhile, as often as the first one would have been.
    for number in range(100, 140):
        world.send(Ask(number=number, kind="fetch"), by=1)
        await answered(world, number, by=1)
    unread = [number for number in world.server.asked if number < 100]
    before = len(unread) < 41, list(world.clients[0].answers)
    world.read_on()
    return before, await answered(world, *range(40))


async def what_a_client_that_does_not_read_left_is_freed(world: CallWorld) -> object:
    few_places(world.patch)
    world.send(Ask(number=40, kind="alone"))
    await answered(world, 40)
    world.stop_reading()
    for number in range(40):
        world.send(Ask(number=number, kind="fetch", size_bytes=200_000))
    await some_asked(world, FEW_CALLS)
    await world.leave()
    world.send(Ask(number=100, kind="fetch"), by=1)
    return await answered(world, 100, by=1)


async def a_request_that_is_too_large_fails_its_stream(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1, kind="fetch"))
    world.send(Ask(number=2, size_bytes=2 * SMALL_BYTES))
    failed = sorted(await answered(world, 0, 2))
    await world.until(lambda: world.server.forgotten == [0])
    world.send(Ask(number=3))
    release(world, 1)
    return failed, sorted(await answered(world, 1, 3)), sorted(world.server.asked)


async def an_answer_that_is_too_large_fails_its_stream(world: CallWorld) -> object:
    await keep(world, Ask(number=0, kind="fetch", size_bytes=2 * SMALL_BYTES), Ask(number=1, kind="fetch"))
    await keep(world, Ask(number=2))
    release(world, 0)
    failed = sorted(await answered(world, 0, 1))
    await world.until(lambda: world.server.forgotten == [1])
    world.send(Ask(number=3, kind="fetch"))
    release(world, 2)
    return failed, sorted(await answered(world, 2, 3))


async def a_unary_request_that_is_too_large_fails_alone(world: CallWorld) -> object:
    await keep(world, Ask(number=0, kind="alone"))
    world.send(Ask(number=1, kind="alone", size_bytes=2 * SMALL_BYTES))
    failed = list(await answered(world, 1))
    release(world, 0)
    return failed, await answered(world, 0), world.server.asked


async def a_unary_answer_that_is_too_large_fails_alone(world: CallWorld) -> object:
    await keep(world, Ask(number=0, kind="alone"), Ask(number=1, kind="alone"))
    brokers = tuple([BrokerEndpoint(broker_id=each, host="h" * 200, port=1) for each in range(1000)])
    world.server.instead = {0: MetadataResponse(brokers=brokers)}
    release(world, 0)
    failed = list(await answered(world, 0))
    release(world, 1)
    return failed, await answered(world, 1)


def garble(patch: pytest.MonkeyPatch, codec: type, method: str) -> None:
    """Let a method of a codec make bytes that are no message, once."""
    made = getattr(codec, method)

    def make(self: object, *bodies: object) -> bytes:
        patch.setattr(codec, method, made)
        return GARBAGE

    patch.setattr(codec, method, make)


async def calls_that_are_no_message_end_their_stream(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1, kind="fetch"))
    garble(world.patch, streams.StreamCodec, "calls_to_bytes")
    world.send(Ask(number=2))
    failed = sorted(await answered(world, 0, 2))
    await world.until(lambda: world.server.forgotten == [0])
    world.send(Ask(number=3))
    release(world, 1)
    return failed, sorted(await answered(world, 1, 3)), sorted(world.server.asked)


async def answers_that_are_no_message_end_their_stream(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1), Ask(number=2, kind="fetch"))
    garble(world.patch, streams.StreamCodec, "answers_to_bytes")
    release(world, 0)
    failed = sorted(await answered(world, 0, 1))
    await world.until(lambda: world.server.forgotten == [1])
    world.send(Ask(number=3))
    release(world, 2)
    return failed, sorted(await answered(world, 2, 3))


async def a_unary_request_that_is_no_message_fails_alone(world: CallWorld) -> object:
    await keep(world, Ask(number=0, kind="alone"))
    garble(world.patch, streams.UnaryCodec, "request_to_bytes")
    world.send(Ask(number=1, kind="alone"))
    failed = list(await answered(world, 1))
    release(world, 0)
    return failed, await answered(world, 0), world.server.asked


async def a_unary_answer_that_is_no_message_fails_alone(world: CallWorld) -> object:
    await keep(world, Ask(number=0, kind="alone"), Ask(number=1, kind="alone"))
    garble(world.patch, streams.UnaryCodec, "response_to_bytes")
    release(world, 0)
    failed = list(await answered(world, 0))
    release(world, 1)
    return failed, await answered(world, 1)


LIMIT_CASES: tuple[Script, ...] = (
    calls_beyond_the_limit_of_a_stream_wait_in_order,
    unary_calls_beyond_the_limit_wait,
    a_client_that_does_not_read_is_not_served_without_end,
    what_a_client_that_does_not_read_left_is_freed,
    calls_that_are_no_message_end_their_stream,
    answers_that_are_no_message_end_their_stream,
    a_unary_request_that_is_no_message_fails_alone,
    a_unary_answer_that_is_no_message_fails_alone,
)
# These run with `small_messages`.
SIZE_CASES: tuple[Script, ...] = (
    a_request_that_is_too_large_fails_its_stream,
    an_answer_that_is_too_large_fails_its_stream,
    a_unary_request_that_is_too_large_fails_alone,
    a_unary_answer_that_is_too_large_fails_alone,
)
