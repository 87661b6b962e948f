"""Bugs in what the controller decides: each removes one rule of elections, the ISR or the lives of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.core.controller.sessions import Sessions
from sim.bugs.planting import Bug, Make, Replacement

Original = Callable[..., Any]

_CONTROLLER = "cluster.core.controller"
_PARTITIONS = f"{_CONTROLLER}.partitions:PartitionControl"


def _says(answer: object) -> Make:
    return lambda original: lambda *arguments, **named: answer


def _in_isr_only(original: Original) -> Original:
    def is_valid_leader(
        election: object, replica: int, isr: tuple[int, ...], is_active: Callable[[int], bool]
    ) -> bool:
        return replica in isr

    return is_valid_leader


def _moves_on(original: Original) -> Original:
    def remember_shutdown(sessions: Sessions, broker_id: int, offset: int) -> int:
        sessions._sessions[broker_id].controlled_shutdown_offset = offset
        return offset

    return remember_shutdown


def _can_read_all(original: Original) -> Original:
    def can_read(
        control: object, partition: object, is_active: Callable[[int], bool]
    ) -> Callable[[int], bool]:
        return is_active

    return can_read


def _bug(name: str, story: str, target: str, make: Make, found_by: str) -> Bug:
    return Bug(
        name=name, story=story, replacements=(Replacement(target=target, make=make),), found_by=found_by
    )


CONTROLLER_BUGS: tuple[Bug, ...] = (
    _bug(
        "controller-elects-uncleanly",
        "A broker from outside the ISR is elected in every topic, whatever the topic allows.",
        f"{_PARTITIONS}.allows_unclean_election",
        _says(True),
        "unclean-election",
    ),
    _bug(
        "controller-elects-inactive",
        "A member of the ISR is elected although it is fenced.",
        f"{_CONTROLLER}.elections:LeaderElection.is_valid_leader",
        _in_isr_only,
        "unclean-election",
    ),
    _bug(
        "controller-elects-unreadable",
        "A broker may lead a partition that it cannot read, because its log directory has failed (KIP-858).",
        f"{_PARTITIONS}._can_read",
        _can_read_all,
        "controller-elects-unreadable",
    ),
    _bug(
        "controller-keeps-fenced-members",
        "A broker that is fenced stays leader and in every ISR (KIP-841).",
        f"{_PARTITIONS}.records_for_leaving",
        _says([]),
        "leader-crash",
    ),
    _bug(
        "controller-admits-any-member",
        "A proposed ISR may have a member that is fenced or in another life (KIP-841, KIP-903).",
        f"{_PARTITIONS}.check_members_eligible",
        _says(None),
        "late-isr-proposal",
    ),
    _bug(
        "controller-elects-none-for-arrivals",
        "A broker that comes back leads nothing, although a partition without a leader waits for it.",
        f"{_PARTITIONS}.records_for_arriving",
        _says([]),
        "unclean-election",
    ),
    _bug(
        "controller-never-fences",
        "The session of a silent broker never expires.",
        f"{_CONTROLLER}.sessions:Sessions.longest_silent",
        _says(None),
        "leader-crash",
    ),
    Bug(
        name="controller-unfences-too-early",
        story="A broker is unfenced although it has not read the metadata log up to its registration.",
        # The broker itself asks to stay fenced as long.
        replacements=(
            Replacement(target=f"{_CONTROLLER}.brokers:BrokerControl.has_caught_up", make=_says(True)),
            Replacement(target="cluster.core.broker.lifecycle:Lifecycle.wants_fence", make=_says(False)),
        ),
        found_by="controller-unfences-too-early",
    ),
    _bug(
        "controller-moves-shutdown-offset",
        "Each heartbeat of a broker that stops names again what the others must read first (KAFKA-14292).",
        f"{_CONTROLLER}.sessions:Sessions.remember_shutdown",
        _moves_on,
        "",
    ),
)
