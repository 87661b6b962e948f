"""Compacted logs under the checkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury, Violation
from sim.checkers.chain import Chain, Mark, marks_of
from sim.checkers.ghost import Ghost
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.faults.nodes import WIPED
from sim.hosts.node import Node
from sim.run import Run, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.witness.compacted import CompactedPartition
from sim.witness.disk_logs import DiskLogs
from sim.witness.log_reader import DiskEye, LogReader
from sim.witness.tombstones import Round
from storage.batch import Record, RecordBatch, build_batch
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.plan import CleanerConfig
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

SCENARIO = Path(__file__).resolve().parents[3] / "scenarios" / "compaction-crashes.yaml"


def batch(*records: tuple[int, str, str], last_offset: int | None = None, epoch: int = 0) -> bytes:
    """A batch of (offset, key, value). `last_offset` is given if its last records are compacted away."""
    made = [Record(offset, 5, key.encode(), value.encode()) for offset, key, value in records]
    end = made[-1].offset if last_offset is None else last_offset
    data = bytearray(build_batch(made, base_offset=made[0].offset, partition_leader_epoch=epoch))
    data[23:27] = (end - made[0].offset).to_bytes(4, "big")
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


APPENDED = [
    batch((0, "a", "1"), (1, "b", "1")),
    batch((2, "a", "2")),
    batch((3, "c", "1"), (4, "b", "2")),
]


class Replica:
    """A log on a disk of its own, as appended and as it is afterwards."""

    def __init__(self, *after: bytes, committed: int = len(APPENDED)) -> None:
        """`committed` is the number of batches that are."""
        self.disk = SimDisk(Draws(1), lambda: 0)
        self.file_system = self.disk.file_system(Life())
        self.file_system.make_directory("data/t-0")
        self.write(*APPENDED)
        self.truth = Chain(marks_of(b"".join(APPENDED[:committed])))
        self.partition = CompactedPartition(self.truth)
        self.reader = LogReader(DiskEye(self.disk), "data/t-0", is_compacted=True)
        self.partition.remember(self.reader, self.reader.read_on())
        self.write(*after)
        self.reader.read_all()

    def write(self, *batches: bytes) -> None:
        file = self.file_system.open(f"data/t-0/{0:020d}.log", OpenMode.CREATE)
        file.set_length(0)
        file.append(b"".join(batches))
        file.close()

    def marks(self) -> list[Mark]:
        return [place.mark for place in self.reader.places]


def test_what_was_superseded_may_be_missing() -> None:
    replica = Replica(APPENDED[1], APPENDED[2])
    assert replica.partition.judge(1, replica.reader, 0) is None


def test_a_batch_that_is_missing_or_shorter_is_put_back() -> None:
    for after in ([APPENDED[1], APPENDED[2]], [batch((0, "a", "1"), last_offset=1), *APPENDED[1:]]):
        replica = Replica(*after)
        assert replica.partition.whole(replica.marks(), 0) == marks_of(b"".join(APPENDED))


def test_the_last_value_of_a_key_must_stay() -> None:
    replica = Replica(APPENDED[0], APPENDED[2])
    what = replica.partition.judge(1, replica.reader, 0)
    assert what == "the last value of key b'a', at offset 2, was deleted"
    assert replica.partition.judge(1, replica.reader, 0, since=2) == what


def test_what_is_below_the_start_of_a_leaders_log_may_be_missing() -> None:
    """A cut there that is inside a batch drops all of it, and the log goes on at the cut."""
    replica = Replica(APPENDED[0], APPENDED[2])
    assert replica.partition.judge(1, replica.reader, 0, since=3) is None


def test_a_committed_value_is_replaced_by_a_committed_one() -> None:
    """What is not committed may be lost with its leader, and the key would have no value then."""
    own = [Chain(marks_of(b"".join(APPENDED)))]
    found = []
    for committed in (1, 2, 3):
        replica = Replica(batch((0, "a", "1"), last_offset=1), *APPENDED[1:], committed=committed)
        found.append(replica.partition.judge(1, replica.reader, 0, own, ended=Round(2)))
        assert replica.partition.judge(1, replica.reader, 0, own, ended=Round(2)) is None
    what = "the last committed value of key b'b', at offset 1, was deleted; the committed log ends at"
    assert found == [f"{what} 2", f"{what} 3", None]
    # The later value was committed too, and lost in an unclean election of which this broker has not heard.
    replica = Replica(APPENDED[1], APPENDED[2], committed=2)
    lost = marks_of(APPENDED[2])
    own = [Chain(replica.marks())]
    assert replica.partition.judge(1, replica.reader, 0, own, lost, ended=Round(2)) is None


def test_cl15_what_a_later_record_supersedes_goes_with_the_round_that_has_read_both() -> None:
    replica = Replica(*APPENDED)
    assert replica.partition.judge(1, replica.reader, 0, ended=Round(2)) is None
    what = replica.partition.judge(1, replica.reader, 0, ended=Round(3))
    assert what == "compaction up to 3 left key b'a' at offset 0, which offset 2 supersedes"
    # What is below a log start waits for its deletion.
    assert replica.partition.judge(1, replica.reader, 0, ended=Round(3, start=1)) is None
    replica = Replica(APPENDED[1], APPENDED[2])
    assert replica.partition.judge(1, replica.reader, 0, ended=Round(5)) is None


def test_a_follower_that_is_behind_may_lack_what_its_leader_has_superseded() -> None:
    replica = Replica(APPENDED[1])
    assert replica.partition.judge(1, replica.reader, 0) is None
    replica = Replica(APPENDED[0], batch((4, "b", "2")))
    assert replica.partition.judge(1, replica.reader, 0) is not None


def test_what_was_superseded_by_a_record_whose_loss_is_excused_may_be_missing() -> None:
    # Compaction dropped offset 1; then an unclean election had the log cut at 2, and with it what superseded that.
    replica = Replica(batch((0, "a", "1"), last_offset=1))
    kept = replica.truth.marks[0]
    cut = replica.truth.truncate_to(2)
    what = replica.partition.judge(1, replica.reader, 0)
    assert what == "the last value of key b'b', at offset 1, was deleted"
    assert replica.partition.judge(1, replica.reader, 0, (), cut) is None
    # A record does not supersede itself, nor one of another key.
    assert replica.partition.judge(1, replica.reader, 0, (), [kept, cut[0]]) == what


def test_a_later_loss_at_the_same_offset_hides_no_earlier_one() -> None:
    other = batch((3, "x", "1"), (4, "y", "1"), epoch=1)
    replica = Replica(APPENDED[0], APPENDED[1], other)
    replica.partition.remember(replica.reader, replica.marks())
    replica.write(batch((0, "a", "1"), last_offset=1))
    replica.reader.read_all()
    cut = replica.truth.truncate_to(2)
    # Of both epochs the records at 3 and 4 were lost; the first one's superseded offset 1.
    assert replica.partition.judge(1, replica.reader, 0, (), [*cut, *marks_of(other)]) is None


def test_a_disk_that_lied_may_have_lost_what_compaction_kept() -> None:
    replica = Replica(*APPENDED)
    told: list[Violation] = []
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=told.append)
    logs = DiskLogs(jury, {1: replica.disk}, ("data",))
    logs.expect_compaction("t-0")
    logs.remember("t-0", replica.reader, replica.marks())
    image = jury.ghost.partition("t-0").image(1)
    image.chain = Chain(replica.marks())
    replica.write(APPENDED[1], batch((4, "b", "2")))
    image.cache_damage = "a disk lost what a sync had said to be durable"
    logs.judge_compaction(1, "t-0")
    assert told == []
    image.cache_damage = ""
    logs.judge_compaction(1, "t-0")
    assert [each.checker for each in told] == ["compaction"]


def test_consumers_may_pass_what_compaction_removed_before_or_while_its_broker_led() -> None:
    replica = Replica(APPENDED[1], APPENDED[2])
    replica.partition.judge(1, replica.reader, 0)
    replica.partition.leads(2)
    assert not replica.partition.removed_by_leaders
    replica.partition.leads(1)
    assert replica.partition.removed_by_leaders == {0, 1}


def test_a_record_must_stay_at_its_offset() -> None:
    replica = Replica(APPENDED[0], batch((2, "a", "1")), APPENDED[2])
    what = replica.partition.judge(1, replica.reader, 0)
    assert what == "offset 2 holds b'1', which was not written there"


def test_the_order_must_stay() -> None:
    replica = Replica(APPENDED[2], APPENDED[1])
    what = replica.partition.judge(1, replica.reader, 0)
    assert what is not None and "offset 2 follows 4" in what


def cut_inside_a_batch(*after: bytes) -> Replica:
    """The log of broker 1, which had one batch from offset 0 to 2 and was cut at 2, and then copied `after`."""
    replica = Replica(*after)
    had = batch((0, "a", "1"), (1, "b", "1"), (2, "a", "2"))
    replica.partition = CompactedPartition(Chain())
    replica.partition.note_cut(1, replica.reader, Chain(marks_of(had)), 2)
    return replica


def test_rt9_a_log_that_goes_on_at_a_cut_is_filled_from_there_on() -> None:
    """Compaction has removed the first batch that it copied; that of offset 0 is gone, whatever others have there."""
    replica = cut_inside_a_batch(APPENDED[2])
    leader = Chain(marks_of(b"".join(APPENDED[1:])), start=2)
    other = Chain(marks_of(b"".join(APPENDED)))
    for told in ([Chain(), leader], [Chain(), leader, other], [Chain(), other]):
        assert replica.partition.whole(replica.marks(), 0, told, broker=1) == tuple(leader.marks)
    assert replica.partition.whole(replica.marks(), 0, [Chain(), other], broker=2) == tuple(other.marks)
    # Nobody has the first batch.
    empty = Chain((), start=2)
    assert replica.partition.whole(replica.marks(), 0, [Chain(), empty], broker=1) == tuple(replica.marks())


def test_rt9_the_hole_that_a_cut_has_left_stays_one_while_the_log_goes_on_behind_it() -> None:
    other = Chain(marks_of(b"".join(APPENDED)))
    replica = cut_inside_a_batch(*APPENDED[1:])
    marks = tuple(replica.marks())
    assert replica.partition.whole(marks, 0, [Chain(), other], broker=1) == marks
    replica.partition.forget_gaps(1, marks)
    assert replica.partition.whole(marks, 0, [Chain(), other], broker=1) == marks
    # Cut inside the hole it goes on there, and no later.
    replica.partition.note_cut(1, replica.reader, Chain(marks), 1)
    between = Chain([marks[0]._replace(base_offset=1, record_count=2)])
    assert replica.partition.whole(between.marks, 0, [Chain(), other], broker=1) == tuple(between.marks)
    # A start finds no batch at the cut: what it takes for its log ends before the hole.
    replica.partition.forget_gaps(1)
    assert replica.partition.whole(marks, 0, [Chain(), other], broker=1) == tuple(other.marks)


def test_a_hole_that_was_never_committed_stays_one() -> None:
    replica = Replica(APPENDED[2])
    unknown = CompactedPartition(Chain())
    assert unknown.whole(replica.marks(), 0) == tuple(replica.marks())


def test_what_the_truth_has_lost_is_put_back_from_what_the_replica_told() -> None:
    told = Chain(marks_of(b"".join(APPENDED)))
    for after in (
        [APPENDED[1], APPENDED[2]],
        [APPENDED[0], APPENDED[2]],
        [batch((0, "a", "1"), last_offset=1), *APPENDED[1:]],
    ):
        replica = Replica(*after)
        after_unclean_election = CompactedPartition(Chain())
        assert after_unclean_election.whole(replica.marks(), 0, [told]) == tuple(told.marks)
        # A follower that begins again copies the log of its leader.
        assert after_unclean_election.whole(replica.marks(), 0, [Chain(), told]) == tuple(told.marks)


def test_a_hole_is_not_filled_with_batches_of_a_later_epoch_than_what_follows_it() -> None:
    """After two unclean elections the committed log has other records there than the leader that is copied."""
    replica = Replica(APPENDED[1], APPENDED[2])
    leader = Chain(marks_of(b"".join(APPENDED)))
    later = Chain([mark._replace(epoch=1) for mark in leader.marks])
    assert CompactedPartition(later).whole(replica.marks(), 0, [Chain(), leader]) == tuple(leader.marks)


def test_a_log_that_was_cut_where_compaction_left_nothing_ends_at_the_cut() -> None:
    replica = Replica(APPENDED[0])
    told = Chain(marks_of(APPENDED[0] + APPENDED[1]))
    truth = CompactedPartition(Chain())
    assert truth.whole(replica.marks(), 0, [told]) == marks_of(APPENDED[0])
    assert truth.whole(replica.marks(), 0, [told], end=3) == tuple(told.marks)
    assert truth.whole([], 0, [told], end=3) == tuple(told.marks)


def test_what_compaction_removed_behind_the_last_batch_was_not_lost() -> None:
    replica = Replica(APPENDED[1], APPENDED[2])
    assert replica.partition.judge(1, replica.reader, 0) is None
    # Offset 2 is in the log, 0 and 1 are not; of another broker nothing is known.
    whole = Chain(marks_of(b"".join(APPENDED)))
    cut = Chain(marks_of(APPENDED[0]))
    assert [replica.partition.removed_end(1, 0, log) for log in (whole, cut)] == [2, 2]
    assert replica.partition.removed_end(1, 2, whole) == 2
    assert replica.partition.removed_end(2, 0, whole) == 0


def test_what_a_round_had_removed_that_a_cut_has_broken_off_was_not_lost() -> None:
    """Nobody was told of the round, and the later values are cut off (RT9). What had no later value was lost."""
    whole = Chain(marks_of(b"".join(APPENDED)))
    for to_offset in (2, 3):
        replica = Replica()
        assert replica.partition.removed_end(1, 0, whole) == 0
        replica.partition.note_cut(1, replica.reader, whole, to_offset)
        cut = Chain(marks_of(b"".join(APPENDED[: to_offset - 1])))
        assert replica.partition.removed_end(1, 0, cut) == 2
    replica = Replica(APPENDED[0])
    replica.partition.note_cut(1, replica.reader, whole, 2)
    assert replica.partition.removed_end(1, 0, whole) == 0


def test_a_log_ends_where_its_empty_last_segment_begins_behind_what_compaction_removed() -> None:
    """Its last batches are compacted away, and it was cut behind them: at each start their offsets are its own."""
    replica = Replica(*APPENDED)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda found: None)
    logs = DiskLogs(jury, {1: replica.disk}, ("data",))
    logs.expect_compaction("t-0")
    logs.remember("t-0", replica.reader, replica.marks())
    ghost = jury.ghost.partition("t-0")
    image = ghost.image(1)
    image.chain = ghost.truth = Chain(replica.marks())
    replica.write(*APPENDED[1:])
    logs.judge_compaction(1, "t-0")
    first = marks_of(APPENDED[0])
    image.chain = Chain(first)
    replica.write()
    assert logs.opened(1, "t-0", replica.reader, replica.reader.read_all(), 0) == ((), 2)
    replica.file_system.open(f"data/t-0/{2:020d}.log", OpenMode.CREATE).close()
    for _ in range(2):
        assert logs.opened(1, "t-0", replica.reader, replica.reader.read_all(), 0) == (first, 2)
        logs.judge_compaction(1, "t-0")
    assert not jury.violations


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_log_that_copied_nothing_of_what_was_removed_ends_where_its_empty_last_segment_begins(
    *, is_removed: bool
) -> None:
    """It died in the first append to that segment, and nobody was told of the round that had removed the others."""
    leader, follower = Replica(APPENDED[0], APPENDED[2]), Replica(APPENDED[0])
    if not is_removed:
        leader = Replica(*APPENDED)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda found: None)
    logs = DiskLogs(jury, {1: follower.disk, 2: leader.disk}, ("data",))
    logs.expect_compaction("t-0")
    ghost = jury.ghost.partition("t-0")
    whole = marks_of(b"".join(APPENDED))
    ghost.truth, ghost.image(2).chain = Chain(whole), Chain(whole)
    first, base = marks_of(APPENDED[0]), whole[2].base_offset
    ghost.image(1).chain = Chain(first)
    follower.file_system.open(f"data/t-0/{base:020d}.log", OpenMode.CREATE).close()
    marks, removed_end = logs.opened(1, "t-0", follower.reader, follower.reader.read_all(), 0)
    assert (marks, removed_end) == ((whole[:2], base) if is_removed else (first, 0))


@pytest.mark.slow
def test_the_scenario_holds_and_is_a_function_of_its_seed() -> None:
    first, second = run_scenario(SCENARIO, 7), run_scenario(SCENARIO, 7)
    assert first.verdict is Verdict.HELD, first.violations
    assert first.trace_hash == second.trace_hash
    assert any("compact" in line for line in first.story)


@pytest.mark.slow
def test_a_compaction_that_takes_last_values_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    put = OffsetMap.put

    def put_too_high(self: OffsetMap, key: bytes, offset: int) -> int:
        return put(self, key, offset + 1 if key == b"k3" else offset)

    monkeypatch.setattr(OffsetMap, "put", put_too_high)
    monkeypatch.setattr("storage.cleaner.marks.MAX_OFFSETS", 0)
    result = run_scenario(SCENARIO, 7)
    assert result.verdict is Verdict.VIOLATED
    assert {found.checker for found in result.violations} >= {"compaction"}


def test_a_reader_finds_its_place_again_in_a_file_that_was_replaced() -> None:
    replica = Replica(*APPENDED)
    system = replica.file_system
    path = f"data/t-0/{0:020d}.log"
    new = system.open(f"{path}.swap", OpenMode.CREATE)
    new.append(b"".join(APPENDED[1:]))
    new.close()
    system.rename(path, f"{path}.deleted")
    replica.disk.sync_all()
    system.rename(f"{path}.swap", path)
    # The rename is not durable yet: a start would end it.
    assert replica.reader.durable_end() == 5
    fresh = batch((5, "d", "1"))
    active = system.open(path, OpenMode.WRITE)
    active.append(fresh)
    assert replica.reader.read_on(last_offset=5) == marks_of(fresh)
    assert [place.mark.base_offset for place in replica.reader.places] == [2, 3, 5]
    assert replica.reader.durable_end() == 5
    active.sync()
    assert replica.reader.durable_end() == 6


@pytest.mark.slow
def test_what_a_compacted_log_acknowledged_after_a_flush_is_seen_to_be_durable() -> None:
    text = SCENARIO.read_text().replace(
        "cleanup.policy: compact", "cleanup.policy: compact\n      flush.messages: 1"
    )
    result = run_scenario(parse_scenario(text), 6)
    assert result.verdict is Verdict.HELD, result.violations


@pytest.mark.slow
def test_a_log_may_be_compacted_to_its_end_between_two_appends() -> None:
    text = SCENARIO.read_text().replace("cluster:", "cluster:\n  brokers: 4")
    result = run_scenario(parse_scenario(text), 1)
    assert result.verdict is Verdict.HELD, result.violations


ALONE = """\
scenario: died-in-a-step
duration: 6s
cluster: {brokers: 1}
topics:
  t: {replicas: 1, config: {cleanup.policy: compact}}
