"""The checkers' own replay of the metadata log: what it makes of records, and when it believes that they are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone, Request
from cluster.core.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    Header,
    IsrMember,
    MetadataResponse,
    OfflinePartition,
    PartitionMetadata,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
    TopicMetadata,
    TopicPartition,
)
from cluster.core.metadata.batches import build_change
from cluster.core.metadata.image import BrokerRegistration, MetadataImage
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    BrokerChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)
from sim.checkers.base import Jury
from sim.checkers.fail_over import FailOver
from sim.checkers.ghost import Ghost
from sim.checkers.metadata_replay import MetadataReplay
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import PartitionState, Recorded
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.witness.controller_log import ControllerLog
from storage.batch import RecordBatch
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

ID = "1f" * 16


def registered(broker: int, incarnation: str = "") -> list[MetadataRecord]:
    incarnation = incarnation or f"{broker}a"
    return [RegisterBrokerRecord(broker_id=broker, incarnation=incarnation, host="h", port=1)]


def unfenced(broker: int, epoch: int) -> list[MetadataRecord]:
    return [BrokerChangeRecord(broker_id=broker, broker_epoch=epoch, fenced=False)]


def created(isr: tuple[int, ...] = (1, 2)) -> list[MetadataRecord]:
    return [
        TopicRecord(name="t", topic_id=ID),
        PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=isr, leader=1),
    ]


# The offsets are 0 to 5: the lives of both brokers begin at 0 and 1.
START: list[list[MetadataRecord]] = [
    registered(1),
    registered(2),
    unfenced(1, 0),
    unfenced(2, 1),
    created(),
]


def replayed(*decisions: list[MetadataRecord]) -> tuple[MetadataReplay, list[Recorded | str]]:
    replay, found, offset = MetadataReplay(), list[Recorded | str](), 0
    for decision in decisions:
        for record in decision:
            found += replay.apply(offset, record)
            offset += 1
    return replay, found


def test_a_record_with_a_leader_raises_both_epochs_and_one_without_only_the_partitions() -> None:
    replay, found = replayed(
        *START,
        [PartitionChangeRecord(topic="t", partition=0, isr=(2,), leader=2)],
        [PartitionChangeRecord(topic="t", partition=0, isr=(1, 2))],
    )
    history = replay.history("t-0", ID)
    assert history is not None and history.state == PartitionState((1, 2), (1, 2), 2, 1, 2)
    assert [step.offset for step in history.steps] == [5, 6, 7]
    assert history.below(5) is None and history.below(7) == PartitionState((1, 2), (2,), 2, 1, 1)
    assert isinstance(found[-1], Recorded) and found[-1].active == (1, 2) and not found[-1].allows_unclean


def test_an_altered_topic_allows_unclean_elections_from_then_on() -> None:
    allowed = (("unclean.leader.election.enable", "True"),)
    change: list[MetadataRecord] = [PartitionChangeRecord(topic="t", partition=0, leader=2)]
    _, found = replayed(*START, change, [TopicConfigRecord(topic="t", configs=allowed)], change)
    assert [each.allows_unclean for each in found if isinstance(each, Recorded)] == [False, False, True]


def test_a_removed_topic_has_no_state_after_its_removal() -> None:
    replay, _ = replayed(*START, [RemoveTopicRecord(name="t", topic_id=ID)])
    history = replay.history("t-0", ID)
    assert history is not None and history.below(6) is not None and history.below(7) is None
    assert replay.settled() == []


def test_what_no_controller_may_write_about_brokers_is_told() -> None:
    stale = replayed(*START, unfenced(1, 7))[1][-1]
    assert stale == "broker 1 was changed in broker epoch 7; it lives in 0"
    again = replayed(*START, registered(1))[1][-1]
    assert again == "broker 1 was registered twice in incarnation 1a"
    borrowed = replayed(*START, registered(2, "1a"))[1][-1]
    assert borrowed == "broker 2 was registered in incarnation 1a of broker 1"
    block: list[MetadataRecord] = [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=9)]
    assert len(replayed(*START, block)[1]) == 1
    assert replayed(*START, block, block)[1][-1] == "broker 1 got producer ids that were given out before"


def test_an_incarnation_that_another_one_has_replaced_may_be_registered_again() -> None:
    """A late request of a process that has ended replaces the running one, which registers again."""
    replay, found = replayed(registered(1), registered(1, "1b"), registered(1, "1a"))
    assert found == [] and replay.lives[1].epoch == 2
    assert len(replayed(registered(1), registered(1, "1b"), registered(1, "1b"))[1]) == 1


def image(next_offset: int) -> MetadataImage:
    """Returns what the controller has decided, as far as heartbeats of broker 2 are compared with it."""
    present = BrokerRegistration(
        broker_id=2, broker_epoch=1, incarnation="2a", host="h", port=1, fenced=False,
        in_controlled_shutdown=False,
    )  # fmt: skip
    return MetadataImage(brokers={2: present}, next_offset=next_offset)


class Site:
    """A controller's disk, with a log that only grows, and the jury that sees it."""

    def __init__(self) -> None:
        self.disk = SimDisk(Draws(1), lambda: 0)
        files = self.disk.file_system(Life("controller"))
        files.make_directory("c/__cluster_metadata-0")
        for directory in ("", "c", "c/__cluster_metadata-0"):
            files.sync_directory(directory)
        self._file = files.open("c/__cluster_metadata-0/00000000000000000000.log", OpenMode.CREATE)
        files.sync_directory("c/__cluster_metadata-0")
        self._next_offset = 0
        self._size = 0
        ghost = Ghost()
        self.jury = Jury(ghost, all_checkers(ghost), now_us=lambda: 0, on_violation=lambda found: None)
        self.topics: list[tuple[str, str | None]] = []
        self.fail_over = FailOver(session_timeout_us=1_800_000, heartbeat_us=400_000)
        self.log = ControllerLog(
            self.jury, self.disk, "c", {"t-0"}, lambda name, topic_id: self.topics.append((name, topic_id)),
            self.fail_over,
        )  # fmt: skip

    def write(self, *decisions: list[MetadataRecord], durably: bool = True) -> None:
        for decision in decisions:
            for data in build_change(decision, timestamp_ms=0, max_bytes=1 << 20):
                self._write(data)
        if durably:
            self._file.sync()
        self.log.read_on()

    def write_batch(self, data: bytes) -> None:
        """Write one batch, which may be a part of a decision, durably."""
        self._write(data)
        self._file.sync()
        self.log.read_on()

    def _write(self, data: bytes) -> None:
        stamped = bytearray(data)
        stamped[:8] = self._next_offset.to_bytes(8, "big")
        batch = RecordBatch(bytes(stamped), 0, len(stamped))
        batch.check_valid()
        self._file.write_at(self._size, bytes(stamped))
        self._size += len(stamped)
        self._next_offset = batch.next_offset

    def answer(self, request: RequestBody, body: ResponseBody, asked_us: int = 0) -> None:
        """Show an answer to a request that the controller got at `asked_us`."""
        self.log.on_answer(request, body, asked_us=asked_us)

    def silent_leaders(self) -> list[str]:
        """Returns what is overdue at 4.4 s, where broker 2 alone was heard all the time."""
        for now_us in range(0, 4_400_000, 400_000):
            self.fail_over.on_heartbeat(2, 5, 7, now_us)
        partitions = {"t-0": self.jury.ghost.partition("t-0")}
        found: list[str] = []
        for now_us in (0, 4_400_000):
            found += self.fail_over.look(
                partitions, self.log.elected_at, (1, 2), now_us, controller_since_us=0
            )
        return found

    def takes_beat(self, *offline: OfflinePartition, end: int = 6) -> None:
        """Let the controller take a heartbeat of broker 2, and give no answer; it has decided what is below `end`."""
        header = Header(broker_id=2, broker_epoch=1, incarnation="2a")
        beat = BrokerHeartbeatRequest(
            header=header, broker_id=2, broker_epoch=1, metadata_offset=6, offline_partitions=offline
        )
        self.log.on_request(beat)
        self.log.on_step([Request(call=1, body=beat)], [], image(end))

    @property
    def found(self) -> list[str]:
        return [violation.checker for violation in self.jury.violations]


