"""Lets all clients of a cluster at rest leave in order: each gets the answers that it waits for, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sim.checkers.base import Jury
from sim.checkers.call_places import CallPlaces
from sim.cluster import Cluster
from sim.hosts.lives import FINISH_US
from sim.world.network import Transport

_LOOK_US = 20_000


@final
class Departures:
    """Closes the sending side of each client's streams, most of which have a fetch that waits.

    Whether each call gets its answer is judged by the checker of calls. Datagrams may lose the news that a client
    leaves: on such networks nobody does. After that each node counts no more calls than its connections have.
    """

    def __init__(self, cluster: Cluster, jury: Jury) -> None:
        self._cluster, self._places = cluster, CallPlaces(jury)

    def leave(self, is_over: Callable[[], bool]) -> None:
        """Let the clients leave, wait until all have or until `is_over`, and judge what is left of them."""
        world, network = self._cluster.world, self._cluster.network
        everyone = (*self._cluster.clients, *self._cluster.seekers, *self._cluster.admins)
        clients = [each for each in everyone if each.is_up]
        if network.transport is Transport.STREAM:
            for client in clients:
                client.leave()
            end_us = world.now_us + FINISH_US
            while world.now_us < end_us and not is_over() and any(each.has_streams for each in clients):
                world.run_to(world.now_us + _LOOK_US)
        for node in self._cluster.brokers.values():
            for kind, limit, rooms in node.places():
                self._places.judge_sum(node.name, kind, limit, rooms)
