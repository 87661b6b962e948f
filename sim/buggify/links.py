"""Points at the network: frames that take longer, and streams that take one frame at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from cluster.core.connection.codec import Codec
from cluster.rpc import methods
from cluster.shell import streams as codecs
from sim.buggify.buggify import Buggify

# The method of a channel and whether the frame goes to the node that was called: the point, and the most milliseconds.
_LATE: Mapping[tuple[str, bool], tuple[str, int]] = {
    (methods.REPLICA_FETCH, False): ("fetch-answer-late", 100),
    (methods.PRODUCE, False): ("append-answer-late", 300),
    (f"/{methods.CONTROLLER}/BrokerHeartbeat", True): ("heartbeat-late", 200),
    (f"/{methods.CONTROLLER}/AlterPartition", True): ("proposal-late", 300),
    (f"/{methods.CONTROLLER}/AlterPartition", False): ("proposal-answer-late", 300),
    (f"/{methods.CONTROLLER}/FetchMetadata", False): ("metadata-late", 300),
    (f"/{methods.DATA}/Metadata", False): ("client-metadata-late", 500),
}

# Most frames of a run have some hundred bytes.
_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES = 30, 400
# Many calls of a run fit into such a frame, and many do not.
_LEAST_FRAME_BYTES, _MOST_FRAME_BYTES = 100, 600
# So long a frame of a stream waits for room in the buffers of the machine: many faults strike meanwhile.
_LEAST_WRITE_US, _MOST_WRITE_US = 200, 30_000
# Larger than this are many sets of a run, and many are not: most frames of several have both kinds then.
_LEAST_LARGE_BYTES, _MOST_LARGE_BYTES = 120, 600


@final
class LinkPoints:
    """The points at all links of a run; each is asked for at the node that sends."""

    __slots__ = ("_buggify",)

    def __init__(self, buggify: Buggify) -> None:
        self._buggify = buggify

    def frame_us(self, sender: str, path: str, *, to_target: bool) -> int:
        """Returns how much longer a frame takes that is of the method at `path`."""
        late_us = self._buggify.more_us(300, "packet-late", sender)
        found = _LATE.get((path, to_target))
        if found is not None:
            point, most_ms = found
            late_us += self._buggify.more_us(most_ms, point, sender)
        assert late_us >= 0, (path, late_us)
        return late_us

    def accept_us(self, sender: str) -> int:
        """Returns how much longer the news takes that a connection is accepted."""
        return self._buggify.more_us(500, "accept-late", sender)

    def codec(self, usual: Codec) -> Codec:
        """Returns the codec of all connections; one with few bytes as large writes and reads the same frames."""
        if not self._buggify.fires("little-is-large", "network"):
            return usual
        large_bytes = self._buggify.between(
            _LEAST_LARGE_BYTES, _MOST_LARGE_BYTES, "little-is-large", "network"
        )
        return codecs.Codec(
            {path: codecs.parting(each, large_bytes) for path, each in codecs.STREAMS.items()}
        )

    def has_small_window(self, dialer: str) -> bool:
        """Whether a new channel takes one frame at a time."""
        return self._buggify.fires("window-small", dialer)

    def small_frame_bytes(self, dialer: str) -> int | None:
        """Returns the most bytes of the calls in a frame of a new channel; None: as many as usual."""
        if not self._buggify.fires("small-frames", dialer):
            return None
        return self._buggify.between(_LEAST_FRAME_BYTES, _MOST_FRAME_BYTES, "small-frames", dialer)

    def write_us(self, dialer: str) -> int:
        """Returns how long the write of each frame of a new channel takes, in either direction."""
        if not self._buggify.fires("slow-writes", dialer):
            return 0
        return self._buggify.between(_LEAST_WRITE_US, _MOST_WRITE_US, "slow-writes", dialer)

    def piece_bytes(self, dialer: str) -> int | None:
        """Returns the most bytes of a frame of a new channel, of which a larger one goes in pieces; None: as usual."""
        if not self._buggify.fires("frames-in-pieces", dialer):
            return None
        return self._buggify.between(_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES, "frames-in-pieces", dialer)
