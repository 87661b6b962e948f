"""Simulated hosts and links: messages, timers, jobs, deaths and pauses of tiny cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from cluster.core.effects import CancelTimer, Observe, RunJob, Send, Stop
from cluster.core.events import Event, JobDone, Shutdown, TimerFired
from cluster.core.messages import ProduceRequest
from sim.disk.costs import DiskCosts
from sim.hosts.node import LONG_JOB_US, Node
from sim.world.network import Transport
from sim.world.time import ORIGIN_MS
from storage.disk.filesystem import FileSystem, OpenMode
from tests.sim.hosts.fake_cores import Asker, Echo, Silent, Site, ask, timer

SECOND = 1_000_000


def pair(
    asks: int = 20,
    *,
    seed: int = 1,
    transport: Transport = Transport.STREAM,
    loss: int = 0,
    twice: int = 0,
    timeout_ms: int = 1_000,
) -> tuple[Site, Echo, Echo]:
    """Let node 1 send `asks` requests to node 2, a millisecond apart."""
    sends = [ask(2, number, number, timeout_ms) for number in range(asks)]
    asker, echo = Asker(sends, ORIGIN_MS + 20), Echo()
    site = Site(
        lambda number: asker if number == 1 else echo,
        seed=seed,
        transport=transport,
        loss_percent=loss,
        duplicate_percent=twice,
    )
    return site, asker, echo


def test_each_send_has_exactly_one_response() -> None:
    for loss in (0, 40):
        for transport in Transport:
            site, asker, _ = pair(transport=transport, loss=loss, twice=30)
            site.start()
            site.world.run_to(10 * SECOND)
            assert sorted(asker.answers()) == list(range(20))


def test_stream_keeps_the_order_even_when_packets_are_lost() -> None:
    for seed in range(5):
        site, _, echo = pair(seed=seed, loss=30, timeout_ms=20_000)
        site.start()
        site.world.run_to(20 * SECOND)
        assert echo.asked() == list(range(20))


def test_datagrams_overtake_each_other_are_lost_and_doubled() -> None:
    site, asker, echo = pair(50, transport=Transport.DATAGRAM, loss=20, twice=20)
    site.start()
    site.world.run_to(3 * SECOND)
    asked = echo.asked()
    assert asked != sorted(asked)
    assert len(set(asked)) < len(asked)
    assert set(asked) != set(range(50))
    assert "no answer in 1000 ms" in asker.errors()


def test_a_cut_stream_delivers_after_the_heal() -> None:
    site, asker, echo = pair(3)
    site.network.link(1, 2).cuts = 1
    site.start()
    site.world.run_to(300_000)
    assert echo.asked() == []
    site.network.link(1, 2).heal()
    site.world.run_to(900_000)
    assert echo.asked() == [0, 1, 2] and asker.errors() == []


def test_a_cut_longer_than_the_timeout_is_a_transport_error() -> None:
    site, asker, _ = pair(3)
    site.start()
    site.world.run_to(20_500)
    # The cut is one way: the requests arrive, the answers do not.
    site.network.link(2, 1).cuts = 1
    site.world.run_to(2 * SECOND)
    assert asker.errors() == ["no answer in 1000 ms"] * 3


def test_a_stream_that_cannot_deliver_breaks() -> None:
    site, asker, _ = pair(2, timeout_ms=60_000)
    site.start()
    site.world.run_to(20_500)
    site.network.link(1, 2).cuts = 1
    site.world.run_to(10 * SECOND)
    assert asker.errors() == ["connection broken"] * 2


def test_a_dead_process_refuses_and_a_machine_without_power_is_silent() -> None:
    for ending, reason in (
        (Node.crash, "connection refused"),
        (lambda node: node.lose_power("none"), "no answer in 1000 ms"),
    ):
        asker = Echo([timer("later", ORIGIN_MS + 100)])
        site = Site(lambda number, asker=asker: asker if number == 1 else Echo())  # type: ignore[misc]
        site.start()
        site.world.run_to(50_000)
        ending(site.nodes[2])
        site.nodes[1].perform([ask(2, 7)])
        site.world.run_to(3 * SECOND)
        assert asker.errors() == [reason]


def test_a_crash_resets_the_requests_that_it_took_with_it() -> None:
    asker = Echo([ask(2, 1, timeout_ms=60_000)])
    site = Site(lambda number: asker if number == 1 else Silent())
    site.start()
    site.world.run_to(SECOND)
    site.nodes[2].crash()
    site.world.run_to(2 * SECOND)
    assert asker.errors() == ["connection reset"]


def test_answers_for_an_earlier_life_are_dropped() -> None:
    lives: list[Echo] = []

    def make(number: int) -> Echo:
        if number == 2:
            return Echo()
        lives.append(Echo([ask(2, 1)] if not lives else []))
        return lives[-1]

    site = Site(make)
    site.start()
    # The request is on its way.
    site.world.run_to(5_050)
    site.nodes[1].crash()
    site.nodes[1].start()
    site.world.run_to(SECOND)
    assert len(lives) == 2 and lives[1].log == []


def test_timers_replace_each_other_and_can_be_cancelled() -> None:
    first = [timer("a", ORIGIN_MS + 100), timer("a", ORIGIN_MS + 300), timer("b", ORIGIN_MS + 50)]
    echo = Echo([*first, CancelTimer(key="b"), timer("c", ORIGIN_MS + 500), timer("c", ORIGIN_MS + 200)])
    site = Site(lambda number: echo, nodes=1)
    site.start()
    site.world.run_to(SECOND)
    fired = [(now_ms - ORIGIN_MS, event.key) for now_ms, event in echo.log if isinstance(event, TimerFired)]
    assert fired == [(200, "c"), (300, "a")]


def test_a_paused_node_keeps_its_sockets_and_fires_late() -> None:
    echo = Echo([timer("a", ORIGIN_MS + 100)])
    site = Site(lambda number: echo if number == 1 else Echo())
    site.start()
    site.world.run_to(50_000)
    site.nodes[1].pause()
    site.world.run_to(600_000)
    assert echo.log == []
    site.nodes[1].resume()
    site.world.run_to(SECOND)
    assert [now_ms - ORIGIN_MS for now_ms, _ in echo.log] == [600]


def test_jobs_run_one_at_a_time_in_order_and_their_error_is_returned() -> None:
    ran: list[int] = []

    def fail() -> None:
        raise OSError("no")

    jobs = [RunJob(job=n, kind="flush", work=lambda n=n: ran.append(n)) for n in range(3)]  # type: ignore[misc]
    echo = Echo([*jobs, RunJob(job=3, kind="flush", work=fail)])
    site = Site(lambda number: echo, nodes=1)
    site.start()
    site.world.run_to(SECOND)
    done = [event for _, event in echo.log if isinstance(event, JobDone)]
    assert ran == [0, 1, 2] and [event.job for event in done] == [0, 1, 2, 3]
    assert isinstance(done[3].error, OSError)


def test_a_crash_point_ends_the_life_before_or_after_the_job() -> None:
    for side, ran_before_death in (("before", 0), ("after", 1)):
        ran: list[int] = []
        echo = Echo([RunJob(job=1, kind="flush", work=lambda ran=ran: ran.append(1))])  # type: ignore[misc]
        site = Site(lambda number, echo=echo: echo, nodes=1)  # type: ignore[misc]
        node = site.nodes[1]
        node.arm_crash_point(side, "flush", node.crash)
        site.start()
        site.world.run_to(SECOND)
        assert len(ran) == ran_before_death and not node.is_up and echo.log == []


def test_a_crash_point_leaves_those_of_other_jobs_and_sides_as_they_are() -> None:
    told: list[str] = []
    jobs = ("flush", "compact", "flush", "flush")
    echo = Echo([RunJob(job=place, kind=kind, work=lambda: None) for place, kind in enumerate(jobs)])
    site = Site(lambda number: echo, nodes=1)
    for side, kind in (("before", "flush"), ("after", "compact"), ("before", "flush"), ("after", "flush")):
        what = f"{len(told)} {side} {kind}"
        site.nodes[1].arm_crash_point(side, kind, lambda what=what: told.append(what))  # type: ignore[misc]
        told.append(what)
    told.clear()
    site.start()
    site.world.run_to(SECOND)
    assert told == ["0 before flush", "3 after flush", "1 after compact", "2 before flush"]


class Writer(Echo):
    """A core that appends to a file in each step. Its `finally` must change nothing on a dead node's disk."""

    def __init__(self, file_system: FileSystem) -> None:
        super().__init__([timer("write", ORIGIN_MS + 20)])
        file_system.make_directory("data/t-0")
        self.file = file_system.open("data/t-0/00000000000000000000.log", OpenMode.CREATE)

    def step(self, now_ms: int, event: object) -> list[object]:
        try:
            self.file.append(b"0123456789")
        finally:
            self.file.sync()
        return [timer("write", now_ms + 20), Observe(kind="wrote")]


