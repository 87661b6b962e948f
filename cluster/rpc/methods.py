"""The services of `proto/` as tables, read from the generated descriptors so that no name is written twice.

A unary method is found by the class of its request, each of the three streams by its path.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from cluster.rpc import admin_pb2, controller_pb2, data_pb2, replica_pb2

FILES: tuple[FileDescriptor, ...] = (
    replica_pb2.DESCRIPTOR,
    data_pb2.DESCRIPTOR,
    controller_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
)
REPLICA, DATA, CONTROLLER, ADMIN = (
    "replog.v1.Replica",
    "replog.v1.Data",
    "replog.v1.Controller",
    "replog.v1.Admin",
)
# The services that only nodes call.
NODE_SERVICES = (REPLICA, CONTROLLER)
PRODUCE = f"/{DATA}/Produce"
CONSUMER_FETCH = f"/{DATA}/Fetch"
REPLICA_FETCH = f"/{REPLICA}/Fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a service, with its message classes."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    is_stream: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def _method(service: str, descriptor: MethodDescriptor) -> Method:
    assert descriptor.client_streaming == descriptor.server_streaming, descriptor.full_name
    return Method(
        service=service,
        name=descriptor.name,
        request=GetMessageClass(descriptor.input_type),
        response=GetMessageClass(descriptor.output_type),
        is_stream=descriptor.client_streaming,
    )


METHODS: tuple[Method, ...] = tuple(
    _method(service.full_name, descriptor)
    for file in FILES
    for service in file.services_by_name.values()
    for descriptor in service.methods
)
BY_PATH: dict[str, Method] = {method.path: method for method in METHODS}
UNARY_BY_REQUEST: dict[type[Message], Method] = {
    method.request: method for method in METHODS if not method.is_stream
}
