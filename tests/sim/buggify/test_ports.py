"""What the points do at each port: no more than the world may do to a correct system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cluster.core.effects import Observe, RunJob, Send
from cluster.core.events import JobDone, TimerFired, TransportError
from cluster.core.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    IsrMember,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    TopicMetadata,
    TopicPartition,
)
from cluster.shell.streams import CODEC, StreamCodec
from sim.buggify.buggify import Buggify
from sim.buggify.disks import DiskPoints
from sim.buggify.host import HostPoints
from sim.buggify.links import LinkPoints
from sim.buggify.messages import LOST, REPEATED
from sim.world.clock import Clock
from sim.world.time import ORIGIN_MS, World
from storage.batch import Record, build_batch, iterate_batches
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from tests.sim.disk.disks import content_after, new_disk, with_durable_file
from tests.sim.hosts.fake_cores import Asker, Echo, Silent, Site, ask, ask_alone, timer

SECOND = 1_000_000
T0 = TopicPartition("t", 0)


def on(*points: str, percent: int = 100, seed: int = 1) -> Buggify:
    return Buggify(Draws(seed), points, percent=percent)


def host(*points: str, percent: int = 100) -> HostPoints:
    return HostPoints(on(*points, percent=percent), "node-1")


def with_points(site: Site, *points: str, percent: int = 100) -> Site:
    """Returns the site with points on at its network and at all its nodes."""
    buggify = on(*points, percent=percent)
    site.network.points = LinkPoints(buggify)
    for node in site.nodes.values():
        node.points, node.disk.points = HostPoints(buggify, node.name), DiskPoints(buggify, node.name)
    return site


def asking(asks: int, *points: str, percent: int = 100, timeout_ms: int = 5_000) -> tuple[Asker, Echo]:
    """Let node 1 send requests to node 2 on one stream, with points on; returns what both cores saw."""
    sends = [ask(2, number, number, timeout_ms) for number in range(asks)]
    asker, echo = Asker(sends, ORIGIN_MS + 20), Echo()
    site = with_points(Site(lambda number: asker if number == 1 else echo), *points, percent=percent)
    site.start()
    site.world.run_to(20 * SECOND)
    return asker, echo


@pytest.mark.parametrize("point", ["timer-late", "timers-together", "start-slow"])
def test_a_timer_never_fires_early(point: str) -> None:
    core = Echo([timer(str(each), ORIGIN_MS + 50 + 7 * each) for each in range(20)])
    site = with_points(Site(lambda number: core, nodes=1), point)
    site.start()
    site.world.run_to(3 * SECOND)
    fired = {event.key: at_ms for at_ms, event in core.log if isinstance(event, TimerFired)}
    late = [fired[str(each)] - ORIGIN_MS - 50 - 7 * each for each in range(20)]
    assert len(fired) == 20 and min(late) >= 0 and max(late) > 1


def test_a_coarse_clock_shows_the_time_of_a_timer_when_it_fires() -> None:
    world = World(Draws(1))
    clock = Clock(world, offset_us=3_000, drift_ppm=500, grain_ms=10)
    for _ in range(50):
        at_ms = clock.now_ms() + 3
        world.run_to(world.now_us + max(1, clock.delay_us(at_ms)))
        assert clock.now_ms() >= at_ms
        assert clock.now_ms() % 10 == 0


@pytest.mark.parametrize(
    "point",
    [
        "packet-late",
        "window-small",
        "frames-in-pieces",
        "small-frames",
        "turn-split",
        "turn-waits",
        "step-slow",
        "accept-late",
    ],
)
def test_a_stream_keeps_its_order_and_loses_nothing(point: str) -> None:
    asker, echo = asking(30, point, percent=40)
    assert echo.asked() == list(range(30))
    assert asker.answers() == list(range(30)) and asker.errors() == []


def most_at_a_time(*points: str, make: Callable[[int, int, int], Send] = ask) -> int:
    """Returns how many of eight calls of one turn a core gets before it answers one."""
    asker, core = Echo([make(2, number, number) for number in range(8)]), Silent()
    site = with_points(Site(lambda number: asker if number == 1 else core), *points)
    site.start()
    site.world.run_to(SECOND // 2)
    return len(core.asked())


def test_c6_a_node_with_few_places_takes_up_to_three_calls_at_a_time() -> None:
    assert most_at_a_time() == 8
    assert 1 <= most_at_a_time("few-places") <= 3


def test_c6_with_few_places_every_call_is_answered_all_the_same() -> None:
    asker, echo = asking(30, "few-places", "turn-waits", "window-small")
    assert echo.asked() == list(range(30))
    assert asker.answers() == list(range(30)) and asker.errors() == []


def test_c6_a_node_with_few_calls_has_one_or_two_of_a_method_with_a_peer() -> None:
    assert most_at_a_time(make=ask_alone) == 8
    assert 1 <= most_at_a_time("few-calls", make=ask_alone) <= 2
    # Those of a stream have places of their own.
    assert most_at_a_time("few-calls") == 8


def test_c6_with_few_calls_every_call_is_answered_all_the_same() -> None:
    sends = [ask_alone(2, number, number, 5_000) for number in range(30)]
    asker, echo = Asker(sends, ORIGIN_MS + 20), Echo()
    site = with_points(Site(lambda number: asker if number == 1 else echo), "few-calls", "turn-waits")
    site.start()
    site.world.run_to(20 * SECOND)
    assert sorted(asker.answers()) == list(range(30)) and asker.errors() == []


def test_each_call_has_one_outcome_where_connections_end_after_answers() -> None:
    asker, _ = asking(30, "hang-up-after-answer", "packet-late", percent=30)
    assert sorted(asker.answers()) == list(range(30))
    assert asker.errors()


def turns(*points: str) -> list[int]:
    """Returns the sizes of the turns of a core that got eight requests in one frame."""
    asker, core = Echo([ask(2, number, number) for number in range(8)]), Silent()
    site = with_points(Site(lambda number: asker if number == 1 else core), *points)
    site.start()
    site.world.run_to(SECOND)
    assert core.asked() == list(range(8))
    return core.turns


def test_a_turn_is_split_into_steps() -> None:
    assert max(turns("turn-split")) < max(turns()) <= 8


def job(*points: str) -> tuple[list[str], Site]:
    """Let a node run one job, and then note when it was done."""
    seen: list[str] = []
    core = Echo([RunJob(job=1, kind="flush", work=lambda: seen.append("work"))])
    site = with_points(Site(lambda number: core, nodes=1), *points)
    site.start()
    site.world.run_to(SECOND)
    seen += ["done" for _, event in core.log if isinstance(event, JobDone)]
    return seen, site


@pytest.mark.parametrize("point", ["job-at-once", "job-slow", "job-works-last", "job-done-late"])
def test_a_job_does_its_work_once_and_ends_once(point: str) -> None:
    assert job(point)[0] == ["work", "done"]


@pytest.mark.parametrize("kind", ["replica.became_leader", "replica.became_follower", "replica.truncated"])
def test_jobs_during_which_a_role_begins_end_late(kind: str) -> None:
    def ends_ms(*observed: str) -> list[int]:
        core = Echo([RunJob(job=number, kind="flush", work=lambda: None) for number in (1, 2)])
        site = with_points(Site(lambda number: core, nodes=1), "job-overtaken")
        site.start()
        site.nodes[1].perform([Observe(kind=each) for each in observed])
        site.world.run_to(2 * SECOND)
        return [now_ms for now_ms, event in core.log if isinstance(event, JobDone)]

    prompt, late = ends_ms("log.opened"), ends_ms(kind)
    assert len(late) == 2
    # The second one waits for the first, and by itself.
    assert late[0] > prompt[0] + 10
    assert late[1] - late[0] > prompt[1] - prompt[0] + 10


def test_a_killed_process_has_done_the_work_that_it_waited_for_and_never_learns_it() -> None:
    seen: list[str] = []
    core = Echo([RunJob(job=1, kind="flush", work=lambda: seen.append("work"))])
    for points, works in (([], []), (["job-before-crash"], ["work"])):
        seen.clear()
        site = with_points(Site(lambda number: core, nodes=1), *points)
        site.start()
        site.nodes[1].crash()
        site.world.run_to(SECOND)
        assert seen == works
        assert not any(isinstance(event, JobDone) for _, event in core.log)


def test_what_is_written_back_survives_a_power_loss_that_keeps_nothing() -> None:
    for points, content in (((), b"old"), (("write-back",), b"old new")):
        disk = new_disk()
        _, file = with_durable_file(disk, b"old")
        disk.points = DiskPoints(on(*points), "node-1")
        file.append(b" new")
        assert content_after(disk, "none") == content


def test_a_disk_whose_syncs_lie_writes_nothing_back() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk, b"old")
    disk.points = DiskPoints(on("write-back"), "node-1")
    disk.let_syncs_lie(True)
    file.append(b" new")
    assert content_after(disk, "none") == b"old"


def test_a_write_that_is_lost_is_not_written_back() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk, b"old")
    disk.points = DiskPoints(on("write-back"), "node-1")
    disk.lose_writes(100)
    file.append(b" new")
    assert content_after(disk, "all") == b"old"


def test_names_that_are_written_back_survive_a_power_loss() -> None:
    for points, kept in (((), False), (("names-written-back",), True)):
        disk = new_disk()
        fs, _ = with_durable_file(disk, b"a")
        disk.points = DiskPoints(on(*points), "node-1")
        fs.open("d/g", OpenMode.CREATE).sync()
        assert (content_after(disk, "none", "d/g") is not None) is kept


def test_of_a_write_in_parts_a_power_loss_may_keep_the_first() -> None:
    kept = set()
    for seed in range(20):
        disk = new_disk(seed)
        _, file = with_durable_file(disk)
        disk.points = DiskPoints(on("write-in-parts"), "node-1")
        file.append(b"x" * 100)
        kept.add(len(content_after(disk, "prefix") or b""))
    assert {0, 100} < kept


def test_a_read_in_parts_returns_all_or_fails_in_its_second_call() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk, b"0123456789")
    disk.fail(2, verbs={"read"})
    assert file.read_at(0, 10) == b"0123456789"
    disk.disarm()
    disk.points = DiskPoints(on("read-in-parts"), "node-1")
    assert file.read_at(1, 5) == b"12345" and file.read_at(8, 5) == b"89" and file.read_at(3, 1) == b"3"
    buffer = bytearray(6)
    assert file.read_into(7, memoryview(buffer)) == 3 and buffer == b"789\0\0\0"
    disk.fail(2, verbs={"read"})
    with pytest.raises(OSError, match="Input/output error"):
        file.read_at(0, 10)


def batches(count: int) -> bytes:
    return b"".join(
        build_batch([Record(each, 1_000, None, b"v" * 20)], base_offset=each) for each in range(count)
    )


def answer(*records: bytes) -> FetchResponse:
    parts = [
        FetchPartitionResponse(topic_partition=TopicPartition("t", number), high_watermark=9, records=each)
        for number, each in enumerate(records)
    ]
    return FetchResponse(partitions=tuple(parts))


def test_an_answer_is_cut_to_whole_batches() -> None:
    found = host("fetch-answer-cut").reply(answer(batches(3), b""))
    assert isinstance(found, FetchResponse)
    assert [len(list(iterate_batches(each.records))) for each in found.partitions] == [1, 0]
    assert batches(3).startswith(found.partitions[0].records)


def test_an_answer_may_leave_out_one_partition_and_keeps_its_marks() -> None:
    found = host("fetch-answer-empty").reply(answer(batches(1), batches(2)))
    assert isinstance(found, FetchResponse)
    assert sorted(bool(each.records) for each in found.partitions) == [False, True]
    assert [each.high_watermark for each in found.partitions] == [9, 9]


def fetch(*points: str) -> FetchRequest:
    asked = FetchRequest(replica_id=2, partitions=(FetchPartition(topic_partition=T0, fetch_offset=3),))
    found = host(*points).request(asked)
    assert isinstance(found, FetchRequest) and found.partitions[0].fetch_offset == 3
    return found


def test_a_fetch_asks_for_less_or_waits_less_or_longer() -> None:
    assert fetch().max_bytes > fetch("fetch-asks-for-one-batch").max_bytes == 1
    assert fetch("fetch-asks-for-one-batch").partitions[0].max_bytes == 1
    assert fetch("fetch-does-not-wait").max_wait_ms == 0 < fetch().max_wait_ms
    assert fetch("fetch-waits-for-more").min_bytes > fetch().min_bytes


def test_only_who_waits_for_replication_gives_it_up_early() -> None:
    points = host("append-times-out")
    for acks, timeout_ms in ((-1, 1), (1, 30_000), (0, 30_000)):
        found = points.request(ProduceRequest(acks=acks, partitions=()))
        assert isinstance(found, ProduceRequest) and found.timeout_ms == timeout_ms


def test_a_proposal_names_an_earlier_life_of_a_follower_never_of_the_leader_itself() -> None:
    members = (IsrMember(broker_id=1, broker_epoch=7), IsrMember(broker_id=2, broker_epoch=9))
    asked = AlterPartitionRequest(
        broker_id=1, broker_epoch=7, topic_partition=T0, topic_id="", leader_epoch=1, partition_epoch=1,
        new_isr=members,
    )  # fmt: skip
    point = "proposal-of-an-earlier-life"
    changed = replace(asked, new_isr=(members[0], IsrMember(broker_id=2, broker_epoch=8)))
    assert host(point).request(asked) == changed
    assert host().request(asked) is asked
    alone = replace(asked, new_isr=members[:1])
    assert host(point).request(alone) is alone


def test_answers_of_unary_calls_alone_are_lost() -> None:
    points = host(*LOST.values())
    assert isinstance(points.answer(AlterPartitionResponse(topic_partition=T0)), TransportError)
    for body in (answer(b""), MetadataResponse(), TransportError(reason="cut")):
        assert points.answer(body) is body


def test_old_metadata_is_that_of_the_same_topics() -> None:
    def metadata(offset: int, topic: str) -> MetadataResponse:
        return MetadataResponse(topics=(TopicMetadata(name=topic),), metadata_offset=offset)

    points = host("client-metadata-stale")
    first, other = metadata(1, "t"), metadata(2, "u")
    found: Sequence[object] = [points.answer(each) for each in (first, other, metadata(3, "t"))]
    assert found == [first, other, first]


def test_requests_to_the_controller_come_twice() -> None:
    points = host(*REPEATED.values())
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0)
    assert points.repeats(beat)
    assert not points.repeats(FetchRequest(replica_id=1, partitions=()))


def test_little_is_large_changes_what_goes_past_the_codec_and_no_byte_of_a_frame() -> None:
    assert LinkPoints(on()).codec(CODEC) is CODEC
    asked = ProduceRequest(
        acks=1,
        timeout_ms=1,
        partitions=(ProducePartition(topic_partition=TopicPartition("t", 0), records=bytes(700)),),
    )
    codec = LinkPoints(on("little-is-large")).codec(CODEC)
    usual, other = CODEC.stream_of(asked), codec.stream_of(asked)
    assert isinstance(other, StreamCodec) and other.request_framing is not None
    assert 100 < other.request_framing.least_bytes <= 600
    frame = other.calls_to_bytes([(1, asked)])
    assert frame == usual.calls_to_bytes([(1, asked)])
    assert other.calls_from_bytes(frame) == usual.calls_from_bytes(frame) == [(1, asked)]
