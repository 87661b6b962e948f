"""New damage on directories that both sides wrote: both recover and truncate, then state and bytes are compared.

    python -m tests.interop.differential --seed S --cases N [--kinds A,B] [--keep CASES.jsonl]

Every case follows from the seed alone. `--keep` writes those that differ in the form of `golden/recovery.jsonl`, to be
done again by `python -m tests.golden.recovery_cases ROOT CASES.jsonl` with the root that `--root` keeps. Exit status 1
if any differs.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog
from tests.golden.comparing import Json, scratch
from tests.golden.recovery_cases import Judge, Options, apply_damage
from tests.interop import judge
from tests.interop.damage import KINDS, Kind, Operation, Patient
from tests.interop.shapes import SHAPES, START_MS, write_shape

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.1"
NOW_MS = 1_700_000_200_000
# Cases in one run of the Java virtual machine.
CASES_A_RUN = 250
WOUNDS = (1, 1, 1, 2, 2, 3)
LOG_STARTS = {"log-start-moved-0": 17, "ours-moved-start-0": 17}


def make_root(root: Path) -> dict[str, dict[str, str]]:
    """Make `killed/` and `clean/` of both sides under `root`. Returns the properties of each source."""
    properties: dict[str, dict[str, str]] = {}
    known = _golden_properties()
    for state in ("killed", "clean"):
        for source in sorted((GOLDEN / state).glob("*-0")):
            if source.name not in known:
                continue
            shutil.copytree(source, root / state / source.name)
            properties[f"{state}/{source.name}"] = known[source.name]
        for shape in SHAPES:
            path = root / state / f"{shape.name}-0"
            path.mkdir(parents=True)
            log = PartitionLog.open(OsFileSystem(), str(path), shape.config, clean=True, now_ms=START_MS)
            write_shape(shape, log)
            log.flushes.flush()
            if state == "clean":
                log.close()
            else:
                log.close_handles()
            properties[f"{state}/{shape.name}-0"] = shape.properties
    return properties


def _golden_properties() -> dict[str, dict[str, str]]:
    with (GOLDEN.parent / "recovery.jsonl").open(encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    return {case["source"].split("/")[1]: case["config"] for case in cases}


def draw_case(
    seed: int,
    number: int,
    root: Path,
    properties: dict[str, dict[str, str]],
    kinds: tuple[Kind, ...],
    work: Path,
) -> Json:
    """Draw a case and make its damaged copy at `dir`. Each wound is drawn after the one before was applied."""
    draw = Random(f"{seed}/{number}")
    while True:
        source = draw.choice(sorted(properties))
        directory = work / str(number) / source.split("/")[1]
        shutil.copytree(root / source, directory)
        damage = _wound(directory, draw, kinds)
        if damage is not None:
            break
        shutil.rmtree(directory)
    bases = [int(path.name[:20]) for path in sorted((root / source).glob("*.log"))]
    end = Patient(root / source).end_offset()
    offsets = [0, end, end + 1, draw.choice(bases), draw.randrange(end + 1), draw.randrange(end + 1)]
    then = [
        ["truncate" if draw.random() < 0.9 else "truncate_fully", draw.choice(offsets)]
        for _ in range(draw.choice([0, 1, 1, 2]))
    ]
    log_start = LOG_STARTS.get(directory.name, draw.randrange(end + 1) if draw.random() < 0.1 else 0)
    return {
        "id": f"differential-{seed}-{number:05d}",
        "source": source,
        "damage": damage,
        "config": properties[source],
        "recovery_point": draw.choice([0, 0, 0, *offsets]),
        "log_start_offset": log_start,
        "clean": draw.random() < 0.2,
        "now_ms": NOW_MS,
        "then": then,
        "dir": str(directory),
    }


def _wound(directory: Path, draw: Random, kinds: tuple[Kind, ...]) -> list[Operation] | None:
    damage: list[Operation] = []
    for _ in range(draw.choice(WOUNDS)):
        patient = Patient(directory)
        if not patient.names(".log"):
            return damage
        wound = draw.choice(kinds)(patient, draw)
        if wound is None:
            return None
        for operation in wound:
            apply_damage(directory, operation)
        damage += wound
    return damage


def judged_cases(cases: list[Json]) -> Iterator[Json]:
    """Yield each case with what Kafka made of its damaged copy."""
    for case, answer in zip(cases, judge.loads(cases), strict=True):
        assert answer.pop("id") == case["id"]
        shutil.rmtree(Path(case.pop("dir")).parent, ignore_errors=True)
        yield {**case, "kafka": answer}


def run(seed: int, count: int, kinds: tuple[Kind, ...], root: Path, keep: Path | None) -> int:
    """Return the number of cases that differ, or that end here in neither a healed log nor one clear error."""
    properties = make_root(root)
    with tempfile.TemporaryDirectory(prefix="differential-", dir=scratch()) as work:
        told: list[str] = []
        healed = 0
        referee = Judge(root, Path(work), Options(), write=told.append)
        differing: list[Json] = []
        for first in range(0, count, CASES_A_RUN):
            numbers = range(first, min(first + CASES_A_RUN, count))
            drawn = [draw_case(seed, number, root, properties, kinds, Path(work)) for number in numbers]
            for case in judged_cases(drawn):
                told.clear()
                referee.judge(case)
                if told and has_index_of_zeros(case):
                    referee.differing -= 1
                    healed += 1
                elif told:
                    differing.append(case)
                    print(*told[:3], sep="\n", flush=True)
    if keep is not None:
        keep.write_text("".join(json.dumps(case) + "\n" for case in differing))
    print(f"{referee.summary}, {healed} where Kafka keeps an index of zeros")
    return len(differing)


def has_index_of_zeros(case: Json) -> bool:
    """Whether the case has a `.log.swap` without its offset index, which Kafka fills with zeros.

    Kafka asks the segment for its end, which makes a new index under the `.swap` name, renames it, and takes its
    zeros for
    entries. Here the index is missing, and is made from the log.
    """
    if not any(str(name).endswith(".log.swap") for operation in case["damage"] for name in operation):
        return False
    indexes = [segment["offset_index"] for segment in case["kafka"].get("loaded", {}).get("segments", [])]
    return any(len(index) > 1 and index[0] == index[1] == index[-1] for index in indexes)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.interop.differential", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--kinds", default="", help="names of tests/interop/damage.py, comma separated")
    parser.add_argument("--keep", type=Path, help="write the cases that differ there")
    parser.add_argument("--root", type=Path, help="keep the undamaged directories there")
    given = parser.parse_args(arguments)
    if reason := judge.absence():
        parser.exit(2, f"error: {reason}\n")
    # Each case cuts and warns. The cases are the report.
    logging.disable(logging.CRITICAL)
    names = {kind.__name__: kind for kind in KINDS}
    if unknown := {name for name in given.kinds.split(",") if name} - names.keys():
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    kinds = tuple(names[name] for name in given.kinds.split(",") if name) or KINDS
    with tempfile.TemporaryDirectory(prefix="differential-root-", dir=scratch()) as temporary:
        root = given.root or Path(temporary) / "root"
        return 1 if run(given.seed, given.cases, kinds, root, given.keep) else 0


if __name__ == "__main__":
    sys.exit(main())
