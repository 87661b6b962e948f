"""What start-up or an offline repair took away: told, never silent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCut:
    """`removed_bytes` went from byte `position` of the `.log` at `path` on; `reason` says what was wrong there."""

    path: str
    position: int
    reason: str
    removed_bytes: int


ReportCut = Callable[[RecoveryCut], None]


def ignore_cut(cut: RecoveryCut) -> None:
    """The default report: the log line alone."""


def report_cut(cut: RecoveryCut, report: ReportCut) -> None:
    logger.warning(
        "recovery cut: segment=%s position=%d removed_bytes=%d reason=%s",
        cut.path,
        cut.position,
        cut.removed_bytes,
        cut.reason,
    )
    report(cut)
