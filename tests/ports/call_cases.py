"""Scripts of calls between a client and a server, each written once: what a script returns is equal in both worlds.

A script waits for what the cores have seen, never for time. Of unary calls, and of calls on different streams, it looks
at no order, because none is promised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

from cluster.core.connection.outgoing import MOST_OF_A_METHOD
from cluster.core.effects import CancelTimer, SetTimer
from cluster.core.messages import MetadataResponse, ProducePartitionResponse, ProduceResponse, TopicPartition
from tests.ports.call_cores import BROKEN, Ask, Kind
from tests.ports.call_world import CallWorld

Script = Callable[[CallWorld], Awaitable[object]]
KINDS: tuple[Kind, ...] = ("produce", "fetch", "replica", "alone")
# Long enough for a request to reach a server that is connected, on a loaded machine too.
SHORT_MS = 100
# The numbers of the calls that only connect.
CONNECTING = 1000


async def answered(world: CallWorld, *numbers: int, by: int = 0) -> list[tuple[int, str]]:
    """Wait until a client has an answer to each of these calls; returns all its answers, in order."""
    client = world.clients[by]
    await world.until(lambda: all(client.of(number) for number in numbers))
    return client.answers


async def asked(world: CallWorld, *numbers: int) -> list[int]:
    """Wait until the server has these requests; returns all its requests, in order."""
    await world.until(lambda: set(numbers) <= set(world.server.asked))
    return world.server.asked


def release(world: CallWorld, *numbers: int) -> None:
    """Let the server answer in one step what it has kept."""
    server = world.server
    world.serve(lambda _: server.release(*numbers))


async def keep(world: CallWorld, *asks: Ask) -> None:
    """Send requests that the server keeps, and wait until it has them."""
    world.server.keeps = True
    world.send(*asks)
    await asked(world, *[ask.number for ask in asks])
    world.server.keeps = False


async def connect(world: CallWorld, by: int = 0) -> None:
    """Let a client make its connection, so that no short deadline has to wait for that."""
    world.send(Ask(number=CONNECTING + by), by=by)
    await answered(world, CONNECTING + by, by=by)
    world.clients[by].answers.clear()
    world.server.asked.clear()


async def each_kind_of_call_is_answered(world: CallWorld) -> object:
    for number, kind in enumerate(KINDS):
        world.send(Ask(number=number, kind=kind))
        await answered(world, number)
    return world.clients[0].answers, world.server.asked


async def the_calls_of_a_stream_keep_their_order(world: CallWorld) -> object:
    for number in range(20):
        world.send(Ask(number=number))
    return await answered(world, *range(20)), world.server.asked


async def answers_come_in_the_order_in_which_they_are_given(world: CallWorld) -> object:
    await keep(world, *[Ask(number=number) for number in range(5)])
    for number in (3, 1, 4, 0, 2):
        release(world, number)
    return await answered(world, *range(5))


async def streams_and_unary_calls_do_not_wait_for_each_other(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1, kind="alone"))
    rest = [Ask(number=2, kind="fetch"), Ask(number=3, kind="replica"), Ask(number=4, kind="alone")]
    world.send(*rest)
    before = sorted(await answered(world, 2, 3, 4))
    release(world, 0, 1)
    return before, sorted(await answered(world, 0, 1))


async def all_unary_calls_of_a_turn_are_answered(world: CallWorld) -> object:
    world.send(*[Ask(number=number, kind="alone") for number in range(30)])
    return sorted(await answered(world, *range(30))), sorted(world.server.asked)


async def more_unary_calls_than_a_connection_carries_at_once_are_all_answered(world: CallWorld) -> object:
    world.send(*[Ask(number=number, kind="alone") for number in range(600)])
    return sorted(await answered(world, *range(600))), sorted(world.server.asked)


async def unary_calls_above_those_of_a_method_wait_at_the_client(world: CallWorld) -> object:
    numbers = range(MOST_OF_A_METHOD + 3)
    world.server.keeps = True
    world.send(*[Ask(number=number, kind="alone") for number in numbers])
    await world.until(lambda: len(world.server.asked) >= MOST_OF_A_METHOD)
    release(world, *world.server.asked[:2])
    await world.until(lambda: len(world.server.asked) >= MOST_OF_A_METHOD + 2)
    world.send(Ask(number=CONNECTING))
    await asked(world, CONNECTING)
    before = len(world.server.asked)
    release(world, *world.server.asked[2:])
    await asked(world, *numbers)
    release(world, world.server.asked[-1])
    return before, sorted(await answered(world, *numbers))


async def the_calls_of_one_turn_are_one_frame_and_one_step(world: CallWorld) -> object:
    world.send(*[Ask(number=number) for number in range(7)])
    answers = await answered(world, *range(7))
    return answers, world.server.turns


async def more_calls_than_a_frame_takes_keep_their_order(world: CallWorld) -> object:
    world.send(*[Ask(number=number) for number in range(150)])
    return await answered(world, *range(150)), world.server.asked, sum(world.server.turns)


async def answers_of_one_step_keep_their_order(world: CallWorld) -> object:
    await keep(world, *[Ask(number=number) for number in range(100)])
    release(world, *reversed(range(100)))
    return await answered(world, *range(100))


async def a_unary_call_whose_time_is_over_fails_alone(world: CallWorld) -> object:
    await connect(world)
    others = [Ask(number=2), Ask(number=3, kind="alone")]
    await keep(world, Ask(number=1, kind="alone", timeout_ms=SHORT_MS), *others)
    failed = list(await answered(world, 1))
    await world.until(lambda: world.server.forgotten == [1])
    # The late answer reaches nobody.
    release(world, 1, 2, 3)
    return failed, sorted(await answered(world, 2, 3))


async def a_time_out_ends_its_stream_with_all_calls_in_flight(world: CallWorld) -> object:
    await connect(world)
    late = Ask(number=1, timeout_ms=SHORT_MS)
    others = [Ask(number=3, kind="fetch"), Ask(number=4, kind="replica"), Ask(number=5, kind="alone")]
    await keep(world, Ask(number=0), late, Ask(number=2), *others)
    failed = list(await answered(world, 0, 1, 2))
    await world.until(lambda: len(world.server.forgotten) == 3)
    release(world, 0, 1, 2, 3, 4, 5)
    world.send(Ask(number=6))
    left = sorted((await answered(world, 3, 4, 5, 6))[3:])
    return failed, sorted(world.server.forgotten), left


async def an_answer_before_its_deadline_is_the_only_one(world: CallWorld) -> object:
    await connect(world)
    world.send(Ask(number=0, timeout_ms=300), Ask(number=1, kind="alone", timeout_ms=300))
    await answered(world, 0, 1)
    # Its time is over after theirs.
    await keep(world, Ask(number=2, kind="fetch", timeout_ms=300))
    return sorted(await answered(world, 2))


async def a_call_without_a_reply_is_read_in_its_place(world: CallWorld) -> object:
    world.send(Ask(number=0, acks=0), Ask(number=1), Ask(number=2, acks=0), Ask(number=3))
    return await answered(world, 1, 3), world.server.asked


async def a_server_that_dies_fails_all_calls_in_flight(world: CallWorld) -> object:
    await keep(
        world, Ask(number=0), Ask(number=1), *[Ask(number=2 + n, kind=kind) for n, kind in enumerate(KINDS)]
    )
    await world.crash_server()
    return sorted(await answered(world, *range(6)))


async def a_server_that_is_down_refuses_and_is_found_again(world: CallWorld) -> object:
    world.send(Ask(number=0))
    await answered(world, 0)
    await world.crash_server()
    for number, kind in enumerate(KINDS, 1):
        world.send(Ask(number=number, kind=kind))
        await answered(world, number)
    refused = list(world.clients[0].answers)
    await world.start_server()
    for number in count(10):
        world.send(Ask(number=number, kind=KINDS[number % 4]))
        await answered(world, number)
        if world.server.asked:
            break
    later = world.clients[0].answers[len(refused) :]
    return refused, {seen for _, seen in later[:-1]} <= {"lost"}, len(later[-1:]), len(world.server.asked)


async def a_call_without_a_reply_fails_where_nobody_listens(world: CallWorld) -> object:
    world.send(Ask(number=0))
    await answered(world, 0)
    await world.crash_server()
    world.send(Ask(number=1))
    await answered(world, 1)
    world.send(Ask(number=2, acks=0))
    return await answered(world, 2)


async def calls_to_a_server_that_stops_in_order_end(world: CallWorld) -> object:
    world.send(Ask(number=0))
    await answered(world, 0)
    world.server.keeps = True
    await world.stop_server()
    world.send(Ask(number=1))
    return await answered(world, 1)


async def a_core_that_fails_ends_its_server_with_all_calls(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1, kind="alone"))
    world.send(Ask(number=BROKEN, kind="fetch"))
    return sorted(await answered(world, 0, 1, BROKEN))


async def answers_given_with_the_stop_are_sent(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1, kind="alone"))
    await world.stop_server()
    return sorted(await answered(world, 0, 1))


async def what_a_client_that_leaves_waits_for_is_forgotten(world: CallWorld) -> object:
    world.server.keeps = True
    world.send(*[Ask(number=number, kind=kind) for number, kind in enumerate(KINDS)])
    world.send(Ask(number=10), Ask(number=11, kind="alone"), by=1)
    await asked(world, 0, 1, 2, 3, 10, 11)
    await world.leave()
    await world.until(lambda: len(world.server.forgotten) == 4)
    release(world, 0, 1, 2, 3, 10, 11)
    return sorted(world.server.forgotten), sorted(await answered(world, 10, 11, by=1))


async def a_client_that_stops_in_order_has_sent_what_expects_no_reply(world: CallWorld) -> object:
    world.send(*[Ask(number=number, acks=0, size_bytes=30_000) for number in range(10)])
    await world.close()
    return await asked(world, *range(10)), world.clients[0].answers


async def a_client_that_stops_in_order_lets_its_streams_drain(world: CallWorld) -> object:
    world.send(Ask(number=0, acks=0))
    await keep(world, Ask(number=1), Ask(number=2))

    async def meanwhile() -> None:
        # The server learns that the client sends nothing more before so many calls of the other one are answered.
        for number in range(10, 20):
            world.send(Ask(number=number), by=1)
            await answered(world, number, by=1)
        release(world, 2, 1)

    await world.close(meanwhile=meanwhile)
    # The server was not told that somebody has left.
    return world.server.forgotten, world.server.asked[:3]


async def clients_share_nothing(world: CallWorld) -> object:
    await connect(world)
    await connect(world, by=1)
    world.server.keeps = True
    world.send(Ask(number=0))
    world.send(Ask(number=1, timeout_ms=SHORT_MS), by=1)
    await asked(world, 0, 1)
    first = list(await answered(world, 1, by=1))
    await world.until(lambda: world.server.forgotten == [1])
    await world.close(by=1)
    release(world, 0)
    return first, await answered(world, 0), world.clients[1].answers


async def a_request_out_of_bounds_is_refused_and_its_stream_goes_on(world: CallWorld) -> object:
    world.send(Ask(number=0, topic="t" * 300), Ask(number=1), Ask(number=2, kind="fetch", topic="t" * 300))
    world.send(Ask(number=3, kind="alone", topic="t" * 300, size_bytes=100))
    return sorted(await answered(world, 0, 1, 2, 3)), world.server.asked


async def an_answer_out_of_bounds_fails_its_call_alone(world: CallWorld) -> object:
    await keep(world, Ask(number=0), Ask(number=1), Ask(number=2, kind="alone"), Ask(number=3, kind="alone"))
    bad = ProducePartitionResponse(topic_partition=TopicPartition("t", 0), base_offset=-5)
    world.server.instead = {
        0: ProduceResponse(partitions=(bad,)),
        2: MetadataResponse(cluster_id="x" * 100_000),
    }
    release(world, 0, 1, 2, 3)
    return sorted(await answered(world, 0, 1, 2, 3))


async def jobs_run_beside_steps_one_after_the_other(world: CallWorld) -> object:
    done: list[int] = []
    world.begin_job(1, lambda: done.append(1))
    world.begin_job(2, lambda: done.append(1 // 0))
    world.begin_job(3, lambda: done.append(3))
    world.send(Ask(number=0), Ask(number=1, kind="alone"))
    answers = sorted(await answered(world, 0, 1))
    before = (list(done), list(world.server.events))
    await world.end_jobs()
    await world.until(lambda: len(world.server.events) == 3)
    return answers, before, done, world.server.events


async def timers_replace_each_other_and_one_that_is_due_fires(world: CallWorld) -> object:
    world.serve(
        lambda now_ms: [
            SetTimer(key="moved", at_ms=now_ms + 60_000),
            SetTimer(key="cancelled", at_ms=now_ms + 5),
            SetTimer(key="last", at_ms=now_ms + SHORT_MS),
            SetTimer(key="due", at_ms=now_ms - 5),
            SetTimer(key="moved", at_ms=now_ms + 10),
            CancelTimer(key="cancelled"),
            CancelTimer(key="never set"),
        ]
    )
    await world.until(lambda: len(world.server.events) == 3)
    return world.server.events


CALL_CASES: tuple[Script, ...] = (
    each_kind_of_call_is_answered,
    the_calls_of_a_stream_keep_their_order,
    answers_come_in_the_order_in_which_they_are_given,
    streams_and_unary_calls_do_not_wait_for_each_other,
    all_unary_calls_of_a_turn_are_answered,
    more_unary_calls_than_a_connection_carries_at_once_are_all_answered,
    unary_calls_above_those_of_a_method_wait_at_the_client,
    the_calls_of_one_turn_are_one_frame_and_one_step,
    more_calls_than_a_frame_takes_keep_their_order,
    answers_of_one_step_keep_their_order,
    a_unary_call_whose_time_is_over_fails_alone,
    a_time_out_ends_its_stream_with_all_calls_in_flight,
    an_answer_before_its_deadline_is_the_only_one,
    a_call_without_a_reply_is_read_in_its_place,
    a_server_that_dies_fails_all_calls_in_flight,
    a_server_that_is_down_refuses_and_is_found_again,
    a_call_without_a_reply_fails_where_nobody_listens,
    calls_to_a_server_that_stops_in_order_end,
    a_core_that_fails_ends_its_server_with_all_calls,
    answers_given_with_the_stop_are_sent,
    what_a_client_that_leaves_waits_for_is_forgotten,
    a_client_that_stops_in_order_has_sent_what_expects_no_reply,
    a_client_that_stops_in_order_lets_its_streams_drain,
    clients_share_nothing,
    a_request_out_of_bounds_is_refused_and_its_stream_goes_on,
    an_answer_out_of_bounds_fails_its_call_alone,
    jobs_run_beside_steps_one_after_the_other,
    timers_replace_each_other_and_one_that_is_due_fires,
)
