"""Decodes the keys and values of records for a dump: to text, numbers, or messages of Kafka's own topics.

If a record cannot be decoded, Kafka's words for the reason take its place, and the dump continues.
Kafka: DumpLogSegments' message parsers, CoordinatorRecordSerde, MetadataRecordSerde.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, final

from storage.batch.cut_record import CutRecord
from storage.batch.pieces import MOST_MESSAGE_BYTES
from storage.batch.record import Record
from storage.codec.utf8 import decode_utf8, decode_utf8_pieces
from storage.errors import InvalidRecord
from storage.inspection.dump.large import PiecesDecoder, Shown, hex_pieces
from storage.inspection.messages.decode import MessageReader, TooManyValues, Value, json_text, read_message
from storage.inspection.messages.layouts import CLUSTER_METADATA, GROUPS, SHARE_STATE, TRANSACTIONS
from storage.inspection.messages.schema import MessageSchema, Unreadable, schemas_of

BytesDecoder = Callable[[bytes], str]


class RecordDecoder(Protocol):
    """Turns the key and the value of a record into text."""

    def show(self, record: Record) -> Shown:
        """Returns the texts of key and value. Raises InvalidRecord where Kafka's decoder would end the whole dump."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDecoder:
    """The decoder for `--key-decoder-class` and `--value-decoder-class`."""

    key: BytesDecoder = decode_utf8
    value: BytesDecoder = decode_utf8

    def for_large(self, record: Record) -> tuple[PiecesDecoder, PiecesDecoder]:
        """Returns the decoders of the key and of the value of a large record, of which this is the beginning.

        Raises InvalidRecord where `show` would: numbers are at the beginning.
        """
        return _for_pieces(self.key, record.key), _for_pieces(self.value, record.value)

    def show(self, record: Record) -> Shown:
        key = None if record.key is None else self.key(record.key)
        return key, None if record.value is None else self.value(record.value)


def _number(layout: struct.Struct, name: str) -> BytesDecoder:
    def decode(data: bytes) -> str:
        if len(data) < layout.size:
            raise InvalidRecord(f"{len(data)} bytes are no {name}")
        return str(layout.unpack_from(data)[0])

    return decode


def _for_pieces(decode: BytesDecoder, beginning: bytes | None) -> PiecesDecoder:
    known = _PIECES_DECODERS.get(decode)
    if known is not None:
        return known
    text = "" if beginning is None else decode(beginning)
    return lambda pieces: iter((text,))


# The others decode numbers.
_PIECES_DECODERS: Mapping[BytesDecoder, PiecesDecoder] = {
    decode_utf8: decode_utf8_pieces,
    bytes.hex: hex_pieces,
}
_API = "org.apache.kafka.tools.api."
STRING_DECODER = f"{_API}StringDecoder"
DECODER_CLASSES: Mapping[str, BytesDecoder] = {
    STRING_DECODER: decode_utf8,
    f"{_API}IntegerDecoder": _number(struct.Struct(">i"), "integer"),
    f"{_API}LongDecoder": _number(struct.Struct(">q"), "long"),
    # In its place Kafka prints the address of the array in memory.
    f"{_API}DefaultDecoder": bytes.hex,
    # The name before Kafka 4.
    "kafka.serializer.StringDecoder": decode_utf8,
}


class _Topic(Enum):
    """Record types by id, each with the name that its `…Key` and `…Value` messages begin with."""

    GROUPS = (
        GROUPS,
        {
            0: "LegacyOffsetCommit",
            1: "OffsetCommit",
            2: "GroupMetadata",
            3: "ConsumerGroupMetadata",
            4: "ConsumerGroupPartitionMetadata",
            5: "ConsumerGroupMemberMetadata",
            6: "ConsumerGroupTargetAssignmentMetadata",
            7: "ConsumerGroupTargetAssignmentMember",
            8: "ConsumerGroupCurrentMemberAssignment",
            10: "ShareGroupMemberMetadata",
            11: "ShareGroupMetadata",
            12: "ShareGroupTargetAssignmentMetadata",
            13: "ShareGroupTargetAssignmentMember",
            14: "ShareGroupCurrentMemberAssignment",
            15: "ShareGroupStatePartitionMetadata",
            16: "ConsumerGroupRegularExpression",
            17: "StreamsGroupMetadata",
            19: "StreamsGroupMemberMetadata",
            20: "StreamsGroupTargetAssignmentMetadata",
            21: "StreamsGroupTargetAssignmentMember",
            22: "StreamsGroupCurrentMemberAssignment",
            23: "StreamsGroupTopology",
        },
    )
    TRANSACTIONS = (TRANSACTIONS, {0: "TransactionLog"})
    SHARE_STATE = (SHARE_STATE, {0: "ShareSnapshot", 1: "ShareUpdate"})


class _UnknownType(Exception):
    def __init__(self, type_id: int) -> None:
        super().__init__(type_id)
        self.type_id = type_id


