"""The leader's short way for the batch that nearly every client sends: its results are those of the long way."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.batch import Record, build_batch
from storage.codec.compression import Compression
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.errors import StorageError
from storage.log import AppendInfo, PartitionLog
from storage.validation.analysis import check_produced
from storage.validation.batch import ValidationRules
from storage.validation.checked import CheckedSet
from storage.validation.plain import PlainBatches
from tests.storage.logs import DIRECTORY, NOW_MS, new_disk, new_file_system, produced
from tests.storage.validation.produced_sets import BASE, CREATE, LOG_APPEND, NOW, poked, validated
from tests.storage.validation.produced_sets import produced as produced_set

LIMIT = 1 << 20
COMPACTED = replace(CREATE, is_compacted=True)
LIMITED = replace(CREATE, before_max_ms=1000, after_max_ms=1000)
RULES = (CREATE, COMPACTED, LIMITED, LOG_APPEND, replace(CREATE, target_codec=Compression.GZIP))


def taken(content: bytes | bytearray, rules: ValidationRules = CREATE) -> CheckedSet | None:
    return PlainBatches(replace(rules, max_message_bytes=LIMIT)).check(content, BASE, 17, NOW)


def told(checked: CheckedSet | None) -> tuple[object, ...] | None:
    """Return all that a check says of a set, in a form that compares."""
    if checked is None:
        return None
    fields = {name: getattr(checked, name) for name in CheckedSet.__slots__}
    fields["producer_batches"] = [(each.start, each.tobytes()) for each in checked.producer_batches]
    return tuple(fields.items())


def check_against_the_long_way(content: bytes, rules: ValidationRules) -> bool:
    """Whether the short way took the set. If so, the long way must take it with the same outcome."""
    given = bytearray(content)
    result = taken(given, rules)
    assert told(taken(content, rules)) == told(result)
    if result is None:
        assert given == content, "changed, though not taken"
        return False
    assert result.records is given
    check_produced(content, replace(rules, max_message_bytes=LIMIT), is_client=True)
    assert told(result) == told(validated(content, rules))
    return True


def plain(times: tuple[int, ...] = (NOW,), key: bytes | None = b"k", producer_id: int = -1) -> bytes:
    return build_batch(
        [Record(index, timestamp, key, b"value") for index, timestamp in enumerate(times)],
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 7,
        base_sequence=-1 if producer_id < 0 else 100,
    )


@pytest.mark.parametrize(
    "rules", [CREATE, COMPACTED, LIMITED, replace(CREATE, target_codec=Compression.NONE)]
)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_plain_batch_is_taken(rules: ValidationRules, count: int) -> None:
    times = tuple(NOW - index % 7 for index in range(count))
    assert check_against_the_long_way(plain(times), rules)
    assert check_against_the_long_way(plain(times, producer_id=3), rules)
    wrong_max = poked(plain(times), 35, ">q", NOW - 50)
    assert check_against_the_long_way(wrong_max, rules)


def test_what_is_not_plain_is_left_to_the_long_way() -> None:
    assert not check_against_the_long_way(plain((-1,)), CREATE)
    assert not check_against_the_long_way(plain((NOW - 1001,)), LIMITED)
    assert not check_against_the_long_way(plain((NOW + 1001,)), LIMITED)
    assert not check_against_the_long_way(plain(key=None), COMPACTED)
    assert not check_against_the_long_way(plain(), LOG_APPEND)
    assert not check_against_the_long_way(plain(), replace(CREATE, target_codec=Compression.GZIP))
    assert not check_against_the_long_way(plain(), replace(CREATE, target_magic=1))
    assert not check_against_the_long_way(produced_set(Compression.LZ4), CREATE)
    assert not check_against_the_long_way(produced_set(producer_id=3, is_transactional=True), CREATE)
    assert not check_against_the_long_way(plain() + plain(), CREATE)
    assert not check_against_the_long_way(plain()[:-1], CREATE)
    assert not check_against_the_long_way(b"", CREATE)
    assert PlainBatches(replace(CREATE, max_message_bytes=10)).check(plain(), BASE, 17, NOW) is None


@pytest.mark.parametrize(
    ("position", "layout", "values"),
    [
        (0, ">q", (0, 1, -1)),
        (8, ">i", (0, 13, 1 << 30)),
        (16, ">b", (-1, 0, 1, 3)),
        (21, ">h", (1, 2, 7, 8, 16, 32, 64, 128, -1)),
        (23, ">i", (0, 1, 3, -1)),
        (27, ">q", (0, -1, -2, -(1 << 63), (1 << 63) - 1, NOW + 1)),
        (35, ">q", (0, -1, NOW + 1)),
        (43, ">q", (0, 1, -2)),
        (53, ">i", (0, -2)),
        (57, ">i", (0, 1, 2, 4, -1)),
    ],
)
def test_each_field_of_the_header_is_looked_at(position: int, layout: str, values: tuple[int, ...]) -> None:
    sound = plain((NOW, NOW + 1, NOW - 1))
    for value in values:
        for rules in RULES:
            check_against_the_long_way(poked(sound, position, layout, value), rules)
            unsealed = bytearray(sound)
            struct.pack_into(layout, unsealed, position, value)
            check_against_the_long_way(bytes(unsealed), rules)


def test_lv9_a_time_beyond_64_bits_is_left_to_the_long_way() -> None:
    """Such a time wraps in 64 bits, as in Java, and may then be within the limits."""
    content = poked(plain((NOW, NOW + 1)), 27, ">q", (1 << 63) - 1)
    assert not check_against_the_long_way(content, CREATE)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_odd_byte_gets_by(data: st.DataObject) -> None:
    content = plain(
        (NOW, NOW + 1), key=data.draw(st.none() | st.just(b"k")), producer_id=data.draw(st.integers(-1, 0))
    )
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(0, len(content) - 1))
        content = poked(content, position, ">B", data.draw(st.integers(0, 255)))
    check_against_the_long_way(content, data.draw(st.sampled_from(RULES)))


def append(log: PartitionLog, content: bytes, now_ms: int) -> AppendInfo | str:
    try:
        return log.append_as_leader(content, leader_epoch=now_ms % 4 // 3, now_ms=now_ms)
    except StorageError as error:
        return repr(error)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 2]),
            st.sampled_from([0, 0, 1, 5, 40, -1]),
            st.sampled_from([0, 0, 0, 60, 700, 2100]),
            st.booleans(),
        ),
        min_size=1,
        max_size=25,
    )
)
# The index entries are exactly at the interval, and the timestamps are equal.
@example([(1, 0, 0, False)] * 12)
@example([(1, 1, 60, False)] * 12)
def test_a_log_is_the_same_by_the_short_and_by_the_long_way(
    appends: list[tuple[int, int, int, bool]],
) -> None:
    """Files, answers and marks are equal, with rolls, index entries, full indexes, retries and refusals."""
    interval = 2 * len(produced(1, value_bytes=0))
    config = LogConfig(
        segment_bytes=2000, segment_index_bytes=36, index_interval_bytes=interval, segment_ms=30
    )
    disks = [new_file_system(new_disk()), new_file_system(new_disk())]
    short, long = (PartitionLog.open(each, DIRECTORY, config, clean=True, now_ms=NOW_MS) for each in disks)
    # This short way takes nothing.
    long.appends._plain = PlainBatches(replace(CREATE, max_message_bytes=0))
    now_ms = NOW_MS
    for count, step_ms, value_bytes, is_idempotent in appends:
        now_ms += max(step_ms, 0)
        timestamp = now_ms if step_ms >= 0 else -1
        numbers = (5, 0, 0) if is_idempotent else (-1, -1, -1)
        content = produced(
            count,
            timestamp=timestamp,
            value_bytes=value_bytes,
            producer_id=numbers[0],
            producer_epoch=numbers[1],
            sequence=numbers[2],
        )
        assert append(short, content, now_ms) == append(long, content, now_ms)
        assert short.local.log_end == long.local.log_end and short.local.log_end is short.local.log_end
        assert short.epochs.entries == long.epochs.entries
        assert short.producers.map_end_offset == long.producers.map_end_offset
        assert [each.max_timestamp for each in short.local.segments] == [
            each.max_timestamp for each in long.local.segments
        ]
    short.close()
    long.close()
    for name in (names := disks[0].list(DIRECTORY)):
        contents = [each.open(f"{DIRECTORY}/{name}", OpenMode.READ) for each in disks]
        assert contents[0].read_at(0, 1 << 20) == contents[1].read_at(0, 1 << 20), name
    assert names == disks[1].list(DIRECTORY)