producers:
  - {topic: t, rate: 20/s, keys: 3}
"""


def test_a_batch_of_the_step_in_which_a_broker_died_was_written_there() -> None:
    run = Run(parse_scenario(ALONE), 1)
    run.begin()
    run.world.run_to(3_000_000)
    node = run.cluster.brokers[1]
    assert isinstance(node.core, Broker)
    log = node.core.replicas()[TopicPartition("t", 0)].log
    # The step appends and dies: nobody is told of the batch.
    log.append_as_leader(build_batch([Record(0, 5, b"k0", b"last")]), leader_epoch=0, now_ms=5)
    node.crash()
    node.start()
    run.world.run_to(4_000_000)
    assert run.jury.violations == []
    assert run.jury.ghost.partition("t-0").image(1).chain.end > 10


LED = """\
scenario: compacting-leader
duration: 6s
cluster: {brokers: 1, settings: {log.cleaner.backoff.ms: 100, log.initial.task.delay.ms: 100}}
topics:
  t: {replicas: 1, config: {cleanup.policy: compact, segment.bytes: 500, min.cleanable.dirty.ratio: '0.01'}}
producers:
  - {topic: t, rate: 20/s, keys: 3}
"""


def test_the_holes_in_the_log_of_a_leader_are_those_that_consumers_may_pass() -> None:
    run = Run(parse_scenario(LED), 1)
    run.begin()
    run.world.run_to(3_000_000)
    reader = run.logs.reader(1, "t-0")
    reader.read_all()
    left = [
        record.offset
        for place, data in reader.batches()
        for record in RecordBatch(data, 0, place.size_bytes).records()
    ]
    removed = run.logs.removed_by_leaders("t-0")
    assert removed
    assert sorted([*removed, *left]) == list(range(left[-1] + 1))
    assert not run.logs.removed_by_leaders("another-0")


TURNS = """\
scenario: turns
warm_up: 1s
duration: 9s
converge: 30s
cluster:
  brokers: 2
  settings: {log.cleaner.backoff.ms: 600000}
