"""A broker without a descriptor left: roles, deletions, checkpoints and rounds of compaction are tried again later, and
no log directory goes offline. Rules AP16, LL4, ROL-2, ROL-5.
"""

from __future__ import annotations

import errno
from collections.abc import Collection

import pytest

from cluster.core.broker.logs import HIGH_WATERMARK_TIMER, RECOVERY_POINT_TIMER
from cluster.core.broker.maintenance import CLEANER_TIMER
from cluster.core.effects import Effect, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import ListOffsetsRequest, ListOffsetsResponse
from cluster.core.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from cluster.core.replica.roles import RETRY_MS, RETRY_TIMER
from sim.disk.life import Life
from storage.errors import OutOfHandles, StorageError
from storage.log import PartitionLog
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.broker.test_maintenance import COMPACT, broker_with, keys_in, log_of, run_jobs
from tests.cluster.broker.test_maintenance import produce as produce_keys
from tests.cluster.broker.two_directories import (
    PARTITIONS,
    TOPIC_ID,
    booted,
    leading,
    outcomes,
    placed,
    produce,
    restarted,
    topic,
)
from tests.cluster.replica.setup import observed, of, only

ALL = {"one": ["t-0", "t-2"], "two": ["t-1", "t-3"]}


def lack(setup: BrokerSetup, *verbs: str, path: str = "") -> None:
    """Let these calls find no descriptor until `setup.disk.mend()`."""
    setup.disk.refuse(errno.EMFILE, set(verbs), path=path)


def all_placed(setup: BrokerSetup) -> list[str]:
    return sorted(name for names in placed(setup).values() for name in names)


def is_serving(setup: BrokerSetup, effects: list[Effect]) -> bool:
    """Whether no directory went offline, and the broker goes on."""
    directories = setup.broker._logs.directories
    return not (directories.offline or of(effects, Stop) or observed(effects, "log_directory.offline"))


def retry(setup: BrokerSetup, numbers: Collection[int] = range(4)) -> list[Effect]:
    """Fire the timers of the roles that wait."""
    setup.now_ms += RETRY_MS
    return [each for number in numbers for each in setup.fire(f"{RETRY_TIMER}t-{number}")]


def test_ll4_logs_that_find_no_descriptor_are_made_a_second_later() -> None:
    setup = booted()
    lack(setup, "reserve")
    effects = setup.metadata(*topic())
    assert is_serving(setup, effects)
    assert placed(setup) == {"one": [], "two": []}
    timers = {each.key: each.at_ms for each in of(effects, SetTimer)}
    assert timers[f"{RETRY_TIMER}t-3"] == setup.now_ms + RETRY_MS
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # Still none.
    assert is_serving(setup, retry(setup)) and placed(setup) == {"one": [], "two": []}
    setup.disk.mend()
    retry(setup)
    assert placed(setup) == ALL
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_ll4_a_log_that_was_made_in_half_is_made_whole_in_the_same_directory() -> None:
    """Nothing like it should happen in the midst; if it does, no second log may come of it."""
    for number in range(1, 30):
        setup = booted()
        setup.disk.fail(number, errno.EMFILE)
        effects = setup.metadata(*topic())
        assert is_serving(setup, effects), number
        retry(setup)
        assert all_placed(setup) == [str(each) for each in PARTITIONS], number
        assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)
        again = restarted(setup)
        again.boot(*topic())
        assert sorted(placed(again)["one"]) == sorted(placed(setup)["one"]), number
        assert sorted(placed(again)["two"]) == sorted(placed(setup)["two"]), number


