"""Each rule about the clients' history has one that must pass and one that must fail it."""

from __future__ import annotations

from dataclasses import replace

from sim.checkers.client_history import ClientHistoryCheck
from sim.checkers.ghost import ASTRAY, Excuse, Ghost
from sim.checkers.history import HistoryCheck
from sim.checkers.producer_sequences import sequence_findings
from sim.checkers.sightings import BecameFollower, BecameLeader, LogStarted
from sim.faults.damage import WRONG_CHECKPOINT
from sim.hosts.history import History, Outcome, ReadOperation, SendOperation, shown, stamp_of
from storage.batch import RecordBatch, build_batch
from storage.batch.record import Record

P = "t-0"


def sent(value: str, outcome: Outcome, *, offset: int = -1, acks: int = -1) -> SendOperation:
    return SendOperation(
        producer="p",
        value=value,
        acks=acks,
        is_idempotent=acks == -1,
        invoked_us=0,
        outcome=outcome,
        partition=P,
        offset=offset,
    )


def history_of(*sends: SendOperation, read: dict[int, str] | None = None, position: int = 0) -> History:
    """Return a history in which one consumer is at `position` and has read the records in `read`."""
    history = History()
    history.sends.extend(sends)
    history.positions["c", P] = position
    for offset, value in (read or {}).items():
        history.reads.append(
            ReadOperation(consumer="c", partition=P, offset=offset, value=value, high_watermark=100, at_us=0)
        )
    return history


def found(history: History, log: dict[int, str], *excuses: Excuse, ghost: Ghost | None = None) -> list[str]:
    ghost = ghost or Ghost()
    ghost.excuses += excuses
    return list(ClientHistoryCheck(history, ghost, {P: log}).findings({P: log}))


def test_acknowledgement_without_an_offset_needs_its_record_in_the_log() -> None:
    history = history_of(sent("a", Outcome.OK))
    assert not found(history, {7: "a"})
    assert found(history, {}) == [
        "lost-write: t-0: 'a', acknowledged without an offset, is nowhere in the log"
    ]


def test_record_acknowledged_without_an_offset_may_be_lost_with_an_excuse_or_acks_below_all() -> None:
    assert not found(history_of(sent("a", Outcome.OK)), {}, Excuse(P, 3, 5, "unclean election"))
    assert found(history_of(sent("a", Outcome.OK)), {}, Excuse("t-1", 3, 5, "unclean election"))
    assert not found(history_of(sent("a", Outcome.OK, acks=1)), {})
    unconfirmed = history_of(sent("a", Outcome.OK, acks=0))
    unconfirmed.handed_over.add("a")
    assert not found(unconfirmed, {})


def test_an_excuse_is_that_of_the_present_topic_of_the_name() -> None:
    """After a topic was deleted and created again, the ghost of its partition has another name."""
    ghost = Ghost()
    ghost.begin_again(P)
    excuse = Excuse(f"{P}~2", 0, 1, "unclean election")
    for excuses, expected in (([excuse], 0), ([excuse._replace(partition=P)], 1)):
        ghost.excuses[:] = excuses
        check = ClientHistoryCheck(history_of(sent("a", Outcome.OK)), ghost, {P: {}})
        assert len(list(check.findings({P: {}}))) == expected


def test_record_reported_as_delivered_with_acks_0_was_in_a_request() -> None:
    assert found(history_of(sent("a", Outcome.OK, acks=0)), {}) == [
        "t-0: 'a' was reported as delivered and was in no request"
    ]
    assert not found(history_of(sent("a", Outcome.FAIL, acks=0)), {})


def test_what_is_read_was_sent_and_not_refused() -> None:
    """It counts even where the record is gone by the end of the run."""
    unknown, refused = sent("a", Outcome.INFO), sent("a", Outcome.FAIL)
    assert not found(history_of(unknown, read={0: "a"}, position=1), {0: "a"})
    assert found(history_of(refused, read={0: "a"}, position=1), {}) == [
        "G1a: t-0: c read 'a', whose send was refused"
    ]
    assert found(history_of(read={0: "b"}, position=1), {}) == [
        "unsent-read: t-0: c read 'b', which nobody sent"
    ]


