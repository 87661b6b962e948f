"""The room of a produce request: so many batches fit into it as max.request.size and a frame of a connection allow."""

from __future__ import annotations

from cluster.core.connection.merging import PARTITION_BYTES
from cluster.core.connection.pieces import MOST_FRAME_BYTES

# The most bytes of the batches of a request, whatever max.request.size says: a larger frame is never sent. What is left
# of it is for the call, its first partition, and what a codec adds to bytes that it cannot make smaller.
MOST_BATCHES_BYTES = MOST_FRAME_BYTES - (1 << 20)


def fits_in_request(batches_bytes: int, batch_count: int, max_request_size: int) -> bool:
    """Whether one request can carry so many batches, each of another partition, of so many bytes in all."""
    assert batch_count > 0, batch_count
    partitions_bytes = PARTITION_BYTES * (batch_count - 1)
    return batches_bytes <= min(max_request_size, MOST_BATCHES_BYTES - partitions_bytes)
