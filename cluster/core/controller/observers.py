"""The long polls of brokers, which wait for the next committed metadata.

Kafka: KafkaRaftClient.handleFetchRequest, FetchPurgatory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cluster.core.effects import CancelTimer, Effect, Reply, SetTimer
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse
from cluster.core.metadata.log import READ_BLOCK_BYTES, MetadataLog


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parked:
    request: FetchMetadataRequest
    timer: str


@final
class ParkedFetches:
    """Fetches that wait, by call and in order of arrival: at most one of each process, and `limit` in all.

    A newer fetch takes the place of an older one, which is answered without records: not that of another process with
    the same broker id, which would take it back at once. None waits longer than `max_wait_ms`, whatever it asks for.
    """

    def __init__(self, limit: int, max_wait_ms: int) -> None:
        self._limit, self._max_wait_ms = limit, max_wait_ms
        self._parked: dict[int, _Parked] = {}

    def fetch(
        self, call: int, request: FetchMetadataRequest, log: MetadataLog, now_ms: int, timer_prefix: str
    ) -> list[Effect]:
        """Answers at once if there is something to read or to refuse, else parks the fetch."""
        if request.offset < 0 or request.offset > log.end_offset:
            refused = FetchMetadataResponse(
                error=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=log.committed_offset
            )
            return [Reply(call=call, body=refused)]
        if request.offset < log.committed_offset or request.max_wait_ms <= 0:
            return [self._answer(call, request, log)]
        wait_ms = min(request.max_wait_ms, self._max_wait_ms)
        effects = self._make_room(request, log)
        timer = f"{timer_prefix}{call}"
        assert call not in self._parked, call
        self._parked[call] = _Parked(request=request, timer=timer)
        assert len(self._parked) <= self._limit, (len(self._parked), self._limit)
        return [*effects, SetTimer(key=timer, at_ms=now_ms + wait_ms)]

    def _make_room(self, request: FetchMetadataRequest, log: MetadataLog) -> list[Effect]:
        process = _process_of(request)
        superseded = [call for call, parked in self._parked.items() if _process_of(parked.request) == process]
        if not superseded and len(self._parked) >= self._limit:
            superseded = [next(iter(self._parked))]
        return [effect for call in superseded for effect in self._release(call, log)]

    def wake(self, log: MetadataLog) -> list[Effect]:
        """Answers the fetches for which there are committed records now."""
        ready = [
            call for call, parked in self._parked.items() if parked.request.offset < log.committed_offset
        ]
        return [effect for call in ready for effect in self._release(call, log)]

    def expire(self, call: int, log: MetadataLog) -> list[Effect]:
        """Answers a fetch whose time is over; does nothing if it was answered before."""
        parked = self._parked.pop(call, None)
        return [] if parked is None else [self._answer(call, parked.request, log)]

    def forget(self, call: int) -> None:
        """Drops a fetch whose sender has left. Its timer finds nothing then."""
        self._parked.pop(call, None)

    def answer_all(self, log: MetadataLog) -> list[Effect]:
        return [effect for call in list(self._parked) for effect in self._release(call, log)]

    def _release(self, call: int, log: MetadataLog) -> list[Effect]:
        parked = self._parked.pop(call)
        return [CancelTimer(key=parked.timer), self._answer(call, parked.request, log)]

    def _answer(self, call: int, request: FetchMetadataRequest, log: MetadataLog) -> Reply:
        is_behind = request.offset < log.committed_offset
        max_bytes = min(max(0, request.max_bytes), READ_BLOCK_BYTES)
        records = log.read(request.offset, max_bytes) if is_behind else b""
        return Reply(
            call=call, body=FetchMetadataResponse(high_watermark=log.committed_offset, records=records)
        )


def _process_of(request: FetchMetadataRequest) -> tuple[int, str]:
    """Returns the broker id, and what its process has drawn for itself."""
    return request.broker_id, "" if request.header is None else request.header.incarnation
