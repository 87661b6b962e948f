"""A controller without a descriptor: nothing is written, and what asked for it is refused or done later (AP16)."""

from __future__ import annotations

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.controller import FLUSH_RETRY_TIMER, LACK_RETRY_MS, SESSION_TIMER
from cluster.core.effects import Reply, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicRequest,
    CreateTopicResponse,
)
from storage.errors import OutOfHandles
from tests.cluster.controller.setup import ControllerBench

OPENING = ("open", "reopen", "reserve", "create")
CREATE = CreateTopicRequest(name="u", assignment=((1,),))


def restarted(config: ControllerConfig | None = None) -> ControllerBench:
    """A controller that has just started again: its first append writes a checkpoint."""
    bench = ControllerBench(config).unfenced(1)
    bench.crash_and_restart()
    return bench


def is_going_on(bench: ControllerBench) -> bool:
    return not any(isinstance(effect, Stop) for effect in bench.seen)


def test_ap16_a_decision_that_lacks_a_descriptor_is_refused_and_can_be_made_later() -> None:
    bench = restarted()
    before = bench.controller.pending_image
    bench.disk.lack_descriptors(OPENING)
    refused = bench.ask(CREATE)
    assert isinstance(refused, CreateTopicResponse)
    assert refused.error is ErrorCode.BROKER_NOT_AVAILABLE
    assert bench.controller.pending_image is before
    assert bench.controller.log.end_offset == before.next_offset
    bench.disk.lack_descriptors(())
    made = bench.ask(CREATE)
    assert isinstance(made, CreateTopicResponse)
    assert made.error is ErrorCode.NONE
    assert is_going_on(bench)


def test_brk4_a_broker_that_cannot_be_fenced_for_want_of_a_descriptor_is_fenced_later() -> None:
    bench = restarted(ControllerConfig(broker_session_timeout_ms=1_000))
    bench.disk.lack_descriptors(OPENING)
    bench.fire(SESSION_TIMER)
    assert not bench.controller.image.brokers[1].fenced
    # Not again at once.
    assert bench.timers[SESSION_TIMER] == bench.now_ms + LACK_RETRY_MS
    bench.disk.lack_descriptors(())
    bench.fire(SESSION_TIMER)
    assert bench.controller.image.brokers[1].fenced
    assert is_going_on(bench)


def test_brk9_a_heartbeat_keeps_a_broker_that_could_not_be_fenced() -> None:
    bench = restarted(ControllerConfig(broker_session_timeout_ms=1_000))
    bench.disk.lack_descriptors(OPENING)
    bench.fire(SESSION_TIMER)
    bench.disk.lack_descriptors(())
    epoch = bench.controller.image.brokers[1].broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, metadata_offset=0)
    answer = bench.ask(beat)
    assert isinstance(answer, BrokerHeartbeatResponse)
    assert answer.error is ErrorCode.NONE
    bench.fire(SESSION_TIMER)
    assert not bench.controller.image.brokers[1].fenced


def test_ctl3_a_flush_that_lacks_a_descriptor_is_made_again_and_its_decisions_wait() -> None:
    bench = ControllerBench().unfenced(1)
    call, _ = bench.step(CREATE)
    (job,) = bench.jobs
    bench.jobs.clear()
    effects = bench.finish(job, OutOfHandles("not flushed"))
    assert [type(effect) for effect in effects] == [SetTimer]
    assert bench.timers[FLUSH_RETRY_TIMER] == bench.now_ms + LACK_RETRY_MS
    assert "u" not in bench.controller.image.topics
    assert call in [effect.call for effect in bench.fire(FLUSH_RETRY_TIMER) if isinstance(effect, Reply)]
    assert "u" in bench.controller.image.topics


def test_ctl3_a_decision_after_a_flush_that_lacked_a_descriptor_begins_the_next_one() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(CREATE)
    bench.finish(bench.jobs.pop(), OutOfHandles("not flushed"))
    made = bench.ask(CreateTopicRequest(name="v", assignment=((1,),)))
    assert isinstance(made, CreateTopicResponse)
    assert {"u", "v"} <= bench.controller.image.topics.keys()
    # The timer finds nothing left to flush.
    assert bench.fire(FLUSH_RETRY_TIMER) == []


def test_krlog8_a_change_of_which_a_part_is_written_as_descriptors_run_out_ends_the_controller() -> None:
    config = ControllerConfig(metadata_max_batch_bytes=4 << 10)
    bench = ControllerBench(config).unfenced(1)
    log = bench.controller.log
    append = log._log.append_as_leader  # type: ignore[attr-defined]
    parts: list[object] = []

    def append_once(*args: object, **named: object) -> object:
        if parts:
            raise OutOfHandles("no descriptor")
        parts.append(append(*args, **named))
        return parts[0]

    log._log.append_as_leader = append_once  # type: ignore[attr-defined]
    bench.step(CreateTopicRequest(name="u", assignment=((1,),) * 200))
    (stop,) = [each for each in bench.seen if isinstance(each, Stop)]
    assert "only a part of a change is written" in stop.reason
