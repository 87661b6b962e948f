"""Runs a failing scenario again with neighbouring events of one node in the other order.

Two events of a node are neighbours if both were scheduled before the first one ran, so that neither is the cause of the
other, and nothing else is scheduled between them that this node would notice. The first one is delayed until the second
one has run. Only packets and faults are delayed, and packets of one connection never overtake each other: in a real
network the same could have happened by chance. A fault is an event of every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, final

from sim.bugs.planting import Replacement, replaced
from sim.faults.plan import Faults
from sim.hosts.outbound import Dialer
from sim.hosts.shell import Shell
from sim.hosts.timers import Timers
from sim.world.network import Network
from sim.world.packets import Packet
from sim.world.time import Entry, World

# A packet that is later than this is a fault of its own.
MOST_DELAY_US = 10_000
_EVERYWHERE = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Two neighbouring events, in words. `event` is the number of the first one, which is to run at `at_us`."""

    event: int
    at_us: int
    first: str
    second: str
    # Whether one of them is a step of the scenario.
    has_fault: bool = False


# Returns whether two events are to change places; called for all that may, in their order.
Choice = Callable[[Swap], bool]


@final
class Reordering:
    """Lets events of one world change places where `choice` says so.

    The number of an event is the count of those that have run before it.
    """

    def __init__(self, world: World, choice: Choice) -> None:
        self._world, self._choice = world, choice
        self._last_asked = -1

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Run the world's events in the new order during the block."""
        with replaced(Replacement(target="sim.world.time:World.run_to", make=lambda original: self._run_to)):
            yield

    def _run_to(self, end_us: int, is_over: Callable[[], bool] | None = None) -> None:
        """Does what `World.run_to` does; it takes no world, because it is not bound to one."""
        world = self._world
        assert world.now_us <= end_us, (world.now_us, end_us)
        entries = world._entries
        while entries and entries[0][0] < end_us:
            entry = heappop(entries)
            if self._is_delayed(entry, entries):
                continue
            world.now_us, _, _, action, argument = entry
            action(argument)
            world.events += 1
            if is_over is not None and is_over():
                break
        else:
            world.now_us = end_us
        assert world.now_us <= end_us, (world.now_us, end_us)

    def _is_delayed(self, entry: Entry, entries: list[Entry]) -> bool:
        """Delay the event behind its neighbour if the choice says so. Returns whether it did."""
        event = self._world.events
        second = neighbour(entry, entries)
        # What runs instead of a delayed event has its number, and must not be delayed as well.
        if second is None or event == self._last_asked:
            return False
        self._last_asked = event
        swap = Swap(
            event=event, at_us=entry[0], first=words(entry), second=words(second),
            has_fault=_EVERYWHERE in (_place(entry), _place(second)),
        )  # fmt: skip
        if not self._choice(swap):
            return False
        assert entry[0] <= second[0], (entry[0], second[0])
        heappush(entries, (second[0] + 1, *entry[1:]))
        return True


def neighbour(entry: Entry, entries: list[Entry]) -> Entry | None:
    """Returns the next event of the same node in `entries`; None if the two may not change places."""
    place = _place(entry)
    if not place or not (isinstance(entry[4], Packet) or place == _EVERYWHERE):
        return None
    until_us = entry[0] + MOST_DELAY_US
    # No two of them have equal ties, so that their actions are never compared.
    second = min(
        (each for each in entries if each[0] <= until_us and _meet(place, _place(each))), default=None
    )
    return None if second is None or _is_one_connection(entry[4], second[4]) else second


def _meet(one: str, other: str) -> bool:
    return bool(other) and (one == other or _EVERYWHERE in (one, other))


def _is_one_connection(one: object, other: object) -> bool:
    return isinstance(one, Packet) and isinstance(other, Packet) and one.connection is other.connection


def _place(entry: Entry) -> str:
    """Returns the name of the node or client that notices the event, `*` for a fault; empty where it is not known."""
    owner, argument = getattr(entry[3], "__self__", None), entry[4]
    match owner:
        case Network() if isinstance(argument, Packet):
            return _ends(owner, argument)[1]
        case Shell():
            return owner.name
        case Timers() | Dialer():
            return owner._actor.name
        case Faults():
            return _EVERYWHERE
        case _:
            return ""


def _ends(network: Network, packet: Packet) -> tuple[str, str]:
    """Returns who sent the packet, and to whom."""
    dialer, target = packet.connection.dialer.name, network.name_of(packet.connection.target)
    return (dialer, target) if packet.to_target else (target, dialer)


def words(entry: Entry) -> str:
    """Returns what the event is, for a reader."""
    action: Any = entry[3]
    owner, argument = action.__self__, entry[4]
    match owner:
        case Network() if isinstance(argument, Packet):
            source, target = _ends(owner, argument)
            return f"{_packet_words(argument)} from {source} to {target}"
        case Faults():
            step = owner._steps[argument if isinstance(argument, int) else argument[0]]
            return f"the step {step.verb} {step.target_text}"
        case Timers():
            return f"the timer {argument[0]} of {owner._actor.name}"
        case Shell():
            return f"{owner.name}: {action.__name__.removeprefix('_').replace('_', ' ')}"
        case _:
            return f"{owner._actor.name}: an answer to itself"


def _packet_words(packet: Packet) -> str:
    if packet.channel is None:
        return packet.kind.name.lower()
    method = packet.channel.path.rpartition("/")[2]
    return f"{method} {'request' if packet.to_target else 'answer'}"
