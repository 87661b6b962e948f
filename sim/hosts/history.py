"""What the clients saw: each send from invocation to its end, each record read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import final


class Outcome(Enum):
    # The send has not ended yet.
    OPEN = "open"
    OK = "ok"
    # The send was refused: the record is in no log.
    FAIL = "fail"
    # Unknown: the record may be there, or appear later.
    INFO = "info"


@dataclass(slots=True, kw_only=True)
class SendOperation:
    """One record sent. `partition` and `offset` are known once it is ok (-1 if the broker did not say the offset)."""

    producer: str
    value: str
    acks: int
    is_idempotent: bool
    invoked_us: int
    outcome: Outcome = Outcome.OPEN
    completed_us: int = -1
    partition: str = ""
    offset: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOperation:
    """One record read. `high_watermark` is the one stated by the answer that brought the record."""

    consumer: str
    partition: str
    offset: int
    value: str
    high_watermark: int
    at_us: int


@final
class History:
    def __init__(self) -> None:
        self.sends: list[SendOperation] = []
        self.reads: list[ReadOperation] = []
        self.ok_count = 0
        # Acknowledged sends by partition.
        self.acknowledged: dict[str, int] = {}

    def finish(
        self,
        operation: SendOperation,
        outcome: Outcome,
        *,
        at_us: int,
        partition: str,
        offset: int,
        error: str,
    ) -> None:
        assert operation.outcome is Outcome.OPEN, f"{operation.value} ended twice"
        operation.outcome, operation.completed_us, operation.error = outcome, at_us, error
        operation.partition, operation.offset = partition, offset
        if outcome is Outcome.OK:
            self.ok_count += 1
            self.acknowledged[partition] = self.acknowledged.get(partition, 0) + 1

    def counts(self) -> dict[str, int]:
        counts = {outcome.value: 0 for outcome in Outcome}
        for operation in self.sends:
            counts[operation.outcome.value] += 1
        return counts