def writer_site() -> tuple[Site, Node]:
    site = Site(lambda number: Echo(), nodes=1)
    node = site.nodes[1]
    node._make_core = lambda file_system, draws: Writer(file_system)
    site.start()
    return site, node


def test_a_partial_write_ends_the_life_inside_the_call() -> None:
    site, node = writer_site()
    site.world.run_to(50_000)
    ended: list[int] = []

    def end() -> None:
        ended.append(site.world.now_us)
        node.crash()

    node.arm_partial_write("t-0", 4, end)
    site.world.run_to(SECOND)
    assert len(ended) == 1 and not node.is_up
    assert site.onlooker.ends == [("node-1", False, False)]
    node.start()
    size = node.disk.file_system(node.life).stat("data/t-0/00000000000000000000.log").size_bytes
    assert size % 10 == 4


def test_an_error_of_a_core_is_reported_and_ends_its_life() -> None:
    echo = Echo([timer("a", ORIGIN_MS + 10)])

    def fail(now_ms: int, event: object) -> list[object]:
        raise AssertionError("broken invariant")

    echo.step = fail  # type: ignore[method-assign]
    site = Site(lambda number: echo, nodes=1)
    site.start()
    site.world.run_to(SECOND)
    assert [str(error) for error in site.onlooker.failures] == ["broken invariant"]
    assert not site.nodes[1].is_up