def started() -> Site:
    site = Site()
    site.write(*START)
    assert site.found == []
    return site


def test_a_decision_counts_once_it_is_durable() -> None:
    site = Site()
    site.write(*START, durably=False)
    assert site.log.replay.next_offset == 0 and site.topics == []
    site.write(durably=True)
    assert site.log.replay.next_offset == 6 and site.topics == [("t", ID)]
    assert site.jury.ghost.partition("t-0").isr == (1, 2)


def test_a_decision_in_several_batches_counts_once_its_last_batch_is_durable() -> None:
    site = started()
    change: list[MetadataRecord] = [
        PartitionChangeRecord(topic="t", partition=0, isr=(1,)),
        PartitionChangeRecord(topic="t", partition=0, isr=(1, 2)),
    ]
    first, last = build_change(change, timestamp_ms=0, max_bytes=180)
    site.write_batch(first)
    assert site.log.replay.next_offset == 6
    site.write_batch(last)
    assert site.log.replay.next_offset == 8
    # A later life of the controller drops the decision whose end is missing.
    site.write_batch(first)
    site.write([AbortTransactionRecord(reason="the end is missing")])
    assert site.log.replay.next_offset == 10
    assert site.jury.ghost.partition("t-0").isr == (1, 2)
    assert site.found == []


