"""One read of the log for both followers, and what makes it invalid."""

from __future__ import annotations

from cluster.core.replica.shared_read import SharedRead
from storage.batch import RecordBatch
from storage.log import PartitionLog
from tests.cluster.replica.setup import Setup

LIMIT = 1 << 20


def leading_log(*values: bytes) -> tuple[Setup, PartitionLog]:
    setup = Setup()
    setup.place(leader=1, isr=(1, 2, 3))
    for value in values:
        setup.append(value)
    return setup, setup.replica.log


def values_of(records: bytes) -> list[bytes | None]:
    return [record.value for record in RecordBatch(records, 0, len(records)).records()]


def test_two_followers_at_one_offset_get_the_bytes_of_one_read() -> None:
    _, log = leading_log(b"a")
    shared = SharedRead()
    first = shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    assert shared.read(log, 0, max_size=LIMIT, min_one_message=True) is first
    assert values_of(first.records) == [b"a"]


def test_another_question_is_read_again() -> None:
    _, log = leading_log(b"a", b"b")
    shared = SharedRead()
    whole = shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    assert shared.read(log, 1, max_size=LIMIT, min_one_message=True).records != whole.records
    assert shared.read(log, 0, max_size=1, min_one_message=False).records == whole.records[:1]
    assert shared.read(log, 0, max_size=1, min_one_message=True).records < whole.records


def test_an_append_ends_it() -> None:
    setup, log = leading_log(b"a")
    shared = SharedRead()
    before = shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    setup.append(b"b")
    after = shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    assert len(after.records) > len(before.records)


def test_a_truncation_to_the_same_end_ends_it() -> None:
    setup, log = leading_log(b"a")
    shared = SharedRead()
    shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    log.truncate_to(0, now_ms=0)
    setup.append(b"b")
    again = shared.read(log, 0, max_size=LIMIT, min_one_message=True)
    assert values_of(again.records) == [b"b"]
