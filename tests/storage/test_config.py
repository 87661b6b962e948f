"""Log configurations, topic names and directories, the map of segments, offset places.

Kafka: LogConfigTest, LogSegmentsTest.
"""

from __future__ import annotations

import pytest

from storage.config import LogConfig, parse_integer
from storage.errors import ConfigError, InvalidTopic
from storage.segment.place import LogOffsetMetadata
from storage.segment.segments import LogSegments
from storage.topics import (
    BadDirectoryName,
    check_topic_name,
    directory_name,
    names_collide,
    parse_directory_name,
    suffixed_directory_name,
)
from tests.storage.logs import new_file_system, open_segment


def test_properties_round_trip_by_their_dotted_names() -> None:
    config = LogConfig(segment_bytes=500, preallocate=True, cleanup_policy="compact,delete")
    properties = config.to_properties()
    assert properties["segment.bytes"] == "500" and properties["preallocate"] == "true"
    assert LogConfig.from_properties(properties) == config
    assert set(properties) == set(LogConfig.property_names)


@pytest.mark.covers("LogConfigTest.testFromPropsInvalid")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("segment_bytes", "500"),
        ("segment.bytes", "13"),
        ("segment.bytes", "many"),
        ("segment.bytes", str(1 << 31)),
        ("segment.ms", "0"),
        ("retention.ms", "-2"),
        ("preallocate", "yes"),
        ("cleanup.policy", "compact,keep"),
        ("compression.type", "zip"),
        ("message.timestamp.type", "Now"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "-1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "1.2"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("segment.jitter.ms", "-1"),
        ("segment.index.bytes", "3"),
        ("index.interval.bytes", "-1"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("max.message.bytes", "-1"),
        ("delete.retention.ms", "-1"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("file.delete.delay.ms", "-1"),
        ("message.timestamp.before.max.ms", "-1"),
        ("message.timestamp.after.max.ms", "-1"),
        ("compression.gzip.level", "-2"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "-1"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
        ("compression.zstd.level", "high"),
    ],
)
def test_an_unusable_property_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        LogConfig.from_properties({name: value})


@pytest.mark.parametrize(
    ("codec", "least", "greatest"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -131072, 22)]
)
def test_a_level_counts_where_the_topic_names_its_codec(codec: str, least: int, greatest: int) -> None:
    for level in (least, greatest):
        named = {f"compression.{codec}.level": str(level)}
        assert LogConfig.from_properties({**named, "compression.type": codec}).compression_level == level
        for other in ("producer", "uncompressed", "snappy"):
            assert LogConfig.from_properties({**named, "compression.type": other}).compression_level is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("+7", 7),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("1_000", None),
        ("0x10", None),
        ("", None),
    ],
)
def test_a_number_has_64_bits_and_is_written_as_java_reads_it(text: str, number: int | None) -> None:
    if number is not None:
        assert parse_integer(text) == number
        return
    with pytest.raises(ValueError, match=r"more than 64 bits|no number"):
        parse_integer(text)


def test_blanks_around_a_value_do_not_count() -> None:
    assert LogConfig.from_properties({"segment.bytes": " 500 ", "preallocate": "TRUE"}).segment_bytes == 500


@pytest.mark.covers("LogConfigTest.testInvalidCompactionLagConfig")
def test_a_compaction_lag_that_ends_before_it_begins_is_refused() -> None:
    lags = {"min.compaction.lag.ms": "200", "max.compaction.lag.ms": "100"}
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms=100: must be at least min"):
        LogConfig.from_properties({"cleanup.policy": "compact", **lags})
    # Kafka refuses it whatever the policy is: it may be compacted later.
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms=100: must be at least min"):
        LogConfig.from_properties(lags)


def test_the_defaults_of_a_topic_are_kafkas() -> None:
    assert LogConfig.from_properties({}) == LogConfig()
    properties = LogConfig().to_properties()
    expected = {
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
        "segment.jitter.ms": "0",
        "segment.index.bytes": "10485760",
        "index.interval.bytes": "4096",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "preallocate": "false",
        "message.timestamp.type": "CreateTime",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "9223372036854775807",
        "min.cleanable.dirty.ratio": "0.5",
        "file.delete.delay.ms": "60000",
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.zstd.level": "3",
    }
    assert {name: properties[name] for name in expected} == expected