def test_metadata_that_is_not_durable_is_not_handed_out() -> None:
    site = started()
    site.write([PartitionChangeRecord(topic="t", partition=0, isr=(1,))], durably=False)
    asked = FetchMetadataRequest(broker_id=1, offset=6)
    site.answer(asked, FetchMetadataResponse(high_watermark=6))
    assert site.found == []
    site.answer(asked, FetchMetadataResponse(high_watermark=7))
    site.log.on_described(1, MetadataResponse(metadata_offset=7))
    site.answer(CreateTopicRequest(name="u"), CreateTopicResponse(topic_id="2e" * 16))
    request = RegisterBrokerRequest(broker_id=3, incarnation="3a", host="h", port=1)
    site.answer(request, RegisterBrokerResponse(broker_epoch=7))
    assert site.found == ["committed-metadata"] * 4


def registers(broker: int, incarnation: str) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(broker_id=broker, incarnation=incarnation, host="h", port=1)


def test_a_registration_may_be_replaced_by_one_of_the_same_flush_when_it_is_answered() -> None:
    site = started()
    site.jury.now_us = lambda: 5
    site.write(registered(3, "3a"), registered(3, "3b"))
    for epoch, incarnation in ((6, "3a"), (7, "3b")):
        site.answer(registers(3, incarnation), RegisterBrokerResponse(broker_epoch=epoch), asked_us=4)
    assert site.found == []


def test_an_answer_names_a_registration_of_its_sender_that_was_not_replaced_before() -> None:
    site = started()
    site.jury.now_us = lambda: 5
    site.write(registered(3, "3a"), registered(3, "3b"))
    # Replaced before the request came; of another incarnation; of another broker; of no registration.
    for epoch, incarnation in ((6, "3a"), (7, "3a"), (1, "3b"), (8, "3b")):
        site.answer(registers(3, incarnation), RegisterBrokerResponse(broker_epoch=epoch), asked_us=6)
    assert site.found == ["committed-metadata"] * 4


def test_a_broker_is_unfenced_after_it_has_read_its_registration() -> None:
    site = started()
    for offset in (1, 0):
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, metadata_offset=offset)
        site.answer(request, BrokerHeartbeatResponse(is_fenced=False))
    assert site.found == ["broker-lives"]