def test_records_of_an_idempotent_producer_are_in_the_order_of_their_sends() -> None:
    history = history_of(*(sent(value, Outcome.INFO) for value in "abc"))
    assert not found(history, {0: "a", 5: "c"})
    assert found(history, {0: "b", 1: "a", 2: "c"}) == [
        "nonmonotonic-send: t-0: offset 1 holds 'a', sent before 'b'"
    ]


def test_a_producer_that_all_replicas_have_lost_may_be_taken_up_anywhere() -> None:
    lost, *later = sent("z", Outcome.OK, offset=3), *(sent(value, Outcome.INFO) for value in "abc")
    history, taken_up = history_of(lost, *later), {3: "b", 4: "a", 5: "c"}
    why = "a disk was replaced by an empty one"

    def is_excused(start: int, end: int, partition: str = P) -> bool:
        order = [
            each
            for each in found(history, taken_up, Excuse(partition, start, end, why))
            if "sent before" in each
        ]
        return not order

    assert is_excused(3, 4)
    assert not is_excused(3, 4, "t-1")
    # The leader still knew it by a record from before the loss, or the loss was of others' records.
    assert not is_excused(4, 9)
    assert not is_excused(0, 3)
    # A later life is another producer, and one whose records are all there has lost nothing.
    lost.life = 0
    assert not is_excused(3, 4)
    lost.life, lost.offset, lost.value = 1, 5, "c"
    assert not is_excused(3, 9)


def test_order_is_not_promised_without_idempotence() -> None:
    history = history_of(*(sent(value, Outcome.INFO, acks=1) for value in "ab"))
    assert not found(history, {0: "b", 1: "a"})


def test_acknowledged_records_of_a_producer_with_one_request_in_flight_keep_their_order() -> None:
    first, second = (sent(value, Outcome.OK, offset=place, acks=1) for place, value in enumerate("ab"))
    first.is_one_at_a_time = second.is_one_at_a_time = True
    # A late copy of the first one follows.
    assert not found(history_of(first, second), {0: "a", 1: "b", 2: "a"})
    first.offset, second.offset = 1, 0
    assert found(history_of(first, second), {0: "b", 1: "a"}) == [
        "nonmonotonic-send: t-0: offset 1 holds 'a', sent before 'b'"
    ]
    # What was lost and written again says nothing.
    second.offset = 7
    assert not found(history_of(first, second), {0: "b", 1: "a"})


def test_consumer_reads_no_offset_twice_without_going_back() -> None:
    history = history_of(sent("a", Outcome.INFO), read={0: "a"}, position=1)
    assert not found(history, {0: "a"})
    history.reads.append(replace(history.reads[0], after=0))
    assert found(history, {0: "a"}) == ["nonmonotonic-poll: t-0: c read offset 0 after offset 0"]


def test_an_offset_may_be_read_twice_where_a_write_landed_in_the_place_of_another() -> None:
    history = history_of(sent("a", Outcome.INFO), read={0: "a"}, position=1)
    history.reads.append(replace(history.reads[0], after=0))
    ghost = Ghost()
    ghost.give_up_at_once(ghost.partition(P), 2, ASTRAY)
    assert not found(history, {0: "a"}, ghost=ghost)
    # Also where the topic was deleted and created again since, but not in another partition.
    ghost.begin_again(P)
    assert not found(history, {0: "a"}, ghost=ghost)
    other = Ghost()
    other.give_up_at_once(other.partition("t-1"), 2, ASTRAY)
    assert found(history, {0: "a"}, ghost=other) == ["nonmonotonic-poll: t-0: c read offset 0 after offset 0"]