topics:
  t: {replicas: 2, config: {cleanup.policy: compact, segment.bytes: 1500, min.insync.replicas: 1}}
producers:
  - {topic: t, rate: 20/s, keys: 3}
consumers:
  - {topic: t}
"""


def run_with_holes_at_the_leader() -> tuple[Run, Node]:
    """Returns a run whose consumer has passed what a compaction of the leader has removed that told nobody, and it."""
    run = Run(parse_scenario(TURNS), 1)
    run.begin()
    run.world.run_to(1_000_000)
    reader = run.cluster.consumers[0]
    reader.pause()
    run.world.run_to(4_000_000)
    node = run.cluster.brokers[run.ghost.partition("t-0").leader]
    assert isinstance(node.core, Broker)
    compactions, now_ms = node.core.replicas()[TopicPartition("t", 0)].log.compactions, node.clock.now_ms()
    for work in compactions.prepare(compactions.cleanable_offsets(None, now_ms), CleanerConfig(), now_ms):
        work()
    reader.resume()
    run.world.run_to(5_000_000)
    return run, node


def assert_another_leads_to_the_end(run: Run, node: Node) -> None:
    run.world.run_to(9_000_000)
    run.end("")
    assert run.ghost.partition("t-0").leader not in (-1, node.node_id)
    assert not run.jury.violations


def test_consumers_may_pass_what_a_compaction_that_was_broken_off_had_removed_while_its_broker_led() -> None:
    """Its first segments are replaced while consumers read; then the broker stops leading, before it tells anybody."""
    run, node = run_with_holes_at_the_leader()
    node.stop(node.start)
    assert_another_leads_to_the_end(run, node)


@pytest.mark.parametrize("is_up", [True, False])
def test_nor_is_it_forgotten_with_the_disk_of_that_broker(is_up: bool) -> None:
    run, node = run_with_holes_at_the_leader()
    if not is_up:
        node.crash()
    node.change_disk(node.disk.wipe, WIPED)
    run.world.run_to(7_500_000)
    node.start()
    assert_another_leads_to_the_end(run, node)