@pytest.mark.parametrize(
    ("verb", "path"), [("sync_directory", "one/t-0"), ("create", f"one/t-0/{0:020}.log")]
)
def test_ll4_a_log_made_in_half_whose_directory_then_fails_is_made_in_no_other(verb: str, path: str) -> None:
    """Its topic id may be on the disk already: the start after the directory is back would refuse two such logs."""
    setup = booted()
    setup.disk.fail(1, errno.EMFILE, verbs={verb}, path_suffix=path)
    setup.metadata(*topic())
    assert "t-0" not in all_placed(setup)
    setup.disk.break_directory("one")
    setup.broker._logs.directories.fail("one", OSError(errno.EIO, "Input/output error", "one/x"))
    retry(setup)
    assert PARTITIONS[0] in setup.broker._context.offline and "t-0" not in all_placed(setup)
    setup.disk.mend()
    again = restarted(setup)
    again.boot(*topic())
    assert all_placed(again) == [str(each) for each in PARTITIONS]
    assert outcomes(produce(again, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def waiting_with_a_log() -> BrokerSetup:
    """Returns a broker that was started again, and whose second partition has a log but waits for a descriptor."""
    setup = leading()
    produce(setup, *PARTITIONS)
    again = restarted(setup)
    # As an older version left it; the id is written when the role begins.
    again.disk.file_system(Life("hand")).unlink("two/t-1/partition.metadata")
    again.disk.fail(1, errno.EMFILE, verbs={"sync"}, path_suffix="two/t-1/partition.metadata.tmp")
    again.boot(*topic())
    assert PARTITIONS[1] not in again.broker.replicas()
    return again


def test_ll4_a_log_whose_directory_fails_while_its_role_waits_is_made_in_no_other() -> None:
    """KIP-112: an empty log would pass for all that this broker ever had."""
    again = waiting_with_a_log()
    again.disk.break_directory("two")
    produce(again, PARTITIONS[3])
    retry(again, [1])
    assert placed(again) == {"one": ["t-0", "t-2"]}
    assert set(again.broker._context.offline) == {PARTITIONS[1], PARTITIONS[3]}


def test_rol5_a_first_image_that_finds_no_descriptor_is_applied_later() -> None:
    setup = leading()
    again = restarted(setup)
    lack(again, "create", path="one/u-0")
    again.boot(*topic(), *topic("u", "2f" * 16))
    assert not again.broker._logs.directories.offline
    assert placed(again)["one"][:2] == ALL["one"]
    assert "u-0" not in placed(again)["one"]
    again.disk.mend()
    again.fire(f"{RETRY_TIMER}u-0", RETRY_MS)
    assert "u-0" in placed(again)["one"]


def test_rol2_a_leader_epoch_that_finds_no_descriptor_is_led_later() -> None:
    setup = leading()
    lack(setup, "create", path="one/t-0")
    change = PartitionChangeRecord(topic="t", partition=0, leader=1, isr=(1,))
    effects = setup.metadata(change)
    assert is_serving(setup, effects)
    replica = setup.broker.replicas()[PARTITIONS[0]]
    epoch = replica.leader_epoch
    assert (replica.leader, replica.log.online.reason) == (None, None)
    setup.disk.mend()
    retry(setup, [0])
    assert replica.leader is not None and replica.leader_epoch == epoch
    assert replica.log.epochs.last_epoch == epoch
    assert outcomes(produce(setup, PARTITIONS[0])) == {0: ErrorCode.NONE}


def test_a_role_that_newer_metadata_has_brought_is_not_taken_again() -> None:
    setup = booted()
    lack(setup, "reserve")
    setup.metadata(*topic())
    setup.disk.mend()
    setup.metadata(*(PartitionChangeRecord(topic="t", partition=number, leader=1) for number in range(4)))
    assert placed(setup) == ALL
    assert observed(retry(setup), "replica.became_leader") == []


def test_a_topic_that_was_deleted_meanwhile_is_not_made() -> None:
    setup = booted()
    lack(setup, "reserve")
    setup.metadata(*topic())
    setup.disk.mend()
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    retry(setup)
    assert placed(setup) == {"one": [], "two": []}


def test_rol5_logs_whose_deletion_finds_no_descriptor_are_deleted_with_the_next_checkpoint() -> None:
    setup = leading()
    lack(setup, "reserve")
    effects = setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert is_serving(setup, effects)
    assert (placed(setup), setup.broker.replicas()) == (ALL, {})
    setup.disk.mend()
    setup.fire(HIGH_WATERMARK_TIMER)
    assert placed(setup) == {"one": [], "two": []}


def test_rol5_a_log_whose_name_a_new_topic_has_meanwhile_is_set_aside_and_the_new_one_is_not_deleted() -> (
    None
):
    setup = leading()
    lack(setup, "reserve")
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.disk.mend()
    effects = setup.metadata(*topic(topic_id="2f" * 16))
    assert len(observed(effects, "replica.set_aside")) == 4
    setup.fire(HIGH_WATERMARK_TIMER)
    assert all_placed(setup) == [str(each) for each in PARTITIONS]
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_rol5_the_log_of_a_deleted_topic_goes_though_another_of_its_name_came_and_went_meanwhile() -> None:
    setup, other = leading(), "2f" * 16
    lack(setup, "reserve")
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.metadata(*topic(topic_id=other))
    setup.metadata(RemoveTopicRecord(name="t", topic_id=other))
    assert (placed(setup), setup.broker.replicas()) == (ALL, {})
    setup.disk.mend()
    setup.fire(HIGH_WATERMARK_TIMER)
    assert placed(setup) == {"one": [], "two": []}


def test_rol5_an_earlier_topics_log_is_deleted_while_the_role_of_its_successor_waits() -> None:
    setup = leading()
    lack(setup, "reserve")
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    setup.metadata(*topic(topic_id="2f" * 16))
    setup.disk.mend()
    setup.fire(HIGH_WATERMARK_TIMER)
    assert placed(setup) == {"one": [], "two": []}
    retry(setup)
    assert all_placed(setup) == [str(each) for each in PARTITIONS]
    assert outcomes(produce(setup, *PARTITIONS)) == dict.fromkeys(range(4), ErrorCode.NONE)


def test_ll4_a_stray_that_finds_no_descriptor_is_set_aside_with_the_next_checkpoint() -> None:
    again = restarted(leading())
    lack(again, "reserve")
    again.boot()
    assert placed(again) == ALL
    again.disk.mend()
    effects = again.fire(HIGH_WATERMARK_TIMER)
    assert is_serving(again, effects) and len(observed(effects, "replica.set_aside")) == 4
    assert placed(again) == {"one": [], "two": []}
    assert observed(again.fire(HIGH_WATERMARK_TIMER, 5_000), "replica.set_aside") == []


def test_ll4_a_stray_that_is_placed_here_meanwhile_stays() -> None:
    again = restarted(leading())
    lack(again, "reserve")
    again.boot()
    again.disk.mend()
    again.metadata(*topic())
    assert observed(again.fire(HIGH_WATERMARK_TIMER), "replica.set_aside") == []
    assert placed(again) == ALL


def test_ll26_a_log_without_an_id_that_waits_for_its_deletion_is_of_no_later_topic() -> None:
    again = waiting_with_a_log()
    lack(again, "reserve")
    again.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    again.disk.mend()
    again.metadata(*topic(topic_id="2f" * 16))
    assert again.broker.replicas()[PARTITIONS[1]].log.log_end_offset == 0


def test_hwm8_checkpoints_go_on_where_a_stray_cannot_be_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    again = restarted(leading())
    lack(again, "reserve")
    again.boot()
    again.disk.mend()
    close = PartitionLog.close

    def fails(self: PartitionLog) -> None:
        if self.directory == "one/t-0":
            raise StorageError("one/t-0: an index is damaged")
        close(self)

    monkeypatch.setattr(PartitionLog, "close", fails)
    effects = again.fire(HIGH_WATERMARK_TIMER)
    assert "checkpoint" in [job.kind for job in of(effects, RunJob)]
    assert [each.directory for each in again.broker._logs.directories.offline] == ["one"]


def test_cl23_a_log_whose_deletion_waits_for_a_descriptor_is_not_compacted() -> None:
    """A round would lose its files to the deletion, and take that for a failed disk."""
    setup = compacting()
    lack(setup, "reserve")
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID), *topic("u", "2f" * 16))
    setup.disk.mend()
    assert all_placed(setup)[:1] == ["t-0"]
    assert of(setup.fire(CLEANER_TIMER, 15_000), RunJob) == []
    assert is_serving(setup, setup.fire(HIGH_WATERMARK_TIMER))
    assert "t-0" not in all_placed(setup)