@final
class CoordinatorDecoder:
    """Decodes `__consumer_offsets`, `__transaction_state` and `__share_group_state` to JSON."""

    def __init__(self, topic: _Topic) -> None:
        layouts, self._names = topic.value
        self._schemas = schemas_of(layouts)

    def show(self, record: Record) -> Shown:
        """Returns the JSON of key and value, or Kafka's words for the reason why there is none. Raises InvalidRecord
        for a missing key.
        """
        if record.key is None:
            raise InvalidRecord(
                f"Failed to decode message at offset {record.offset} using offset topic decoder "
                "(message had a missing key)"
            )
        try:
            _check_whole(record)
            return self._show(record.key, record.value)
        except _UnknownType as error:
            return f"Unknown record type {error.type_id} at offset {record.offset}, skipping.", None
        except Unreadable as error:
            return f"Error at offset {record.offset}, skipping. {error}", None

    def _show(self, key: bytes, value: bytes | None) -> Shown:
        reader = MessageReader(key)
        type_id = _version(reader, "key")
        name = self._names.get(type_id)
        if name is None:
            raise _UnknownType(type_id)
        shown_key: dict[str, Value] = {
            "type": str(type_id),
            "data": self._read(reader, f"{name}Key", type_id, "key"),
        }
        if value is None:
            return json_text(shown_key), "<DELETE>"
        reader = MessageReader(value)
        version = _version(reader, "value")
        if version not in self._schemas[f"{name}Value"]:
            raise Unreadable(f"Found an unknown record version {version} for {type_id} type")
        data = self._read(reader, f"{name}Value", version, "value")
        if name == "GroupMetadata" and data.get("protocolType") == "consumer":
            _open_members(data, reader.values_left)
        shown_value: dict[str, Value] = {"version": str(version), "data": data}
        return json_text(shown_key), json_text(shown_value)

    def _read(self, reader: MessageReader, name: str, version: int, part: str) -> dict[str, Value]:
        try:
            return read_message(reader, self._schemas[name].get(version, self._schemas[name][0]))
        except TooManyValues:
            raise
        except Unreadable as error:
            message = f"Could not read record with version {version} from {part}'s buffer due to: {error}."
            raise Unreadable(message) from error


def _check_whole(record: Record) -> None:
    """Raise Unreadable for a large record of which only a part is held."""
    if isinstance(record, CutRecord):
        size = max(record.key_size, record.value_size)
        if size > MOST_MESSAGE_BYTES:
            raise Unreadable(f"It has {size} bytes, and is decoded here up to {MOST_MESSAGE_BYTES}.")


def _read_nearest(
    reader: MessageReader, versions: Mapping[int, MessageSchema], version: int
) -> dict[str, Value]:
    """Read a message of an unknown version as Kafka does: as the nearest known one, but without inner structures."""
    schema = versions[min(max(version, min(versions)), max(versions))]
    return read_message(reader, schema, has_inner=version in versions)


def _version(reader: MessageReader, part: str) -> int:
    try:
        return reader.integer("int16")
    except Unreadable:
        raise Unreadable(f"Could not read version from {part}'s buffer.") from None


def _open_members(data: dict[str, Value], values_left: int) -> None:
    """Decode the subscription and the assignment of each member, which a classic consumer group keeps as bytes.

    They have `values_left` values at most; what is beyond is shown as the bytes that it is.
    """
    members = data.get("members")
    assert isinstance(members, list), members
    for member in members:
        assert isinstance(member, dict), member
        for name in ("subscription", "assignment"):
            text = member[name]
            assert isinstance(text, str), text
            reader = MessageReader(base64.b64decode(text))
            reader.values_left = values_left
            try:
                versions = schemas_of(GROUPS)[f"ConsumerProtocol{name.title()}"]
                member[name] = _read_nearest(reader, versions, reader.integer("int16"))
            except Unreadable:
                # Bytes that do not decode are shown as they are.
                pass
            values_left = reader.values_left


_METADATA_TYPES: Mapping[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
_FRAME_VERSION = 1
_MAX_INT16 = 0x7FFF


@final
class ClusterMetadataDecoder:
    """Decodes `__cluster_metadata`. A value is its frame version, type and type version as varints, then the
    message.
    """

    def show(self, record: Record) -> Shown:
        """Returns the JSON of the value, or Kafka's words for the reason why there is none."""
        try:
            _check_whole(record)
            return None, _cluster_metadata(record.value)
        except Unreadable as error:
            return None, f"Error at {record.offset}, skipping. {error}"


def _cluster_metadata(value: bytes | None) -> str:
    reader = MessageReader(value or b"")
    frame_version = _short(reader, "frame version")
    if frame_version == 0:
        raise Unreadable(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != _FRAME_VERSION:
        raise Unreadable(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    type_id, version = _short(reader, "type"), _short(reader, "version")
    name = _METADATA_TYPES.get(type_id)
    if name is None:
        raise Unreadable(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {type_id}"
        )
    try:
        data = _read_nearest(reader, schemas_of(CLUSTER_METADATA)[name], version)
    except TooManyValues:
        raise
    except Unreadable:
        raise Unreadable(f"Failed to deserialize record with type {type_id}") from None
    if reader.remaining:
        raise Unreadable(f"Found {reader.remaining} byte(s) of garbage after {type_id}")
    type_name = "".join(f"_{each}" if each.isupper() else each.upper() for each in name).removeprefix("_")
    return json_text({"type": type_name, "version": version, "data": data})


def _short(reader: MessageReader, part: str) -> int:
    try:
        value = reader.unsigned_varint()
    except Unreadable:
        raise Unreadable(f"Error while reading {part}") from None
    if value > _MAX_INT16:
        raise Unreadable(f"Value for {part} was too large.")
    # As Java's cast does: only the lower half of a number is kept.
    return ((value + 0x8000) & 0xFFFF) - 0x8000


def offsets_decoder() -> RecordDecoder:
    return CoordinatorDecoder(_Topic.GROUPS)


def transaction_log_decoder() -> RecordDecoder:
    return CoordinatorDecoder(_Topic.TRANSACTIONS)


def share_group_state_decoder() -> RecordDecoder:
    return CoordinatorDecoder(_Topic.SHARE_STATE)
