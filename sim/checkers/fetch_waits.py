"""The wait of a fetch at a broker: while there is nothing for it, and no longer (PRO-8)."""

from __future__ import annotations

from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartition, FetchRequest, FetchResponse
from sim.checkers.base import Jury


@final
class FetchWaits:
    """Judges the fetches that a broker has after a step: those that go on waiting, and those that it did not let wait.

    Who is content with a byte, or can never have more than one, or reads up to where the log has rolled, is answered in
    the step that brings it: records for a follower, committed records for a consumer. A broker that leaves that to the
    longest wait holds up each commit by as much. Who may wait is not answered with nothing at once: it would ask
    without rest.
    """

    name = "fetch-waits"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_waiting(
        self,
        node: str,
        request: FetchRequest,
        asked: FetchPartition,
        end: int,
        most_bytes: int,
        *,
        rolled: bool,
    ) -> None:
        """Receives a fetch that waits after a step which has brought all up to `end` (exclusive) within its reach.

        The node answers with `most_bytes` at most, however many are asked for. `rolled`: the end is in a newer segment
        than what is asked for, so that no read brings all of it (Kafka: DelayedFetch.tryComplete, case F).
        """
        of_partitions = sum([each.max_bytes for each in request.partitions])
        least = min(request.min_bytes, request.max_bytes, of_partitions, most_bytes)
        # Of the first partition a batch is read whatever its size; of another one perhaps none, for want of room.
        is_read = least > 0 and asked.max_bytes > 0 and request.partitions[0] == asked
        is_enough = least <= 1 or (rolled and is_read)
        if is_enough and asked.fetch_offset < end:
            where = f"{asked.topic_partition} at {asked.fetch_offset}"
            self._jury.report(
                self.name, f"{node} lets a {_kind(request)} wait for {where}; it may read up to {end}"
            )

    def on_answered_at_once(self, node: str, request: FetchRequest, body: FetchResponse) -> None:
        """Receives the answer to a fetch that was taken by the same step, and that there was room for to wait."""
        limits = [request.max_bytes, request.max_wait_ms, request.min_bytes]
        limits += [asked.max_bytes for asked in request.partitions]
        if not request.partitions or min(limits) <= 0 or body.error is not ErrorCode.NONE:
            return
        is_empty = all(
            not each.records and each.error is ErrorCode.NONE and each.diverging is None
            for each in body.partitions
        )
        if is_empty:
            what = f"answers a {_kind(request)} with nothing at once; it may wait {request.max_wait_ms} ms"
            self._jury.report(self.name, f"{node} {what}")


def _kind(request: FetchRequest) -> str:
    return "follower" if request.replica_id >= 0 else "consumer"