def test_a_write_that_landed_elsewhere_counts_also_after_another_damage() -> None:
    ghost = Ghost()
    ghost.give_up_at_once(ghost.partition(P), 2, WRONG_CHECKPOINT)
    assert not ghost.was_given_up(P, (ASTRAY,))
    ghost.give_up_at_once(ghost.partition(P), 2, ASTRAY)
    assert ghost.was_given_up(P, (ASTRAY,)) and ghost.partition(P).unjudged.endswith(WRONG_CHECKPOINT)


def test_each_send_has_its_outcome_in_time() -> None:
    send = sent("a", Outcome.INFO)
    send.within_us, send.completed_us = 9_000_000, 9_000_000
    assert not found(history_of(send), {})
    send.completed_us += 1
    assert found(history_of(send), {}) == ["p learned the fate of 'a' after 9 s"]


def test_consumer_reads_every_record_below_its_position() -> None:
    sends = [sent(value, Outcome.INFO) for value in "abc"]
    log = {0: "a", 1: "b", 2: "c"}
    assert not found(history_of(*sends, read={0: "a", 1: "b"}, position=2), log)
    skipping = history_of(*sends, read={0: "a", 2: "c"}, position=3)
    assert found(skipping, log) == [
        "poll-skip: t-0: c is at 3 and has never read 1 of the records before it, the first at offset 1"
    ]
    assert not found(skipping, log, Excuse(P, 1, 2, "unclean election"))
    assert not found(skipping, {0: "a", 2: "c"})


def test_a_consumer_may_skip_what_was_before_the_log_of_a_leader() -> None:
    skipping, log = history_of(read={4: "e"}, position=5), dict(enumerate("abcde"))
    # Broker 2 deletes as the follower that it is: no consumer is sent there.
    for deleting, expected in (
        (1, []),
        (2, ["poll-skip: t-0: c is at 5 and has never read 4 of the records before it"]),
    ):
        ghost = Ghost()
        ghost.apply(ghost.partition(P), BecameLeader(1, P, 0, 0))
        ghost.apply(ghost.partition(P), BecameFollower(2, P, 0, 1))
        ghost.apply(ghost.partition(P), LogStarted(deleting, P, 4))
        what = list(ClientHistoryCheck(skipping, ghost, {P: log}).findings({P: log}))
        skipped = [each.partition(", the first")[0] for each in what if "has never read" in each]
        assert skipped == expected


class CreatedAgain:
    """A topic that was deleted once; the records of the one before have values in capitals."""

    def was_acknowledged_by_present(self, partition: str, value: str) -> bool:
        return value.islower()

    def was_read_from_present(self, partition: str, offset: int, value: str) -> bool:
        return value.islower()

    def was_deleted(self, partition: str) -> bool:
        return True


def test_a_topic_that_was_created_again_is_read_on_without_a_gap() -> None:
    sends = [sent(value, Outcome.INFO) for value in "abcdeABC"]
    log = dict(enumerate("abcde"))

    def skips(*read: tuple[int, str], position: int) -> bool:
        history = history_of(*sends, position=position)
        for offset, value in read:
            history.reads.append(
                ReadOperation(
                    consumer="c", partition=P, offset=offset, value=value, high_watermark=9, at_us=0
                )
            )
        check = ClientHistoryCheck(history, Ghost(), {P: log}, CreatedAgain())
        return any("poll-skip" in each for each in check.findings({P: log}))

    # Its position of the topic before is one of this topic, too.
    assert not skips((0, "A"), (1, "B"), (2, "c"), (3, "d"), position=4)
    assert skips((0, "A"), (1, "B"), (2, "c"), (4, "e"), position=5)
    # It has read nothing of this topic so far, or has gone back to a leader of the one before.
    assert not skips((0, "A"), (1, "B"), position=2)
    assert not skips((0, "a"), (3, "C"), position=4)


def batch_of(epoch: int, sequence: int, count: int = 1, *, producer_id: int = 5) -> RecordBatch:
    records = [Record(place, 0, None, b"v") for place in range(count)]
    data = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return RecordBatch(data, 0, len(data))