def test_the_controller_obeys_no_process_whose_registration_was_over_when_it_asked() -> None:
    site = started()
    site.jury.now_us = lambda: 5
    site.write(registered(3, "3a"), registered(3, "3b"))

    def obeyed(epoch: int, incarnation: str, asked_us: int) -> int:
        before = len(site.found)
        header = Header(broker_id=3, broker_epoch=epoch, incarnation=incarnation)
        request = BrokerHeartbeatRequest(header=header, broker_id=3, broker_epoch=epoch, metadata_offset=9)
        site.answer(request, BrokerHeartbeatResponse(is_fenced=False), asked_us)
        site.answer(request, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH), asked_us)
        return len(site.found) - before

    # The present life; the one before, which asked in time; it asks again; another process under the same epoch.
    cases = ((7, "3b", 6), (6, "3a", 5), (6, "3a", 6), (7, "3a", 6))
    assert [obeyed(*case) for case in cases] == [0, 0, 1, 1]
    assert site.found == ["broker-lives"] * 2


def test_each_heartbeat_that_is_answered_is_a_sign_of_life() -> None:
    site = started()
    site.write([PartitionChangeRecord(topic="t", partition=0, leader=-1)])
    partitions, elected_at = {"t-0": site.jury.ghost.partition("t-0")}, site.log.elected_at
    overdue: list[str] = []
    for now_us in range(0, 4_000_000, 400_000):
        site.jury.now_us = lambda at_us=now_us: at_us  # type: ignore[misc]
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, metadata_offset=7)
        site.answer(request, BrokerHeartbeatResponse(is_fenced=False))
        overdue += site.fail_over.look(partitions, elected_at, (1, 2), now_us, controller_since_us=0)
    assert overdue == ["t-0: no leader since 0 s, although in-sync broker 1 could lead"]


def test_the_controller_hears_the_present_life_of_a_broker() -> None:
    """A heartbeat of an earlier life says nothing, nor does one that was refused."""
    heard: list[str] = []
    for epoch, error in ((7, None), (0, ErrorCode.STALE_BROKER_EPOCH), (0, None)):
        site = started()
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, metadata_offset=6)
        site.jury.now_us = lambda: 4_000_000
        site.log.on_request(request)
        if error is not None:
            site.answer(request, BrokerHeartbeatResponse(error=error))
        heard += site.silent_leaders()
    what = "t-0: broker 1 leads in epoch 0 and was not heard for 4.4 s, although in-sync broker 2 could lead"
    assert heard == [what, what]


def test_ele2_a_broker_that_cannot_read_the_partition_is_not_elected() -> None:
    """What it said counts for the topic that exists, in its present life, as long as the controller remembers it."""
    change = PartitionChangeRecord(topic="t", partition=0, leader=2)

    def found(topic_id: str = ID, *, is_forgotten: bool = False, restarts: bool = False) -> list[str]:
        site = started()
        site.takes_beat(OfflinePartition(topic_partition=TopicPartition("t", 0), topic_id=topic_id))
        if is_forgotten:
            site.log.on_died()
        again = [*registered(2, "2b"), *unfenced(2, 6)] if restarts else []
        site.write([*again, change])
        return site.found

    assert found() == ["elections"]
    assert found("2e" * 16) == found(is_forgotten=True) == found(restarts=True) == []


OFFLINE = OfflinePartition(topic_partition=TopicPartition("t", 0), topic_id=ID)


def test_ele2_a_heartbeat_that_another_has_overtaken_counts_although_its_sender_waits_no_more() -> None:
    """So the controller has forgotten what the later one said, until the next one says it again."""
    site = started()
    site.takes_beat(OFFLINE)
    site.takes_beat()
    site.write([PartitionChangeRecord(topic="t", partition=0, leader=2)])
    assert site.found == [] and site.log.unreadable("t-0") == {}
    site.takes_beat(OFFLINE, end=7)
    assert site.log.unreadable("t-0") == {2: 0}


def test_ele2_what_was_decided_before_a_heartbeat_came_may_become_durable_after_it() -> None:
    site = started()
    site.takes_beat()
    election: list[MetadataRecord] = [PartitionChangeRecord(topic="t", partition=0, leader=2)]
    # Its step has decided on the election of broker 2, for another one that had left.
    site.log.on_step([JobDone(job=1)], [], image(7))
    site.takes_beat(OFFLINE, end=8)
    away: list[MetadataRecord] = [PartitionChangeRecord(topic="t", partition=0, leader=1)]
    site.write(election, away)
    assert site.found == []
    assert site.log.unreadable("t-0") == {2: 0}
    site.write(election)
    assert site.found == ["elections"]