def test_rol5_a_topic_that_is_deleted_while_a_role_waits_for_a_descriptor_leaves_no_log() -> None:
    again = waiting_with_a_log()
    again.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID))
    assert placed(again) == {"one": [], "two": []}
    assert observed(retry(again), "replica.became_leader") == []


def test_rol5_the_log_of_another_topic_stays_when_one_is_deleted_whose_role_waits() -> None:
    setup = booted()
    lack(setup, "reserve")
    setup.metadata(*topic())
    setup.disk.mend()
    other = "2f" * 16
    setup.metadata(RemoveTopicRecord(name="t", topic_id=TOPIC_ID), *topic(topic_id=other))
    assert all_placed(setup) == [str(each) for each in PARTITIONS]


def test_hwm8_checkpoints_that_find_no_descriptor_are_written_the_next_time() -> None:
    setup = leading()
    lack(setup, "create")
    job = only(setup.fire(HIGH_WATERMARK_TIMER), RunJob)
    effects = setup.finish(job) + setup.fire(RECOVERY_POINT_TIMER)
    assert is_serving(setup, effects)
    assert {each.key for each in of(effects, SetTimer)} >= {HIGH_WATERMARK_TIMER, RECOVERY_POINT_TIMER}
    setup.disk.mend()
    job = only(setup.fire(HIGH_WATERMARK_TIMER, 5000), RunJob)
    assert is_serving(setup, setup.finish(job))


