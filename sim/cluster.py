"""Builds the simulated cluster that a scenario asks for: its network, its nodes and its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, final

from cluster.core.broker.broker import Broker
from cluster.core.controller.controller import Controller
from cluster.core.messages import CONTROLLER_ID, TopicPartition
from sim.buggify import settings
from sim.buggify.buggify import Buggify
from sim.buggify.disks import DiskPoints
from sim.buggify.host import HostPoints
from sim.buggify.links import LinkPoints
from sim.disk import SimDisk
from sim.disk.costs import DiskCosts
from sim.faults.topics import create_request
from sim.hosts.admins import AdminShell
from sim.hosts.clients import ConsumerShell, ConsumerWatcher, ProducerShell, ProducerWatcher, TopicAdminShell
from sim.hosts.history import History
from sim.hosts.node import MakeCore, Node, NodeCore, NodeWatcher, log_directories, new_disk
from sim.hosts.seekers import SeekerShell
from sim.scenario.model import Scenario, TopicModel
from sim.scenario.settings import broker_config, controller_config, property_text
from sim.world.clock import Clock
from sim.world.network import Network, Transport
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.draws import Draws

FIRST_CLIENT_ID = 2001
# The name of the controller's node, and the directory of its log.
CONTROLLER = "controller"
# The steps of a coarse clock.
COARSE_MS = 10


class ClusterWatcher(NodeWatcher, ProducerWatcher, ConsumerWatcher, Protocol):
    """The watcher of every node and client."""


def broker_name(number: int) -> str:
    return f"broker-{number}"


@final
class Machines:
    """The clocks and the disks of the scenario's nodes and clients, by name, each made when it is first asked for."""

    def __init__(self, scenario: Scenario, world: World, buggify: Buggify | None = None) -> None:
        self._scenario, self._world = scenario, world
        # None where all points are off.
        self.buggify = buggify
        self._clocks: dict[str, Clock] = {}
        self._disks: dict[str, SimDisk] = {}

    def clock(self, name: str) -> Clock:
        """Returns the clock of the node or client of that name."""
        clock = self._clocks.get(name)
        if clock is None:
            model = self._scenario.cluster.clocks
            clock = self._clocks[name] = Clock(
                self._world, offset_us=self._drawn(model.offset, "offset", name),
                drift_ppm=self._drawn(model.drift, "drift", name), grain_ms=self._grain_ms(name),
            )  # fmt: skip
        return clock

    def _grain_ms(self, name: str) -> int:
        return COARSE_MS if self.buggify is not None and self.buggify.fires("clock-coarse", name) else 1

    def _drawn(self, most: int, what: str, name: str) -> int:
        """Returns a number from `-most` to `most`."""
        return Stream(self._world.draws, "clock", what, name).below(2 * most + 1) - most if most else 0

    def disk(self, name: str) -> SimDisk:
        """Returns the disk of the node of that name."""
        disk = self._disks.get(name)
        if disk is None:
            model = self._scenario.cluster.disk
            disk = self._disks[name] = new_disk(self._world, name, self.clock(name))
            disk.meter.costs = DiskCosts(call_us=model.call, mib_us=model.mebibyte, sync_us=model.sync)
            disk.points = DiskPoints(self.buggify, name) if self.buggify is not None else None
        return disk

    def broker_disks(self) -> dict[int, SimDisk]:
        """Returns the disk of each broker of the scenario, by the broker's number."""
        return {
            number: self.disk(broker_name(number)) for number in range(1, self._scenario.cluster.brokers + 1)
        }


def topic_properties(topic: TopicModel) -> dict[str, str]:
    return {key: property_text(value) for key, value in topic.config.items()}