def test_an_orderly_stop_ends_with_the_effect_stop() -> None:
    class Obedient(Echo):
        def step(self, now_ms: int, event: object) -> list[object]:
            return [Stop(reason="shutdown")] if isinstance(event, Shutdown) else []

    site = Site(lambda number: Obedient(), nodes=1)
    site.start()
    site.world.run_to(50_000)
    site.nodes[1].stop()
    site.world.run_to(SECOND)
    assert site.onlooker.stops == ["shutdown"] and not site.nodes[1].is_up
    assert site.onlooker.ends == [("node-1", False, True)]


def test_acks_0_expects_no_reply() -> None:
    silent = Send(
        to=2, call=1, body=ProduceRequest(acks=0, partitions=()), timeout_ms=100, expects_reply=False
    )
    asker, server = Echo([silent]), Silent()
    site = Site(lambda number: asker if number == 1 else server)
    site.start()
    site.world.run_to(SECOND)
    assert len(server.log) == 1 and asker.log == []


def test_steps_come_before_and_after_the_work_of_a_job_that_has_not_ended() -> None:
    """The work of a job is done between its preparation and its end, with time on both sides."""
    before = after = 0
    for seed in range(10):
        log: list[tuple[int, Event]] = []
        steps_at_work: list[int] = []
        work_once = partial(lambda log, steps: steps.append(len(log)), log, steps_at_work)
        job = RunJob(job=1, kind="compact", work=work_once)
        echo = Echo([job, *(timer(f"t{number}", ORIGIN_MS + 50 * number) for number in range(1, 20))], log)
        site = Site(lambda number, echo=echo: echo, nodes=1, seed=seed, job_means_us={"compact": 500_000})  # type: ignore[misc]
        site.start()
        site.world.run_to(8 * SECOND)
        kinds = [type(event).__name__ for _, event in echo.log]
        work, done = steps_at_work[0], kinds.index("JobDone") + 1
        assert work < done
        before, after = before + work, after + (done - work - 1)
    assert before > 10 and after > 10


def test_a_step_that_uses_the_disk_ends_later_and_so_does_its_answer() -> None:
    class Syncing(Echo):
        def __init__(self, file_system: FileSystem) -> None:
            super().__init__()
            self.file = file_system.open("f", OpenMode.CREATE)

        def step(self, now_ms: int, event: Event) -> Sequence[object]:
            self.file.sync()
            return super().step(now_ms, event)

    answered: list[int] = []
    for sync_us in (0, 30_000):
        asker = Echo([ask(2, 0)])
        site = Site(lambda number, asker=asker: asker, seed=3)  # type: ignore[misc]
        node = site.nodes[2]
        node._make_core = lambda file_system, draws: Syncing(file_system)
        node.disk.meter.costs = DiskCosts(sync_us=sync_us)
        site.start()
        site.world.run_to(SECOND)
        answered.append(asker.log[0][0])
    assert answered[1] - answered[0] == 30


