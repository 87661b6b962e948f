"""Records whose producer set no time: a leader's treatment and the answers of look-ups. Rules LV13, LV18, LV24, RD8.

The look-ups return what Kafka 4.1.0 returned after the same appends.
"""

from __future__ import annotations

import pytest

from storage.batch import Compression, Record, build_batch
from storage.config import LONG_MAX, LogConfig
from storage.log import PartitionLog
from storage.validation.batch import ValidationRules
from tests.storage.logs import NOW_MS, new_file_system, open_log
from tests.storage.validation.produced_sets import BASE, is_built_again, sent, validated

NONE, GZIP = Compression.NONE, Compression.GZIP
CODECS = (NONE, GZIP)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("codec", "offset"), [(NONE, -1), (GZIP, BASE + 2)])
def test_lv24_a_compressed_batch_in_place_reports_its_last_offset_without_a_timestamp_too(
    magic: int, codec: Compression, offset: int
) -> None:
    result = validated(sent(magic, codec, timestamps=(-1, -1, -1)), ValidationRules(target_magic=magic))
    assert not is_built_again(result)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, offset)


@pytest.mark.parametrize("codec", CODECS)
def test_lv18_a_batch_rebuilt_without_a_timestamp_reports_no_offset(codec: Compression) -> None:
    result = validated(sent(1, codec, timestamps=(-1, -1, -1)), ValidationRules(target_magic=2))
    assert is_built_again(result)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (-1, -1)


def two_segments(codec: Compression, *timestamps: int) -> PartitionLog:
    """Return a log of three records without a time, a roll, and a record for each of `timestamps`."""
    log = open_log(
        new_file_system(), LogConfig(segment_index_bytes=1200, message_timestamp_before_max_ms=LONG_MAX)
    )
    append(log, codec, -1, -1, -1)
    log.flushes.roll(now_ms=NOW_MS)
    append(log, codec, *timestamps)
    return log


def append(log: PartitionLog, codec: Compression, *timestamps: int) -> None:
    records = [Record(offset, time, b"k", b"v") for offset, time in enumerate(timestamps)]
    log.append_as_leader(build_batch(records, compression=codec), leader_epoch=0, now_ms=NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_rd8_where_no_record_has_a_time_the_greatest_is_none_at_the_first_record(codec: Compression) -> None:
    log = two_segments(codec, -1, -1, -1)
    found = log.reads.offset_for_timestamp(-3)
    assert found is not None
    assert (found.timestamp, found.offset, found.leader_epoch) == (-1, 0, 0)
    assert log.reads.offset_for_timestamp(0) is None


@pytest.mark.parametrize("codec", CODECS)
def test_rd8_a_time_of_0_is_greater_than_none_but_no_lookup_passes_a_segment_without_times(
    codec: Compression,
) -> None:
    """The first segment counts as old as its file, so it is searched, and it holds no record with a time."""
    log = two_segments(codec, -1, 0, -1)
    found = log.reads.offset_for_timestamp(-3)
    assert found is not None
    assert (found.timestamp, found.offset, found.leader_epoch) == (0, 4, 0)
    assert log.reads.offset_for_timestamp(0) is None
