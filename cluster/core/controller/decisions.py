"""What a control manager answers with: the records of one atomic change, and the reply for when it is
committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.messages import ResponseBody
from cluster.core.metadata.records import MetadataRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`records` go into the log as one batch, or nothing does; `reply` waits until they are committed
    (CTL-3).
    """

    reply: ResponseBody
    records: tuple[MetadataRecord, ...] = ()