class SlowWriter(Echo):
    """A core that appends to a file and syncs it before each answer."""

    def __init__(self, file_system: FileSystem) -> None:
        super().__init__()
        self.file = file_system.open("f", OpenMode.CREATE)
        file_system.sync_directory("")

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        self.file.append(b"0123456789")
        self.file.sync()
        return super().step(now_ms, event)


def killed_in_step(
    kill: Callable[[Node], None], killed_us: int, transport: Transport
) -> tuple[Echo, list[int]]:
    """Kill node 2 that long after the beginning of a step of 30 ms; node 1 waits for its answer.

    Returns the core of node 1 and the sizes of the file that the step writes: before, during and after it.
    """
    asker = Echo([ask(2, 0)])
    site = Site(lambda number: asker, transport=transport)
    node = site.nodes[2]
    node._make_core = lambda file_system, draws: SlowWriter(file_system)

    def size() -> int:
        return node.disk.file_system(node.life).stat("f").size_bytes

    site.start()
    node.disk.meter.costs = DiskCosts(sync_us=30_000)
    sizes = [size()]
    while node._busy_until_us <= 20_000:
        site.world.run_to(site.world.now_us + 10)
    sizes.append(size())
    site.world.run_to(site.world.now_us + killed_us)
    kill(node)
    site.world.run_to(2 * SECOND)
    node.start()
    return asker, [*sizes, size()]


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("kill", [Node.crash, lambda node: node.lose_power("none")])
def test_a_process_that_is_killed_in_a_step_keeps_its_disk_calls_and_says_nothing(
    kill: Callable[[Node], None], transport: Transport
) -> None:
    asker, sizes = killed_in_step(kill, 20_000, transport)
    assert asker.answers() == [0] and len(asker.errors()) == 1
    assert sizes == [0, 10, 10]
    # It was killed after the step: the answer was on its way.
    asker, sizes = killed_in_step(kill, 30_200, transport)
    assert asker.answers() == [0] and asker.errors() == []
    assert sizes == [0, 10, 10]


def test_a_paused_node_ends_its_job_after_the_pause() -> None:
    for pause_us in range(5_500, 9_000, 500):
        echo = Echo([RunJob(job=1, kind="flush", work=lambda: None)])
        site = Site(lambda number, echo=echo: echo, nodes=1)  # type: ignore[misc]
        site.start()
        site.world.run_to(pause_us)
        site.nodes[1].pause()
        site.world.run_to(SECOND)
        ended = len(echo.log)
        site.nodes[1].resume()
        site.world.run_to(2 * SECOND)
        assert [type(event) for _, event in echo.log] == [JobDone]
        assert ended in (0, 1)


def test_a_process_runs_from_its_start_or_the_end_of_its_last_pause() -> None:
    site = Site(lambda number: Echo(), nodes=1)
    site.start()
    site.world.run_to(SECOND)
    node = site.nodes[1]
    assert node.runs_since_us == 0
    node.pause()
    assert node.runs_since_us is None
    node.resume()
    assert node.runs_since_us == SECOND
    node.crash()
    assert node.runs_since_us is None
    site.world.run_to(2 * SECOND)
    node.start()
    assert node.runs_since_us == 2 * SECOND


def test_a_process_acts_while_no_job_takes_it_long() -> None:
    def acts_since(job_mean_us: int, at_us: int) -> list[int | None]:
        """When the node acts since, at `at_us`, and when its job has ended."""
        echo = Echo([RunJob(job=1, kind="flush", work=lambda: None)])
        site = Site(lambda number: echo, nodes=1, job_means_us={"flush": job_mean_us})
        site.start()
        node = site.nodes[1]
        found: list[int | None] = []
        for until_us in (at_us, 100 * SECOND):
            site.world.run_to(until_us)
            found.append(node.acts_since_us)
        assert [type(event) for _, event in echo.log] == [JobDone]
        return found

    assert acts_since(job_mean_us=1_000, at_us=1) == [0, 0]
    during, after = acts_since(job_mean_us=4 * SECOND, at_us=LONG_JOB_US)
    assert during is None
    assert after is not None and after > LONG_JOB_US
