"""Events that arrive in two turns of the loop make one step: a follower gets one answer for all that was produced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cluster.core.effects import BOOTSTRAP, Effect, Reply, Send
from cluster.core.events import Event, Request, Response, Shutdown
from cluster.core.messages import (
    CreateTopicRequest,
    FetchResponse,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
    ResponseBody,
)
from cluster.shell.runtime import Runtime
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import T0, Setup, first_values
from tests.cluster.shell.echo_core import EchoCore, answer_to
from tests.cluster.shell.test_server import HOST, node


class ManyCore:
    """A core that remembers which events came together."""

    def __init__(self) -> None:
        self.turns: list[list[Event]] = []
        self.was_stepped = asyncio.Event()

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        self.turns.append(list(events))
        self.was_stepped.set()
        return [
            Reply(call=event.call, body=answer_to(event.body))
            for event in events
            if isinstance(event, Request)
        ]


async def two_turns() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_request_of_the_next_turn_joins_the_step() -> None:
    async def main() -> None:
        core = ManyCore()
        runtime = Runtime(core)
        runtime.start()
        answers: list[ResponseBody] = []
        runtime.ask(MetadataRequest(topics=("first",)), answers.append)
        await asyncio.sleep(0)
        assert core.turns == []
        runtime.ask(MetadataRequest(topics=("second",)), answers.append)
        await asyncio.sleep(0)
        assert [len(turn) for turn in core.turns] == [2]
        assert len(answers) == 2
        await runtime.close()

    asyncio.run(main())


def test_answers_of_one_frame_are_one_step() -> None:
    async def main() -> None:
        async with node() as serving:
            core = ManyCore()
            runtime = Runtime(core, bootstrap=[(HOST, serving.port)])
            runtime.start()
            asked = ProducePartition(topic_partition=T0, records=b"x")
            body = ProduceRequest(acks=-1, partitions=(asked,))
            runtime.run(
                lambda _: [Send(to=BOOTSTRAP, call=call, body=body, timeout_ms=5_000) for call in (1, 2, 3)]
            )
            await core.was_stepped.wait()
            answered = [[event.call for event in turn if isinstance(event, Response)] for turn in core.turns]
            assert answered == [[1, 2, 3]]
            await runtime.close()

    asyncio.run(main())


def test_c8_a_core_that_has_failed_is_not_told_who_left() -> None:
    async def main() -> None:
        core = EchoCore()
        runtime = Runtime(core)
        runtime.start(core.start)
        left = runtime.ask(CreateTopicRequest(name="never"), lambda _: None)
        await two_turns()
        runtime.ask(CreateTopicRequest(name="bug"), lambda _: None)
        # The request that breaks the core is passed to it before the word that a client left.
        runtime.forget(left)
        assert runtime.stopped.done() and core.forgotten == []
        await runtime.close()

    asyncio.run(main())


def test_requests_of_one_turn_are_one_step_and_keep_their_order_before_what_follows() -> None:
    async def main() -> None:
        core = ManyCore()
        runtime = Runtime(core)
        runtime.start()
        answers: list[ResponseBody] = []
        calls = [runtime.ask(MetadataRequest(topics=(str(number),)), answers.append) for number in range(3)]
        assert core.turns == []
        runtime.shut_down()
        later = runtime.ask(MetadataRequest(), answers.append)
        await two_turns()
        asked = [[event.call for event in turn if isinstance(event, Request)] for turn in core.turns]
        assert asked == [calls, [], [later]]
        assert core.turns[1] == [Shutdown()]
        assert len(answers) == 4
        await runtime.close()

    asyncio.run(main())


def test_pro8_batches_produced_in_one_step_reach_a_waiting_follower_in_one_answer() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1, 2))
    setup.fetch_effects(2, 0, max_wait_ms=500)
    for value in (b"a", b"b", b"c"):
        asked = ProducePartition(topic_partition=T0, records=batch(value))
        setup.manager.produces.on_request(
            setup.now_ms, setup.call(), ProduceRequest(acks=-1, partitions=(asked,))
        )
    replies = [effect.body for effect in setup.settle() if isinstance(effect, Reply)]
    answers = [body.partitions[0] for body in replies if isinstance(body, FetchResponse)]
    assert [first_values(answer) for answer in answers] == [[b"a", b"b", b"c"]]