@final
class Cluster:
    """The nodes and clients of one run, all down until `start`, each on a machine of its own."""

    def __init__(
        self, scenario: Scenario, world: World, trace: Trace, history: History, watcher: ClusterWatcher,
        machines: Machines,
    ) -> None:  # fmt: skip
        self._machines = machines
        self.scenario, self.world = scenario, world
        self._trace, self._history, self._watcher = trace, history, watcher
        network = scenario.network
        self.network = Network(
            world, trace, transport=Transport(network.transport), base_us=network.latency,
            mean_us=network.spread, loss_percent=network.loss, duplicate_percent=network.duplicates,
        )  # fmt: skip
        self.brokers: Mapping[int, Node] = {
            number: self._broker(number) for number in range(1, scenario.cluster.brokers + 1)
        }
        self.controller = self._controller()
        self.admin = TopicAdminShell(
            world, self.network, trace, watcher, name="admin", node_id=FIRST_CLIENT_ID - 1
        )
        self.producers = self._make_producers(FIRST_CLIENT_ID)
        self.consumers = self._make_consumers(FIRST_CLIENT_ID + len(self.producers))
        first_id = FIRST_CLIENT_ID + len(self.producers) + len(self.consumers)
        self.seekers = self._make_seekers(first_id)
        self.admins = self._make_admins(first_id + len(self.seekers))
        self.clients: Sequence[ProducerShell | ConsumerShell] = [*self.producers, *self.consumers]
        if machines.buggify is not None:
            self._set_points(machines.buggify)
        self.partitions = [
            TopicPartition(name, partition)
            for name, topic in scenario.topics.items()
            for partition in range(topic.partitions)
        ]

    def _set_points(self, buggify: Buggify) -> None:
        """Let buggify points fire at the network and at each shell."""
        assert self.network.points is None, "points are set once"
        self.network.points = LinkPoints(buggify)
        configs = {
            name: LogConfig.from_properties(topic_properties(each))
            for name, each in self.scenario.topics.items()
        }
        compacted = frozenset(name for name, config in configs.items() if config.is_compacted)
        for shell in (*self.brokers.values(), self.controller, self.admin, *self.clients):
            shell.points = HostPoints(buggify, shell.name, compacted)

    def _broker(self, number: int) -> Node:
        config, buggify = broker_config(self.scenario, number), self._machines.buggify
        directories, name = log_directories(self.scenario.cluster.directories), broker_name(number)

        def make_core(file_system: FileSystem, draws: Draws) -> NodeCore:
            own = config if buggify is None else settings.broker_config(buggify, name, config)
            return Broker(own, file_system, directories, draws)

        return self._node(name, number, make_core, directories)

    def _controller(self) -> Node:
        config, buggify = controller_config(self.scenario), self._machines.buggify

        def make_core(file_system: FileSystem, draws: Draws) -> NodeCore:
            own = config if buggify is None else settings.controller_config(buggify, CONTROLLER, config)
            return Controller(own, file_system, CONTROLLER, draws)

        return self._node(CONTROLLER, CONTROLLER_ID, make_core, log_directories(1))

    def _node(self, name: str, node_id: int, make_core: MakeCore, directories: tuple[str, ...]) -> Node:
        return Node(
            self.world, self.network, self._trace, self._watcher, name=name, node_id=node_id,
            disk=self._machines.disk(name), make_core=make_core, directories=directories,
            clock=self._machines.clock(name), job_means_us=self.scenario.cluster.jobs,
        )  # fmt: skip

    def _make_producers(self, first_id: int) -> list[ProducerShell]:
        models = [model for model in self.scenario.producers for _ in range(model.clients)]
        return [
            ProducerShell(
                self.world, self.network, self._trace, self._watcher, name=f"producer-{number + 1}",
                clock=self._machines.clock(f"producer-{number + 1}"),
                node_id=first_id + number, bootstrap=tuple(self.brokers), model=model, history=self._history,
            )
            for number, model in enumerate(models)
        ]  # fmt: skip

    def _make_consumers(self, first_id: int) -> list[ConsumerShell]:
        models = [model for model in self.scenario.consumers for _ in range(model.clients)]
        return [
            ConsumerShell(
                self.world, self.network, self._trace, self._watcher, name=f"consumer-{number + 1}",
                clock=self._machines.clock(f"consumer-{number + 1}"),
                node_id=first_id + number, bootstrap=tuple(self.brokers), model=model, history=self._history,
                partitions=self.scenario.topics[model.topic].partitions,
            )
            for number, model in enumerate(models)
        ]  # fmt: skip

    def _make_seekers(self, first_id: int) -> list[SeekerShell]:
        models = [model for model in self.scenario.seekers for _ in range(model.clients)]
        return [
            SeekerShell(
                self.world, self.network, self._trace, self._watcher, name=f"seeker-{number + 1}",
                clock=self._machines.clock(f"seeker-{number + 1}"),
                node_id=first_id + number, bootstrap=tuple(self.brokers), model=model,
                partitions=self.scenario.topics[model.topic].partitions,
            )
            for number, model in enumerate(models)
        ]  # fmt: skip

    def _make_admins(self, first_id: int) -> list[AdminShell]:
        models = [model for model in self.scenario.admins for _ in range(model.clients)]
        return [
            AdminShell(
                self.world, self.network, self._trace, self._watcher, name=f"admin-{number + 1}",
                clock=self._machines.clock(f"admin-{number + 1}"),
                node_id=first_id + number, bootstrap=tuple(self.brokers), model=model,
            )
            for number, model in enumerate(models)
        ]  # fmt: skip

    def replicas(self) -> dict[str, tuple[int, ...]]:
        """Returns the brokers that the controller has assigned to each partition; none while it is down."""
        controller = self.controller.core
        if not isinstance(controller, Controller):
            return {}
        return {str(each.topic_partition): each.replicas for each in controller.image.partitions()}

    def start(self) -> None:
        """Start every node; the clients begin after `create_topics`."""
        self.controller.start()
        for node in self.brokers.values():
            node.start()

    def create_topics(self) -> None:
        """Ask for the topics of the scenario; the clients begin once all of them exist."""
        requests = [
            create_request(name, topic) for name, topic in self.scenario.topics.items() if topic.exists
        ]
        self.admin.begin(requests, self._begin_clients)

    def _begin_clients(self) -> None:
        for client in (*self.clients, *self.seekers, *self.admins):
            client.begin()
