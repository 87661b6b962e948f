"""The watcher of a run: writes events down, shows them to the checkers, and wakes the fault that waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import ConsumerCore, Start
from cluster.core.client.effects import ConsumerEffect, Fetched
from cluster.core.client.producer import ProducerCore
from cluster.core.connection.codec import STREAM_REQUESTS
from cluster.core.connection.outgoing import Answer
from cluster.core.connection.rooms import Room
from cluster.core.controller.controller import Controller
from cluster.core.effects import BOOTSTRAP, Observe, RunJob, Send, Stop
from cluster.core.events import Event, JobDone, Response, TimerFired
from cluster.core.messages import (
    CONTROLLER_ID,
    NO_LEADER,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.snapshots import SNAPSHOT_SUFFIX
from cluster.core.replica.flushes import FLUSH_TIMER
from cluster.core.replica.isr_changes import LAG_TIMER
from sim.checkers.adopted_marks import AdoptedMarks
from sim.checkers.append_order import AppendOrder
from sim.checkers.bootstraps import BootstrapsInTurn
from sim.checkers.call_limits import CallLimits
from sim.checkers.call_places import CallPlaces
from sim.checkers.calls import Calls
from sim.checkers.client_sends import ClientSends
from sim.checkers.consumer_positions import ConsumerPositions
from sim.checkers.deliveries import Deliveries
from sim.checkers.due_flushes import DueFlushes
from sim.checkers.due_retention import DueRetention
from sim.checkers.due_snapshots import DueSnapshots
from sim.checkers.failed_disks import FailedDisks
from sim.checkers.fetch_order import FetchOrder
from sim.checkers.forwarding import FORWARDED, ForwardedRequests
from sim.checkers.ghost import NO_END
from sim.checkers.idle_brokers import IdleBrokers
from sim.checkers.idle_clients import IdleClients
from sim.checkers.late_proposals import LateProposals
from sim.checkers.metadata_positions import MetadataPositions
from sim.checkers.needless_refusals import ControllerRefusals, NeedlessRefusals
from sim.checkers.observers import Observers
from sim.checkers.offline_names import OfflineNames
from sim.checkers.parked_fetches import ParkedFetches
from sim.checkers.present_lives import PresentLives
from sim.checkers.produced_sets import ProducedSets
from sim.checkers.producer_ids import ProducerIdsOnce
from sim.checkers.proposals import Proposals
from sim.checkers.renumbering import Renumbering
from sim.checkers.sessions import BrokerSessions
from sim.checkers.shutdowns import OrderlyStops
from sim.checkers.standing_timers import StandingTimers
from sim.checkers.stated_fields import StatedFields
from sim.checkers.strays import Strays
from sim.checkers.topic_decisions import TopicDecisions
from sim.checkers.unanswered import UnansweredCalls
from sim.faults.conditions import Lookout
from sim.hosts.clients import ConsumerShell
from sim.hosts.node import Node
from sim.hosts.shell import Shell
from sim.left_logs import is_log_in_use
from sim.story import Chronicle
from sim.witness.fetch_waits import FetchWaitWitness
from sim.witness.lag import LagWitness
from sim.witness.leaders import LeaderWitness
from sim.witness.metadata_log import MetadataWitness
from sim.witness.witness import Witness
from sim.world.packets import Exchange
from storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA_FILE
from storage.disk.filesystem import basename, dirname
from storage.errors import StorageError

# A constant, because a union written in a check would be built for each step.
CLIENT_CORES = (ProducerCore, ConsumerCore)
ASKED_OF_ANY = (MetadataRequest, InitProducerIdRequest)
# The observations that nearly all steps have, of which only the witness of the logs makes something.
FREQUENT = ("replica.appended", "replica.high_watermark")


@final
class Watch:
    """Watches every node and client of a run."""

    def __init__(
        self, chronicle: Chronicle, witness: Witness, metadata: MetadataWitness, lookout: Lookout,
        parked: ParkedFetches, calls: Calls, lag: LagWitness, sessions: BrokerSessions,
        unanswered: UnansweredCalls,
    ) -> None:  # fmt: skip
        self._lag, self._sessions = lag, sessions
        self._parked, self._calls = parked, calls
        self._chronicle, self._witness, self._lookout = chronicle, witness, lookout
        self._metadata = metadata
        self._jury = witness.jury
        self._lives = PresentLives(witness.jury)
        self._strays = Strays(witness.jury)
        self._observers = Observers(witness.jury)
        self._producer_ids = ProducerIdsOnce(witness.jury)
        self._topics = TopicDecisions(witness.jury)
        self._proposals = Proposals(witness.jury)
        self._late_proposals = LateProposals(witness.jury)
        self._leaders = LeaderWitness(witness.jury)
        self._waits = FetchWaitWitness(witness.jury)
        self._stops = OrderlyStops(witness.jury)
        self._positions = ConsumerPositions(witness.jury)
        self._sends = ClientSends(witness.jury)
        self._idle = IdleClients(witness.jury)
        self._idle_brokers = IdleBrokers(witness.jury)
        self._retention = DueRetention(witness.jury)
        self._flushes = DueFlushes(witness.jury)
        self._snapshots = DueSnapshots(witness.jury)
        self._renumbering = Renumbering(witness.jury)
        self._deliveries = Deliveries(witness.jury)
        self._fields = StatedFields(witness.jury)
        self._sets = ProducedSets(witness.jury)
        self._refusals = NeedlessRefusals(witness.jury)
        self._controller_refusals = ControllerRefusals(witness.jury)
        self._unanswered = unanswered
        self._forwarding = ForwardedRequests(witness.jury)
        self._places = CallPlaces(witness.jury)
        self._limits = CallLimits(witness.jury)
        self._appends = AppendOrder(witness.jury)
        self._bootstraps = BootstrapsInTurn(witness.jury)
        self._adopted = AdoptedMarks(witness.jury)
        self._order = FetchOrder(witness.jury)
        self._offline = OfflineNames(witness.jury)
        self._failed_disks = FailedDisks(witness.jury)
        self._metadata_positions = MetadataPositions(witness.jury)
        self.standing = StandingTimers(witness.jury)
        self._reported_excuses = 0

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        """Receives all observations of one step of a node or client."""
        for observe in observes:
            self._chronicle.observe(shell.name, observe)
            if observe.kind == "broker.started" and isinstance(shell, Node) and shell.starts > 1:
                how = "a clean" if dict(observe.fields)["clean"] else "an unclean"
                self._chronicle.note(shell.name, f"is back after {how} stop")
            if observe.kind == "broker.started" and isinstance(shell, Node):
                self._failed_disks.new_errors((shell.node_id, shell.life_number), shell.disk.errors)
            if observe.kind == "broker.registered" and isinstance(shell, Node):
                self._stops.on_registered(shell.node_id, shell.starts)
                self._order.forget((shell.node_id, shell.life_number))
            if observe.kind == "replica.truncated":
                self._on_truncated(shell, str(dict(observe.fields)["topic_partition"]))
            elif observe.kind == "isr.proposed":
                values = dict(observe.fields)
                self._lookout.on_proposed(str(values["topic_partition"]), str(values["isr"]).split(","))
            elif observe.kind == "replica.offline" and isinstance(shell.core, Broker):
                topic, _, number = str(dict(observe.fields)["topic_partition"]).rpartition("-")
                life = (shell.node_id, shell.life_number)
                self._offline.on_offline(life, TopicPartition(topic, int(number)), shell.core.image)
            elif observe.kind == "log_directory.offline" and isinstance(shell, Node):
                values = dict(observe.fields)
                directory, disk = str(values["directory"]), shell.disk
                if not (shell.is_damaged or disk.refused(directory)):
                    self._failed_disks.on_offline(shell.node_id, directory, str(values["reason"]))
            elif observe.kind == "metadata.damaged":
                self._metadata_positions.on_damaged((shell.node_id, shell.life_number))
            elif observe.kind == "consumer.damaged_batch":
                self._positions.on_damaged(shell.name, str(dict(observe.fields)["topic_partition"]))
            elif observe.kind == "log.uncleanable":
                self._on_unusable(shell, dict(observe.fields), "cannot be compacted")
            elif observe.kind == "replica.failed" and isinstance(shell, Node):
                # A call that a disk refuses for a moment changes nothing that it holds.
                if not (shell.disk.spoils_calls or shell.disk.has_refused):
                    self._on_unusable(shell, dict(observe.fields), "is given up")
        self._witness.on_observes(shell, observes)
        rare = [observe for observe in observes if observe.kind not in FREQUENT]
        if rare:
            self._lag.on_observes(shell, rare)
        if isinstance(shell, Node):
            if rare:
                self._metadata.on_observes(shell, rare)
            # A proposal of this step leaves after its observations.
            if self._proposals.are_watched and "isr.proposed" not in [observe.kind for observe in rare]:
                self._look_at_proposals(shell)
        self._report_excuses()
        self._lookout.look()

    def _on_truncated(self, shell: Shell, partition: str) -> None:
        self._lookout.on_truncated(partition)
        topic, _, number = partition.rpartition("-")
        life = (shell.node_id, shell.life_number)
        self._retention.on_truncated(life, TopicPartition(topic, int(number)))

    def _on_unusable(self, shell: Shell, values: dict[str, int | str], what: str) -> None:
        """Report a log that is compacted or copied no more where no disk has changed what it holds (CL6)."""
        is_damaged = isinstance(shell, Node) and shell.is_damaged
        # A follower may have copied the damage of another disk.
        if not is_damaged and not self._jury.ghost.excuses:
            told = f"{values['topic_partition']} of {shell.name} {what}: {values['reason']}"
            self._jury.report("no-failure", told)

    def _look_at_proposals(self, node: Node) -> None:
        """Show what leaders make of their proposals: what a step has changed is seen in it, or in one of the next."""
        if isinstance(node.core, Broker):
            calm_since_us = max(node.resumed_us, node.still_until_us, node.clock.thawed_us)
            if node.clock.frozen_us is not None:
                # No back-off of a leader ends before its clock goes on.
                calm_since_us = node.world.now_us
            life = (node.node_id, node.life_number)
            backoff_us = 1_000 * node.core.config.retry_backoff_ms
            self._proposals.look(
                life, node.core.replicas(), calm_since_us=calm_since_us, backoff_us=backoff_us
            )

    def _report_excuses(self) -> None:
        excuses = self._jury.ghost.excuses
        if self._reported_excuses == len(excuses):
            return
        assert self._reported_excuses <= len(excuses), (self._reported_excuses, len(excuses))
        for excuse in excuses[self._reported_excuses :]:
            until = "the end" if excuse.end == NO_END else f"{excuse.end} (excl.)"
            offsets = f"offsets {excuse.start} to {until}"
            self._chronicle.tell(f"EXCUSED {excuse.partition}: {offsets} may be lost: {excuse.reason}")
        self._reported_excuses = len(excuses)

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Show those who judge steps as a whole what a core took and what came of it."""
        core = shell.core
        # Only requests are handled several in one step.
        is_answer = type(events[0]) is Response
        if isinstance(core, Broker) and isinstance(shell, Node):
            # What cannot be read on a damaged disk holds up the high watermark, and fetches too.
            if not shell.is_damaged:
                self._leaders.on_step(shell, core, events, effects)
            life, now_ms = (shell.node_id, shell.life_number), shell.clock.now_ms()
            self.standing.on_step((shell.name, shell.life_number), now_ms, effects, core.config)
            self._idle_brokers.on_step(life, core, now_ms, events, effects)
            self._look_at_fields(shell, core, effects)
            if shell.was_short:
                if core.manager.roles.postponed:
                    # It has not caught up yet.
                    shell.short_ended_us = shell.world.now_us
                self._witness.on_short(shell.node_id, is_short=shell.is_short)
            if not (
                shell.is_damaged
                or shell.is_stopping
                or shell.disk.spoils_calls
                or shell.disk.has_refused
                or shell.is_short
            ):
                self._retention.on_step(life, core, now_ms, events, effects)
                self._witness.rounds.on_step(life, core, now_ms, events, effects)
                self._look_at_flushes(life, core, now_ms, events[0])
            else:
                self._retention.on_unseen(life)
                self._witness.rounds.on_unseen(life)
            if shell.disk.has_refused:
                self._look_at_disk(shell, core, events, effects)
            # A broker that stops in order takes no answer any more while it closes its logs.
            if not shell.is_stopping:
                if is_answer:
                    self._adopted.on_step(life, events, effects, core.replicas(), now_ms)
                    self._order.on_step(life, events)
                if not shell.is_damaged:
                    self._waits.on_step(shell.name, core, events, effects)
            if type(events[0]) is JobDone and not shell.is_stopping:
                self._witness.flushes.on_job_done(shell, core)
            if is_answer and self._proposals.are_watched:
                self._proposals.on_step(life, events, core.replicas())
            if shell.is_stopping:
                self._stops.on_broker_step(shell.node_id, shell.starts, events, effects)
                if any(type(effect) is RunJob and effect.kind == "shutdown" for effect in effects):
                    # From here on the broker closes its logs, and has forgotten its calls.
                    self._proposals.on_end(shell.node_id)
        elif isinstance(core, Controller):
            self._look_at_controller(shell, core, events, effects)
        elif isinstance(core, CLIENT_CORES):
            client, now_ms = (shell.name, shell.life_number), shell.clock.now_ms()
            if is_answer:
                places = core.places if isinstance(core, ConsumerCore) else ()
                paused = [place.topic_partition for place in places if place.is_paused]
                self._sends.on_step(client, events, now_ms + core.config.retry_backoff_ms, paused)
                self._renumbering.on_step(client, events)
            if isinstance(core, ProducerCore):
                self._deliveries.on_step(client, core.config.acks, events, effects)
            self._idle.on_step(client, core, now_ms, events, effects)
            self._look_at_fields(shell, core, effects)

    def _look_at_fields(self, shell: Shell, core: object, effects: Sequence[object]) -> None:
        """Show what a core asks for, before a point of the run changes anything of it."""
        for effect in effects:
            if type(effect) is not Send:
                continue
            body = effect.body
            self._look_at_target(shell, core, effect.to, body)
            if isinstance(body, FetchRequest):
                if isinstance(core, Broker):
                    self._fields.on_follower_fetch(shell.node_id, core.config, body, core.replicas())
                elif isinstance(core, ConsumerCore):
                    self._fields.on_consumer_fetch(shell.name, core.config, body)
            elif isinstance(body, ProduceRequest) and isinstance(core, ProducerCore):
                self._fields.on_produce(shell.name, core.config, body)

    def _look_at_target(self, shell: Shell, core: object, to: int, body: RequestBody) -> None:
        if isinstance(body, STREAM_REQUESTS):
            asked = tuple([each.topic_partition for each in body.partitions])
        elif isinstance(body, ListOffsetsRequest):
            asked = (body.topic_partition,)
        else:
            return
        if isinstance(core, Broker):
            self._fields.on_asked(shell.name, to, asked, partial(_followed, core))
        elif isinstance(core, CLIENT_CORES):
            self._fields.on_asked(shell.name, to, asked, partial(_known_leader, core))

    def _look_at_flushes(self, life: tuple[int, int], core: Broker, now_ms: int, event: Event) -> None:
        """Show the logs of a broker as a flush may have ended, and at its looks from time to time."""
        timer = event.key if type(event) is TimerFired else ""
        if type(event) is JobDone or timer in (FLUSH_TIMER, LAG_TIMER):
            self._flushes.look(life, core.replicas(), now_ms, is_timer=timer == FLUSH_TIMER)

    def _look_at_controller(
        self, shell: Shell, core: Controller, events: Sequence[Event], effects: Sequence[object]
    ) -> None:
        """Show what the controller took in a step and what came of it, unless its disk has failed in the step."""
        if any(type(effect) is Stop and effect.reason != "shutdown" for effect in effects):
            # What is not on the disk is dropped, and nobody is answered.
            return
        has_job = isinstance(shell, Node) and shell.has_job
        self._stops.on_controller_step(events, effects, has_job=has_job)
        self._stops.on_step(events, effects, core.pending_image)
        self._observers.on_step(events, effects, core.log.committed_offset)
        self._sessions.on_step(shell.clock.now_ms(), events, effects, core.pending_image)
        self._topics.on_step(events, effects, core.pending_image, core.config)
        self._witness.controller.on_step(events, effects, core.pending_image)
        self._late_proposals.on_step(events, effects)
        self._controller_refusals.on_step(events, effects, core.pending_image)
        is_stopping = isinstance(shell, Node) and shell.is_stopping
        self._snapshots.on_step(core, events, effects, is_stopping=is_stopping)

    def _look_at_disk(
        self, node: Node, core: Broker, events: Sequence[Event], effects: Sequence[object]
    ) -> None:
        """Show which directories a broker goes on with, as soon as it knows what its calls have met."""
        for event in events:
            if type(event) is JobDone:
                node.take_met_by(event.job)
        life, errors = (node.node_id, node.life_number), node.disk.errors
        if len(node.directories) > 1:
            for path in self._failed_disks.new_errors(life, errors):
                for other in _made_again(node, path, core.online_directories):
                    self._failed_disks.on_made_again(node.node_id, path, other)
        is_over = node.is_stopping or any(type(effect) is Stop for effect in effects)
        if not is_over and self._failed_disks.is_new(life, errors):
            self._failed_disks.on_step(life, errors, core.online_directories, node.unheard_errors)

    def _look_at_marks(self, shell: Shell) -> None:
        """Show which directories a broker that stops in order has marked so."""
        assert isinstance(shell, Node), shell
        marked = [each for each in shell.directories if CLEAN_SHUTDOWN_FILE in shell.disk.names_in(each)]
        self._failed_disks.on_stopped(shell.node_id, shell.disk.errors, marked)
        if not (shell.is_damaged or shell.was_short):
            # The number is that of no life any more.
            life = (shell.node_id, shell.life_number - 1)
            others = [each for each in shell.directories if each not in marked]
            self._failed_disks.on_unmarked(life, shell.disk.errors, others)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Receives an answer of a node or client as it leaves."""
        if exchange.stray is not None:
            self._on_stray_reply(shell, exchange, body)
            return
        self._calls.on_reply(shell, exchange, body)
        self._witness.on_reply(shell, exchange, body)
        if isinstance(core := shell.core, Broker) and exchange.asked_us == shell.world.now_us:
            if isinstance(shell, Node) and not (shell.is_damaged or shell.is_stopping or shell.was_short):
                self._refusals.on_reply(shell.node_id, core.replicas(), core.image, exchange.body, body)
        if isinstance(body, FetchResponse):
            self._note_wait(shell, exchange)
            if isinstance(exchange.body, FetchRequest):
                self._lives.on_answer(
                    shell.node_id, shell.life_number, exchange.body, body, exchange.asked_us
                )
            # Nothing else looks at what brokers fetch and clients read.
            return
        if isinstance(body, ProduceResponse) and isinstance(exchange.body, ProduceRequest):
            self._appends.on_reply(shell.node_id, shell.life_number, exchange, exchange.body, body)
            if isinstance(core := shell.core, Broker) and isinstance(shell, Node) and not shell.is_damaged:
                life, now_ms = (shell.node_id, shell.life_number), shell.clock.now_ms()
                self._sets.on_reply(life, core.replicas(), exchange.asked_us, now_ms, exchange.body, body)
        if isinstance(body, InitProducerIdResponse):
            self._producer_ids.on_answer(shell.name, body)
        if isinstance(shell, Node):
            self._metadata.on_reply(shell, exchange.body, body)
        if isinstance(exchange.body, FORWARDED) and shell.node_id != CONTROLLER_ID:
            self._forwarding.on_reply((shell.node_id, shell.life_number), exchange.body, body)

    def _on_stray_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Receives the answer to a request that came by mistake."""
        self._strays.on_answer(shell.name, exchange.body, exchange.stray or "", body)
        if isinstance(exchange.body, FetchRequest) and isinstance(body, FetchResponse):
            self._lives.on_answer(shell.node_id, shell.life_number, exchange.body, body, exchange.asked_us)
        elif isinstance(body, MetadataResponse):
            self._witness.controller.on_described(shell.node_id, body)
        elif isinstance(exchange.body, ListOffsetsRequest) and isinstance(body, ListOffsetsResponse):
            self._witness.on_looked_up(shell, exchange, exchange.body, body)

    def _note_wait(self, shell: Shell, exchange: Exchange) -> None:
        """Show how long a fetch has waited while the process and its clock went on."""
        if shell.clock.frozen_us is None:
            since_us = max(exchange.asked_us, shell.resumed_us, shell.still_until_us, shell.clock.thawed_us)
            if isinstance(shell, Node):
                since_us = max(since_us, shell.search_ended_us)
            self._parked.on_answered(shell.name, shell.world.now_us - since_us)

    def on_idle_reply(self, shell: Shell, body: ResponseBody) -> None:
        self._parked.on_idle_answer(shell.name, body)

    def on_left(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request whose sender gave up, and judges how long the node could have answered it."""
        self._appends.on_left(shell.node_id, exchange)
        acts_since_us = shell.acts_since_us if isinstance(shell, Node) else None
        if acts_since_us is not None:
            waited_us = shell.world.now_us - max(exchange.asked_us, acts_since_us)
            is_held_up = isinstance(shell.core, Broker) and shell.core.waits_for_checks
            self._unanswered.on_left(shell.name, exchange.body, waited_us, is_held_up=is_held_up)
            if isinstance(exchange.body, InitProducerIdRequest):
                self._unanswered.on_id_left(shell.name, shell.world.now_us, waited_us)

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        """Receives a call as it leaves a core."""
        self._calls.on_sent(shell, effect, target)
        core = shell.core
        self._limits.on_sent(shell.name, core, effect)
        if effect.to not in (BOOTSTRAP, CONTROLLER_ID) and effect.to not in shell.known_nodes:
            what = f"{shell.name} asks broker {effect.to}, whose address its core has told nobody"
            self._jury.report("no-failure", what)
        if isinstance(core, CLIENT_CORES):
            client, known_epoch = (shell.name, shell.life_number), partial(_known_epoch, core)
            self._positions.on_sent(shell.name, effect.call, effect.body)
            self._idle.on_sent(client, effect.call, effect.body)
            self._sends.on_sent(client, effect.call, effect.body, shell.clock.now_ms(), known_epoch)
            self._renumbering.on_sent(client, effect.call, effect.body, target)
            self._deliveries.on_sent(client, effect.call, effect.body)
            if isinstance(effect.body, ASKED_OF_ANY) and effect.to != BOOTSTRAP:
                self._bootstraps.on_asked(client, target, core.metadata.cache.brokers)
        elif isinstance(core, Broker):
            self._on_sent_by_broker((shell.node_id, shell.life_number), shell, core, effect)
        if effect.to == BOOTSTRAP:
            client = (shell.name, shell.life_number)
            self._bootstraps.on_sent(client, effect, target, shell.addresses)

    def _on_sent_by_broker(self, life: tuple[int, int], shell: Shell, core: Broker, effect: Send) -> None:
        self._idle_brokers.on_sent(life, effect.to, effect.call, effect.body)
        match effect.body:
            case FetchRequest() as body:
                self._witness.flushes.on_sent(shell, body)
                self._adopted.on_sent(life, effect.call, body.partitions, core.replicas())
                self._order.on_sent(life, effect.to, effect.call, body.partitions)
            case AlterPartitionRequest() as body:
                replica = core.replicas().get(body.topic_partition)
                waits_for = () if replica is None else replica.maximal_isr
                known = replica if replica is not None and replica.committed_isr else None
                self._proposals.on_sent(life, effect.call, body, waits_for, known)
            case FetchMetadataRequest() as body if self._metadata_positions.are_watched:
                self._metadata_positions.on_sent(life, body.offset, core.image.next_offset)
            case AllocateProducerIdsRequest():
                self._unanswered.on_asking(shell.name, effect.call)
            case BrokerHeartbeatRequest() as body:
                self._offline.on_sent(life, body, core.image, core.applied_offset, core.replicas())
            case body if isinstance(body, FORWARDED):
                self._forwarding.on_sent(life, effect.call, body)

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request as it reaches a core."""
        self._calls.on_accepted(shell, exchange)
        self._witness.on_accepted(shell, exchange)
        if isinstance(exchange.body, ProduceRequest) and exchange.stray is None:
            self._appends.on_accepted(shell.node_id, exchange, exchange.body)
        self._lag.on_accepted(shell, exchange)

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        """Receives the outcome of a call as its connection has it."""
        self._calls.on_answered(shell, call, body)
        if isinstance(body, (ListOffsetsResponse, MetadataResponse)):
            self._positions.on_answered(shell.name, call, body)
        self._bootstraps.on_answered((shell.name, shell.life_number), call, body)
        if self._proposals.are_open:
            self._proposals.on_answered((shell.node_id, shell.life_number), call, body)
        if isinstance(body, AllocateProducerIdsResponse):
            self._producer_ids.on_granted(shell.name, body)
        self._unanswered.on_answered(shell.name, call, shell.world.now_us)
        if self._forwarding.is_open:
            self._forwarding.on_answered((shell.node_id, shell.life_number), call, body)

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        self._calls.on_accepted_silently(shell, exchange)

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        self._places.on_places(shell.name, room, in_core, unwritten, held_up)

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        self._places.on_waiting_call(shell.name, target, path, taken, most)

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        self._calls.on_late_alarm(shell.name, call, late_ms)

    def on_begun(self, shell: Shell, policy: OffsetReset) -> None:
        self._positions.on_begun(shell.name, policy)

    def on_sought(self, shell: Shell, topic_partition: TopicPartition, start: Start) -> None:
        self._positions.on_sought(shell.name, topic_partition, start)
        self._sends.on_sought((shell.name, shell.life_number), topic_partition)

    def on_told(self, shell: Shell, effect: ConsumerEffect) -> None:
        if type(effect) is Fetched and isinstance(shell, ConsumerShell) and shell.has_paused(effect):
            self._positions.on_read_while_paused(shell.name, str(effect.topic_partition))
        self._positions.on_told(shell.name, effect)

    def on_metadata(self, node: Node) -> None:
        self._metadata.on_metadata(node)
        if isinstance(node.core, Broker):
            self._lives.on_metadata(node.node_id, node.life_number, node.core.image.brokers)

    def on_acknowledged(self, partition: str) -> None:
        self._lookout.look()

    def on_failure(self, shell: Shell, error: Exception) -> None:
        """Receives what a core raised: a violation, unless its disk is why it cannot start."""
        is_damaged = isinstance(shell, Node) and shell.is_damaged
        if isinstance(error, StorageError) and (is_damaged or _is_without_disk(shell)):
            self._chronicle.note(shell.name, f"cannot start: {error}")
        else:
            self._jury.report("no-failure", f"{shell.name} failed: {type(error).__name__}: {error}")

    def on_stop(self, shell: Shell, reason: str) -> None:
        self._chronicle.note(shell.name, f"has stopped: {reason}")
        is_damaged = isinstance(shell, Node) and shell.is_damaged
        if reason != "shutdown" and not is_damaged and not _is_without_disk(shell):
            self._jury.report("no-failure", f"{shell.name} stopped by itself: {reason}")

    def on_power_loss(self, shell: Shell) -> None:
        if shell.node_id != CONTROLLER_ID:
            self._witness.on_power_loss(shell.node_id)

    def on_unwound(self, node: Node) -> None:
        """Receives a node whose life has ended inside a change on its disk."""
        if isinstance(node.core, Broker):
            self._witness.on_unwound(node.node_id, node.core)

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        """Receives the end of a node's life: its disk is read again then."""
        if shell.node_id == CONTROLLER_ID:
            self._metadata.on_controller_died(lost_power=lost_power)
            self._stops.on_died()
            self._sessions.on_died()
            self._topics.on_died()
            self._observers.on_died()
            self._witness.controller.on_died()
            self._late_proposals.on_died()
            self._controller_refusals.on_died()
            self._snapshots.on_died()
        self._proposals.on_end(shell.node_id)
        self._forwarding.on_end(shell.node_id)
        self._unanswered.on_end(shell.name)
        self._leaders.on_end(shell.node_id)
        self._adopted.on_end(shell.node_id)
        self._order.on_end(shell.node_id)
        self._appends.on_end(shell.node_id)
        self._offline.on_end(shell.node_id)
        if shell.node_id != CONTROLLER_ID and in_order:
            self._look_at_marks(shell)
            self._witness.on_stopped(shell.node_id)
        if shell.node_id != CONTROLLER_ID and not in_order:
            damage = shell.damage if isinstance(shell, Node) else ""
            self._witness.on_died(shell.node_id, lost_power=lost_power, damage=damage)
            self._report_excuses()


def _known_epoch(core: ProducerCore | ConsumerCore, topic_partition: TopicPartition) -> int:
    leader = core.metadata.cache.leader(topic_partition)
    return -1 if leader is None else leader.leader_epoch


def _known_leader(core: ProducerCore | ConsumerCore, topic_partition: TopicPartition) -> int:
    leader = core.metadata.cache.leader(topic_partition)
    return NO_LEADER if leader is None else leader.leader


def _followed(core: Broker, topic_partition: TopicPartition) -> int:
    replica = core.replicas().get(topic_partition)
    return NO_LEADER if replica is None or replica.follower is None else replica.follower.leader_id


def _made_again(node: Node, path: str, online: Iterable[str]) -> Iterator[str]:
    """Yields the directories that have the log of which a call that makes it has failed: one on its topic id."""
    name, file = basename(dirname(path)), basename(path)
    if file.startswith(PARTITION_METADATA_FILE) and is_log_in_use(name):
        yield from (
            each for each in online if name in node.disk.names_in(each) and not path.startswith(f"{each}/")
        )


def _is_without_disk(shell: Shell) -> bool:
    """Whether every log directory has failed, or could not be made: such a broker has nothing to serve, and ends.

    The controller ends with the first error of its disk, unless a snapshot could not be written: the log has it all.
    """
    if not isinstance(shell, Node):
        return False
    disk = shell.disk
    if shell.node_id == CONTROLLER_ID:
        return any(SNAPSHOT_SUFFIX not in path for path in disk.errors)
    return all(
        disk.breaks(each) or disk.refused(each) or disk.refused(dirname(each)) for each in shell.directories
    )
