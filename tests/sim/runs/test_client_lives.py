"""Clients that are killed, stopped, paused and started again in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.core.client.consumer import ConsumerCore, Position
from cluster.core.client.effects import Flushed
from cluster.core.client.metadata_cache import MetadataUpdater
from cluster.core.client.unfinished_records import UnfinishedRecords
from cluster.core.connection.bootstrap import Bootstrap
from cluster.core.events import TransportError
from sim.bugs.planting import Replacement, replaced
from sim.checkers.client_history import ClientHistoryCheck
from sim.checkers.ghost import Ghost
from sim.hosts.history import History, Outcome, SendOperation
from sim.run import Run, Verdict
from sim.scenario.loading import parse_scenario

HEAD = """\
scenario: client-lives
duration: 6s
topics:
  t: {config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 100/s}
  - {topic: t, rate: 20/s}
consumers:
  - {topic: t}
steps:
"""


def run(steps: str, seed: int = 1) -> Run:
    """Return a run that has ended and held."""
    made = Run(parse_scenario(HEAD + steps), seed)
    result = made.go("")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return made


def outcomes(run: Run, life: int) -> set[Outcome]:
    return {send.outcome for send in run.history.sends if send.producer == "producer-1" and send.life == life}


def test_what_a_killed_producer_has_not_learned_is_unknown() -> None:
    steps = "  - {at: 2500ms, slow: leader(t/0) -> producer 1, by: 400ms}\n"
    made = run(steps + "  - {at: 4s, kill: producer 1, down: 500ms}\n  - {at: +1s, heal: all}\n")
    killed = [send for send in made.history.sends if send.error == "KILLED"]
    assert killed and all(send.outcome is Outcome.INFO and send.life == 1 for send in killed)
    # Some of them are in the log nevertheless.
    assert {send.value for send in killed} & {read.value for read in made.history.reads}
    assert outcomes(made, 2) == {Outcome.OK}
    assert "kill producer-1" in "\n".join(made.story.lines)


def test_a_stopped_producer_learns_every_outcome_first() -> None:
    made = run("  - {at: 2500ms, stop: producer 1, down: 500ms}\n")
    assert outcomes(made, 1) == outcomes(made, 2) == {Outcome.OK}


def test_a_producer_that_is_down_at_the_end_starts_again_and_sends_nothing() -> None:
    made = run("  - {at: 4s, kill: producer 1, as: P}\n  - {at: 5s, stop: producer 2}\n")
    assert {send.life for send in made.history.sends} == {1}
    assert all(producer.is_up and producer.starts == 2 for producer in made.cluster.producers)


def test_a_killed_consumer_reads_from_the_start_and_a_stopped_one_goes_on() -> None:
    killed = run("  - {at: 4s, kill: consumer 1, down: 300ms}\n").history
    stopped = run("  - {at: 4s, stop: consumer 1, down: 300ms}\n").history
    assert len({read.offset for read in killed.reads}) < len(killed.reads)
    assert len({read.offset for read in stopped.reads}) == len(stopped.reads)


def test_a_pause_within_another_gives_what_is_open_the_time_of_both() -> None:
    made = Run(parse_scenario(HEAD + "  - {at: 5s, pause: producer 1, for: 100ms}\n"), 1)
    made.begin()
    made.world.run_to(2_000_000)
    producer = made.cluster.producers[0]
    send = producer.send_one()
    within_us = send.within_us
    for at_us in (2_000_000, 2_700_000):
        made.world.run_to(at_us)
        producer.pause()
    made.world.run_to(2_900_000)
    producer.resume()
    assert send.within_us == within_us + 900_000


def test_a_producer_that_is_killed_while_it_stands_still_has_had_no_time_meanwhile() -> None:
    made = Run(parse_scenario(HEAD + "  - {at: 5s, pause: producer 1, for: 100ms}\n"), 1)
    made.begin()
    made.world.run_to(2_000_000)
    producer = made.cluster.producers[0]
    send = producer.send_one()
    within_us = send.within_us
    producer.pause()
    made.world.run_to(2_900_000)
    producer.crash()
    assert (send.outcome, send.within_us) == (Outcome.INFO, within_us + 900_000)


def test_a_paused_producer_sends_nothing() -> None:
    made = run(
        "  - {at: 3s, pause: producer 1, for: 1500ms}\n  - {at: 3500ms, stop: producer 1, down: 1ms}\n"
    )
    times = [send.invoked_us for send in made.history.sends if send.producer == "producer-1"]
    assert not any(3_000_000 <= at <= 4_500_000 for at in times)
    assert any(at > 4_500_000 for at in times)


def test_records_of_two_lives_of_a_producer_may_be_in_any_order() -> None:
    def findings(second_life: int) -> list[str]:
        history = History()
        for value, life in (("a", 1), ("b", second_life)):
            send = SendOperation(
                producer="p", value=value, acks=-1, is_idempotent=True, invoked_us=0, life=life
            )
            history.sends.append(send)
            history.finish(send, Outcome.INFO, at_us=1, partition="", offset=-1, error="KILLED")
        log = {0: "b", 1: "a"}
        return list(ClientHistoryCheck(history, Ghost(), {"t-0": log}).findings({"t-0": log}))

    assert not findings(2)
    assert "sent before" in findings(1)[0]


FLUSHES = """\
scenario: flushes
warm_up: 500ms
duration: 2s
buggify: {points: [send-flush, topic-subscribed], chance: 100%}
topics: {t: {}}
producers: [{topic: t, rate: 40/s, linger: 20ms}]
consumers: [{topic: t}]
"""


def test_flushes_end_with_what_was_sent_and_consumers_find_partitions_by_themselves() -> None:
    made = Run(parse_scenario(FLUSHES), 1)
    result = made.go("")
    assert result.verdict is Verdict.HELD, result.violations
    assert result.buggify["send-flush"] > 10 and result.buggify["topic-subscribed"] == 1
    assert made.history.reads


def test_a_flush_that_ends_before_its_records_is_found() -> None:
    def at_once(original: Callable[..., Any]) -> Callable[..., Any]:
        def end_flushes(unfinished: UnfinishedRecords) -> list[Flushed]:
            tickets, unfinished._flushes = list(unfinished._flushes.values()), {}
            return [Flushed(ticket=ticket) for ticket in tickets]

        return end_flushes

    target = "cluster.core.client.unfinished_records:UnfinishedRecords.end_flushes"
    with replaced(Replacement(target=target, make=at_once)):
        result = Run(parse_scenario(FLUSHES), 1).go("")
    assert {violation.checker for violation in result.violations} == {"no-failure"}
    assert "are open" in result.violations[0].what


PAUSES = """\
scenario: pauses
warm_up: 500ms
duration: 3s
buggify: {points: [reading-paused], chance: 50%}
topics: {t: {partitions: 2}}
producers: [{topic: t, rate: 40/s}]
consumers: [{topic: t, clients: 2}]
steps:
  - {at: 1s, pause: consumer 1, for: 700ms}
  - {at: 2s, kill: consumer 2, down: 100ms}