def faults(*batches: RecordBatch) -> int:
    return len(list(sequence_findings(P, batches, Ghost().partition(P).may_forget)))


def test_sequences_of_a_producer_have_no_gap_and_nothing_twice() -> None:
    assert not faults(batch_of(0, 3, 2), batch_of(0, 9, producer_id=6), batch_of(0, 5), batch_of(0, 6))
    assert faults(batch_of(0, 3), batch_of(0, 5)) == 1
    assert faults(batch_of(0, 3), batch_of(0, 4), batch_of(0, 4)) == 1


def test_a_producer_whose_records_were_below_a_log_start_may_send_them_again() -> None:
    ghost = Ghost()
    history = history_of(sent("a", Outcome.OK, offset=6), sent("b", Outcome.OK, offset=7))
    twice = {3: "a", 4: "b", 6: "a", 7: "b"}
    batches = [batch_of(0, 3), batch_of(0, 4), batch_of(0, 3)]
    batches[2].base_offset = 6

    def findings() -> list[str]:
        return [
            *HistoryCheck(history, ghost, {P: twice}).findings(),
            *ClientHistoryCheck(history, ghost, {P: twice}).findings({P: twice}),
            *sequence_findings(P, batches, ghost.partition(P).may_forget),
        ]

    names = [each.partition(":")[0] for each in findings()]
    assert names == ["duplicate", "duplicate", "nonmonotonic-send", P]
    # A log that begins at 6 has forgotten both; one that begins at 8 came too late.
    for start, count in ((8, 4), (6, 0)):
        ghost.apply(ghost.partition(P), LogStarted(1, P, start))
        assert len(findings()) == count, (start, findings())


def test_later_epoch_begins_with_sequence_0() -> None:
    assert not faults(batch_of(0, 3), batch_of(2, 0), batch_of(2, 1))
    assert faults(batch_of(0, 3), batch_of(1, 4)) == 1
    assert faults(batch_of(1, 0), batch_of(0, 0)) == 1


def test_sequence_after_the_highest_is_0() -> None:
    assert not faults(batch_of(0, (1 << 31) - 1), batch_of(0, 0), batch_of(0, 1))


def test_what_retention_has_deleted_of_a_leaders_log_is_not_lost_although_the_log_begins_again_before_it() -> (
    None
):
    history, log = history_of(sent("a", Outcome.OK, offset=1), read={1: "a"}), {1: "z"}

    def findings(log_start: int) -> list[str]:
        ghost = Ghost()
        ghost.apply(ghost.partition(P), BecameLeader(1, P, 0, 0))
        ghost.apply(ghost.partition(P), LogStarted(1, P, log_start))
        return [each.partition(":")[0] for each in HistoryCheck(history, ghost, {P: log}).findings()]

    assert findings(log_start=1) == ["lost-write", P, "inconsistent-offsets"]
    assert findings(log_start=2) == [P]


def test_a_message_shows_a_value_without_what_fills_it_up() -> None:
    assert shown("producer-1/7".ljust(900, ".")) == "'producer-1/7'"


def test_a_record_is_read_with_the_key_the_headers_and_the_time_of_its_send() -> None:
    def findings(read: str) -> list[str]:
        send = replace(sent("a", Outcome.OK, offset=0), stamp=stamp_of(b"k", 1, 5))
        history = history_of(send, position=1)
        seen = ReadOperation(
            consumer="c", partition=P, offset=0, value="a", high_watermark=1, at_us=0, stamp=read
        )
        history.reads.append(seen)
        return found(history, {0: "a"})

    # A leader's own time stands in the place of the producer's; an empty stamp is not known.
    for same in (stamp_of(b"k", 1, 5), stamp_of(b"k", 1, None), ""):
        assert not findings(same)
    for other in (stamp_of(None, 1, 5), stamp_of(b"l", 1, None), stamp_of(b"k", 0, 5), stamp_of(b"k", 1, 6)):
        assert findings(other) == [f"t-0: c read 'a' with key, headers and time {other!r}, sent as 'k+1@5'"]
