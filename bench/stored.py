"""A process that appends and reads with the code that its PYTHONPATH names: `python -P bench/stored.py`.

Each line on its standard input is an order, each answer one line (`bench/children.py`). The times are CPU time.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.storage_data import FIRST_TIMESTAMP, batch_of_records, open_log, scratch

BATCH_BYTES = 1 << 10
BATCHES = 4_000


def measure(root: Path) -> dict[str, float]:
    """Returns the CPU time of a leader's append of 1 KiB, and of a follower's fetch of one batch, in microseconds."""
    directory = root / "stored-0"
    directory.mkdir()
    log, (batch, _) = open_log(directory), batch_of_records(BATCH_BYTES)
    start = time.process_time()
    for _ in range(BATCHES):
        log.append_as_leader(batch, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    append_s = time.process_time() - start
    start = time.process_time()
    for offset in range(0, log.log_end_offset, max(1, log.log_end_offset // BATCHES)):
        log.read(offset, max_size=len(batch))
    read_s = time.process_time() - start
    log.close_handles()
    return {"leader append": 1e6 * append_s / BATCHES, "fetch": 1e6 * read_s / BATCHES}


def main() -> None:
    """Measure once for each line, until the input ends."""
    for _ in sys.stdin:
        with scratch() as root:
            print(json.dumps(measure(root)), flush=True)


if __name__ == "__main__":
    main()
