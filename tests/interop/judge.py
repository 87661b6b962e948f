"""Calls of `tools/kafka-judge`: whether Kafka is here, a broker on a data directory, its clients, tools and log."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from replog.cli import main

Json = dict[str, Any]
# By topic and isolation: every record of partition 0, and the consumer's first, end and last position.
Consumed = dict[tuple[str, str], tuple[list[Json], Json]]

UNCOMMITTED, COMMITTED = ISOLATIONS = ("read_uncommitted", "read_committed")

SCRIPT = Path(__file__).parents[2] / "tools" / "kafka-judge"
PATIENCE_SECONDS = 240

# A line in which a broker complains, among all that it logs while it starts.
_COMPLAINT = re.compile(r"^\S+ (WARN|ERROR|FATAL) ")
# Settings and the network of a lone node. None of these lines is about a log.
_OTHER_MATTERS = (
    "(AppInfoParser)",
    "(NetworkClient)",
    "(BrokerRegistrationTracker)",
    "(QuorumState)",
    "(QuorumController)",
    "No meta.properties file",
    "is deprecated",
    "unknown config",
    "(ProducerConfig)",
    "(KafkaConfig)",
)


def absence() -> str | None:
    """Return why Kafka cannot be asked here, or None if it can."""
    answer = subprocess.run([sys.executable, str(SCRIPT), "available"], capture_output=True, text=True)
    return None if answer.returncode == 0 else answer.stdout.strip()


def ask(*arguments: str, text: str = "") -> str:
    """Return the standard output of one run. Raises AssertionError, with the output, if the run fails."""
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert answer.returncode == 0, (arguments[:2], answer.stderr[-3000:], answer.stdout[-500:])
    return answer.stdout


def loads(cases: Iterable[Json]) -> list[Json]:
    """Return what Kafka's log code makes of each case (tools/judge/Loads.java)."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    return [json.loads(line) for line in ask("recover", text=text).splitlines()]


def dumped(paths: Iterable[Path], *, print_data_log: bool = False) -> dict[str, list[str]]:
    """Return what Kafka's dump tool prints on standard output, by file, without the line that names the file."""
    options = ["--print-data-log"] if print_data_log else []
    output = ask(
        "run", "kafka.tools.DumpLogSegments", "--files", ",".join(map(str, paths)), *options
    ).splitlines()
    return by_file(output)


def by_file(output: Iterable[str]) -> dict[str, list[str]]:
    """Split the output of a dump tool by the file that each part is of."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output:
        if line.startswith("Dumping "):
            found[line.removeprefix("Dumping ")] = lines = []
        else:
            lines.append(line)
    return found


def dumped_here(paths: Iterable[Path], *, print_data_log: bool = False) -> dict[str, list[str]]:
    """Return what `replog dump` prints, in the same form."""
    options = ["--print-data-log"] if print_data_log else []
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(["dump", "--files", ",".join(map(str, paths)), *options])
    out.flush()
    return by_file(out.buffer.getvalue().decode().splitlines())


@final
class Broker:
    """One running node of Kafka, with its logs under `directory`."""

    def __init__(self, data: Path, settings: tuple[str, ...]) -> None:
        self._data = data
        self.address = ask("start", str(data), "1", *settings).strip()

    def clients(self, verb: str, *requests: Json) -> list[Json]:
        text = "".join(json.dumps(request) + "\n" for request in requests)
        lines = ask("run", "Clients", self.address, verb, text=text).splitlines()
        return [json.loads(line) for line in lines]

    def consume(self, topics: Iterable[str]) -> Consumed:
        """Read the topics under both isolations. Returns records and positions."""
        names = list(topics)
        lines = self.clients("consume", *({"names": names, "isolation": each} for each in ISOLATIONS))
        found: Consumed = {}
        records: list[Json] = []
        for line in lines:
            if "name" in line:
                found[line["name"], line["isolation"]] = (records, line)
                records = []
            else:
                records.append(line)
        return found

    def stop(self, *, is_killed: bool = False) -> None:
        ask("stop", str(self._data), *(["--kill"] if is_killed else []))

    @property
    def log(self) -> str:
        return (self._data / "1.log").read_text()

    def complaints(self) -> list[str]:
        """Return the warnings and errors of this life that may concern what it found on the disk."""
        return [
            line
            for line in self.log.splitlines()
            if _COMPLAINT.match(line) and not any(other in line for other in _OTHER_MATTERS)
        ]


def log_directory(data: Path) -> Path:
    return data / "1"


@contextmanager
def broker(data: Path, *settings: str) -> Iterator[Broker]:
    """Run a broker. It is stopped in order at the end, and killed if the test fails."""
    running = Broker(data, settings)
    try:
        yield running
    except BaseException:
        running.stop(is_killed=True)
        raise
    running.stop()