def compacting() -> BrokerSetup:
    setup = broker_with(COMPACT)
    produce_keys(setup, *(number % 3 for number in range(30)))
    return setup


def cleaned(setup: BrokerSetup) -> list[Effect]:
    return run_jobs(setup, setup.fire(CLEANER_TIMER, 15_000))


def test_cl6_a_round_that_finds_no_descriptor_is_done_later() -> None:
    setup = compacting()
    before = keys_in(log_of(setup))
    lack(setup, "create", path="data/t-0")
    effects = cleaned(setup)
    lack(setup, "reserve")
    effects += cleaned(setup)
    assert is_serving(setup, effects)
    assert observed(effects, "log.uncleanable") == [] and keys_in(log_of(setup)) == before
    setup.disk.mend()
    assert observed(cleaned(setup), "log.compacted") != []
    assert len(keys_in(log_of(setup))) < len(before)


def test_cl6_a_slice_of_a_round_that_finds_no_descriptor_ends_the_round_alone() -> None:
    setup = compacting()
    job = next(each for each in of(setup.fire(CLEANER_TIMER, 15_000), RunJob) if each.kind == "compact")
    effects = setup.finish(job, OSError(errno.EMFILE, "Too many open files", "data/t-0/x.log"))
    assert is_serving(setup, effects) and observed(effects, "log.uncleanable") == []
    assert observed(cleaned(setup), "log.compacted") != []


def test_rt16_a_cleaner_checkpoint_that_finds_no_descriptor_is_written_before_the_next_round() -> None:
    setup = compacting()
    lack(setup, "create", path="data")
    cleaner = setup.broker.maintenance.cleaner_of(log_of(setup))
    cleaner._checkpoints[("t", 0)] = 9
    cleaner.truncate_checkpoint(("t", 0), 3)
    assert cleaner.checkpoints == {("t", 0): 3}
    setup.disk.mend()
    cleaner.find_filthiest(setup.now_ms)
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    again.start()
    (found,) = again.broker._logs.new_cleaners(lambda log: True).values()
    assert found.checkpoints == {("t", 0): 3}


def test_ap16_a_search_that_finds_no_descriptor_fails_alone() -> None:
    setup = leading()
    produce(setup, PARTITIONS[0])
    lack(setup, "read")
    request = ListOffsetsRequest(topic_partition=PARTITIONS[0], timestamp=setup.now_ms)
    effects = setup.ask(request)
    assert is_serving(setup, effects)
    assert ListOffsetsResponse(topic_partition=PARTITIONS[0], error=ErrorCode(OutOfHandles.code)) in [
        each.body for each in effects if hasattr(each, "body")
    ]
