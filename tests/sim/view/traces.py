"""Small traces, written by hand as lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

HEADER = '{"format":"replog-trace-1","scenario":"by-hand","seed":3}'


def event(at_us: int, node: str, kind: str, **members: object) -> str:
    """Returns an event's line; a member called `from_` is written `from`."""
    named = {name.rstrip("_"): value for name, value in members.items()}
    return json.dumps({"at": at_us, "node": node, "kind": kind, **named}, separators=(",", ":"))


def request(at_us: int, node: str, source: str, sent_us: int, **body: object) -> str:
    """Returns the line of a fetch that a node handles."""
    message = {"is": "FetchRequest", **body}
    return event(at_us, node, "request", call=1, from_=source, sent=sent_us, on="/Fetch", body=message)


def leads(at_us: int, broker: int, epoch: int, log_end_offset: int = 0) -> str:
    return event(
        at_us, f"broker-{broker}", "replica.became_leader", topic_partition="t-0", leader_epoch=epoch,
        log_end_offset=log_end_offset,
    )  # fmt: skip


def appends(at_us: int, broker: int, epoch: int, first: int, last: int, origin: str = "leader") -> str:
    return event(
        at_us, f"broker-{broker}", "replica.appended", topic_partition="t-0", leader_epoch=epoch,
        first_offset=first, last_offset=last, origin=origin,
    )  # fmt: skip


def write_trace(path: Path, lines: Sequence[str], header: str = HEADER) -> Path:
    path.write_text("".join(f"{line}\n" for line in (header, *lines)), encoding="ascii")
    return path
