"""A client asks another of its bootstrap addresses after one has failed."""

from __future__ import annotations

from cluster.core.effects import BOOTSTRAP, Send
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import MetadataRequest, MetadataResponse
from sim.checkers.base import Jury
from sim.checkers.bootstraps import BootstrapsInTurn
from sim.checkers.ghost import Ghost

ME = ("producer-1", 1)
FAILED = TransportError(reason="connection refused")
REFUSED = MetadataResponse(error=ErrorCode.BROKER_NOT_AVAILABLE)


class Watched:
    """A client with three addresses: nodes 1, 2 and 3."""

    def __init__(self, addresses: int = 3) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.bootstraps, self.addresses = BootstrapsInTurn(self.jury), tuple(range(1, addresses + 1))

    def asks(self, call: int, node: int, *, to: int = BOOTSTRAP) -> int:
        effect = Send(to=to, call=call, body=MetadataRequest(topics=()), timeout_ms=1)
        self.bootstraps.on_sent(ME, effect, node, self.addresses)
        return len(self.jury.violations)


def test_the_address_after_one_that_has_failed_is_another_one() -> None:
    for outcome in (FAILED, REFUSED):
        watched = Watched()
        assert not watched.asks(1, 1)
        watched.bootstraps.on_answered(ME, 1, outcome)
        assert not watched.asks(2, 2)
        watched.bootstraps.on_answered(ME, 2, outcome)
        assert watched.asks(3, 2)


def test_each_address_has_its_turn_before_one_that_has_failed_is_asked_again() -> None:
    for order, is_wrong in (((1, 2, 3, 1, 2, 3), False), ((1, 2, 1), True), ((1, 3), True), ((2,), True)):
        watched = Watched()
        for call, node in enumerate(order):
            watched.asks(call, node)
            watched.bootstraps.on_answered(ME, call, FAILED)
        assert bool(watched.jury.violations) == is_wrong, order


def test_calls_that_fail_together_at_an_address_count_as_one_failure() -> None:
    watched = Watched()
    watched.asks(1, 1)
    watched.asks(2, 1)
    watched.bootstraps.on_answered(ME, 1, FAILED)
    assert not watched.asks(3, 2)
    watched.bootstraps.on_answered(ME, 2, FAILED)
    watched.bootstraps.on_answered(ME, 3, FAILED)
    assert not watched.asks(4, 3)


def test_a_call_that_fails_late_ends_the_turn_of_its_address() -> None:
    """The client has come back to that address since, without a call to it."""
    watched = Watched(addresses=2)
    for call, node in ((1, 1), (2, 1)):
        watched.asks(call, node)
    watched.bootstraps.on_answered(ME, 1, FAILED)
    watched.asks(3, 2)
    watched.bootstraps.on_answered(ME, 3, FAILED)
    watched.bootstraps.on_answered(ME, 2, FAILED)
    assert not watched.asks(4, 2)


def test_an_address_that_has_not_failed_is_asked_again() -> None:
    watched = Watched()
    watched.asks(1, 1)
    assert not watched.asks(2, 1)
    watched.bootstraps.on_answered(ME, 1, MetadataResponse())
    assert not watched.asks(3, 1)


def test_a_single_address_is_asked_again() -> None:
    watched = Watched(addresses=1)
    watched.asks(1, 1)
    watched.bootstraps.on_answered(ME, 1, FAILED)
    assert not watched.asks(2, 1)


def test_what_a_broker_that_is_known_fails_to_answer_says_nothing_of_addresses() -> None:
    watched = Watched()
    watched.asks(1, 1, to=1)
    watched.bootstraps.on_answered(ME, 1, FAILED)
    assert not watched.asks(2, 1)


def test_a_broker_is_not_asked_twice_in_a_row_for_what_each_one_knows() -> None:
    watched = Watched()
    for target, known in ((1, (1, 2)), (2, (1, 2)), (2, (2, 3)), (3, (2, 3)), (3, (3,)), (3, (3,))):
        watched.bootstraps.on_asked(ME, target, known)
    assert not watched.jury.violations
    watched.bootstraps.on_asked(ME, 2, (2, 3))
    watched.bootstraps.on_asked(ME, 2, (3, 2))
    assert len(watched.jury.violations) == 1
