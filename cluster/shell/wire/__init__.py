"""Converts the core's messages to protobuf and back."""

from cluster.core.connection.codec import OutOfBounds
from cluster.shell.wire.bodies import (
    REQUESTS,
    RESPONSES,
    UnknownMessage,
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)
from cluster.shell.wire.limits import out_of_bounds

__all__ = [
    "REQUESTS",
    "RESPONSES",
    "OutOfBounds",
    "UnknownMessage",
    "out_of_bounds",
    "request_from_wire",
    "request_to_wire",
    "response_from_wire",
    "response_to_wire",
]
