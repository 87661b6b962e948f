from cluster.rpc import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "configs", "assignment", "header")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    configs: _containers.RepeatedCompositeFieldContainer[_common_pb2.ConfigEntry]
    assignment: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    header: _common_pb2.Header
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Iterable[_Union[_common_pb2.ConfigEntry, _Mapping]]] = ..., assignment: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ..., header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ...) -> None: ...

class ReplicaAssignment(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("error", "message", "topic_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.ErrorCode
    message: str
    topic_id: str
    def __init__(self, error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name", "header")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    name: str
    header: _common_pb2.Header
    def __init__(self, name: _Optional[str] = ..., header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class AlterTopicConfigsRequest(_message.Message):
    __slots__ = ("name", "configs", "header")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    name: str
    configs: _containers.RepeatedCompositeFieldContainer[_common_pb2.ConfigEntry]
    header: _common_pb2.Header
    def __init__(self, name: _Optional[str] = ..., configs: _Optional[_Iterable[_Union[_common_pb2.ConfigEntry, _Mapping]]] = ..., header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ...) -> None: ...

class AlterTopicConfigsResponse(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("name", "count", "header")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    header: _common_pb2.Header
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: _common_pb2.ErrorCode
    message: str
    def __init__(self, error: _Optional[_Union[_common_pb2.ErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...
