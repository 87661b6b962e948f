"""The decision of a control manager: the records of one atomic change, and the reply for when it is committed."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.messages import ResponseBody
from cluster.core.metadata.records import MetadataRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision. `records` are appended as one batch; `reply` waits until they are committed (CTL-3)."""

    reply: ResponseBody
    records: tuple[MetadataRecord, ...] = ()
