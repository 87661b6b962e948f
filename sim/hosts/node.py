"""A node in virtual time: a shell with a disk, a worker for jobs, and lives that end like those of processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Protocol, final

from cluster.core.connection.outgoing import Answer
from cluster.core.effects import Observe, RunJob, Stop
from cluster.core.events import JobDone, Response, Shutdown
from cluster.core.messages import CONTROLLER_ID, FetchMetadataResponse
from sim.disk import PowerLoss, SimDisk
from sim.disk.faults import Trigger
from sim.disk.life import Dead, Life
from sim.hosts.leftovers import leave_over
from sim.hosts.shell import LONG_STEP_US, Core, Queued, Shell, Watcher
from sim.world.clock import Clock
from sim.world.network import Network
from sim.world.packets import Reachability
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace
from storage.disk.filesystem import FileSystem
from storage.draws import Draws

# The time from the start of a process to its first event.
START_US = 5_000
JOB_US = 500
JOB_MEAN_US = 2_000
# A job that takes so long holds up what waits for it, which may be a decision.
LONG_JOB_US = 100_000
# The directory of a node's logs on its disk.
DIRECTORY = "data"


def log_directories(count: int) -> tuple[str, ...]:
    """Returns the names of a broker's log directories, each of which may fail alone."""
    return (DIRECTORY,) if count == 1 else tuple([f"{DIRECTORY}-{number}" for number in range(1, count + 1)])


class NodeCore(Core, Protocol):
    """A core that loads its state before its first step."""

    def start(self, now_ms: int) -> Sequence[object]: ...


class NodeWatcher(Watcher, Protocol):
    """The watcher of a node, which also sees its lives end."""

    def on_stop(self, shell: Shell, reason: str) -> None:
        """Receives the reason why a core stopped by its own decision; `on_end` follows."""

    def on_metadata(self, node: Node) -> None:
        """Receives a node after a step in which its metadata may have changed."""

    def on_power_loss(self, shell: Shell) -> None:
        """Receives a node whose process is dead and whose page cache is about to be lost; `on_end` follows."""

    def on_unwound(self, node: Node) -> None:
        """Receives a node whose life has ended inside a change on its disk, before what is in its memory is gone."""

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        """Receives the end of a life, after the disk has lost what a power loss takes."""


# Why a power loss took what was synced.
DECEIVED = "a disk lost what a sync had said to be durable"

# What the core observes as a replica begins a role, cuts its log, or is removed.
_ROLES = frozenset(
    {"replica.became_leader", "replica.became_follower", "replica.truncated", "replica.removed"}
)

MakeCore = Callable[[FileSystem, Draws], NodeCore]
# A part of a job, with the life that it belongs to and the time that the job takes after it.
JobPart = tuple[Callable[[tuple[int, int]], None], tuple[int, int]]


class Ending(Enum):
    """The ways in which a life ends."""

    # The process ends; the page cache stays, and the machine resets its connections.
    CRASH = "crash"
    # The machine ends; `keep` decides which un-synced changes survive.
    POWER = "power"
    # The core stopped, in order or by its own decision.
    STOP = "stop"


def new_disk(world: World, name: str, clock: Clock | None = None) -> SimDisk:
    """Returns an empty disk for the node of that name, with its own draws, which costs nothing; `clock` is its own."""
    return SimDisk(world.draws.child("disk", name), (clock or Clock(world)).wall_ms)


# A broker tries again each second what found no descriptor; what follows from that takes a few steps and jobs.
CATCHING_UP_US = 1_500_000
# The kind of the jobs that come before the next step of a search.
SEARCH = "search"