def test_ele2_the_decision_on_a_heartbeat_rests_on_what_it_says() -> None:
    site = started()
    site.takes_beat()
    site.takes_beat(OFFLINE, end=7)
    site.write([PartitionChangeRecord(topic="t", partition=0, leader=2)])
    assert site.found == ["elections"]


def test_an_accepted_proposal_is_compared_with_the_log() -> None:
    site = started()
    site.write([PartitionChangeRecord(topic="t", partition=0, isr=(1,))])
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=0, topic_partition=TopicPartition("t", 0), topic_id=ID, leader_epoch=0,
        partition_epoch=0, new_isr=(IsrMember(broker_id=1, broker_epoch=0),),
    )  # fmt: skip
    answer = AlterPartitionResponse(
        topic_partition=TopicPartition("t", 0), leader=1, leader_epoch=0, partition_epoch=1, isr=(1,)
    )
    site.answer(request, answer)
    assert site.found == []
    site.write([PartitionChangeRecord(topic="t", partition=0, isr=(1, 2))])
    site.answer(
        request,
        AlterPartitionResponse(
            topic_partition=TopicPartition("t", 0), leader=1, leader_epoch=0, partition_epoch=2, isr=(1, 2)
        ),
    )
    assert site.found == ["partition-changes"]


def test_a_description_of_a_partition_is_compared_with_the_log_at_its_offset() -> None:
    site = started()
    site.write([PartitionChangeRecord(topic="t", partition=0, isr=(1,))])
    partition = PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
    topic = TopicMetadata(name="t", topic_id=ID, partitions=(partition,))
    site.log.on_described(2, MetadataResponse(topics=(topic,), metadata_offset=6))
    unknown = TopicMetadata(name="u", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    site.log.on_described(2, MetadataResponse(topics=(unknown,), metadata_offset=7))
    assert site.found == []
    site.log.on_described(2, MetadataResponse(topics=(topic,), metadata_offset=7))
    assert site.found == ["partition-changes"]


def test_a_member_that_is_fenced_by_a_decision_must_leave_in_it() -> None:
    site = started()
    fence: list[MetadataRecord] = [BrokerChangeRecord(broker_id=2, broker_epoch=1, fenced=True)]
    leave: list[MetadataRecord] = [PartitionChangeRecord(topic="t", partition=0, isr=(1,))]
    site.write([*leave, *fence])
    assert site.found == []
    other = started()
    other.write(fence)
    assert other.found == ["isr-members"]


@pytest.mark.parametrize(
    ("life", "is_fenced", "is_offline", "is_due"),
    [(1, False, False, False), (0, False, False, True), (1, True, False, True), (1, False, True, True)],
    ids=["none", "an earlier life", "fenced", "cannot read"],
)
def test_kip903_a_member_is_refused_as_ineligible_for_a_reason(
    life: int, *, is_fenced: bool, is_offline: bool, is_due: bool
) -> None:
    site, topic_partition = started(), TopicPartition("t", 0)
    if is_offline:
        site.takes_beat(OfflinePartition(topic_partition=topic_partition, topic_id=ID))
    member = IsrMember(broker_id=2, broker_epoch=life)
    asked = AlterPartitionRequest(
        topic_partition=topic_partition, topic_id=ID, broker_id=1, broker_epoch=0, leader_epoch=0,
        partition_epoch=0, new_isr=(member,),
    )  # fmt: skip
    refused = AlterPartitionResponse(topic_partition=topic_partition, error=ErrorCode.INELIGIBLE_REPLICA)
    known = image(6)
    present = replace(known.brokers[2], fenced=is_fenced)
    site.log.on_step(
        [Request(call=3, body=asked)], [Reply(call=3, body=refused)], replace(known, brokers={2: present})
    )
    assert site.found == ([] if is_due else ["refused-members"])
