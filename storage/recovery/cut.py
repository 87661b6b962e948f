"""What start-up or an offline repair cut off a segment, which is always reported."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCut:
    """A cut at byte `position` of the `.log` at `path`: the bytes that it removed, and the reason."""

    path: str
    position: int
    reason: str
    removed_bytes: int


ReportCut = Callable[[RecoveryCut], None]


def ignore_cut(cut: RecoveryCut) -> None:
    """Do nothing: the default report is the log line alone."""


def report_cut(cut: RecoveryCut, report: ReportCut) -> None:
    """Log the cut and pass it to `report`."""
    logger.warning(
        "recovery cut: segment=%s position=%d removed_bytes=%d reason=%s",
        cut.path,
        cut.position,
        cut.removed_bytes,
        cut.reason,
    )
    report(cut)