@final
class Node(Shell):
    """A machine with a disk, and the lives of one process on it, each with a core that `make_core` makes."""

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: NodeWatcher, *, name: str, node_id: int,
        disk: SimDisk, make_core: MakeCore, directories: tuple[str, ...] = (DIRECTORY,),
        clock: Clock | None = None, job_means_us: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(world, network, trace, watcher, name=name, node_id=node_id, clock=clock)
        self._node_watcher = watcher
        self._make_core, self.disk, self.directories = make_core, disk, directories
        self.life = Life(name)
        # The disk as the process sees it, or the last one that was up.
        self.file_system = disk.file_system(self.life)
        self.starts = 0
        # Why the disk lost more than what was not synced when the last life ended; empty if it did not.
        self.damage = ""
        # The change on the disk in which the next start ends; 0: it does not.
        self.start_ends_in = 0
        # Whether that ever happened in a way that may keep the broker from starting.
        self.is_damaged = False
        self.has_power = True
        # When it got descriptors again, which it had lacked; 0: it never lacked them.
        self.short_ended_us = 0
        self.is_stopping = False
        # Whether answers with metadata wait until `release_metadata`.
        self.holds_metadata = False
        self._when_stopped: Callable[[], None] | None = None
        # The call that ends the node after an armed partial write, or another death inside a change on its disk.
        self._ending_of_write: Callable[[], None] | None = None
        # `before` or `after`, a kind of job, and the call that strikes then.
        self._began_us = 0
        self._crash_points: list[tuple[str, str, Callable[[], None]]] = []
        # Kinds of jobs, each with a fault that strikes inside a change on the disk that such a job makes.
        self._deaths: list[tuple[str, Trigger]] = []
        self._job_time = Stream(world.draws, "jobs", name)
        self._job_means_us: Mapping[str, int] = job_means_us or {}

    @property
    def is_up(self) -> bool:
        return self.core is not None

    @property
    def was_short(self) -> bool:
        """Whether the process lacks descriptors, or a process of the node has got some again that it had lacked."""
        return self.disk.lacks_descriptors or self.short_ended_us > 0

    @property
    def is_short(self) -> bool:
        """Whether the process lacks descriptors, or did so little ago that what it left is still to be done."""
        if not self.short_ended_us:
            return self.disk.lacks_descriptors
        went_on_us = max(self.resumed_us, self.clock.thawed_us, self.still_until_us)
        stands_still = self.paused or self.clock.frozen_us is not None
        has_caught_up = self.world.now_us >= max(self.short_ended_us, went_on_us) + CATCHING_UP_US
        return self.disk.lacks_descriptors or stands_still or not has_caught_up

    @property
    def runs_since_us(self) -> int | None:
        """When the process began, or it, its clock or its disk went on; None while it is down or one of them is not."""
        stands_still = (
            self.paused or self.clock.frozen_us is not None or self.still_until_us > self.world.now_us
        )
        if self.core is None or stands_still:
            return None
        return max(self._began_us, self.resumed_us, self.clock.thawed_us, self.still_until_us)

    @property
    def acts_since_us(self) -> int | None:
        """Since when the process runs and no job has taken it long: what it decided waits for no disk.

        None while it is paused or down, has been in one job for `LONG_JOB_US`, or has a search that waits for its turn.
        """
        runs_since_us = self.runs_since_us
        if runs_since_us is None or (self._jobs and self.world.now_us - self._job_began_us >= LONG_JOB_US):
            return None
        if any(job.kind == SEARCH for job in self._jobs):
            return None
        since_us = max(runs_since_us, self._long_job_ended_us, self.search_ended_us)
        # What it had left for want of descriptors comes all at once.
        return max(since_us, self.short_ended_us + CATCHING_UP_US) if self.short_ended_us else since_us

    @property
    def pending_timers(self) -> Collection[str]:
        """The keys of the timers that the core has set; none of a node that is down."""
        return self._timers.pending

    @property
    def has_job(self) -> bool:
        """Whether a job has not ended yet, or the core was not told of its end."""
        return bool(self._jobs) or any(type(event) is JobDone for event, _ in self._inbox)

    def take_met_by(self, job: int) -> None:
        """Counts what a job has met as known to the core, which was told of its end."""
        self._met_by_jobs.pop(job, None)

    @property
    def unheard_errors(self) -> frozenset[int]:
        """The places of the errors of the disk that jobs have met and the core was not told of."""
        return frozenset(place for places in self._met_by_jobs.values() for place in places)

    @property
    def jobs_last_us(self) -> int:
        """How long the jobs that have not ended take, on the average; the first of them may have begun."""
        means = self._job_means_us
        return sum(JOB_US + means.get(job.kind, JOB_MEAN_US) for job in self._jobs)

    @property
    def is_at_leisure(self) -> bool:
        """Whether the process runs and goes on, and neither a job nor an event is left for it."""
        has_work = bool(self._jobs or self._inbox)
        return self.runs_since_us is not None and not has_work and not self.is_stopping

    def reachability(self) -> Reachability:
        if self.core is not None:
            return Reachability.UP
        return Reachability.REFUSING if self.has_power else Reachability.SILENT

    def start(self) -> None:
        """Start a new process on the same disk; requests that the last one left open are reset now at the latest."""
        assert self.core is None, f"{self.name} is up"
        assert self.life_number % 2 == 0, (self.name, self.life_number)
        self._reset_orphans()
        self.life_number += 1
        self.starts += 1
        self.has_power, self.is_stopping, self.paused = True, False, False
        self.life = Life(f"{self.name}#{self.starts}")
        self._began_us = self.world.now_us
        self.clock.begin_life()
        # First: what an earlier life leaves is no work of the one that has died.
        self.disk.begin_life()
        if self.points is not None:
            leave_over(self.disk, self.directories, self.points.compacted)
        self.disk.meter.take_us(self.world.now_us)
        self.damage = ""
        self.trace.fields(self.world.now_us, self.name, "start", (("life", self.starts),))
        self._busy_until_us = self.world.now_us + START_US
        self._wait_us = START_US
        life_number = self.life_number
        most_calls = None if self.points is None else self.points.most_calls()
        if most_calls is not None:
            self._listener.limit_calls(most_calls)
        most_of_a_method = None if self.points is None else self.points.most_of_a_method()
        if most_of_a_method is not None:
            self._dialer.limit_calls(most_of_a_method)
        if self.start_ends_in:
            self.disk.arm_crash(self.start_ends_in)
        handles = None if self.disk.points is None else self.disk.points.handles()
        self.file_system = self.disk.file_system(self.life, handles)
        try:
            core = self._make_core(
                self.file_system,
                self.world.draws.child("core", self.name, self.starts),
            )
            self.core = core
            effects = core.start(self.clock.now_ms())
        except Dead:
            self._unwound()
        except Exception as error:
            self._fail(error)
        else:
            if self.start_ends_in:
                self.disk.disarm()
            if self.life_number == life_number:
                self._wait_us += self._disk_us()
                if self.points is not None:
                    self._wait_us += self.points.start_us()
                self._busy_until_us = self.world.now_us + self._wait_us
                self._note_stillness(self._wait_us)
                self.perform(effects)

    def _disk_us(self) -> int:
        return self.disk.meter.take_us(self.world.now_us)

    def _note_stillness(self, cost_us: int) -> None:
        """Note how long the process can decide nothing, if a start or a job takes long."""
        if cost_us > LONG_STEP_US:
            self.still_until_us = max(self.still_until_us, self.world.now_us + cost_us)

    def crash(self) -> None:
        """End the process as `kill -9` does."""
        self._maybe_work_before_end()
        self.life.kill()
        self.disk.crash_process()
        self._end(Ending.CRASH)

    def _maybe_work_before_end(self) -> None:
        """Do the work of the first job that waits, if a buggify point says so; nobody learns how it ended."""
        is_whole = not self.life.dead and not self.disk.has_faults
        if self.points is None or not is_whole or not self._jobs or self._has_worked:
            return
        if self.points.works_before_end():
            job = self._jobs[0]
            self.trace.fields(self.world.now_us, self.name, "job", (("job", job.job), ("of", job.kind)))
            with suppress(Exception):
                job.work()

    def lose_power(self, keep: PowerLoss) -> None:
        """Cut the machine's power; `keep` says which un-synced changes survive."""
        self._maybe_work_before_end()
        self.life.kill()
        self._lose_cache(keep)
        self.has_power = False
        self._end(Ending.POWER)

    def _lose_cache(self, keep: PowerLoss) -> None:
        self._node_watcher.on_power_loss(self)
        self.damage = DECEIVED if self.disk.deceives else ""
        self.is_damaged = self.is_damaged or bool(self.damage)
        self.disk.lose_power(keep)

    def change_disk(self, change: Callable[[], None], damage: str) -> None:
        """Cut the machine's power and call `change`, which changes what its disk holds; `damage` says why."""
        self.life.kill()
        self._node_watcher.on_power_loss(self)
        self.disk.lose_power("none")
        change()
        self.damage = damage
        if self.core is not None:
            self.has_power = False
            self._end(Ending.POWER)
        else:
            self._node_watcher.on_end(self, lost_power=True, in_order=False)
        assert self.core is None, self.name

    def lose_page_cache(self) -> None:
        """Restart the machine while no process of the node runs: only what its disk keeps is left."""
        assert self.core is None, f"{self.name} is up"
        assert self.life_number % 2 == 0, (self.name, self.life_number)
        self._lose_cache("all")
        self._node_watcher.on_end(self, lost_power=True, in_order=False)

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """Ask for an orderly stop; `then` is called after it, and replaces the `then` of an earlier call."""
        if then is not None:
            self._when_stopped = then
        if self.core is not None and not self.is_stopping:
            assert self.life_number % 2 == 1, (self.name, self.life_number)
            self.is_stopping = True
            self.feed(Shutdown())

    def arm_crash_point(self, side: str, kind: str, strike: Callable[[], None]) -> None:
        """Call `strike`, which may end the life, `before` or `after` (the side) the next job of that kind.

        Of several that wait for the same, each later one waits for another job.
        """
        self._crash_points.append((side, kind, strike))

    def arm_death(self, death: Trigger, kind: str | None, ending: Callable[[], None]) -> None:
        """The process dies inside the change on its disk that `death` waits for; then `ending` ends the life.

        With a kind of jobs, only the changes that these make count.
        """

        def struck() -> None:
            self._ending_of_write = ending
            self._deaths = [each for each in self._deaths if each[1] is not death]

        death.hook = struck
        if kind is None:
            self.disk.arm(death)
        else:
            self._deaths.append((kind, death))

    def arm_partial_write(
        self, partition: str, byte: int, ending: Callable[[], None], rest: bytes = b""
    ) -> None:
        """The next append to the partition's log stores `byte` bytes; then `ending` ends the life.

        With `rest` the segment has these bytes, repeated, in place of the others.
        """
        assert not self.life.dead, self.name
        directory = self.log_path(partition)
        assert directory, f"{self.name} has no log of {partition}"
        self._ending_of_write = ending
        # Also in a segment that is not there yet.
        self.disk.arm_partial_write(".log", byte, rest, f"{directory}/")

    def has_log(self, partition: str) -> bool:
        """Whether a log directory of this machine holds a log of the partition."""
        return bool(self._segments(partition))

    def log_path(self, partition: str) -> str:
        """Returns the directory of the partition's log, or an empty text if this machine has none."""
        file_system = self.disk.file_system(Life("eye", sees_through=True))
        # The controller's log is in a directory of the controller's name.
        held = [f"{each}/{partition}" for each in (*self.directories, self.name)]
        return next((path for path in held if file_system.exists(path)), "")

    def segment_path(self, partition: str) -> str:
        """Returns the path of the partition's active segment, or an empty text if this machine has no log of it."""
        return next(reversed(self._segments(partition)), "")

    def _segments(self, partition: str) -> list[str]:
        """Returns the paths of the partition's segments, in the order of their offsets."""
        file_system = self.disk.file_system(Life("eye", sees_through=True))
        directory = self.log_path(partition)
        names = file_system.list(directory) if directory else []
        return [f"{directory}/{name}" for name in names if name.endswith(".log")]

    def disarm(self) -> None:
        """Drop the armed faults that have not struck."""
        self._crash_points, self._ending_of_write = [], None
        self._deaths.clear()
        self.disk.disarm()

    def _end(self, ending: Ending, *, in_order: bool = False) -> None:
        assert self.life.dead, self.name
        assert self.life_number % 2 == 1, (self.name, self.life_number)
        self.core = None
        self.life_number += 1
        self.paused = False
        self.trace.fields(self.world.now_us, self.name, "end", (("how", ending.value),))
        self._node_watcher.on_end(self, lost_power=ending is Ending.POWER, in_order=in_order)
        self._forget(was_killed=ending is not Ending.STOP)
        if ending is not Ending.POWER:
            self._reset_orphans()

    def _unwound(self) -> None:
        """Finish a life that ended inside a call, which raised `Dead`: by an armed write or by an earlier crash."""
        assert self.life.dead, self.name
        ending, self._ending_of_write = self._ending_of_write, None
        self._node_watcher.on_unwound(self)
        if self.life_number % 2 == 1:
            if ending is not None:
                ending()
            else:
                self.crash()
        assert self.core is None, self.name

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        self.crash()

    def _stop(self, effect: Stop) -> None:
        assert not self.life.dead, (self.name, effect.reason)
        # A node leaves its server half a second for the answers of its last step.
        self._flush()
        self._listener.finish_writes(self._wait_us)
        self._node_watcher.on_stop(self, effect.reason)
        self.life.kill()
        self.disk.crash_process()
        # What broke may have left bytes of which nobody was told, as a crash does.
        self._end(Ending.STOP, in_order=effect.reason.startswith("shutdown"))
        assert self.life_number % 2 == 0, (self.name, self.life_number)
        when_stopped, self._when_stopped = self._when_stopped, None
        if when_stopped is not None:
            when_stopped()

    def _begin_memory(self) -> None:
        super()._begin_memory()
        self._jobs: deque[RunJob] = deque()
        self._job_began_us = self._long_job_ended_us = 0
        # When a search ended last that was too long for a step: who asked for it has waited for the jobs before it.
        self.search_ended_us = 0
        self._held_metadata: list[tuple[int, Answer, int, int]] = []
        # The part of the first job that became due while the node was paused.
        self._due_part: JobPart | None = None
        self._job_error: Exception | None = None
        # What the jobs have met whose ends the core was not told of: places in the errors of the disk.
        self._met_by_jobs: dict[int, range] = {}
        # The jobs during which a role began or ended; and before when the end of the first job is not told.
        self._overtaken: set[int] = set()
        self._job_ends_us = 0
        # Whether the first job has done its work, or is kept from it by the fault that waited for that moment.
        self._has_worked = False

    def _handle(self, turn: list[Queued]) -> None:
        try:
            super()._handle(turn)
        except Dead:
            self._unwound()
        # Several events of one turn are requests.
        event = turn[0][0]
        is_metadata = type(event) is Response and type(event.body) is FetchMetadataResponse
        if (is_metadata or self.node_id == CONTROLLER_ID) and self.core is not None:
            self._node_watcher.on_metadata(self)

    def perform(self, effects: Sequence[object]) -> None:
        """Carry out the effects, and note which jobs a role overtakes that begins or ends with them."""
        if self.points is not None and self._jobs and any(map(_is_of_a_role, effects)):
            self._overtaken.update([job.job for job in self._jobs])
            if self._has_worked:
                self._wait_for_more()
        super().perform(effects)

    def _wait_for_more(self) -> None:
        """Let the end of the first job wait, which has done its work, if a role has begun since it was made."""
        if self.points is not None and self._jobs[0].job in self._overtaken:
            ends_us = self.world.now_us + self.points.overtaken_us()
            self._job_ends_us = max(self._job_ends_us, ends_us)

    def _run_job(self, effect: RunJob) -> None:
        self._jobs.append(effect)
        if len(self._jobs) == 1:
            self._begin_job()

    def _begin_job(self) -> None:
        """Begin the first job: its work is done at a drawn moment of the time that it takes, its end is told later."""
        kind, self._job_began_us = self._jobs[0].kind, self.world.now_us
        lasting_us = JOB_US + self._job_time.exponential(self._job_means_us.get(kind, JOB_MEAN_US))
        until_us = self._job_time.below(lasting_us)
        if kind == "flush" and kind in self._job_means_us:
            # A slow sync is only good for what was written before it began.
            until_us = self._job_time.below(until_us + 1)
        if self.points is not None:
            lasting_us, until_us = self.points.job_us(lasting_us, until_us)
        self._has_worked = False
        part = (self._work, (self.life_number, lasting_us - until_us))
        self.world.after(self.actor, until_us, self._on_job_time, part)

    def _on_job_time(self, part: JobPart) -> None:
        act, token = part
        if token[0] != self.life_number or self.core is None:
            return
        if self.paused:
            assert self._due_part is None, (self.name, "two jobs ran at once")
            self._due_part = part
        else:
            act(token)

    def _work(self, token: tuple[int, int]) -> None:
        """Do the work of the first job. Steps may come before this and between this and the job's end."""
        job, (life_number, left_us) = self._jobs[0], token
        self.trace.fields(self.world.now_us, self.name, "job", (("job", job.job), ("of", job.kind)))
        if self._reaches("before", job.kind):
            return
        self._job_error, self._has_worked = None, True
        self._disk_us()
        errors_before = len(self.disk.errors)
        try:
            self._work_on(job)
        except Dead:
            self._unwound()
            return
        except Exception as raised:
            self._job_error = raised
        if len(self.disk.errors) > errors_before:
            self._met_by_jobs[job.job] = range(errors_before, len(self.disk.errors))
        left_us += self._disk_us()
        self._note_stillness(left_us)
        self._wait_for_more()
        self.world.after(self.actor, left_us, self._on_job_time, (self._end_job, (life_number, 0)))

    def _work_on(self, job: RunJob) -> None:
        """Do the work of a job. Raises Dead inside it if a death that waits for that kind strikes; each that does not
        keeps what it has counted.
        """
        deaths = [death for kind, death in self._deaths if kind == job.kind]
        for death in deaths:
            self.disk.arm(death)
        try:
            job.work()
        finally:
            for death in deaths:
                self.disk.take_back(death)

    def _end_job(self, token: tuple[int, int]) -> None:
        job, left_us = self._jobs[0], self._job_ends_us - self.world.now_us
        if left_us > 0:
            self._note_stillness(left_us)
            self.world.after(self.actor, left_us, self._on_job_time, (self._end_job, token))
            return
        if self._reaches("after", job.kind):
            return
        assert self._jobs[0] is job, (self.name, job.kind)
        self._jobs.popleft()
        self._overtaken.discard(job.job)
        if self.world.now_us - self._job_began_us >= LONG_JOB_US:
            self._long_job_ended_us = self.world.now_us
        if job.kind == SEARCH:
            self.search_ended_us = self.world.now_us
        if self._jobs:
            self._begin_job()
        error, self._job_error = self._job_error, None
        self.feed(JobDone(job=job.job, error=error))

    def _reaches(self, side: str, kind: str) -> bool:
        """Strike the fault that waits for this side of this kind of job, if any. Returns whether the life is over."""
        found = next((each for each in self._crash_points if each[:2] == (side, kind)), None)
        if found is None:
            return False
        assert not self.life.dead, (self.name, side, kind)
        assert self.core is not None, (self.name, side, kind)
        self._crash_points.remove(found)
        self._has_worked = True
        found[2]()
        return self.core is None

    def hold_metadata(self) -> None:
        """Replay no metadata from now on: the answers with it wait inside the process, and are not lost."""
        self.holds_metadata = True

    def release_metadata(self) -> None:
        """Replay the metadata that waits; what a life that has ended waited for is gone with it."""
        self.holds_metadata = False
        held, self._held_metadata = self._held_metadata, []
        life_number = self.life_number
        for call, body, source, sent_us in held:
            # What the core makes of an answer may end the life.
            if self.life_number == life_number:
                super()._pass_on(call, body, source, sent_us)

    def _pass_on(self, call: int, body: Answer, source: int, sent_us: int) -> None:
        """Passes an answer to the core; one with metadata may have to wait."""
        if self.holds_metadata and isinstance(body, FetchMetadataResponse):
            self._held_metadata.append((call, body, source, sent_us))
        else:
            super()._pass_on(call, body, source, sent_us)

    def resume(self) -> None:
        super().resume()
        part, self._due_part = self._due_part, None
        if part is not None:
            self.world.after(self.actor, 0, self._on_job_time, part)


def _is_of_a_role(effect: object) -> bool:
    """Whether a step begins a role of a replica, removes it, or cuts its log."""
    return type(effect) is Observe and effect.kind in _ROLES
