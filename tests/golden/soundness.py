"""The sound part of a damaged partition directory, and whether a start has kept it.

    python -m tests.golden.soundness ROOT CASES.jsonl [--all]

Each case of CASES (see `recovery_cases`) that Kafka could not load must either heal to the longest sound prefix of its
log, or be refused in one line that names a file of the directory, with every `.log` byte as it was. `--all` tries the
ones that Kafka loaded, too; there a start may remove more, because Kafka empties a log whose start offset is beyond
its end. Prints `N cases, M healed, K refused, X lose something sound` at the end; exit status 1 if X is not 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import StorageError
from tests.golden.comparing import scratch
from tests.golden.recovery_cases import framed_batches, load, prepare

Json = dict[str, Any]
INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundPrefix:
    """The bytes of the sound batches from the start of the log up to the first damage; `end_offset` is exclusive."""

    content: bytes
    end_offset: int


def sound_batches(content: bytes, base_offset: int, next_offset: int) -> tuple[int, int]:
    """Return (bytes, next offset) of the sound batches at the front of a segment's `content`.

    A sound batch is whole, has the right checksum, continues at or after `next_offset`, and fits the segment.
    """
    end = 0
    for batch in framed_batches(content):
        try:
            last_offset = batch.last_offset
            is_sound = batch.is_valid()
        except StorageError:
            break
        if not is_sound or last_offset < next_offset or not 0 <= last_offset - base_offset <= INT_MAX:
            break
        end, next_offset = batch.position + batch.size_bytes, last_offset + 1
    return end, next_offset


def sound_prefix(directory: Path) -> SoundPrefix:
    """Return the sound prefix of all segments. The first segment with damage is the last one counted."""
    found, next_offset = b"", 0
    for path in sorted(directory.glob("*.log")):
        base_offset = int(path.stem)
        if base_offset < next_offset:
            break
        content = path.read_bytes()
        size, next_offset = sound_batches(content, base_offset, base_offset)
        found += content[:size]
        if size < len(content):
            break
    return SoundPrefix(content=found, end_offset=next_offset)


def log_content(directory: Path) -> dict[str, bytes]:
    """Return the bytes of the live segments and the `.swap` ones. A `.cleaned` one is unfinished and is deleted."""
    paths = sorted(directory.iterdir())
    logs = [path for path in paths if path.name.endswith((".log", ".log.swap"))]
    return {path.name.removesuffix(".swap"): path.read_bytes() for path in logs}


def judge(case: Json, directory: Path) -> tuple[str, str]:
    """Return `healed`, `refused` or `LOST`, and the reason."""
    before, prefix = log_content(directory), sound_prefix(directory)
    try:
        log = load(case, directory)
    except StorageError as error:
        return _judge_refusal(directory, before, str(error))
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    log.close_handles()
    after = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    if prefix.end_offset <= start_offset:
        return "healed", f"all {len(prefix.content)} sound bytes lie below the log start {start_offset}"
    if not after.startswith(prefix.content):
        return "LOST", f"{len(after)} bytes left do not begin with the {len(prefix.content)} sound ones"
    if end_offset < prefix.end_offset:
        return "LOST", f"the log ends at {end_offset}, its sound batches at {prefix.end_offset}"
    return "healed", f"{len(prefix.content)} sound bytes, {len(after)} kept, end {end_offset}"


def _judge_refusal(directory: Path, before: dict[str, bytes], message: str) -> tuple[str, str]:
    if log_content(directory) != before:
        return "LOST", f"refused, but a .log changed: {message}"
    names_file = any(f"/{path.name}" in message for path in directory.iterdir())
    if "\n" in message or not names_file:
        return "LOST", f"refused in an unclear way: {message!r}"
    return "refused", message


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.soundness")
    parser.add_argument("root", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    counts = {"healed": 0, "refused": 0, "LOST": 0}
    with tempfile.TemporaryDirectory(prefix="soundness-", dir=scratch()) as work:
        for line in options.cases.read_text().splitlines():
            case = json.loads(line)
            if "error" not in case["kafka"] and not options.all:
                continue
            verdict, told = judge(case, prepare(case, options.root, Path(work)))
            counts[verdict] += 1
            kafka = case["kafka"].get("error", "loaded")
            print(f"{case['id']} {case['source']} Kafka {kafka}: {verdict}: {told.replace(work, '')}")
    print(
        f"{sum(counts.values())} cases, {counts['healed']} healed, {counts['refused']} refused, "
        f"{counts['LOST']} lose something sound"
    )
    return 1 if counts["LOST"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
