"""Converts the core's messages to protobuf and back."""

from cluster.shell.wire.bodies import (
    REQUESTS,
    RESPONSES,
    UnknownMessage,
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)

__all__ = [
    "REQUESTS",
    "RESPONSES",
    "UnknownMessage",
    "request_from_wire",
    "request_to_wire",
    "response_from_wire",
    "response_to_wire",
]
