"""What a run asks of its clients' processes, and what these say: JSON, one object a line.

| line of a client | what it says |
| --- | --- |
| `{"sent": T, "value": V}` | the record with ticket T is about to be sent |
| `{"done": T, "outcome": …, "partition": …, "offset": …, "error": …}` | its outcome, as `Outcome` names it |
| `{"read": P, "records": [[offset, value], …], "next": …, "high_watermark": …}` | records of partition P were read |
| `{"position": P, "offset": …}` | the position in P is another one: at the start, or after a truncation |
| `{"lost": P, "error": …}` | the position in P is lost |
| `{"finished": true}` | nothing is sent any more, and every record has its outcome |

Each has `at`, the microseconds of the machine's monotonic clock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

# The line by which a run asks a producer to send nothing more.
FINISH = b"finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The whole work of one life of a client; a producer has `rate`, a consumer has `positions`."""

    name: str
    topic: str
    # The ports under which this client reaches each broker, by broker id.
    routes: dict[int, int]
    # Draws the pauses between records.
    seed: int = 0
    # A producer's part. The rate is in records a second; `left` are those that it still has to send, -1 for no limit.
    rate: int = 0
    acks: int = -1
    is_idempotent: bool = True
    in_flight: int = 5
    size_bytes: int = 100
    linger_ms: int = 2
    batch_bytes: int = 16_384
    delivery_timeout_ms: int = 8_000
    keys: int = 0
    first_ticket: int = 1
    left: int = -1
    # The records without an outcome at which it sends no new ones; -1 for no limit.
    unanswered: int = -1
    # A consumer's part: the offset to begin at, by partition number; -1 for the start of its log.
    positions: dict[int, int] | None = None

    def text(self) -> str:
        """Returns the order as `parse_order` reads it."""
        return json.dumps(asdict(self))


def parse_order(text: str) -> Order:
    """Returns the order of this text. Raises TypeError or ValueError for any other text."""
    given: dict[str, Any] = json.loads(text)
    given["routes"] = {int(broker): port for broker, port in given["routes"].items()}
    if given["positions"] is not None:
        given["positions"] = {int(partition): offset for partition, offset in given["positions"].items()}
    return Order(**given)