def test_a_compacted_topic_rolls_within_its_compaction_lag() -> None:
    config = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=100, segment_ms=1000)
    assert config.max_segment_ms == 100 and config.is_compacted
    assert LogConfig(max_compaction_lag_ms=100, segment_ms=1000).max_segment_ms == 1000
    compacted = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=1000, segment_ms=100)
    assert compacted.max_segment_ms == 100


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a b", "a\0", "é", "x" * 250, "a\n"])
def test_illegal_topic_names(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    assert names_collide("a.b", "a_b") and not names_collide("a.b", "a-b")


@pytest.mark.covers(
    "LocalLogTest.testParseTopicPartitionName",
    "LocalLogTest.testParseTopicPartitionNameWithPeriodForDeletedTopic",
)
@pytest.mark.parametrize(
    ("name", "topic", "partition", "suffix"),
    [
        ("test_topic-143", "test_topic", 143, ""),
        ("foo.bar-1-0", "foo.bar-1", 0, ""),
        ("foo.bar-testtopic-42." + "a" * 32 + "-delete", "foo.bar-testtopic", 42, "-delete"),
        ("t-0." + "b" * 32 + "-future", "t", 0, "-future"),
    ],
)
def test_directory_names(name: str, topic: str, partition: int, suffix: str) -> None:
    parsed = parse_directory_name(name)
    assert (parsed.topic, parsed.partition, parsed.suffix) == (topic, partition, suffix)
    if not suffix:
        assert directory_name(topic, partition) == name


@pytest.mark.covers(
    "LocalLogTest.testParseTopicPartitionNameForEmptyName",
    "LocalLogTest.testParseTopicPartitionNameForNull",
    "LocalLogTest.testParseTopicPartitionNameForMissingSeparator",
    "LocalLogTest.testParseTopicPartitionNameForMissingTopic",
    "LocalLogTest.testParseTopicPartitionNameForMissingPartition",
    "LocalLogTest.testParseTopicPartitionNameForInvalidPartition",
    "LocalLogTest.testParseTopicPartitionNameForExistingInvalidDir",
)
@pytest.mark.parametrize(
    "name",
    ["", "test", "-0", "topic-", "topic-1999a", "non_kafka_dir", "non_kafka_dir-delete", "t-²"],
)
def test_bad_directory_names(name: str) -> None:
    with pytest.raises(BadDirectoryName):
        parse_directory_name(name)


@pytest.mark.covers("LocalLogTest.testLogDeleteDirName")
def test_a_long_topic_is_cut_in_the_name_of_its_deletion() -> None:
    name = suffixed_directory_name("t" * 249, 3, "0" * 32, "-delete")
    assert len(name) == 255 and parse_directory_name(name).topic == "t" * 213


# The map of segments


def segments(*bases: int) -> LogSegments:
    file_system, found = new_file_system(), LogSegments()
    for base in bases:
        found.add(open_segment(file_system, base))
    return found


def bases_of(found: LogSegments, from_offset: int, to_offset: int) -> list[int]:
    return [segment.base_offset for segment in found.values(from_offset, to_offset)]


@pytest.mark.covers("LogSegmentsTest.testSegmentAccess", "UnifiedLogTest.testLogSegmentsCallCorrect")
def test_fl3_ranges_of_segments() -> None:
    found = segments(10, 0, 20)
    assert bases_of(found, 10, 10) == [] == bases_of(found, 13, 13)
    assert bases_of(found, 0, 21) == [0, 10, 20]
    assert bases_of(found, 1, 5) == [0]
    assert bases_of(found, 13, 21) == [10, 20]
    assert bases_of(found, 13, 17) == [10]
    with pytest.raises(ValueError):
        found.values(10, 0)
    # Without a floor, all segments below the end are returned.
    assert bases_of(segments(5, 9), 0, 9) == [5]


@pytest.mark.covers("LogSegmentsTest.testClosestMatchOperations", "LogSegmentsTest.testHigherSegments")
def test_neighbours_of_an_offset() -> None:
    found = segments(0, 10, 20)
    floor, lower, higher = found.floor(15), found.lower(10), found.higher(10)
    assert floor is not None and floor.base_offset == 10
    assert lower is not None and lower.base_offset == 0
    assert higher is not None and higher.base_offset == 20
    assert found.floor(-1) is None and found.lower(0) is None and found.higher(20) is None
    assert found.active.base_offset == 20 and [each.base_offset for each in found.from_offset(5)] == [10, 20]


@pytest.mark.covers("LogSegmentsTest.testSegmentAccess", "LocalLogTest.testNonActiveSegmentsFrom")
def test_non_active_segments() -> None:
    found = segments(0, 1, 2, 3)
    for offset, expected in ((0, [0, 1, 2]), (2, [2]), (3, []), (4, [])):
        assert [each.base_offset for each in found.non_active_from(offset)] == expected


@pytest.mark.covers("LogSegmentsTest.testBasicOperations")
def test_a_segment_replaces_one_of_the_same_base_which_is_returned() -> None:
    found = segments(0, 10)
    old = found.get(10)
    assert found.add(open_segment(new_file_system(), 10)) is old and len(found) == 2
    found.remove(0)
    found.remove(77)
    assert found.base_offsets == [10] and 0 not in found


# Places of offsets


@pytest.mark.covers(
    "LogOffsetMetadataTest.testOnOlderSegment",
    "LogOffsetMetadataTest.testOnSameSegment",
    "LogOffsetMetadataTest.testPositionDiff",
)
def test_places_compare_within_a_segment() -> None:
    a, b = LogOffsetMetadata(5, 0, 100), LogOffsetMetadata(9, 0, 340)
    assert b.position_difference(a) == 240 and b.is_on_same_segment(a)
    assert a.is_on_older_segment(LogOffsetMetadata(20, 10, 0))


@pytest.mark.covers("LogOffsetMetadataTest.testMessageOffsetOnly")
def test_a_place_that_is_unknown_compares_with_nothing() -> None:
    known, unknown = LogOffsetMetadata(5, 0, 100), LogOffsetMetadata(5)
    assert unknown.is_message_only and not known.is_message_only
    assert not unknown.is_on_older_segment(known) and not known.is_on_older_segment(unknown)
    assert not unknown.is_on_same_segment(unknown) and not known.is_on_same_segment(unknown)
    for one, other in ((known, unknown), (unknown, known), (unknown, unknown)):
        with pytest.raises(ValueError):
            one.position_difference(other)
    with pytest.raises(ValueError):
        LogOffsetMetadata(20, 10, 0).position_difference(known)
