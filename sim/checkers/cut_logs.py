"""Judges the log of a follower that its leader has told to cut it, or to begin again."""

from __future__ import annotations

from typing import NamedTuple

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartition, FetchPartitionResponse
from storage.log import PartitionLog


class CutLog(NamedTuple):
    """A follower's log after the step that took such an answer."""

    log_start: int
    log_end: int
    segments: int
    # The bytes of its last segment.
    active_bytes: int
    # The leader epochs that it knows, with their start offsets.
    epochs: tuple[tuple[int, int], ...]


def cut_log(log: PartitionLog) -> CutLog | None:
    """Returns what is judged of `log`; None while its cut reads on, and nothing has changed."""
    if log.truncation.is_preparing:
        return None
    segments = log.local.segments
    epochs = tuple([(each[0], each[1]) for each in log.epochs.entries])
    return CutLog(log.log_start_offset, log.log_end_offset, len(segments), segments.active.size_bytes, epochs)


def wrong_cut(asked: FetchPartition, answer: FetchPartitionResponse, log: CutLog) -> str:
    """Returns what is wrong with a log that was changed by the answer; empty if nothing is."""
    if what := _wrong_start(asked, answer, log):
        return what
    if answer.error is ErrorCode.NONE and answer.diverging is not None:
        return _kept_records(answer.diverging.epoch, log)
    return ""


def _wrong_start(asked: FetchPartition, answer: FetchPartitionResponse, log: CutLog) -> str:
    """Returns what is wrong if an emptied log begins elsewhere than its leader's (FET-11, EPC-9, KAFKA-9491).

    It begins again beyond its end, or before its start. Of a log of many segments each answer takes some only.
    """
    if log.segments > 1 or log.log_start != log.log_end or log.log_start == answer.log_start_offset:
        return ""
    is_behind = answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > asked.fetch_offset
    if not is_behind and log.log_start >= asked.log_start_offset:
        return ""
    return f"begins again at {log.log_start}; the log of its leader begins at {answer.log_start_offset}"


def _kept_records(told_epoch: int, log: CutLog) -> str:
    """Returns of which later epoch a log has records, although its leader has none after `told_epoch`; empty if none.

    The cut is at the lower one of both ends of the epoch that both have (EPC-2, KIP-279). A cut that is done in parts
    leaves an empty last segment first. A log without such an epoch is cut at its high watermark.
    """
    if not log.active_bytes or not log.epochs or log.epochs[0][0] > told_epoch:
        return ""
    for epoch, start in log.epochs:
        if epoch > told_epoch and start < log.log_end:
            return f"keeps records of epoch {epoch} from {start} on; its leader has none after {told_epoch} there"
    return ""
