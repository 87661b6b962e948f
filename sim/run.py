"""Runs one scenario with one seed; the result is a verdict, a trace hash and a story."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, final

from cluster.core.controller.metadata_log import METADATA_DIRECTORY
from cluster.core.messages import TopicPartition
from sim.anomalies.recording import write_history
from sim.blindfold import Blindfold
from sim.buggify.buggify import Buggify
from sim.bugs import install
from sim.bundled import find_scenario
from sim.canaries import Canaries
from sim.checkers.as_sent import AsSent, JudgedCodec
from sim.checkers.base import Jury, Violation
from sim.checkers.calls import Calls
from sim.checkers.fail_over import FailOver
from sim.checkers.ghost import UNSYNCED, Excuse, Ghost
from sim.checkers.lasting_waits import LastingWaits
from sim.checkers.parked_fetches import ParkedFetches
from sim.checkers.registry import all_checkers
from sim.checkers.sessions import BrokerSessions
from sim.checkers.unanswered import UnansweredCalls
from sim.checkers.unseen import needs_fault
from sim.cluster import CONTROLLER, Cluster, ClusterWatcher, Machines, topic_properties
from sim.departures import Departures
from sim.faults.conditions import Lookout
from sim.faults.misses import Misses
from sim.faults.plan import Faults
from sim.faults.targets import Site
from sim.held_files import HeldFiles
from sim.hosts.history import History
from sim.hosts.node import log_directories
from sim.judgement import Convergence, FinalLogs, Verdict, starvation, verdict_on
from sim.left_logs import (
    judge_deleted_logs,
    judge_deleted_segments,
    judge_left_logs,
    may_lack_handles,
    may_leave_logs,
)
from sim.outages import Outages
from sim.scenario.link_steps import FlipBits
from sim.scenario.loading import load_scenario
from sim.scenario.model import Scenario
from sim.scenario.settings import broker_config, controller_config
from sim.scenario.steps import AlterTopic, BreakDisk, DeleteTopic, StepClock
from sim.seed_range import check_seed
from sim.sometimes.points import Reached
from sim.sometimes.seen import SightingPoints
from sim.sometimes.watched import WatchedPoints, note_end
from sim.story import Chronicle, Story
from sim.twin_logs import TwinLogs
from sim.verified_logs import judge_verified_logs
from sim.watch import Watch
from sim.witness.disk_logs import DiskLogs
from sim.witness.lag import LagWitness
from sim.witness.metadata_log import MetadataWitness
from sim.witness.swap_names import SwapNames
from sim.witness.witness import RETENTION_BYTES, RETENTION_MS, Witness
from sim.world.network import Transport
from sim.world.time import World, without_garbage_collection
from sim.world.trace import Trace
from storage.config import LogConfig
from storage.disk.filesystem import join
from storage.draws import Draws

# The interval of the looks at what should have happened by now.
LOOK_US = 100_000
# Longer than any run, and than what its clocks differ by.
_LONG_MS = 12 * 3_600_000
MIN_IN_SYNC = "min.insync.replicas"

__all__ = ["Run", "RunResult", "Verdict", "replay_command", "run_scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of one run; `replay` is the command that repeats it, `events` counts the events of the world."""

    scenario: str
    seed: int
    verdict: Verdict
    trace_hash: str
    events: int
    simulated_ms: int
    violations: tuple[Violation, ...]
    replay: str
    story: tuple[str, ...]
    # The number of sends by outcome.
    operations: dict[str, int]
    # The number of acknowledged records that are lost and excused, by reason.
    excused: dict[str, int]
    # The number of sends that did not succeed because their topic could take no records, by reason.
    excused_sends: dict[str, int]
    excuses: tuple[Excuse, ...]
    starved_because: str
    # The faults that never struck, in words: each waited in vain or found nothing to strike.
    never_struck: tuple[str, ...] = ()
    # How often each buggify point fired that was on.
    buggify: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Returns the result as `replog sim run --json` prints it; the story is left out.

        `buggify` is there for scenarios that have buggify points.
        """
        fired = {"buggify": dict(self.buggify)} if self.buggify else {}
        return fired | {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.verdict.value,
            "trace_hash": self.trace_hash,
            "events": self.events,
            "simulated_ms": self.simulated_ms,
            "violations": [
                {"checker": found.checker, "at_ms": found.at_us / 1000, "what": found.what}
                for found in self.violations
            ],
            "replay": self.replay,
            "operations": self.operations,
            "excused": self.excused,
            "excused_sends": self.excused_sends,
            "never_struck": list(self.never_struck),
        }


def run_scenario(
    scenario: Path | str | Scenario,
    seed: int,
    *,
    trace_file: BinaryIO | None = None,
    history_file: BinaryIO | None = None,
    bug: str | None = None,
    source: str | None = None,
    stops_early: bool = False,
    reached: Reached | None = None,
    most_events: int | None = None,
    is_traced: bool = True,
) -> RunResult:
    """Run a scenario to the verdict: a loaded one, a file, or a bundled one by name; `bug` is planted meanwhile.

    A text is a file if it has a suffix or a slash, else a name. `seed` is from 0 to 2^63 - 1. The trace is written to
    `trace_file`, and what the clients did to `history_file`. `source` names the scenario in the command that replays
    the run; by default its path does. With `stops_early` the run ends soon after its first violation. `reached` takes
    the points that it reaches. A run ends soon after `most_events` events of the world; without a violation it then
    has proved nothing. Raises ScenarioError for a scenario that cannot be run, BugError for an unknown bug, Endless for
    a run that has no end, TypeError or ValueError for a wrong argument. Without `is_traced` the result has no trace
    hash; all else is equal, and takes less time.
    """
    check_seed(seed)
    if source is None:
        source = "FILE" if isinstance(scenario, Scenario) else str(scenario)
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(_path_of(scenario))
    replay = replay_command(source, seed, bug, stops_early=stops_early)
    planted: AbstractContextManager[None] = install(bug) if bug is not None else nullcontext()
    with planted, without_garbage_collection():
        run = Run(
            loaded, seed, trace_file, stops_early=stops_early, reached=reached, most_events=most_events,
            is_traced=is_traced,
        )  # fmt: skip
        result = run.go(replay)
    if history_file is not None:
        write_history(run.history, history_file)
    return result


# What brokers know of a producer they forget a day after its last record, by their clocks.
_EXPIRY = "producer.id.expiration.ms"
_DAY_US = 86_400_000_000


def _may_expire(scenario: Scenario) -> bool:
    """Whether brokers may forget producers in a run: by a property of a topic, or because clocks are a day off."""
    changes = [step.config for step in scenario.steps if isinstance(step, AlterTopic)]
    off_us = sum(abs(step.by) for step in scenario.steps if isinstance(step, StepClock))
    is_asked = any(
        _EXPIRY in each for each in [*changes, *(topic.config for topic in scenario.topics.values())]
    )
    return is_asked or off_us + scenario.cluster.clocks.offset + scenario.duration >= _DAY_US


def _moves_tombstones(changes: Sequence[Mapping[str, object]]) -> bool:
    """Whether a step changes how long tombstones stay."""
    return any("delete.retention.ms" in change for change in changes)


def _least_kept(known: int, name: str, changes: Sequence[Mapping[str, object]]) -> int:
    """Returns the least value that `retention.ms` or `retention.bytes` has before or after any change; -1: no limit."""
    values = [known]
    for change in changes:
        if name in change:
            # Without a value the property is as if nobody had set it.
            properties = {name: str(change[name])} if change[name] not in ("", None) else {}
            config = LogConfig.from_properties(properties)
            values.append(config.retention_ms if name == RETENTION_MS else config.retention_bytes)
    return min([value for value in values if value >= 0], default=-1)


def _preallocates(changes: Sequence[Mapping[str, object]]) -> bool:
    """Whether a step may give segments their whole length as they begin."""
    return any("preallocate" in change for change in changes)


def _least_in_sync(changes: Sequence[Mapping[str, object]]) -> list[int]:
    """Returns the numbers that changes of a topic's properties give to min.insync.replicas; 1 is its default."""
    return [int(str(each[MIN_IN_SYNC] or 1)) for each in changes if MIN_IN_SYNC in each]