"""


def test_consumers_read_all_of_what_they_pause_for_a_while() -> None:
    result = Run(parse_scenario(PAUSES), 1).go("")
    assert result.verdict is Verdict.HELD, result.violations
    assert result.buggify["reading-paused"] > 10


def test_fet4_an_answer_that_is_dropped_ends_its_fetch() -> None:
    def lasting(original: Callable[..., Any]) -> Callable[..., Any]:
        def is_current(consumer: ConsumerCore, position: Position, asked_offset: int) -> bool:
            # As if the mark were taken away after the look, and not before it.
            position.is_fetching = not original(consumer, position, asked_offset)
            return not position.is_fetching

        return is_current

    target = "cluster.core.client.consumer:ConsumerCore._is_current"
    with replaced(Replacement(target=target, make=lasting)):
        result = Run(parse_scenario(PAUSES), 1).go("")
    assert result.violations[0].checker == "idle-clients"
    assert "no fetch asks for it" in result.violations[0].what


def test_fet4_records_of_a_partition_that_is_paused_are_found() -> None:
    def regardless(original: Callable[..., Any]) -> Callable[..., Any]:
        def is_current(consumer: ConsumerCore, position: Position, asked_offset: int) -> bool:
            return position.offset == asked_offset

        return is_current

    target = "cluster.core.client.consumer:ConsumerCore._is_current"
    with replaced(Replacement(target=target, make=regardless)):
        result = Run(parse_scenario(PAUSES), 1).go("")
    assert result.violations[0].checker == "consumer-positions"
    assert "although its user has paused the partition" in result.violations[0].what


REFUSED = """\
scenario: refused
warm_up: 500ms
duration: 2s
buggify: {points: [first-address-refuses, topic-subscribed], chance: 100%}
topics: {t: {}}
producers: [{topic: t, rate: 40/s}]
consumers: [{topic: t}]
"""


def test_clients_whose_first_address_refuses_them_go_to_the_next_one() -> None:
    made = Run(parse_scenario(REFUSED), 1)
    result = made.go("")
    assert result.verdict is Verdict.HELD, result.violations
    assert result.buggify["first-address-refuses"] == 2
    assert made.history.reads


def test_a_subscriber_that_does_not_ask_again_for_metadata_is_found() -> None:
    def once(original: Callable[..., Any]) -> Callable[..., Any]:
        def on_response(metadata: MetadataUpdater, now_ms: int, body: object) -> object:
            effects = original(metadata, now_ms, body)
            metadata._is_wanted = False
            return effects

        return on_response

    target = "cluster.core.client.metadata_cache:MetadataUpdater.on_response"
    with replaced(Replacement(target=target, make=once)):
        result = Run(parse_scenario(REFUSED), 1).go("")
    assert result.violations[0].checker == "idle-clients"


def test_two_calls_that_fail_at_one_address_end_its_turn_once() -> None:
    def each(original: Callable[..., Any]) -> Callable[..., Any]:
        def on_answer(bootstrap: Bootstrap[int], call: int, body: object) -> None:
            if bootstrap._calls.pop(call, None) is not None and isinstance(body, TransportError):
                bootstrap._addresses.rotate(-1)

        return on_answer

    target = "cluster.core.connection.bootstrap:Bootstrap.on_answer"
    with replaced(Replacement(target=target, make=each)):
        result = Run(parse_scenario(REFUSED), 1).go("")
    assert result.violations[0].checker == "bootstraps"