def _path_of(scenario: Path | str) -> Path:
    if isinstance(scenario, str):
        return find_scenario(scenario)
    if isinstance(scenario, Path):
        return scenario
    raise TypeError(f"scenario: expected a path, a name or a Scenario, got {type(scenario).__name__}")


def replay_command(source: str, seed: int, bug: str | None, *, stops_early: bool = False) -> str:
    """Returns the command that repeats a run of the scenario called `source`."""
    planted = f" --bug {bug}" if bug is not None else ""
    early = " --stop-early" if stops_early else ""
    # What begins with a dash would be taken for an option.
    file = f"./{source}" if source.startswith("-") else source
    return f"replog sim run {shlex.quote(file)} --seed {seed}{planted}{early}"


@final
class Run:
    """The course of one run: nodes and clients start, faults strike, everything is healed, the end is judged."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        trace_file: BinaryIO | None = None,
        *,
        stops_early: bool = False,
        reached: Reached | None = None,
        most_events: int | None = None,
        is_traced: bool = True,
    ) -> None:
        self.scenario, self.seed, self._stops_early = scenario, seed, stops_early
        self._most_events, self._next_look_us = most_events, scenario.warm_up + LOOK_US
        self.trace = Trace(trace_file, is_on=is_traced)
        self.story, self.history, self.ghost = Story(), History(), Ghost()
        self.trace.begin(scenario.scenario, seed)
        self.world = World(Draws(seed))
        self.chronicle = Chronicle(self.world, self.trace, self.story)
        self._reached = reached
        onlookers = [] if reached is None else [SightingPoints(self.ghost, reached)]
        self.jury = Jury(
            self.ghost, [*all_checkers(self.ghost), *onlookers], now_us=lambda: self.world.now_us,
            on_violation=lambda found: self.chronicle.tell(f"VIOLATED {found.checker}: {found.what}"),
        )  # fmt: skip
        self.buggify = self._points()
        machines = Machines(scenario, self.world, self.buggify)
        self.logs = DiskLogs(
            self.jury, machines.broker_disks(), log_directories(scenario.cluster.directories)
        )
        SwapNames(self.jury, machines.broker_disks())
        controller_disk = machines.disk(CONTROLLER)
        fail_over = FailOver(
            session_timeout_us=1_000 * controller_config(scenario).broker_session_timeout_ms,
            heartbeat_us=1_000 * broker_config(scenario, 1).broker_heartbeat_interval_ms,
        )
        may_expire = _may_expire(scenario)
        self.witness = Witness(
            self.jury, self.logs, controller_disk, CONTROLLER, fail_over, may_expire=may_expire
        )
        self.witness.lives.may_end = any(isinstance(step, DeleteTopic) for step in scenario.steps)
        lookout = Lookout(self.ghost, self.history)
        parked = ParkedFetches(self.jury, broker_config(scenario, 1).max_fetch_wait_ms)
        metadata = MetadataWitness(self.jury, controller_disk, join(CONTROLLER, METADATA_DIRECTORY))
        flips_bits = any(isinstance(step, FlipBits) for step in scenario.steps)
        calls = Calls(self.jury, Transport(scenario.network.transport), may_change=flips_bits)
        self.lag = LagWitness(
            self.jury, self.witness.lives, broker_config(scenario, 1).replica_lag_time_max_ms
        )
        judges = Watch(
            self.chronicle, self.witness, metadata, lookout, parked, calls, self.lag,
            BrokerSessions(self.jury, controller_config(scenario).broker_session_timeout_ms),
            UnansweredCalls(self.jury, broker_config(scenario, 1).controller_socket_timeout_ms),
        )  # fmt: skip
        watch: ClusterWatcher = judges if reached is None else WatchedPoints(judges, reached)
        self.blindfold = Blindfold(watch)
        # Where no bit flips it would only pass on what the run shows.
        watcher = self.blindfold if flips_bits else watch
        self.cluster = Cluster(scenario, self.world, self.trace, self.history, watcher, machines)
        self._watch_network()
        self.standing, self.waits = judges.standing, LastingWaits(self.jury)
        self.twins, self.held = TwinLogs(self.jury), HeldFiles(self.jury)
        self._looked_us = 0
        self.outages = Outages(self.cluster, self.ghost, self.witness.lives)
        self.misses = Misses()
        site = Site(
            world=self.world, network=self.cluster.network, ghost=self.ghost, brokers=self.cluster.brokers,
            controller=self.cluster.controller, clients=self.cluster.clients, admin=self.cluster.admin,
            topics=scenario.topics, tell=self.chronicle.tell, misses=self.misses,
        )  # fmt: skip
        self.faults = Faults(site, scenario.steps, lookout)

    def _watch_network(self) -> None:
        """Judge what is read of each frame, and learn of flips that nobody can notice."""
        network = self.cluster.network
        self.blindfold.follow(network.counts)
        codec = network.codec if network.points is None else network.points.codec(network.codec)
        frames = AsSent(self.jury)
        network.codec, network.on_unreadable = JudgedCodec(codec, frames), frames.on_unreadable

    def _points(self) -> Buggify | None:
        """Returns the buggify points of the run; None if the scenario has none."""
        model = self.scenario.buggify
        if not model.points:
            return None
        return Buggify(
            self.world.draws, model.points, percent=model.chance,
            on_fire=lambda point, place: self.trace.fields(
                self.world.now_us, place, "buggify", (("point", point),)
            ),
        )  # fmt: skip

    def go(self, replay: str) -> RunResult:
        """Run from the start to the verdict; `replay` is the command that repeats the run."""
        self.begin()
        self.world.run_to(self.scenario.warm_up)
        self.faults.begin()
        while self.world.now_us < self.scenario.duration:
            self.step_to(self.scenario.duration)
            if self._is_over():
                return self._result(replay, [], {}, self.misses.all())
        return self.end(replay)

    def step_to(self, end_us: int) -> None:
        """Run to the next look of those who judge what lasts, which follows, or to `end_us` if that is before it.

        They look every LOOK_US from the warm-up on, which is over, and where the scenario ends.
        """
        look_us = self._next_look_us
        assert self.world.now_us < look_us, (self.world.now_us, look_us)
        self.world.run_to(min(look_us, end_us))
        if self.world.now_us == look_us:
            self._next_look_us += LOOK_US
        if self.world.now_us in (look_us, self.scenario.duration) and not self.blindfold.is_on:
            self._look()
            self._looked_us = self.world.now_us

    def _look(self) -> None:
        """Let those look who judge what lasts."""
        self.witness.look(self.cluster.controller.acts_since_us)
        self.lag.look(self.cluster.brokers, self.cluster.partitions, self.world.now_us)
        self.outages.look()
        self.standing.look(self.cluster.brokers.values(), self.world.now_us)
        self.waits.look(self.cluster.brokers.values())
        self.twins.look(self.cluster.brokers.values())

    def _look_at_rest(self) -> None:
        """Let those look again, once nothing more is to come, who judge what must not be left in any moment."""
        if self._is_over() or self.jury.violations:
            return
        brokers = self.cluster.brokers.values()
        self.standing.look_at_rest(brokers)
        # What a life has set since is judged at the next look.
        self.standing.look(brokers, self.world.now_us)
        self.twins.look(brokers)
        self.held.look_at_rest(brokers)
        # What waits is wrong if it is so at two moments.
        if self.world.now_us > self._looked_us:
            self.waits.look(brokers)
            self._looked_us = self.world.now_us

    def _is_over(self) -> bool:
        """Whether the run ends early: a violation is all that is asked of it, no events are left, or nobody judges."""
        is_found = self._stops_early and bool(self.jury.violations)
        return is_found or bool(self.jury.adjourned) or self._is_cut_off()

    def _is_cut_off(self) -> bool:
        return self._most_events is not None and self.world.events >= self._most_events

    def begin(self) -> None:
        """Start every node and ask for the topics; the clients begin once all of them exist."""
        self.cluster.start()
        self._expect_topics()
        self.cluster.create_topics()

    def _expect_topics(self) -> None:
        """Tell the witness which partitions will exist, and what their topics promise."""
        for name, topic in self.scenario.topics.items():
            config = LogConfig.from_properties(topic_properties(topic))
            changes = [
                step.config
                for step in self.scenario.steps
                if isinstance(step, AlterTopic) and step.alter_topic == name
            ]
            # The least that ever has to be in sync: nobody outside knows when which broker has learned of a change.
            least = min([config.min_insync_replicas, *_least_in_sync(changes)])
            for partition in range(topic.partitions):
                self.witness.expect(
                    TopicPartition(name, partition),
                    min_isr=min(least, topic.replicas),
                    flush_promised=config.flush_messages == 1,
                    is_compacted=config.is_compacted,
                    keeps_tombstones=config.delete_retention_ms >= _LONG_MS
                    and not _moves_tombstones(changes),
                    is_preallocated=config.preallocate or _preallocates(changes),
                    deletes_old="delete" in config.cleanup_policies,
                    retention_ms=_least_kept(config.retention_ms, RETENTION_MS, changes),
                    retention_bytes=_least_kept(config.retention_bytes, RETENTION_BYTES, changes),
                )

    def expect_change(self, name: str, change: Mapping[str, object]) -> None:
        """Tell the witness that properties of a topic may change from now on, which no step of the scenario says."""
        topic = self.scenario.topics[name]
        for partition in range(topic.partitions):
            self.witness.expect_change(
                TopicPartition(name, partition),
                min_isr=min([topic.replicas, *_least_in_sync([change])]),
                moves_tombstones=_moves_tombstones([change]),
                preallocates=_preallocates([change]),
                least_kept=lambda name, known: _least_kept(known, name, [change]),
            )
        if _EXPIRY in change:
            self.witness.expect_expiry()

    def expect_time(self, end_us: int) -> None:
        """Tell the witness that a run lasts until then: brokers forget whom they have not heard of for a day."""
        if end_us >= _DAY_US:
            self.witness.expect_expiry()

    def end(self, replay: str) -> RunResult:
        """Heal everything, check that the cluster agrees within `converge`, and judge the history."""
        self.chronicle.tell("heal everything; the cluster has to agree now")
        unfired, never_struck = self._misses()
        self.faults.heal_all()
        if self.buggify is not None:
            self.buggify.end()
        for producer in self.cluster.producers:
            producer.finish()
        for seeker in self.cluster.seekers:
            seeker.finish()
        for admin in self.cluster.admins:
            admin.finish()
        if self.blindfold.is_on:
            return self._end_unjudged(replay, unfired, never_struck)
        Convergence(self.cluster, self.jury, self.chronicle, self.witness.lives).await_rest(
            self.scenario.converge, is_over=self._is_over
        )
        self._look_at_rest()
        if self.scenario.canaries and not self._is_over() and not self.jury.violations:
            self._send_canaries()
            self._look_at_rest()
        if self._is_over():
            return self._result(replay, unfired, {}, never_struck)
        excused = FinalLogs(
            self.cluster.partitions,
            self.history,
            self.logs,
            self.jury,
            self.witness.lives,
            self.cluster.replicas(),
        ).judge()
        if not may_leave_logs(self.scenario):
            judge_left_logs(self.cluster.brokers.values(), self.jury)
            if not may_lack_handles(self.scenario):
                judge_deleted_logs(self.cluster.brokers.values(), self.jury)
                judge_deleted_segments(self.cluster.brokers.values(), self.jury)
            judge_verified_logs(self.cluster.brokers.values(), self.jury)
        if not self.scenario.excuses:
            self._demand_no_excuse(excused)
        return self._result(replay, unfired, excused, never_struck)

    def _send_canaries(self) -> None:
        """Send records into the cluster at rest, wait until it is at rest again, and let the clients leave."""
        Canaries(self.cluster, self.jury, self.witness.lives).send(self._is_over)
        if not self._is_over():
            Convergence(self.cluster, self.jury, self.chronicle, self.witness.lives).await_rest(
                self.scenario.converge, is_over=self._is_over
            )
        if not self._is_over() and not self.jury.violations:
            Departures(self.cluster, self.jury).leave(self._is_over)

    def _end_unjudged(self, replay: str, unfired: list[int], never_struck: tuple[str, ...]) -> RunResult:
        """Let the healed cluster go on for a while, in which no node may fail either."""
        self.chronicle.tell("a bit has flipped that nobody can notice: only failures of nodes are judged")
        end_us = self.world.now_us + self.scenario.warm_up
        while self.world.now_us < end_us and not self._is_over():
            self.world.run_to(min(self.world.now_us + LOOK_US, end_us))
        return self._result(replay, unfired, {}, never_struck)

    def _misses(self) -> tuple[list[int], tuple[str, ...]]:
        """Returns the steps because of which the run proves nothing, and the faults that never struck, in words."""
        unfired, never_struck = self.faults.unfired, (*self.misses.all(), *self.cluster.admin.refused)
        if self.scenario.strict or len(unfired) == len(self.scenario.steps):
            return unfired, never_struck
        return [], (*never_struck, *(f"step {number}: its moment never came" for number in unfired))

    def _demand_no_excuse(self, excused: dict[str, int]) -> None:
        """Report the losses that are excused elsewhere: no fault of this scenario is to need an excuse.

        Only a directory that breaks under the last in-sync replica takes what was not synced: its syncs fail.
        """
        breaks = any(isinstance(step, BreakDisk) for step in self.scenario.steps)
        for reason, count in excused.items():
            if needs_fault(reason) and not (breaks and reason == UNSYNCED):
                self.jury.report("excuses", f"{count} acknowledged records are lost: {reason}")

    def _result(
        self, replay: str, unfired: list[int], excused: dict[str, int], never_struck: tuple[str, ...]
    ) -> RunResult:
        if self._reached is not None:
            note_end(self._reached, self.history, self.ghost, self.cluster.network.counts)
        excused_sends = self.outages.excused(self.history)
        excused_count = sum(excused_sends.values())
        starved_because = self.jury.adjourned or starvation(
            self.history, unfired, len(self.scenario.steps), excused_count
        )
        if self._is_cut_off():
            starved_because = f"it was cut off after {self._most_events} events"
        return RunResult(
            scenario=self.scenario.scenario,
            seed=self.seed,
            verdict=verdict_on(self.jury.violations, starved_because),
            trace_hash=self.trace.finish(),
            events=self.world.events,
            simulated_ms=self.world.now_us // 1000,
            violations=tuple(self.jury.violations),
            replay=replay,
            story=tuple(self.story.lines),
            operations=self.history.counts(),
            excused=excused,
            excused_sends=excused_sends,
            excuses=tuple(self.ghost.excuses),
            starved_because=starved_because,
            never_struck=never_struck,
            buggify={} if self.buggify is None else self.buggify.fired,
        )
